"""TraceStore: spans by lane, each lane with its pyramid, grown as chunks arrive.

A lane is a list of pyramids of at most SEALED_SPANS spans: only the last one grows, so what an
update costs does not depend on how much was recorded before.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from engine.trace.pyramid import LanePyramid, Visible, appended, lane_pyramid, visible
from engine.trace.records import HOST_LANE, NO_LANE, SPAN_DTYPE, SpanKind, Spans
from engine.trace.snapshot import start_order

if TYPE_CHECKING:
    import numpy.typing as npt

    from engine.trace.snapshot import TraceSnapshot

    Ints = npt.NDArray[np.int64]

SEALED_SPANS = 32_768
_FIRST_ROWS = 4_096


class LaneKind(enum.IntEnum):
    """What a lane shows."""

    SPLITS = SpanKind.SPLIT
    COPIES = SpanKind.COPY
    """A link: copies, and what shares hand over within a split."""
    WAITS = SpanKind.WAIT
    STEPS = SpanKind.STEP
    """Steps that overlap, in as many rows as are under way at once."""
    SHARES = SpanKind.SHARD
    PATH = 100
    """The critical path of a step; no spans of its own."""


_LANE_KINDS = {
    SpanKind.SPLIT: LaneKind.SPLITS,
    SpanKind.COPY: LaneKind.COPIES,
    SpanKind.EXCHANGE: LaneKind.COPIES,
    SpanKind.WAIT: LaneKind.WAITS,
    SpanKind.SHARD: LaneKind.SHARES,
}


class LaneKey(NamedTuple):
    """A lane: what, and of which device (as `lane` of its spans).

    `peer` of a link is the device that it comes from, of steps their row; else NO_LANE.
    """

    kind: LaneKind
    lane: int
    peer: int = NO_LANE


def key_of(span: np.void) -> LaneKey | None:
    """The lane of a span; None for one that has none, such as a step."""
    kind = _LANE_KINDS.get(SpanKind(int(span["kind"])))
    if kind is None:
        return None
    peer = int(span["peer"]) if kind is LaneKind.COPIES else NO_LANE
    return LaneKey(kind, int(span["lane"]), peer)


class Lane:
    """Spans of one lane as pyramids; `index` of a span is its row in the store."""

    def __init__(self) -> None:
        self.pyramids: list[LanePyramid] = []

    def append(self, start_ns: Ints, end_ns: Ints, rows: Ints) -> None:
        """Add spans; those of a call may be in any order."""
        while len(rows):
            if not self.pyramids or self.pyramids[-1].n_spans >= SEALED_SPANS:
                self.pyramids.append(lane_pyramid(*_EMPTY))
            last = self.pyramids[-1]
            room = SEALED_SPANS - last.n_spans
            self.pyramids[-1] = appended(last, start_ns[:room], end_ns[:room], rows[:room])
            start_ns, end_ns, rows = start_ns[room:], end_ns[room:], rows[room:]

    def visible(self, t0_ns: float, t1_ns: float, n_pixels: int) -> Visible:
        """What to draw between two moments."""
        parts = [
            visible(pyramid, t0_ns, t1_ns, n_pixels) for pyramid in self._touched(t0_ns, t1_ns)
        ]
        if len(parts) == 1:
            return parts[0]
        parts = parts or [visible(lane_pyramid(*_EMPTY), t0_ns, t1_ns, n_pixels)]
        return Visible(
            x0=np.concatenate([part.x0 for part in parts]),
            x1=np.concatenate([part.x1 for part in parts]),
            first_index=np.concatenate([part.first_index for part in parts]),
            n_merged=np.concatenate([part.n_merged for part in parts]),
            busy=np.concatenate([part.busy for part in parts]),
        )

    def rows(self) -> Ints:
        """Rows of all spans, in lane order."""
        parts = [np.zeros(0, np.int64), *(pyramid.index for pyramid in self.pyramids)]
        return np.concatenate(parts)

    def _touched(self, t0_ns: float, t1_ns: float) -> list[LanePyramid]:
        return [
            pyramid
            for pyramid in self.pyramids
            if pyramid.levels[-1].start_ns[0] <= t1_ns and pyramid.levels[-1].end_ns[0] >= t0_ns
        ]


class TraceStore:
    """All spans but those of single nodes. `version` moves with every change."""

    def __init__(self) -> None:
        self.version = 0
        self._epoch = -1
        self._clear()

    def _clear(self) -> None:
        self.lanes: dict[LaneKey, Lane] = {}
        self.begin_ns = 0
        self.end_ns = 0
        self._rows = np.zeros(_FIRST_ROWS, SPAN_DTYPE)
        self._n_rows = 0
        self._n_read = 0
        self._steps = np.zeros(0, SPAN_DTYPE)
        self._step_rows = np.zeros(0, np.int64)
        self.n_step_rows = 1
        """The most steps that were under way at once."""

    @property
    def spans(self) -> Spans:
        """The stored spans by row."""
        rows = self._rows[: self._n_rows]
        rows.flags.writeable = False
        return rows

    @property
    def is_empty(self) -> bool:
        """Whether nothing was recorded."""
        return self._n_rows == 0

    def steps(self) -> Spans:
        """The spans of whole steps, by start."""
        return self._steps

    def key_at(self, row: int) -> LaneKey | None:
        """The lane of a stored span; None for one that has none."""
        if self._rows[row]["kind"] != SpanKind.STEP:
            return key_of(self._rows[row])
        steps = (key for key in self.lanes if key.kind is LaneKind.STEPS)
        return next((key for key in steps if row in self.lanes[key].rows()), None)

    def update(self, trace: TraceSnapshot | None) -> bool:
        """Take over what is new in `trace`; says whether anything was."""
        if trace is None or trace.epoch != self._epoch or trace.n_spans < self._n_read:
            had = not self.is_empty
            self._clear()
            self._epoch = -1 if trace is None else trace.epoch
            self.version += had
            if trace is None:
                return had
        found = [self._add(part) for part in _parts_after(trace, self._n_read)]
        self._n_read = trace.n_spans
        self.version += any(found)
        return any(found)

    def _add(self, part: Spans) -> bool:
        part = part[part["kind"] != SpanKind.NODE]
        if not len(part):
            return False
        first = self._n_rows
        self._reserve(first + len(part))
        self._rows[first : first + len(part)] = part
        self._n_rows = first + len(part)
        begin, end = int(part["start_ns"].min()), int(part["end_ns"].max())
        self.begin_ns = min(self.begin_ns, begin) if first else begin
        self.end_ns = max(self.end_ns, end) if first else end
        self._add_to_lanes(part, first)
        self._add_steps(part, first)
        return True

    def _add_to_lanes(self, part: Spans, first: int) -> None:
        columns = [part[name].astype(np.int64) for name in ("kind", "lane", "peer")]
        codes = columns[0] * 65_536 + columns[1] * 256 + columns[2]
        found: dict[LaneKey, list[int]] = {}
        for code, place in zip(*np.unique(codes, return_index=True), strict=True):
            key = key_of(part[int(place)])
            if key is not None:
                found.setdefault(key, []).append(int(code))
        for key, of_key in found.items():
            mine = np.flatnonzero(np.isin(codes, of_key))
            spans = part[mine]
            lane = self.lanes.setdefault(key, Lane())
            lane.append(spans["start_ns"].copy(), spans["end_ns"].copy(), mine + first)

    def _add_steps(self, part: Spans, first: int) -> None:
        mine = np.flatnonzero(part["kind"] == SpanKind.STEP)
        if not len(mine):
            return
        steps = np.concatenate((self._steps, part[mine]))
        order = start_order(steps["start_ns"], steps["end_ns"])
        self._steps = steps[order]
        self._step_rows = np.concatenate((self._step_rows, mine + first))[order]
        rows = stacked(self._steps["start_ns"], self._steps["end_ns"])
        self.n_step_rows = int(rows.max()) + 1
        for row in range(self.n_step_rows if self.n_step_rows > 1 else 0):
            of_row = rows == row
            lane = self.lanes[LaneKey(LaneKind.STEPS, HOST_LANE, row)] = Lane()
            lane.append(
                self._steps["start_ns"][of_row].copy(),
                self._steps["end_ns"][of_row].copy(),
                self._step_rows[of_row],
            )

    def _reserve(self, n_rows: int) -> None:
        if n_rows > len(self._rows):
            grown = np.zeros(max(2 * len(self._rows), n_rows), SPAN_DTYPE)
            grown[: self._n_rows] = self._rows[: self._n_rows]
            self._rows = grown


_EMPTY = (np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int64))


def _parts_after(trace: TraceSnapshot, n_known: int) -> list[Spans]:
    """The spans after the first `n_known`, chunk by chunk."""
    parts = []
    for chunk in trace.chunks:
        if n_known < len(chunk):
            parts.append(chunk[n_known:])
        n_known = max(n_known - len(chunk), 0)
    return parts


def stacked(start_ns: Ints, end_ns: Ints) -> Ints:
    """The row of each interval, by start, so that none overlaps another in its row.

    What overlaps nothing before it begins again in row 0; the others take turns among as many rows
    as are needed at once.
    """
    n = len(start_ns)
    if not n:
        return np.zeros(0, np.int64)
    reach = np.maximum.accumulate(end_ns)
    begins = np.concatenate(([True], start_ns[1:] >= reach[:-1]))
    n_ended = np.searchsorted(reach, start_ns, side="right")
    depth = int((np.arange(n) - n_ended).max()) + 1
    group_start = np.maximum.accumulate(np.where(begins, np.arange(n), 0))
    rows: Ints = (np.arange(n) - group_start) % max(depth, 1)
    return rows
