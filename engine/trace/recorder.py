"""Recorder: appended to by any thread, read by number."""

from __future__ import annotations

import bisect
import struct
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from engine.trace.records import (
    NO_EXPERTS,
    NO_LANE,
    NOT_EXPECTED,
    SPAN_DTYPE,
    Mark,
    SpanKind,
    Spans,
)
from engine.trace.snapshot import CHUNK_SPANS, TraceSnapshot

if TYPE_CHECKING:
    import numpy.typing as npt

_PACK = struct.Struct("=4B3i3q2h4x").pack_into
_SPAN_BYTES = SPAN_DTYPE.itemsize
_OFFSETS = {name: field[1] for name, field in (SPAN_DTYPE.fields or {}).items()}
_START, _END, _STEP = _OFFSETS["start_ns"] // 8, _OFFSETS["end_ns"] // 8, _OFFSETS["step"] // 4
_N_CALIBRATION = 256
MOST_UNREAD = 256
"""Records that nobody read: then whoever records next gives them their places, and nodes their
times."""


class _Chunk:
    """Room for CHUNK_SPANS spans; rows below `n` never change again."""

    __slots__ = ("memory", "n")

    def __init__(self) -> None:
        # Not zeroed: pages come into being as they are written, and not all between two tokens.
        self.memory = np.empty(CHUNK_SPANS * _SPAN_BYTES, np.uint8).data
        self.n = 0

    def rows(self, first: int) -> Spans:
        """The finished rows from `first` on; not a copy, and nobody can write through it."""
        memory = self.memory.toreadonly()
        return np.frombuffer(memory, SPAN_DTYPE, self.n - first, first * _SPAN_BYTES)

    def claim(self, n_spans: int) -> _Claimed:
        """The next rows, at most those that are left; to be written before anybody reads them."""
        first, self.n = self.n, min(CHUNK_SPANS, self.n + n_spans)
        return _Claimed(self.memory, first, self.n - first)


class _Claimed(NamedTuple):
    """Rows of a chunk that somebody will write."""

    memory: memoryview
    first: int
    n: int

    def write(
        self,
        template: bytes,
        step: int,
        start_ns: npt.NDArray[np.int64],
        end_ns: npt.NDArray[np.int64],
    ) -> None:
        """Write the rows: `template` has all but step and times.

        As whole words: numpy's records take ten times as long.
        """
        if not self.n:
            return
        first, n_bytes = self.first * _SPAN_BYTES, self.n * _SPAN_BYTES
        self.memory[first : first + n_bytes] = template
        words = np.frombuffer(self.memory, np.int64, n_bytes // 8, first).reshape(self.n, -1)
        words[:, _START], words[:, _END] = start_ns, end_ns
        words.view(np.int32)[:, _STEP] = step


NodeClock = Callable[[], tuple["npt.NDArray[np.int64]", "npt.NDArray[np.int64]", int]]
"""Start and end of the computed nodes of a split, ns, and how far off they may be, ns."""


class _Nodes:
    """The nodes of a split, as they were told of. No tuple: making one would run more code."""

    __slots__ = ("clock", "first_node", "lane", "nodes", "plan_id", "step")

    def __init__(
        self,
        lane: int,
        plan_id: int,
        step: int,
        first_node: int,
        nodes: npt.NDArray[np.int64],
        clock: NodeClock,
    ) -> None:
        self.lane, self.plan_id, self.step = lane, plan_id, step
        self.first_node, self.nodes, self.clock = first_node, nodes, clock


class _Unread(NamedTuple):
    """Rows of the nodes of a split whose times were not asked for yet."""

    claimed: list[_Claimed]
    template: bytes
    step: int
    clock: NodeClock


class Recorder:
    """Collects spans and marks of a run.

    Every record has a number; `seq` is the number of the next one and only grows, over `clear`
    too. Times are ns of `clock`, the host's monotonic clock or that of devices on paper; whoever
    takes times to be recorded asks `now_ns`. Any thread may call any method.

    Between two tokens every microsecond counts, and code that did not run for a while is slow: to
    record is to append to a log. Who reads puts what the log has where it belongs, and works out
    the times of nodes; where nobody reads, whoever records does it for MOST_UNREAD at once.

    When `capacity` spans are held further ones are counted as lost: the start of a run explains
    more than its end, and dropping old spans would invalidate what readers already have.

    While `is_on` is false nothing is recorded: for measuring what recording costs.
    """

    def __init__(
        self, capacity: int = 4_000_000, *, clock: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self.capacity = capacity
        self.is_on = True
        self.now_ns = clock
        # Both ends of it are used by several threads at once, without a lock.
        self._log: deque[tuple[int, ...] | _Nodes | Mark] = deque()
        self._lock = threading.Lock()
        # Held by whoever writes times of nodes; taken before the other.
        self._reading = threading.Lock()
        self._epoch = 0
        self._seq = 0
        self._append_ns = 0.0
        self._n_expected = 0
        self._reset()
        self._append_ns = self._measured_append_ns()

    def _reset(self) -> None:
        self._log.clear()
        self._begin = self._seq
        self._tail = _Chunk()
        self._chunks = [self._tail]
        self._marks: list[Mark] = []
        self._mark_seqs: list[int] = []
        self._n_spans = 0
        self._n_appends = 0
        self._read_ns = 0
        self._node_error_ns = 0
        self._templates: dict[tuple[int, int, int, int], bytes] = {}
        self._unread: list[_Unread] = []
        self._lost = 0

    @property
    def seq(self) -> int:
        """The number of the next record; moves whenever something was recorded or cleared."""
        with self._lock:
            self._take_log()
            return self._seq

    @property
    def lost(self) -> int:
        """Spans that found the recorder full since the last `clear`."""
        with self._lock:
            self._take_log()
            return self._lost

    def span(
        self,
        kind: SpanKind,
        lane: int,
        plan_id: int,
        index: int,
        step: int,
        start_ns: int,
        end_ns: int,
        *,
        peer: int = NO_LANE,
        flags: int = 0,
        n_bytes: int = 0,
        experts: tuple[int, int] = NO_EXPERTS,
        expected: int = NOT_EXPECTED,
    ) -> None:
        """Record one span; see `SpanKind` for what `index`, `peer` and `n_bytes` mean.

        experts: first and last of a run that was copied. expected: what `expect` gave, if asked.
        """
        if self.is_on:
            self._log.append(
                (
                    kind, lane, peer, flags, plan_id, index, step, start_ns, end_ns, n_bytes,
                    *experts,
                )
            )  # fmt: skip
            self._read_if_full()
        if expected != NOT_EXPECTED:
            with self._lock:
                self._n_expected -= expected == self._epoch

    def expect(self) -> int:
        """Say that a span will come later; it is told what this gives back."""
        with self._lock:
            self._n_expected += 1
            return self._epoch

    @property
    def is_settled(self) -> bool:
        """Whether every span that was expected has come; `clear` ends the waiting for it."""
        return self._n_expected == 0

    def node_spans(
        self,
        lane: int,
        plan_id: int,
        step: int,
        first_node: int,
        nodes: npt.NDArray[np.int64],
        clock: NodeClock,
    ) -> None:
        """Record the nodes of a split at once.

        nodes: those computed, counted from the split's `first_node`, which is a node id of the
        plan; of one lane and plan, as many from the same one on are always the same.
        clock: their times; asked once, by a reader or, if there is none, much later.
        """
        if not self.is_on:
            return
        self._log.append(_Nodes(lane, plan_id, step, first_node, nodes, clock))
        self._read_if_full()

    def mark(self, text: str) -> None:
        """Record that something happened now."""
        if self.is_on:
            self._log.append(Mark(self.now_ns(), text))
            self._read_if_full()

    def clear(self) -> None:
        """Forget everything; snapshots that were handed out stay as they are."""
        with self._lock:
            self._take_log()
            self._seq += 1
            self._epoch += 1
            self._n_expected = 0
            self._reset()

    def snapshot(self, since: int = 0) -> TraceSnapshot:
        """The records from number `since` on, the `seq` of the reader's last snapshot.

        A `since` that this recorder never reached (the engine was restarted) gives everything, and
        so does one from before the last `clear`.
        """
        with self._reading:
            with self._lock:
                unread, found = self._take_unread(), self._views(since)
            # The views show what is written now.
            error_ns = self._read(unread, found.epoch)
        return replace(found, node_error_ns=max(found.node_error_ns, error_ns))

    def _read_if_full(self) -> None:
        """Do a reader's work where there is none."""
        if len(self._log) < MOST_UNREAD and len(self._unread) < MOST_UNREAD:
            return
        with self._reading:
            with self._lock:
                unread, epoch = self._take_unread(), self._epoch
            self._read(unread, epoch)

    # Reading: what follows is called with the lock held, but for `_read`.

    def _take_log(self) -> None:
        """Give every record of the log its number and its place."""
        log = self._log
        while log:
            record = log.popleft()
            self._n_appends += 1
            if isinstance(record, _Nodes):
                self._place_nodes(record)
            elif isinstance(record, Mark):
                self._marks.append(record)
                self._mark_seqs.append(self._seq)
                self._seq += 1
            else:
                self._place_span(record)

    def _place_span(self, record: tuple[int, ...]) -> None:
        if self._n_spans >= self.capacity:
            self._lost += 1
            return
        tail = self._tail if self._tail.n < CHUNK_SPANS else self._open_chunk()
        _PACK(tail.memory, tail.n * _SPAN_BYTES, *record)
        tail.n += 1
        self._n_spans += 1
        self._seq += 1

    def _place_nodes(self, told: _Nodes) -> None:
        key = (told.lane, told.plan_id, told.first_node, len(told.nodes))
        template = self._templates.get(key)
        if template is None:
            # A split comes with every token again.
            template = _node_rows(told.lane, told.plan_id, told.first_node + told.nodes)
            self._templates[key] = template
        claimed = self._claim(len(told.nodes))
        self._unread.append(_Unread(claimed, template, told.step, told.clock))

    def _claim(self, n_spans: int) -> list[_Claimed]:
        """Rows for as many of so many spans as the capacity allows."""
        n_kept = min(n_spans, max(0, self.capacity - self._n_spans))
        self._lost += n_spans - n_kept
        self._n_spans += n_kept
        self._seq += n_kept
        claimed = [self._tail.claim(n_kept)]
        n_kept -= claimed[0].n
        while n_kept:
            claimed.append(self._open_chunk().claim(n_kept))
            n_kept -= claimed[-1].n
        return claimed

    def _open_chunk(self) -> _Chunk:
        """A new chunk at the end."""
        self._tail = _Chunk()
        self._chunks.append(self._tail)
        return self._tail

    def _take_unread(self) -> list[_Unread]:
        """What nobody read yet; `_reading` is held too."""
        self._take_log()
        unread, self._unread = self._unread, []
        return unread

    def _read(self, unread: list[_Unread], epoch: int) -> int:
        """Write times of nodes of an epoch; give back how far off they may be, ns.

        `_reading` is held and the other lock is not: a reader of numbers need not wait.
        """
        started_ns = self.now_ns()
        error_ns = max((_write_times(split) for split in unread), default=0)
        with self._lock:
            if unread and epoch == self._epoch:
                self._node_error_ns = max(self._node_error_ns, error_ns)
                self._read_ns += self.now_ns() - started_ns
        return error_ns

    def _views(self, since: int) -> TraceSnapshot:
        """The records from number `since` on, times of nodes still to come."""
        since = since if self._begin <= since <= self._seq else 0
        n_marks_known = bisect.bisect_left(self._mark_seqs, since)
        n_spans_known = max(0, since - self._begin - n_marks_known)
        return TraceSnapshot(
            chunks=self._chunks_after(n_spans_known),
            marks=tuple(self._marks[n_marks_known:]),
            lost=self._lost,
            since=since,
            seq=self._seq,
            epoch=self._epoch,
            overhead_ns=self._read_ns + round(self._n_appends * self._append_ns),
            node_error_ns=self._node_error_ns,
        )

    def _chunks_after(self, n_spans: int) -> tuple[Spans, ...]:
        """Views of all but the first `n_spans` spans; every chunk but the last is full."""
        i_chunk, first = divmod(n_spans, CHUNK_SPANS)
        views = []
        for chunk in self._chunks[i_chunk:]:
            if chunk.n > first:
                views.append(chunk.rows(first))
            first = 0
        return tuple(views)

    def _measured_append_ns(self) -> float:
        """The mean cost of a span on this machine, found by doing it into the empty recorder."""
        started_ns = self.now_ns()
        for _ in range(_N_CALIBRATION):
            self.span(SpanKind.SPLIT, 0, 0, 0, 0, 0, 0)
        self._take_log()
        cost_ns = (self.now_ns() - started_ns) / _N_CALIBRATION
        self._seq = 0
        self._reset()
        return cost_ns


def _node_rows(lane: int, plan_id: int, node_ids: npt.NDArray[np.int64]) -> bytes:
    """Spans of nodes without step and times."""
    spans = np.zeros(len(node_ids), SPAN_DTYPE)
    spans["kind"] = SpanKind.NODE
    spans["lane"] = lane
    spans["peer"] = NO_LANE
    spans["plan_id"] = plan_id
    spans["index"] = node_ids
    spans["first_expert"], spans["last_expert"] = NO_EXPERTS
    return spans.tobytes()


def _write_times(split: _Unread) -> int:
    """Write the rows of a split; give back how far off their times may be, ns."""
    start_ns, end_ns, error_ns = split.clock()
    first = 0
    for claimed in split.claimed:
        last = first + claimed.n
        rows = split.template[first * _SPAN_BYTES : last * _SPAN_BYTES]
        claimed.write(rows, split.step, start_ns[first:last], end_ns[first:last])
        first = last
    return error_ns
