"""What a plan says of the cells: device, split, cuts, copied bytes; and which layers are alike.

Everything is an array over the cells of a GraphShape, made in one pass without Python loops.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from app.views.graph.columns import GraphShape
    from engine.core.table import PlanTable

Ints = npt.NDArray[np.integer[Any]]
Bools = npt.NDArray[np.bool_]

COPY_STEPS = (1, 10 * 1024, 100 * 1024)
"""Bytes from which on a copy's bar is 1.5, 2 and 3 px wide."""


@dataclass(frozen=True, slots=True, eq=False)
class Placed:
    """A plan on the cells. `copied` are the bytes copied in where a cell begins a split.

    `splits` and `copied_of_row` count every split where it starts, also one of views only.
    """

    plan: PlanTable
    device: Ints
    split: Ints
    cut: Bools
    copied: Ints
    splits_of_row: Ints
    copied_of_row: Ints
    same_as_previous: Bools
    """[n_rows] whether a row is drawn like the one before: kind, devices, cuts, bars' widths."""


def placed(plan: PlanTable, shape: GraphShape) -> Placed:
    """The cells of a plan; `shape` must be that of its graph."""
    device = plan.backend[plan.n_leafs + shape.node_id]
    split = plan.split[shape.node_id]
    before = np.concatenate([[-1], split[:-1]])
    cut = split != before
    total = np.concatenate([[0], np.cumsum(plan.splits["bytes"])])
    copied = total[split + 1] - total[before + 1]
    start_row = np.clip(plan.layer[plan.splits["start"]], -1, shape.n_layers) + 1
    return Placed(
        plan=plan,
        device=device,
        split=split,
        cut=cut,
        copied=copied,
        splits_of_row=np.bincount(start_row, minlength=shape.n_rows),
        copied_of_row=np.bincount(
            start_row, weights=plan.splits["bytes"], minlength=shape.n_rows
        ).astype(np.int64),
        same_as_previous=_same_rows(shape, device, cut, copied),
    )


def _same_rows(shape: GraphShape, device: Ints, cut: Bools, copied: Ints) -> Bools:
    facts = np.zeros((shape.n_rows, max(len(shape.columns), 1), 3), np.int64)
    inside = (shape.row > 0) & (shape.row < shape.n_rows - 1)
    rows, columns = shape.row[inside], shape.column[inside]
    facts[rows, columns, 0] = device[inside] + 1
    facts[rows, columns, 1] = cut[inside]
    facts[rows, columns, 2] = np.digitize(copied[inside], COPY_STEPS)
    same = np.zeros(shape.n_rows, bool)
    same[1:] = (facts[1:] == facts[:-1]).all(axis=(1, 2)) & (shape.kind[1:] == shape.kind[:-1])
    same[[0, -1]] = False
    return same


@dataclass(frozen=True, slots=True)
class AlikeRun:
    """Rows [start, stop) that say the same."""

    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start


def alike_runs(same_as_previous: Bools, apart: int = -1) -> tuple[AlikeRun, ...]:
    """Neighbouring layers that are alike; row `apart` (an opened layer) is in no run."""
    runs: list[AlikeRun] = []
    for row in range(1, len(same_as_previous) - 1):
        if row == apart:
            continue
        joins = same_as_previous[row] and runs and runs[-1].stop == row
        if joins:
            runs[-1] = AlikeRun(runs[-1].start, row + 1)
        else:
            runs.append(AlikeRun(row, row + 1))
    return tuple(runs)


@dataclass(frozen=True, slots=True, eq=False)
class Changed:
    """What moved between two plans, over the cells of the second.

    `was_device` is -1 for a node that the first plan does not have. `bar` is -1 where a cut or copy
    is gone, 1 where one is new, 0 elsewhere; `bar_bytes` what is or was copied there. Rows count
    all nodes, views included.
    """

    was_device: Ints
    moved: Bools
    bar: Ints
    bar_bytes: Ints
    moved_of_row: Ints
    splits_of_row: Ints
    copied_of_row: Ints


def changed(was: PlanTable, now: Placed, shape: GraphShape) -> Changed:
    """The difference on the cells of `now`; nodes are matched by name and occurrence."""
    plan = now.plan
    was_id = matching_nodes(was, plan)
    known = was_id >= 0
    names = {device.name: i for i, device in enumerate(plan.devices)}
    translate = np.array([names.get(device.name, len(names) + i)
                          for i, device in enumerate(was.devices)])  # fmt: skip
    was_device = np.where(known, translate[was.backend[was.n_leafs + was_id]], -1)
    backend = plan.backend[plan.n_leafs : plan.n_leafs + plan.n_nodes]
    moved = known & (was_device != backend)
    was_cut, was_bytes = _cuts_on(was, was_id[shape.node_id])
    row = np.clip(plan.layer, -1, shape.n_layers) + 1
    before = _row_totals(was, shape.n_layers)
    return Changed(
        was_device=was_device[shape.node_id],
        moved=moved[shape.node_id],
        bar=now.cut.astype(np.int8) - was_cut,
        bar_bytes=np.maximum(now.copied, was_bytes),
        moved_of_row=np.bincount(row[moved], minlength=shape.n_rows),
        splits_of_row=now.splits_of_row - before[0],
        copied_of_row=now.copied_of_row - before[1],
    )


def matching_nodes(was: PlanTable, now: PlanTable) -> Ints:
    """For each node of `now` its id in `was`, -1 for none."""
    if was.n_nodes == now.n_nodes and was.name.blob == now.name.blob:
        return np.arange(now.n_nodes)
    ids = was.node_ids()
    return np.array([ids.get(now.key(i), -1) for i in range(now.n_nodes)])


def _cuts_on(was: PlanTable, was_id: Ints) -> tuple[Bools, Ints]:
    """Cuts and copied bytes of the first plan, where its nodes stand now."""
    known = was_id >= 0
    split = np.where(known, was.split[was_id], -1)
    before = np.maximum.accumulate(np.concatenate([[-1], split[:-1]]))
    cut = known & (split > before)
    total = np.concatenate([[0], np.cumsum(was.splits["bytes"])])
    copied = np.where(cut, total[split + 1] - total[before + 1], 0)
    return cut, copied


def _row_totals(plan: PlanTable, n_layers: int) -> tuple[Ints, Ints]:
    row = np.clip(plan.layer[plan.splits["start"]], -1, n_layers) + 1
    n_rows = n_layers + 2
    copied = np.bincount(row, weights=plan.splits["bytes"], minlength=n_rows)
    return np.bincount(row, minlength=n_rows), copied.astype(np.int64)
