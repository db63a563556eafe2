from __future__ import annotations

import numpy as np
import pytest

from engine.trace.recorder import Recorder
from engine.trace.records import SPAN_DTYPE, SpanKind
from engine.trace.snapshot import CHUNK_SPANS, TraceSnapshot, extend, sorted_by_start


def spans_of(*times: tuple[int, int]) -> np.ndarray:
    spans = np.zeros(len(times), SPAN_DTYPE)
    spans["start_ns"] = [start for start, _ in times]
    spans["end_ns"] = [end for _, end in times]
    spans["index"] = np.arange(len(times))
    return spans


def test_kinds_are_picked_from_all_chunks():
    first, second = spans_of((0, 1), (1, 2)), spans_of((2, 3))
    first["kind"], second["kind"] = (SpanKind.COPY, SpanKind.SPLIT), SpanKind.COPY
    snapshot = TraceSnapshot(chunks=(first, second))

    assert snapshot.of_kind(SpanKind.COPY)["start_ns"].tolist() == [0, 2]


def test_single_nodes_are_left_out_of_all_chunks():
    first, second = spans_of((0, 1), (1, 2)), spans_of((2, 3), (3, 4))
    first["kind"], second["kind"] = (SpanKind.NODE, SpanKind.SPLIT), (SpanKind.STEP, SpanKind.NODE)
    snapshot = TraceSnapshot(chunks=(first, second))

    assert snapshot.without_nodes()["start_ns"].tolist() == [1, 2]


def test_an_empty_snapshot_has_empty_columns():
    snapshot = TraceSnapshot()

    assert snapshot.n_spans == 0
    assert snapshot.spans().dtype == SPAN_DTYPE
    assert len(snapshot.of_kind(SpanKind.NODE)) == 0


def test_joined_spans_are_read_only():
    snapshot = TraceSnapshot(chunks=(spans_of((0, 1)), spans_of((1, 2))))

    assert not snapshot.spans().flags.writeable


def test_a_reader_who_extends_knows_what_a_fresh_reader_is_told():
    rec = Recorder()
    known = rec.snapshot()

    for i in range(50):
        rec.span(SpanKind.SPLIT, 0, 0, i, 0, i, i + 1)
        if i % 10 == 0:
            rec.mark(str(i))
        if i % 7 == 0:
            known = extend(known, rec.snapshot(known.seq))
    known = extend(known, rec.snapshot(known.seq))

    fresh = rec.snapshot()
    assert np.array_equal(known.spans(), fresh.spans())
    assert known.marks == fresh.marks
    assert (known.seq, known.since, known.lost) == (fresh.seq, fresh.since, fresh.lost)
    assert len(known.chunks) == 1


def test_a_chunk_does_not_grow_beyond_its_size():
    older = TraceSnapshot(chunks=(np.zeros(CHUNK_SPANS - 1, SPAN_DTYPE),), seq=CHUNK_SPANS - 1)
    newer = TraceSnapshot(chunks=(spans_of((0, 1), (1, 2)),), since=older.seq, seq=older.seq + 2)

    known = extend(older, newer)

    assert [len(chunk) for chunk in known.chunks] == [CHUNK_SPANS - 1, 2]


def test_after_a_clear_the_newer_snapshot_replaces_the_older():
    rec = Recorder()
    rec.span(SpanKind.SPLIT, 0, 0, 1, 0, 1, 2)
    known = rec.snapshot()

    rec.clear()
    rec.span(SpanKind.SPLIT, 0, 0, 2, 0, 1, 2)
    known = extend(known, rec.snapshot(known.seq))

    assert known.spans()["index"].tolist() == [2]


def test_a_gap_between_snapshots_is_refused():
    older = TraceSnapshot(seq=5)

    with pytest.raises(AssertionError):
        extend(older, TraceSnapshot(since=7, seq=9))


def test_spans_are_sorted_by_start_and_enclosing_ones_come_first():
    spans = spans_of((5, 6), (0, 3), (0, 9), (0, 3))

    ordered = sorted_by_start(spans)

    assert ordered["index"].tolist() == [2, 1, 3, 0]
    assert not ordered.flags.writeable


def test_spans_in_order_are_not_copied():
    spans = spans_of((0, 3), (3, 4))

    assert sorted_by_start(spans) is spans
