"""Figures from spans. Pure functions; spans in any order; times in ns, the host's clock.

Time is never counted twice: where spans overlap, the union of their intervals is meant. A step's
time is divided between computing, copying, waiting and planning in that order, and what none of
them covers is named `rest`, so that the parts always add up to the wall time. The steps of a
pipeline overlap; together they take the union of their times.

What was recorded in pieces (runs of experts of one copy, a split that a callback interrupts) is
one thing in each step: its pieces are added before anything is counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from engine.trace.lanes import merged
from engine.trace.records import SpanKind, Spans, StepKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    Ints = npt.NDArray[np.int64]
    Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class LaneTime:
    """Time of one lane: `union_ns` counts all of it, `exclusive_ns` what no lane before covers."""

    lane: int
    union_ns: int
    exclusive_ns: int


@dataclass(frozen=True, slots=True)
class Parts:
    """Disjoint parts of a wall time.

    Where they overlap, computing counts before copying, copying before waiting, waiting before
    planning.
    """

    compute_ns: int = 0
    copy_ns: int = 0
    wait_ns: int = 0
    plan_ns: int = 0
    rest_ns: int = 0

    @property
    def wall_ns(self) -> int:
        """The sum."""
        return self.compute_ns + self.copy_ns + self.wait_ns + self.plan_ns + self.rest_ns


@dataclass(frozen=True, slots=True)
class StepSummary:
    """Where the time of a step went, or of several of one kind together.

    `lanes` has the computing of each lane that computed, by lane; their `exclusive_ns` add up to
    `parts.compute_ns`. `copy_ns` and `wait_ns` are unions and may overlap with computing.
    """

    steps: tuple[int, ...]
    kind: StepKind
    n_tokens: int
    start_ns: int
    end_ns: int
    lanes: tuple[LaneTime, ...]
    copy_ns: int
    wait_ns: int
    copied_bytes: int
    parts: Parts

    @property
    def wall_ns(self) -> int:
        """From inputs set to logits read; the union of the steps' times."""
        return self.parts.wall_ns


@dataclass(frozen=True, slots=True)
class Statistics:
    """Durations in ns; percentiles are interpolated linearly."""

    n: int
    p50_ns: float
    p95_ns: float
    min_ns: int
    max_ns: int
    sum_ns: int


class StepSums(NamedTuple):
    """Columns with a row for each thing of a plan in each step, by plan_id, id and step."""

    plan_id: Ints
    item_id: Ints
    step: Ints
    duration_ns: Ints
    n_bytes: Ints


def step_sums(spans: Spans) -> StepSums:
    """Spans of one kind with the pieces of each thing in each step added."""
    order = np.lexsort((spans["step"], spans["index"], spans["plan_id"]))
    columns = [spans[name][order] for name in ("plan_id", "index", "step")]
    begins = np.flatnonzero(_changes(*columns))
    plan_id, item_id, step = (column[begins] for column in columns)
    duration_ns, n_bytes = _durations(spans)[order], spans["bytes"][order]
    if len(begins) < len(spans):
        duration_ns = np.add.reduceat(duration_ns, begins)
        n_bytes = np.add.reduceat(n_bytes, begins)
    return StepSums(plan_id, item_id, step, duration_ns, n_bytes)


def union_ns(start_ns: Ints, end_ns: Ints) -> int:
    """The length of the union of intervals; an end before its start counts as empty."""
    return merged(start_ns, end_ns).total_ns


def steps_summary(spans: Spans, steps: Sequence[int]) -> StepSummary | None:
    """Where the time of steps of one kind went, together; those without a STEP span are left out.

    Spans count with the part that lies between their step's start and end. None without steps.
    """
    mine = spans[np.isin(spans["step"], steps)]
    frames = mine[mine["kind"] == SpanKind.STEP]
    if not len(frames):
        return None
    frames = frames[np.argsort(frames["step"], kind="stable")]
    inside = _within(mine[np.isin(mine["step"], frames["step"])], frames)
    copies = inside[inside["kind"] == SpanKind.COPY]
    return StepSummary(
        steps=tuple(frames["step"].tolist()),
        kind=StepKind(int(frames["peer"][0])),
        n_tokens=int(frames["bytes"].sum()),
        start_ns=int(frames["start_ns"].min()),
        end_ns=int(frames["end_ns"].max()),
        lanes=_lane_times(inside[inside["kind"] == SpanKind.SPLIT]),
        copy_ns=_union_of(copies),
        wait_ns=_union_of(inside[inside["kind"] == SpanKind.WAIT]),
        copied_bytes=int(np.sum(copies["bytes"])),
        parts=_parts(inside, _union_of(frames)),
    )


def steps_of_kind(spans: Spans, kind: StepKind) -> list[int]:
    """The finished steps of one kind, ascending."""
    frames = spans[(spans["kind"] == SpanKind.STEP) & (spans["peer"] == kind)]
    steps: list[int] = np.unique(frames["step"]).tolist()
    return steps


def statistics(spans: Spans) -> Statistics | None:
    """Statistics of durations of one kind; None without spans, since 0 would look measured."""
    if not len(spans):
        return None
    durations = np.sort(step_sums(spans).duration_ns)
    return _grouped_statistics(durations, np.zeros(1, np.int64))[0]


def statistics_by_id(spans: Spans, kind: SpanKind) -> dict[tuple[int, int], Statistics]:
    """Statistics over steps of each (plan_id, index) of one kind, in that order."""
    mine = spans[spans["kind"] == kind]
    if not len(mine):
        return {}
    sums = step_sums(mine)
    order = np.lexsort((sums.duration_ns, sums.item_id, sums.plan_id))
    plan_id, index = sums.plan_id[order], sums.item_id[order]
    begins = np.flatnonzero(_changes(plan_id, index))
    keys = zip(plan_id[begins].tolist(), index[begins].tolist(), strict=True)
    return dict(zip(keys, _grouped_statistics(sums.duration_ns[order], begins), strict=True))


def _changes(*columns: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.bool_]:
    """Where a row differs from the one before; the first does."""
    changes = np.ones(len(columns[0]), np.bool_)
    if len(changes):
        changes[1:] = np.logical_or.reduce([column[1:] != column[:-1] for column in columns])
    return changes


def _grouped_statistics(durations: Ints, begins: Ints) -> list[Statistics]:
    """Statistics of each group; `durations` ascend inside a group, none is empty."""
    counts = np.diff(begins, append=len(durations))
    columns = (
        counts,
        _percentiles(durations, begins, counts, 0.50),
        _percentiles(durations, begins, counts, 0.95),
        durations[begins],
        durations[begins + counts - 1],
        np.add.reduceat(durations, begins),
    )
    return [Statistics(*row) for row in zip(*(c.tolist() for c in columns), strict=True)]


def _percentiles(durations: Ints, begins: Ints, counts: Ints, q: float) -> Floats:
    place = q * (counts - 1)
    below = np.floor(place).astype(np.int64)
    above = np.minimum(below + 1, counts - 1)
    low, high = durations[begins + below], durations[begins + above]
    values: Floats = low + (place - below) * (high - low)
    return values


def _durations(spans: Spans) -> Ints:
    durations: Ints = spans["end_ns"] - spans["start_ns"]
    return durations


def _within(spans: Spans, frames: Spans) -> Spans:
    """A copy of the spans, each cut to the time of its step; frames by step, one for each."""
    frame = frames[np.searchsorted(frames["step"], spans["step"])]
    cut = spans.copy()
    for name in ("start_ns", "end_ns"):
        cut[name] = np.clip(spans[name], frame["start_ns"], frame["end_ns"])
    return cut


def _union_of(spans: Spans) -> int:
    return union_ns(spans["start_ns"], spans["end_ns"])


def _lane_times(splits: Spans) -> tuple[LaneTime, ...]:
    times, covered_ns = [], 0
    for lane in np.unique(splits["lane"]):
        reach_ns = _union_of(splits[splits["lane"] <= lane])
        own_ns = _union_of(splits[splits["lane"] == lane])
        times.append(LaneTime(int(lane), own_ns, reach_ns - covered_ns))
        covered_ns = reach_ns
    return tuple(times)


def _parts(spans: Spans, wall_ns: int) -> Parts:
    """Each kind counts with what the kinds before it leave uncovered."""
    order = (SpanKind.SPLIT, SpanKind.COPY, SpanKind.WAIT, SpanKind.PLAN)
    reaches = [_union_of(spans[np.isin(spans["kind"], order[: i + 1])]) for i in range(len(order))]
    compute_ns, with_copies_ns, with_waits_ns, all_ns = reaches
    return Parts(
        compute_ns=compute_ns,
        copy_ns=with_copies_ns - compute_ns,
        wait_ns=with_waits_ns - with_copies_ns,
        plan_ns=all_ns - with_waits_ns,
        rest_ns=wall_ns - all_ns,
    )
