"""Which span goes on which track, and which flow joins which spans. Pure functions.

    Splitscope        host process: steps, waits, marks
    <lane name> ...   one process a lane, in priority order, members of a META device behind it:
                      splits, shares of splits, nodes, and a track for each link into it

On one track slices never overlap: a span that begins while another is open goes to an extra child
track, "copies from CPU (2)" and so on.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from engine.trace.export.labels import link_words
from engine.trace.links import links
from engine.trace.records import HOST_LANE, SPAN_DTYPE, Mark, SpanKind, Spans
from engine.trace.snapshot import TraceSnapshot, read_only, sorted_by_start

if TYPE_CHECKING:
    import numpy.typing as npt

    from engine.trace.export.meta import TraceMeta

    Ints = npt.NDArray[np.int64]
    Bools = npt.NDArray[np.bool_]
    Group = tuple[str, str, Bools]
    """Name and description of a track, and which spans are on it."""

HOST_PID = 1
_FIRST_LANE_PID = 2
_TRACKS_A_PROCESS = 1_000_000

MARKS_TID = HOST_PID * _TRACKS_A_PROCESS
"""The host's track without slices, for what happened at one moment."""


@dataclass(frozen=True, slots=True, eq=False)
class Track:
    """A row of slices that do not overlap. `rows` index `Layout.spans`, by start.

    `tid` is unique in the trace; `parent` is the tid of the track that overflowed into this one.
    """

    tid: int
    name: str
    description: str
    rows: Ints
    parent: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Process:
    """A device or the host, with its tracks in display order."""

    pid: int
    name: str
    description: str
    tracks: tuple[Track, ...]


@dataclass(frozen=True, slots=True)
class FlowEnds:
    """Flow ids by row of `Layout.spans`: where each begins, goes through and ends."""

    starts: dict[int, list[int]]
    steps: dict[int, list[int]]
    ends: dict[int, list[int]]


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """A trace ready to be written.

    Times of `spans` and `marks` count from `origin_ns`, the earliest time of the trace on the
    host's monotonic clock.
    """

    spans: Spans
    marks: tuple[Mark, ...]
    origin_ns: int
    processes: tuple[Process, ...]
    flows: FlowEnds


def lay_out(meta: TraceMeta, snapshot: TraceSnapshot) -> Layout:
    """The layout of everything in the snapshot."""
    spans, marks, origin_ns = _from_origin(sorted_by_start(snapshot.spans()), snapshot.marks)
    seen = np.unique(spans["lane"][spans["lane"] != HOST_LANE]).tolist()
    lanes = dict.fromkeys([*meta.known_lanes(), *seen])
    return Layout(
        spans=spans,
        marks=marks,
        origin_ns=origin_ns,
        processes=(_host(meta, spans), *(_device(meta, spans, lane) for lane in lanes)),
        flows=_flows(meta, spans),
    )


def slots(start_ns: Ints, end_ns: Ints) -> Ints:
    """The track number of each interval so that none overlap on a track; touching is allowed.

    Takes the lowest track that is free, so as few tracks as possible.
    """
    order = np.lexsort((end_ns, start_ns))
    start, end = start_ns[order], end_ns[order]
    taken = np.zeros(len(order), np.int64)
    if np.any(start[1:] < end[:-1]):
        taken[order] = _lowest_free(start.tolist(), end.tolist())
    return taken


def _lowest_free(start: list[int], end: list[int]) -> list[int]:
    """`slots` of intervals that stand by start."""
    free: list[int] = []
    busy: list[tuple[int, int]] = []
    taken = []
    for begins, ends in zip(start, end, strict=True):
        while busy and busy[0][0] <= begins:
            heapq.heappush(free, heapq.heappop(busy)[1])
        slot = heapq.heappop(free) if free else len(busy)
        heapq.heappush(busy, (ends, slot))
        taken.append(slot)
    return taken


def _from_origin(spans: Spans, marks: tuple[Mark, ...]) -> tuple[Spans, tuple[Mark, ...], int]:
    firsts = [mark.time_ns for mark in marks]
    if len(spans):
        firsts.append(int(spans["start_ns"][0]))
    origin_ns = min(firsts, default=0)
    moved = spans.astype(SPAN_DTYPE, copy=True)
    moved["start_ns"] -= origin_ns
    # A converted device clock can put an end before its start; no format can say that.
    moved["end_ns"] = np.maximum(moved["end_ns"] - origin_ns, moved["start_ns"])
    shifted = tuple(Mark(mark.time_ns - origin_ns, mark.text) for mark in marks)
    return read_only(moved), shifted, origin_ns


def _host(meta: TraceMeta, spans: Spans) -> Process:
    groups = (
        ("steps", "One graph, from its planning to logits read", spans["kind"] == SpanKind.STEP),
        ("waits", "The host waiting for a device", spans["kind"] == SpanKind.WAIT),
        ("planning", "Placing and allocating a new shape", spans["kind"] == SpanKind.PLAN),
    )
    clock = "predicted, a virtual clock" if meta.is_predicted else "host monotonic clock"
    description = f"The thread that runs the graph. Times: {clock}"
    name = _process_name(meta, "Splitscope")
    marks = Track(MARKS_TID, "marks", "What happened when", np.zeros(0, np.int64))
    return Process(HOST_PID, name, description, (marks, *_tracks(HOST_PID, groups, spans)))


def _device(meta: TraceMeta, spans: Spans, lane: int) -> Process:
    here = spans["lane"] == lane
    groups = (
        ("splits", "Parts of the graph computing", here & (spans["kind"] == SpanKind.SPLIT)),
        ("shares", "Shares of splits computing", here & (spans["kind"] == SpanKind.SHARD)),
        ("nodes", "Single operations", here & (spans["kind"] == SpanKind.NODE)),
        *_link_groups(meta, spans, here),
    )
    facts = meta.lane(lane)
    description = ", ".join(part for part in (facts.kind, facts.description) if part)
    pid = _FIRST_LANE_PID + lane
    name = _process_name(meta, facts.name)
    return Process(pid, name, description, _tracks(pid, groups, spans))


def _process_name(meta: TraceMeta, name: str) -> str:
    """The name as a viewer shows it; what is predicted says so wherever one looks."""
    return f"{name} (predicted)" if meta.is_predicted else name


def _link_groups(meta: TraceMeta, spans: Spans, here: Bools) -> list[Group]:
    """What arrives from each other lane: inputs of splits, then what shares hand over."""
    groups = []
    for kind, name, what in (
        (SpanKind.COPY, "copies", "Inputs of splits arriving"),
        (SpanKind.EXCHANGE, "exchanges", "What shares of splits hand over"),
    ):
        mine = here & (spans["kind"] == kind)
        for source in np.unique(spans["peer"][mine]).tolist():
            chosen = mine & (spans["peer"] == source)
            (link,) = links(spans[chosen])
            title = f"{name} from {meta.lane(source).name}"
            groups.append((title, f"{what}: {link_words(link)}", chosen))
    return groups


def _tracks(pid: int, groups: tuple[Group, ...], spans: Spans) -> tuple[Track, ...]:
    """Tracks that have slices; a process's first tid is left for marks."""
    tracks: list[Track] = []
    for name, description, chosen in groups:
        rows = np.flatnonzero(chosen)
        rows = rows[np.lexsort((spans["end_ns"][rows], spans["start_ns"][rows]))]
        first_tid = pid * _TRACKS_A_PROCESS + len(tracks) + 1
        tracks.extend(_spread(Track(first_tid, name, description, rows), spans))
    return tuple(tracks)


def _spread(track: Track, spans: Spans) -> list[Track]:
    """The track and as many child tracks as its overlaps need; none without slices."""
    rows = track.rows
    taken = slots(spans["start_ns"][rows], spans["end_ns"][rows])
    n_tracks = int(taken.max()) + 1 if len(rows) else 0
    return [
        Track(
            tid=track.tid + slot,
            name=f"{track.name} ({slot + 1})" if slot else track.name,
            description=f"{track.description} (at the same time)" if slot else track.description,
            rows=rows[taken == slot],
            parent=track.tid if slot else None,
        )
        for slot in range(n_tracks)
    ]


def _flows(meta: TraceMeta, spans: Spans) -> FlowEnds:
    """A flow for each copy whose consumer ran: from the producing split, if any, to that one."""
    rows = np.flatnonzero(spans["kind"] == SpanKind.SPLIT)
    columns = (spans[name][rows].tolist() for name in ("plan_id", "step", "index"))
    split_rows = dict(zip(zip(*columns, strict=True), rows.tolist(), strict=True))
    flows = FlowEnds({}, {}, {})
    for row in np.flatnonzero(spans["kind"] == SpanKind.COPY).tolist():
        plan_id, step = int(spans["plan_id"][row]), int(spans["step"][row])
        copy = meta.copy(plan_id, int(spans["index"][row]))
        consumer = split_rows.get((plan_id, step, copy.consumer)) if copy else None
        if copy is None or consumer is None:
            continue
        made_by = -1 if copy.producer is None else copy.producer
        producer = split_rows.get((plan_id, step, made_by))
        flow_id = row + 1
        if producer is None:
            flows.starts.setdefault(row, []).append(flow_id)
        else:
            flows.starts.setdefault(producer, []).append(flow_id)
            flows.steps.setdefault(row, []).append(flow_id)
        flows.ends.setdefault(consumer, []).append(flow_id)
    return flows
