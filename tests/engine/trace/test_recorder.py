from __future__ import annotations

import itertools
import threading

import numpy as np
import pytest

from engine.trace.recorder import MOST_UNREAD, Recorder
from engine.trace.records import SPAN_DTYPE, Mark, SpanFlag, SpanKind
from engine.trace.snapshot import CHUNK_SPANS


def recorder(capacity: int = 4_000_000) -> Recorder:
    ticks = itertools.count(1000, 10)
    return Recorder(capacity, clock=lambda: next(ticks))


def add_nodes(rec, lane, plan_id, step, ids, start_ns, end_ns, *, error_ns=0):
    rec.node_spans(lane, plan_id, step, 0, ids, lambda: (start_ns, end_ns, error_ns))


def add(target: Recorder, n: int, first: int = 0) -> None:
    for i in range(first, first + n):
        target.span(SpanKind.SPLIT, 0, 1, i, 0, 10 * i, 10 * i + 5)


def test_a_span_comes_back_with_every_field():
    rec = recorder()

    rec.span(
        SpanKind.COPY, 2, 7, -1, 3, 5, 9, peer=1, flags=SpanFlag.WEIGHT, n_bytes=1 << 40,
        experts=(6, 511),
    )  # fmt: skip

    expected = np.array([(1, 2, 1, 2, 7, -1, 3, 5, 9, 1 << 40, 6, 511)], SPAN_DTYPE)
    assert np.array_equal(rec.snapshot().spans(), expected)


def test_peer_is_255_when_there_is_none():
    rec = recorder()

    rec.span(SpanKind.WAIT, 0, 0, 0, 0, 1, 2)

    assert rec.snapshot().spans()["peer"].tolist() == [255]


def test_what_is_no_run_of_experts_says_so():
    rec = recorder()

    rec.span(SpanKind.COPY, 0, 0, 0, 0, 1, 2)
    add_nodes(rec, 3, 1, 5, np.array([10]), np.array([100]), np.array([110]))

    spans = rec.snapshot().spans()
    assert spans["first_expert"].tolist() == [-1, -1]
    assert spans["last_expert"].tolist() == [-1, -1]


def add_expected(rec, expected):
    rec.span(SpanKind.SPLIT, 0, 1, 0, 0, 0, 1, expected=expected)


def test_it_is_settled_when_every_expected_span_has_come():
    rec = recorder()
    first, second = rec.expect(), rec.expect()
    add(rec, 2)
    add_expected(rec, first)
    one_is_missing = not rec.is_settled

    add_expected(rec, second)

    assert one_is_missing
    assert rec.is_settled


def test_an_expected_span_that_finds_no_room_has_come_too():
    rec = recorder(capacity=0)

    add_expected(rec, rec.expect())

    assert (rec.is_settled, rec.lost) == (True, 1)


def test_what_was_expected_before_a_clear_is_not_waited_for_nor_counted_when_it_comes():
    rec = recorder()
    late = rec.expect()
    rec.clear()
    forgotten = rec.is_settled
    rec.expect()

    add_expected(rec, late)

    assert forgotten
    assert not rec.is_settled


def test_while_it_is_off_nothing_is_recorded_and_nothing_waited_for():
    rec = recorder()
    expected = rec.expect()

    rec.is_on = False
    rec.span(SpanKind.SPLIT, 0, 1, 0, 0, 0, 1, expected=expected)
    add_nodes(rec, 3, 1, 5, np.array([10]), np.array([100]), np.array([110]))
    rec.mark("off")
    rec.is_on = True
    add(rec, 1)

    assert rec.snapshot().n_spans == 1
    assert rec.snapshot().marks == ()
    assert rec.is_settled


def test_nodes_come_in_bulk():
    rec = recorder()

    add_nodes(rec, 3, 1, 5, np.array([10, 12]), np.array([100, 120]), np.array([110, 130]))

    spans = rec.snapshot().spans()
    assert spans["index"].tolist() == [10, 12]
    assert spans["start_ns"].tolist() == [100, 120]
    assert spans["end_ns"].tolist() == [110, 130]
    assert set(spans["kind"].tolist()) == {SpanKind.NODE}
    assert set(spans["lane"].tolist()) == {3}
    assert set(spans["step"].tolist()) == {5}
    assert set(spans["peer"].tolist()) == {255}


def test_nodes_of_the_next_token_change_nothing_that_was_recorded():
    rec, ids = recorder(), np.array([10, 12])

    add_nodes(rec, 3, 1, 5, ids, np.array([100, 120]), np.array([110, 130]))
    add_nodes(rec, 3, 1, 6, ids, np.array([200, 220]), np.array([210, 230]))
    add_nodes(rec, 3, 2, 7, ids + 1, np.array([300, 320]), np.array([310, 330]))

    spans = rec.snapshot().spans()
    assert spans["index"].tolist() == [10, 12, 10, 12, 11, 13]
    assert spans["plan_id"].tolist() == [1, 1, 1, 1, 2, 2]
    assert spans["step"].tolist() == [5, 5, 6, 6, 7, 7]
    assert spans["start_ns"].tolist() == [100, 120, 200, 220, 300, 320]


def test_a_snapshot_tells_the_largest_error_of_node_times():
    rec, ids, times = recorder(), np.array([1]), np.array([5])

    for error_ns in (20, 90, 30):
        add_nodes(rec, 0, 0, 0, ids, times, times, error_ns=error_ns)

    assert rec.snapshot().node_error_ns == 90


def test_times_of_nodes_are_asked_for_once_by_whoever_reads_first():
    rec, asked = recorder(), []

    def clock():
        asked.append(1)
        return np.array([5]), np.array([6]), 0

    rec.node_spans(0, 0, 0, 0, np.array([3]), clock)
    assert not asked
    first, second = rec.snapshot(), rec.snapshot()

    assert len(asked) == 1
    assert first.spans()["start_ns"].tolist() == second.spans()["start_ns"].tolist() == [5]


def test_without_a_reader_times_are_asked_for_before_many_wait():
    rec, asked = recorder(), []

    def clock():
        asked.append(1)
        return np.array([5]), np.array([6]), 0

    for _ in range(MOST_UNREAD - 1):
        rec.node_spans(0, 0, 0, 0, np.array([3]), clock)
    assert not asked
    rec.node_spans(0, 0, 0, 0, np.array([3]), clock)

    assert len(asked) == MOST_UNREAD
    assert rec.snapshot().spans()["end_ns"].tolist() == [6] * MOST_UNREAD


def test_a_reader_never_sees_a_node_without_its_times():
    rec, n_splits = Recorder(), 2000
    ids = np.arange(50)

    def record():
        for step in range(n_splits):
            times = np.full(50, step + 1)
            add_nodes(rec, 0, 0, step, ids, times, times)

    thread = threading.Thread(target=record)
    thread.start()
    seen, since = [], 0
    while thread.is_alive() or since < rec.seq:
        snapshot = rec.snapshot(since)
        since = snapshot.seq
        seen.append(snapshot.spans().copy())
    thread.join()

    spans = np.concatenate(seen)
    assert spans["index"].tolist() == ids.tolist() * n_splits
    assert (spans["start_ns"] == spans["step"] + 1).all()


def test_a_snapshot_since_the_last_one_has_only_the_new_records():
    rec = recorder()
    add(rec, 3)
    rec.mark("first")
    before = rec.snapshot()
    add(rec, 2, first=3)
    rec.mark("second")

    after = rec.snapshot(before.seq)

    assert after.spans()["index"].tolist() == [3, 4]
    assert [mark.text for mark in after.marks] == ["second"]
    assert (after.since, after.seq) == (4, 7)


@pytest.mark.parametrize("since", range(8))
def test_a_snapshot_since_any_number_leaves_nothing_out_and_tells_nothing_twice(since):
    rec = recorder()
    add(rec, 2)
    rec.mark("a")
    add(rec, 2, first=2)
    rec.mark("b")
    rec.mark("c")
    records = ["0", "1", "a", "2", "3", "b", "c"]

    snapshot = rec.snapshot(since)

    told = [str(i) for i in snapshot.spans()["index"]] + [mark.text for mark in snapshot.marks]
    assert sorted(told) == sorted(records[since:])


def test_chunks_join_without_a_gap_where_one_is_full():
    rec = recorder()
    n = CHUNK_SPANS - 2
    add_nodes(rec, 0, 0, 0, np.arange(n), np.arange(n), np.arange(n) + 1)
    add(rec, 5)
    add_nodes(rec, 0, 0, 0, np.arange(CHUNK_SPANS), np.arange(CHUNK_SPANS), np.ones(CHUNK_SPANS))

    snapshot = rec.snapshot()

    expected = [*range(n), *range(5), *range(CHUNK_SPANS)]
    assert [len(chunk) for chunk in snapshot.chunks] == [CHUNK_SPANS, CHUNK_SPANS, 3]
    assert snapshot.spans()["index"].tolist() == expected
    assert rec.snapshot(n + 1).spans()["index"].tolist() == expected[n + 1 :]


def test_a_snapshot_does_not_change_when_more_is_recorded():
    rec = recorder()
    add(rec, 2)

    snapshot = rec.snapshot()
    add(rec, 2, first=2)

    assert snapshot.spans()["index"].tolist() == [0, 1]


def test_nobody_can_write_through_a_snapshot():
    rec = recorder()
    add(rec, 1)

    chunk = rec.snapshot().chunks[0]

    with pytest.raises(ValueError, match="WRITEABLE"):
        chunk.setflags(write=True)


def test_spans_beyond_the_capacity_are_counted_as_lost():
    rec = recorder(capacity=3)

    add(rec, 4)
    add_nodes(rec, 0, 0, 0, np.array([7, 8]), np.array([1, 2]), np.array([2, 3]))

    assert rec.lost == 3
    assert rec.snapshot().lost == 3
    assert rec.snapshot().spans()["index"].tolist() == [0, 1, 2]


def test_what_nobody_reads_is_not_held_beyond_the_capacity():
    rec = recorder(capacity=10)

    add(rec, 100_000)

    assert len(rec._log) < MOST_UNREAD
    assert (rec.snapshot().n_spans, rec.lost) == (10, 99_990)


def test_a_bulk_that_half_fits_is_kept_up_to_the_capacity():
    rec = recorder(capacity=3)
    add(rec, 1)

    add_nodes(rec, 0, 0, 0, np.array([7, 8, 9]), np.array([1, 2, 3]), np.array([2, 3, 4]))

    assert rec.snapshot().spans()["index"].tolist() == [0, 7, 8]
    assert rec.lost == 1


def test_now_is_the_time_of_the_clock_it_was_given():
    assert Recorder(clock=lambda: 77).now_ns() == 77


def test_a_mark_has_the_time_of_the_clock():
    rec = Recorder(clock=lambda: 77)

    rec.mark("op_offload off")

    assert rec.snapshot().marks == (Mark(77, "op_offload off"),)


def test_clear_forgets_everything_but_numbers_go_on():
    rec = recorder(capacity=3)
    add(rec, 4)
    rec.mark("old")
    before = rec.snapshot()

    rec.clear()
    add(rec, 1, first=9)
    after = rec.snapshot(before.seq)

    assert after.spans()["index"].tolist() == [9]
    assert after.marks == ()
    assert after.lost == 0
    assert after.seq > before.seq
    assert (before.epoch, after.epoch) == (0, 1)
    assert before.spans()["index"].tolist() == [0, 1, 2]


def test_clear_alone_moves_the_number_so_that_readers_notice():
    rec = recorder()
    add(rec, 1)
    seq = rec.seq

    rec.clear()

    assert rec.seq > seq


def test_a_reader_of_another_recorder_gets_everything():
    rec = recorder()
    add(rec, 2)

    snapshot = rec.snapshot(since=1000)

    assert snapshot.since == 0
    assert snapshot.n_spans == 2


def test_overhead_grows_with_what_is_recorded():
    rec = recorder()
    empty = rec.snapshot().overhead_ns
    add(rec, 1000)
    single = rec.snapshot().overhead_ns

    add_nodes(rec, 0, 0, 0, np.array([1]), np.array([1]), np.array([2]))
    rec.snapshot()

    assert empty == 0
    assert single > 0
    assert rec.snapshot().overhead_ns > single + 5


def test_threads_that_record_at_once_lose_nothing():
    rec = recorder()
    seen = []

    def write(lane: int) -> None:
        for i in range(3000):
            rec.span(SpanKind.COPY, lane, 0, i, 0, i, i + 1)
            if i % 500 == 0:
                rec.mark(f"{lane}")

    threads = [threading.Thread(target=write, args=(lane,)) for lane in range(4)]
    for thread in threads:
        thread.start()
    since = 0
    while any(thread.is_alive() for thread in threads):
        snapshot = rec.snapshot(since)
        seen.append(snapshot)
        since = snapshot.seq
    seen.append(rec.snapshot(since))

    spans = np.concatenate([snapshot.spans() for snapshot in seen])
    for lane in range(4):
        assert spans[spans["lane"] == lane]["index"].tolist() == list(range(3000))
    assert sum(len(snapshot.marks) for snapshot in seen) == 24
