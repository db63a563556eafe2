"""Which lanes are devices, when each computes, and when several do at once. Pure.

A device computes while a split of its own runs, or its share of a split (SHARD). A split of which
there are shares computes nothing itself: its time is also that of waiting for others. So the lane
of a META device is none.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from engine.trace.records import HOST_LANE, SpanKind, Spans

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    Ints = npt.NDArray[np.int64]
    Bools = npt.NDArray[np.bool_]


class Thing(NamedTuple):
    """What a span measured; as its fields say, see `SPAN_DTYPE`."""

    kind: SpanKind
    lane: int
    plan_id: int
    item_id: int
    step: int

    @property
    def is_launching(self) -> bool:
        """Whether it is the host launching the pieces of a split that devices share."""
        return self.kind is SpanKind.SPLIT and self.lane == HOST_LANE


class Intervals(NamedTuple):
    """Disjoint intervals by start, ns of the host's clock; those that touch are one."""

    start_ns: Ints
    end_ns: Ints

    @property
    def total_ns(self) -> int:
        """The time they cover."""
        return int((self.end_ns - self.start_ns).sum())

    def within(self, start_ns: int, end_ns: int) -> Intervals:
        """The parts between two moments."""
        starts, ends = (np.clip(times, start_ns, end_ns) for times in self)
        return Intervals(starts[starts < ends], ends[starts < ends])


@dataclass(frozen=True, slots=True)
class Overlap:
    """Time in which several devices compute at once.

    `total_ns`: at least two of them. `pairs`: both of two lanes, the lower lane first; pairs that
    never do are left out, and the others' times may overlap.
    """

    total_ns: int = 0
    pairs: Mapping[tuple[int, int], int] = field(default_factory=dict)


def device_lanes(spans: Spans) -> tuple[int, ...]:
    """The lanes of devices that computed, ascending."""
    return tuple(np.unique(computing(spans)["lane"]).tolist())


def computing(spans: Spans) -> Spans:
    """The spans in which devices compute: shares, and splits of which there are none.

    Without those that took no time, of splits in which there is nothing to compute.
    """
    work = spans[np.isin(spans["kind"], (SpanKind.SPLIT, SpanKind.SHARD))]
    is_share = work["kind"] == SpanKind.SHARD
    keys = _split_keys(work)
    computes = is_share | ~np.isin(keys, keys[is_share])
    mine: Spans = work[computes & (work["end_ns"] > work["start_ns"])]
    return mine


def extent(spans: Spans) -> tuple[int, int]:
    """From the earliest start to the latest end, whatever is between; (0, 0) without spans."""
    return (int(spans["start_ns"].min()), int(spans["end_ns"].max())) if len(spans) else (0, 0)


def busy(spans: Spans) -> dict[int, Intervals]:
    """When each device computes, by lane."""
    work = computing(spans)
    return {
        lane: merged(mine["start_ns"], mine["end_ns"])
        for lane in np.unique(work["lane"]).tolist()
        for mine in (work[work["lane"] == lane],)
    }


def merged(start_ns: Ints, end_ns: Ints) -> Intervals:
    """The union of intervals in any order; an end before its start counts as empty."""
    if not len(start_ns):
        return Intervals(np.zeros(0, np.int64), np.zeros(0, np.int64))
    order = np.argsort(start_ns, kind="stable")
    start, end = start_ns[order], np.maximum(start_ns, end_ns)[order]
    reach = np.maximum.accumulate(end)
    first = np.ones(len(start), np.bool_)
    first[1:] = start[1:] > reach[:-1]
    begins = np.flatnonzero(first)
    return Intervals(start[begins], np.append(reach[begins[1:] - 1], reach[-1]))


def overlap(spans: Spans) -> Overlap:
    """How long several devices compute at once."""
    by_lane = busy(spans)
    lanes = sorted(by_lane)
    if len(lanes) < 2:
        return Overlap()
    edges = np.unique(np.concatenate([edge for lane in lanes for edge in by_lane[lane]]))
    length = np.diff(edges)
    covers = {lane: _covers(by_lane[lane], edges) for lane in lanes}
    n_busy = np.sum([covers[lane] for lane in lanes], axis=0)
    pairs = {
        (a, b): int(length[covers[a] & covers[b]].sum())
        for i, a in enumerate(lanes)
        for b in lanes[i + 1 :]
    }
    return Overlap(
        int(length[n_busy >= 2].sum()),
        {pair: time_ns for pair, time_ns in pairs.items() if time_ns},
    )


def _covers(intervals: Intervals, edges: Ints) -> Bools:
    """Which of the pieces between neighbouring edges are covered; edges hold all ends."""
    place = np.searchsorted(intervals.start_ns, edges[:-1], side="right") - 1
    found: Bools = (place >= 0) & (intervals.end_ns[np.maximum(place, 0)] > edges[:-1])
    return found


def _split_keys(spans: Spans) -> Ints:
    """One number for each split of a step; a step has one plan."""
    keys: Ints = spans["step"].astype(np.int64) << 32 | spans["index"]
    return keys
