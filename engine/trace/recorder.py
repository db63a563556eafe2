"""Recorder: appended to by any thread, read by number."""

from __future__ import annotations

import bisect
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from engine.trace.records import NO_EXPERTS, NOT_EXPECTED, SPAN_DTYPE, Mark, SpanKind, Spans
from engine.trace.snapshot import CHUNK_SPANS, TraceSnapshot

if TYPE_CHECKING:
    import numpy.typing as npt

_PACK = struct.Struct("=4B3i3q2h4x").pack_into
_SPAN_BYTES = SPAN_DTYPE.itemsize
_N_CALIBRATION = 256
MOST_UNREAD = 256
"""Splits whose nodes wait for their times; then whoever records reads them."""
_NO_PEER = 255


class _Chunk:
    """Room for CHUNK_SPANS spans; rows below `n` never change again."""

    __slots__ = ("memory", "n")

    def __init__(self) -> None:
        self.memory = bytearray(CHUNK_SPANS * _SPAN_BYTES)
        self.n = 0

    def rows(self, first: int) -> Spans:
        """The finished rows from `first` on; not a copy, and nobody can write through it."""
        memory = memoryview(self.memory).toreadonly()
        return np.frombuffer(memory, SPAN_DTYPE, self.n - first, first * _SPAN_BYTES)

    def claim(self, n_spans: int) -> _Claimed:
        """The next rows, for as many spans as fit; to be written before anybody reads them."""
        first, self.n = self.n, self.n + n_spans
        return _Claimed(self.memory, first, n_spans)


class _Claimed(NamedTuple):
    """Rows of a chunk that somebody will write."""

    memory: bytearray
    first: int
    n: int

    def rows(self) -> Spans:
        """The rows themselves."""
        return np.frombuffer(self.memory, SPAN_DTYPE, self.n, self.first * _SPAN_BYTES)


NodeClock = Callable[[], tuple["npt.NDArray[np.int64]", "npt.NDArray[np.int64]", int]]
"""Start and end of the computed nodes of a split, ns, and how far off they may be, ns."""


class _Unread(NamedTuple):
    """Rows of the nodes of a split whose times were not asked for yet."""

    claimed: tuple[_Claimed, ...]
    template: Spans
    step: int
    clock: NodeClock


class Recorder:
    """Collects spans and marks of a run.

    Every record has a number; `seq` is the number of the next one and only grows, over `clear`
    too. Times are ns of `clock`, the host's monotonic clock. Any thread may call any method; each
    holds one lock for about a microsecond, `snapshot` for as long as it takes to make views. Nodes
    of a split get their times when somebody reads them: between two tokens every microsecond
    counts. Where nobody reads, every MOST_UNREAD-th split takes the time to do it.

    When `capacity` spans are held further ones are counted as lost: the start of a run explains
    more than its end, and dropping old spans would invalidate what readers already have.

    While `is_on` is false nothing is recorded: for measuring what recording costs.
    """

    def __init__(
        self, capacity: int = 4_000_000, *, clock: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self.capacity = capacity
        self.is_on = True
        self._clock = clock
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
        self._begin = self._seq
        self._tail = _Chunk()
        self._chunks = [self._tail]
        self._marks: list[Mark] = []
        self._mark_seqs: list[int] = []
        self._n_spans = 0
        self._n_appends = 0
        self._bulk_ns = 0
        self._node_error_ns = 0
        self._templates: dict[tuple[int, int, int, int], Spans] = {}
        self._unread: list[_Unread] = []
        self._lost = 0

    @property
    def seq(self) -> int:
        """The number of the next record; moves whenever something was recorded or cleared."""
        return self._seq

    @property
    def lost(self) -> int:
        """Spans that found the recorder full since the last `clear`."""
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
        peer: int = _NO_PEER,
        flags: int = 0,
        n_bytes: int = 0,
        experts: tuple[int, int] = NO_EXPERTS,
        expected: int = NOT_EXPECTED,
    ) -> None:
        """Record one span; see `SpanKind` for what `index`, `peer` and `n_bytes` mean.

        experts: first and last of a run that was copied. expected: what `expect` gave, if asked.
        """
        with self._lock:
            self._n_expected -= expected == self._epoch
            if not self.is_on:
                return
            self._n_appends += 1
            if self._n_spans >= self.capacity:
                self._lost += 1
                return
            tail = self._tail
            if tail.n == CHUNK_SPANS:
                tail = self._open_chunk()
            at = tail.n * _SPAN_BYTES
            _PACK(
                tail.memory, at, kind, lane, peer, flags, plan_id, index, step, start_ns, end_ns,
                n_bytes, *experts,
            )  # fmt: skip
            tail.n += 1
            self._n_spans += 1
            self._seq += 1

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
        started_ns = self._clock()
        with self._lock:
            template = self._template(lane, plan_id, first_node, nodes)
            n_kept = min(len(template), max(0, self.capacity - self._n_spans))
            self._lost += len(template) - n_kept
            self._unread.append(_Unread(self._claim(n_kept), template, step, clock))
            is_full = len(self._unread) >= MOST_UNREAD
            self._bulk_ns += self._clock() - started_ns
        if is_full:
            with self._reading:
                with self._lock:
                    unread, epoch = self._take_unread(), self._epoch
                self._read(unread, epoch)

    def _template(
        self, lane: int, plan_id: int, first_node: int, nodes: npt.NDArray[np.int64]
    ) -> Spans:
        """Rows of these nodes, all but times and step: a split comes with every token again."""
        key = (lane, plan_id, first_node, len(nodes))
        spans = self._templates.get(key)
        if spans is None:
            spans = self._templates[key] = _node_rows(lane, plan_id, first_node + nodes)
        return spans

    def _take_unread(self) -> list[_Unread]:
        """What nobody read yet; the lock is held, and `_reading`."""
        unread, self._unread = self._unread, []
        return unread

    def _read(self, unread: list[_Unread], epoch: int) -> int:
        """Write times of nodes of an epoch; give back how far off they may be, ns.

        `_reading` is held and the other lock is not, so that recording goes on.
        """
        started_ns = self._clock()
        error_ns = max((_write_times(split) for split in unread), default=0)
        with self._lock:
            if unread and epoch == self._epoch:
                self._node_error_ns = max(self._node_error_ns, error_ns)
                self._bulk_ns += self._clock() - started_ns
        return error_ns

    def mark(self, text: str) -> None:
        """Record that something happened now."""
        if not self.is_on:
            return
        mark = Mark(self._clock(), text)
        with self._lock:
            self._marks.append(mark)
            self._mark_seqs.append(self._seq)
            self._seq += 1

    def clear(self) -> None:
        """Forget everything; snapshots that were handed out stay as they are."""
        with self._lock:
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
                found, unread = self._views(since), self._take_unread()
            # The views show what is written now.
            error_ns = self._read(unread, found.epoch)
        return replace(found, node_error_ns=max(found.node_error_ns, error_ns))

    def _views(self, since: int) -> TraceSnapshot:
        """The records from number `since` on, times of nodes still to come; the lock is held."""
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
            overhead_ns=self._bulk_ns + round(self._n_appends * self._append_ns),
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

    def _open_chunk(self) -> _Chunk:
        """A new chunk at the end; the lock is held."""
        self._tail = _Chunk()
        self._chunks.append(self._tail)
        return self._tail

    def _claim(self, n_spans: int) -> tuple[_Claimed, ...]:
        """Rows for spans that the capacity allows; the lock is held."""
        claimed, n_left = [], n_spans
        while n_left:
            tail = self._tail if self._tail.n < CHUNK_SPANS else self._open_chunk()
            claimed.append(tail.claim(min(n_left, CHUNK_SPANS - tail.n)))
            n_left -= claimed[-1].n
        self._n_spans += n_spans
        self._seq += n_spans
        return tuple(claimed)

    def _measured_append_ns(self) -> float:
        """The mean cost of a span on this machine, found by doing it into the empty recorder."""
        started_ns = self._clock()
        for _ in range(_N_CALIBRATION):
            self.span(SpanKind.SPLIT, 0, 0, 0, 0, 0, 0, expected=self.expect())
        cost_ns = (self._clock() - started_ns) / _N_CALIBRATION
        self._seq = 0
        self._reset()
        return cost_ns


def _node_rows(lane: int, plan_id: int, node_ids: npt.NDArray[np.int64]) -> Spans:
    spans = np.zeros(len(node_ids), SPAN_DTYPE)
    spans["kind"] = SpanKind.NODE
    spans["lane"] = lane
    spans["peer"] = _NO_PEER
    spans["plan_id"] = plan_id
    spans["index"] = node_ids
    spans["first_expert"], spans["last_expert"] = NO_EXPERTS
    return spans


def _write_times(split: _Unread) -> int:
    """Write the rows of a split; give back how far off their times may be, ns."""
    start_ns, end_ns, error_ns = split.clock()
    first = 0
    for claimed in split.claimed:
        rows, part = claimed.rows(), slice(first, first + claimed.n)
        rows[:] = split.template[part]
        rows["step"], rows["start_ns"], rows["end_ns"] = split.step, start_ns[part], end_ns[part]
        first += claimed.n
    return error_ns
