"""Measured time a layer, summed as spans arrive. A split counts where it starts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from engine.trace.records import SpanKind, Spans

if TYPE_CHECKING:
    from app.views.graph.columns import GraphShape
    from engine.core.table import PlanTable
    from engine.trace.snapshot import TraceSnapshot

Floats = npt.NDArray[np.float64]
NS_PER_MS = 1e6


class SplitTimes:
    """Total time of every split of every plan, and how many steps each plan ran."""

    def __init__(self) -> None:
        self._epoch = -1
        self._n_read = 0
        self._sums: dict[int, Floats] = {}
        self._steps: dict[int, set[int]] = {}

    def read(self, trace: TraceSnapshot | None) -> bool:
        """Add what is new in a snapshot; whether anything was. A cleared trace starts anew."""
        epoch = -1 if trace is None else trace.epoch
        n_spans = 0 if trace is None else trace.n_spans
        if epoch != self._epoch or n_spans < self._n_read:
            self._epoch, self._n_read = epoch, 0
            self._sums, self._steps = {}, {}
        if trace is None or n_spans == self._n_read:
            return False
        skip = self._n_read
        for chunk in trace.chunks:
            if skip < len(chunk):
                self._add(chunk[skip:])
            skip = max(skip - len(chunk), 0)
        self._n_read = n_spans
        return True

    def row_ms(self, plan: PlanTable, shape: GraphShape) -> Floats:
        """Mean ms a step of each row; empty where this plan was not measured."""
        n_steps = len(self._steps.get(plan.plan_id, ()))
        if not n_steps:
            return np.empty(0)
        start_row = np.clip(plan.layer[plan.splits["start"]], -1, shape.n_layers) + 1
        sums = np.zeros(len(plan.splits))
        known = self._sums[plan.plan_id][: len(sums)]
        sums[: len(known)] = known
        total = np.bincount(start_row, weights=sums, minlength=shape.n_rows)
        return np.asarray(total / n_steps / NS_PER_MS, np.float64)

    def _add(self, spans: Spans) -> None:
        splits = spans[spans["kind"] == SpanKind.SPLIT]
        for plan_id in np.unique(splits["plan_id"]).tolist():
            mine = splits[splits["plan_id"] == plan_id]
            self._steps.setdefault(plan_id, set()).update(np.unique(mine["step"]).tolist())
            took = np.bincount(mine["index"], weights=mine["end_ns"] - mine["start_ns"])
            self._sums[plan_id] = _added(self._sums.get(plan_id, np.empty(0)), took)


def _added(one: Floats, other: npt.NDArray[Any]) -> Floats:
    total = np.zeros(max(len(one), len(other)))
    total[: len(one)] += one
    total[: len(other)] += other
    return total
