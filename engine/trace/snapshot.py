"""TraceSnapshot: what was recorded up to a moment, as immutable chunks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from engine.trace.records import SPAN_DTYPE, Mark, SpanKind, Spans

if TYPE_CHECKING:
    import numpy.typing as npt

CHUNK_SPANS = 131_072
"""Spans in a full chunk, 6 MiB: from 4 MiB on numpy asks for large pages, which come faster."""


@dataclass(frozen=True, slots=True, eq=False)
class TraceSnapshot:
    """The records numbered `since` to `seq`, in the order in which they arrived.

    Spans may arrive out of time order, since drivers report from their own threads:
    `sorted_by_start` puts them in order. `epoch` counts how often the recorder was cleared;
    `lost` counts spans that found the recorder full in this epoch. `overhead_ns` is an estimate of
    the time that recording itself took in this epoch. `node_error_ns` is how far off, at most,
    times of nodes are because they come from another clock.
    """

    chunks: tuple[Spans, ...] = ()
    marks: tuple[Mark, ...] = ()
    lost: int = 0
    since: int = 0
    seq: int = 0
    epoch: int = 0
    overhead_ns: int = 0
    node_error_ns: int = 0

    @property
    def n_spans(self) -> int:
        """Number of spans in all chunks."""
        return sum(len(chunk) for chunk in self.chunks)

    def spans(self) -> Spans:
        """All spans in one read-only array; a single chunk is shared, more are copied."""
        return _joined(self.chunks)

    def without_nodes(self) -> Spans:
        """All spans but those of single nodes, which are most of them."""
        return _joined(tuple(chunk[chunk["kind"] != SpanKind.NODE] for chunk in self.chunks))

    def of_kind(self, kind: SpanKind) -> Spans:
        """The spans of one kind."""
        return _joined(tuple(chunk[chunk["kind"] == kind] for chunk in self.chunks))


def extend(older: TraceSnapshot, newer: TraceSnapshot) -> TraceSnapshot:
    """What a reader knows who had `older` and received `newer`.

    `newer` replaces `older` when the recorder was cleared between them, or when it tells the whole
    trace. Otherwise it must begin where `older` ends. Small chunks grow together, so that a reader
    who asks often does not end up with thousands of them.
    """
    if newer.epoch != older.epoch or newer.since == 0:
        return newer
    assert newer.since == older.seq, (older.seq, newer.since)
    return TraceSnapshot(
        chunks=_grown(older.chunks, newer.chunks),
        marks=older.marks + newer.marks,
        lost=newer.lost,
        since=older.since,
        seq=newer.seq,
        epoch=newer.epoch,
        overhead_ns=newer.overhead_ns,
        node_error_ns=newer.node_error_ns,
    )


def sorted_by_start(spans: Spans) -> Spans:
    """The spans by start, of equal starts the longer first, then as they arrived.

    Gives back `spans` itself when they are in that order.
    """
    order = start_order(spans["start_ns"], spans["end_ns"])
    if np.array_equal(order, np.arange(len(order))):
        return spans
    return read_only(spans[order])


def start_order(
    start_ns: npt.NDArray[np.int64], end_ns: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """The permutation behind `sorted_by_start`: an enclosing interval precedes what is in it."""
    order: npt.NDArray[np.int64] = np.lexsort((-end_ns, start_ns)).astype(np.int64, copy=False)
    return order


def read_only(spans: Spans) -> Spans:
    """The same array, closed for writing."""
    spans.setflags(write=False)
    return spans


def _joined(chunks: tuple[Spans, ...]) -> Spans:
    if len(chunks) == 1:
        return read_only(chunks[0])
    if not chunks:
        return read_only(np.empty(0, SPAN_DTYPE))
    return read_only(np.concatenate(chunks))


def _grown(older: tuple[Spans, ...], newer: tuple[Spans, ...]) -> tuple[Spans, ...]:
    chunks = list(older)
    for chunk in newer:
        if chunks and len(chunks[-1]) + len(chunk) <= CHUNK_SPANS:
            chunks[-1] = _joined((chunks[-1], chunk))
        else:
            chunks.append(chunk)
    return tuple(chunks)
