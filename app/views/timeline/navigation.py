"""The rows of a selection, the next slice of a lane, and the flow between slices. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from app.models.plan_words import copies_of
from engine.trace.records import SpanKind

if TYPE_CHECKING:
    import numpy.typing as npt

    from app.views.timeline.store import Lane
    from engine.core.table import PlanTable
    from engine.trace.records import Spans

    Ints = npt.NDArray[np.int64]


def rows_of(
    spans: Spans, kind: SpanKind, plan_id: int, ids: Ints | list[int], step: int = -1
) -> Ints:
    """Rows of some splits or copies of a plan, in one step or (-1) in all."""
    if step >= 0:
        in_step: Ints = np.flatnonzero(spans["step"] == step)
        return in_step[rows_of(spans[in_step], kind, plan_id, ids)]
    mine = (spans["kind"] == kind) & (spans["plan_id"] == plan_id) & np.isin(spans["index"], ids)
    rows: Ints = np.flatnonzero(mine)
    return rows


def next_row(lane: Lane, row: int, by: int) -> int:
    """The slice `by` places along the lane; stays at the ends."""
    rows = lane.rows()
    place = np.flatnonzero(rows == row)
    if not len(place):
        return row
    return int(rows[min(max(int(place[0]) + by, 0), len(rows) - 1)])


def upstream(spans: Spans, plan: PlanTable, row: int) -> int:
    """Where a slice's input comes from: split -> its last copy, copy -> the split that made it.

    Gives back the row itself where the flow begins.
    """
    span = spans[row]
    step, index = int(span["step"]), int(span["index"])
    if span["kind"] == SpanKind.SPLIT:
        found = rows_of(spans, SpanKind.COPY, plan.plan_id, list(copies_of(plan, index)), step)
        return int(found[-1]) if len(found) else row
    node_id = int(_made_by(plan)[index])
    if not 0 <= node_id < plan.n_nodes:
        return row
    source = [int(plan.split[node_id])]
    found = rows_of(spans, SpanKind.SPLIT, plan.plan_id, source, step)
    return int(found[-1]) if len(found) else row


def downstream(spans: Spans, plan: PlanTable, row: int) -> int:
    """Where a slice's output goes: copy -> its split, split -> the first copy of its nodes."""
    span = spans[row]
    step, index = int(span["step"]), int(span["index"])
    if span["kind"] == SpanKind.COPY:
        target = [int(plan.copies[index]["split"])]
        found = rows_of(spans, SpanKind.SPLIT, plan.plan_id, target, step)
        return int(found[0]) if len(found) else row
    split = plan.splits[index]
    node_ids = _made_by(plan)
    made = np.flatnonzero((node_ids >= split["start"]) & (node_ids < split["stop"]))
    found = rows_of(spans, SpanKind.COPY, plan.plan_id, made, step)
    return int(found[0]) if len(found) else row


def row_at(spans: Spans, lane: Lane, t_ns: float) -> int:
    """The slice of a lane at a moment, else the nearest one; -1 in an empty lane."""
    rows = lane.rows()
    if not len(rows):
        return -1
    start, end = spans["start_ns"][rows], spans["end_ns"][rows]
    distance = np.maximum(np.maximum(start - t_ns, t_ns - end), 0)
    return int(rows[int(np.argmin(distance))])


def _made_by(plan: PlanTable) -> Ints:
    """The node that computed what each copy copies, behind a view its source; leafs are below 0.

    A view stands in the split of its reader, wherever its bytes were made.
    """
    slots = plan.copies["slot"].astype(np.int64)
    base = plan.view_src[slots]
    behind = np.where(plan.is_view_op[slots] & (base >= 0), base, slots)
    nodes: Ints = behind - plan.n_leafs
    return nodes
