"""Why devices were idle: traces drawn by hand, then any trace."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.trace.chains import Chains
from engine.trace.critical import critical_path
from engine.trace.idle import IdleCause, idle_times, lane_uses
from engine.trace.lanes import busy
from engine.trace.records import HOST_LANE, MEMBER_LANE, SpanKind
from tests.engine.trace.drawn import (
    CPU,
    EMBD,
    GPU0,
    GPU1,
    L_OUT,
    POS,
    copy,
    exchange,
    launching,
    planning,
    plans,
    shard,
    span,
    spans_of,
    split,
    step_span,
    thing,
    wait,
)

COPY, DEVICE, HOST, NOTHING = IdleCause
M0, M1 = MEMBER_LANE, MEMBER_LANE + 1


def idle_of(lane, *rows, n_copies=1):
    """Return the idle pieces of a lane without their lane."""
    chains = Chains(spans_of(*rows), plans(n_copies=n_copies))
    return [tuple(piece)[1:] for piece in idle_times(chains) if piece.lane == lane]


def test_a_gap_is_divided_by_what_the_split_after_it_waited_for():
    """CPU 10-20, copies 20-24, GPU0 25-60, a copy 60-64, GPU1 66-90."""
    step = step_span(0, 100)
    rows = (
        step, cpu := split(0, 10, 20), embd := copy(EMBD, 20, 22), pos := copy(POS, 22, 24),
        gpu := split(1, 25, 60), l_out := copy(L_OUT, 60, 64), split(2, 66, 90),
    )  # fmt: skip

    assert idle_of(GPU1, *rows) == [
        (0, 10, HOST, thing(step)),
        (10, 20, DEVICE, thing(cpu)),
        (20, 22, COPY, thing(embd)),
        (22, 24, COPY, thing(pos)),
        (24, 25, HOST, thing(step)),
        (25, 60, DEVICE, thing(gpu)),
        (60, 64, COPY, thing(l_out)),
        (64, 66, HOST, thing(step)),
        (90, 100, NOTHING, None),
    ]


def test_between_two_tokens_a_device_waits_for_the_other_for_the_host_and_for_the_next_step():
    rows = (
        first := step_span(0, 100), split(1, 10, 40), l_out := copy(L_OUT, 40, 42),
        gpu1 := split(2, 42, 95),
        second := step_span(110, 200, step=1), cpu := split(0, 112, 115, step=1),
        embd := copy(EMBD, 115, 116, step=1), split(1, 120, 150, step=1),
        split(2, 155, 190, step=1),
    )  # fmt: skip

    assert idle_of(GPU0, *rows)[1:] == [
        (40, 42, COPY, thing(l_out)),
        (42, 95, DEVICE, thing(gpu1)),
        (95, 100, HOST, thing(first)),
        (100, 110, HOST, None),
        (110, 112, HOST, thing(second)),
        (112, 115, DEVICE, thing(cpu)),
        (115, 116, COPY, thing(embd)),
        (116, 120, HOST, thing(second)),
        (150, 200, NOTHING, None),
    ]


def test_in_a_pipeline_a_device_waits_for_the_ubatch_whose_slot_is_used_again():
    """GPU1 takes three times as long; with two slots the third ubatch waits for the first.

    GPU0  0[..]10 1[..]20          2[41 .. 51]
    GPU1          0[10 ........ 40]1[40 ....... 70]2[70 ...... 100]
    """
    rows = (
        step_span(0, 40), split(1, 0, 10), slow := split(2, 10, 40),
        step_span(1, 70, step=1), split(1, 10, 20, step=1), split(2, 40, 70, step=1),
        third := step_span(2, 100, step=2), split(1, 41, 51, step=2), split(2, 70, 100, step=2),
    )  # fmt: skip

    assert idle_of(GPU0, *rows, n_copies=2) == [
        (20, 40, DEVICE, thing(slow)),
        (40, 41, HOST, thing(third)),
        (51, 100, NOTHING, None),
    ]


def test_while_a_pipeline_fills_its_second_device_waits_for_the_first():
    rows = (
        step_span(0, 40), first := split(1, 0, 10), copied := copy(L_OUT, 10, 12),
        split(2, 12, 40), step_span(1, 68, step=1), split(1, 10, 20, step=1),
        split(2, 40, 68, step=1),
    )  # fmt: skip

    assert idle_of(GPU1, *rows, n_copies=4) == [
        (0, 10, DEVICE, thing(first)),
        (10, 12, COPY, thing(copied)),
    ]


def test_a_wait_of_the_host_stands_for_the_work_that_it_waited_for():
    rows = (step := step_span(0, 50), gpu := split(1, 0, 30), wait(GPU0, 2, 2, 31))

    assert idle_of(GPU1, *rows, split(2, 33, 50)) == [
        (0, 30, DEVICE, thing(gpu)),
        (30, 33, HOST, thing(step)),
    ]


def test_a_wait_for_what_nobody_recorded_and_planning_are_the_hosts():
    step, planned, waited = step_span(0, 50), planning(3, 9), wait(GPU1, 1, 12, 31)

    assert idle_of(GPU0, step, planned, waited, split(1, 33, 50)) == [
        (0, 3, HOST, thing(step)),
        (3, 9, HOST, thing(planned)),
        (9, 12, HOST, thing(step)),
        (12, 31, HOST, thing(waited)),
        (31, 33, HOST, thing(step)),
    ]


def test_a_split_that_the_host_computes_itself_holds_up_what_it_queues_after_it():
    step, cpu = step_span(0, 50), split(0, 5, 25)

    assert idle_of(GPU1, step, cpu, split(2, 30, 50)) == [
        (0, 5, HOST, thing(step)),
        (5, 25, DEVICE, thing(cpu)),
        (25, 30, HOST, thing(step)),
    ]


def test_a_device_without_a_part_in_a_step_has_nothing_to_do():
    rows = (
        first := step_span(0, 10), split(2, 2, 8),
        step_span(10, 20, step=1), split(1, 12, 18, step=1),
        step_span(20, 30, step=2), split(1, 22, 28, step=2),
        last := step_span(30, 40, step=3), split(2, 35, 40, step=3),
    )  # fmt: skip

    assert idle_of(GPU1, *rows) == [
        (0, 2, HOST, thing(first)),
        (8, 10, HOST, thing(first)),
        (10, 30, NOTHING, None),
        (30, 35, HOST, thing(last)),
    ]


def test_devices_that_share_the_rows_of_a_split_wait_for_one_another_and_for_exchanges():
    """Split 1 is GPU0's, which sends activations to GPU1 and takes its rows.

    GPU0  [calls 0-8]        [rows 12-20]            [calls 34-50]
    GPU1           [send 8-10] [rows 10-30][take 30-33]
    """
    joint = split(1, 0, 50)
    rows = (
        step_span(0, 50), joint, calls := shard(GPU0, 1, 0, 8),
        sent := exchange(GPU0, GPU1, 1, 8, 10),
        theirs := shard(GPU1, 1, 10, 30), shard(GPU0, 1, 12, 20),
        taken := exchange(GPU1, GPU0, 1, 30, 33), rest := shard(GPU0, 1, 34, 50),
    )  # fmt: skip

    assert idle_of(GPU0, *rows) == [
        (8, 10, COPY, thing(sent)),
        (10, 12, HOST, launching(joint)),
        (20, 30, DEVICE, thing(theirs)),
        (30, 33, COPY, thing(taken)),
        (33, 34, HOST, launching(joint)),
    ]
    assert idle_of(GPU1, *rows) == [
        (0, 8, DEVICE, thing(calls)),
        (8, 10, COPY, thing(sent)),
        (30, 50, NOTHING, None),
    ]
    path = critical_path(Chains(spans_of(*rows), plans()), 0)
    assert [piece.thing for piece in path] == [
        thing(calls), thing(sent), thing(theirs), thing(taken), launching(joint), thing(rest)
    ]  # fmt: skip


def test_what_comes_after_a_split_that_ends_with_an_exchange_waits_for_that():
    """GPU0's split ends when it has taken GPU1's rows; then GPU1 computes split 2."""
    rows = (
        step_span(0, 60), split(1, 0, 30), shard(GPU1, 1, 2, 20), shard(GPU0, 1, 0, 10),
        taken := exchange(GPU1, GPU0, 1, 20, 30), copied := copy(L_OUT, 30, 34), split(2, 34, 60),
    )  # fmt: skip

    assert idle_of(GPU1, *rows)[1:] == [(20, 30, COPY, thing(taken)), (30, 34, COPY, thing(copied))]


def test_members_of_a_meta_device_wait_for_one_another_for_exchanges_and_for_the_host():
    """Two splits of the META device on lane 0; its own time is that of whoever directs it."""
    one, two = (span(SpanKind.SPLIT, *at, index=i) for i, at in ((1, (10, 60)), (2, (70, 90))))
    rows = (
        step := step_span(0, 90), one, shard(M0, 1, 10, 30), slow := shard(M1, 1, 10, 40),
        moved := exchange(M1, M0, 1, 40, 44), last := shard(M0, 1, 46, 58),
        two, shard(M0, 2, 70, 80), shard(M1, 2, 75, 90),
    )  # fmt: skip

    assert idle_of(GPU0, *rows) == []
    assert idle_of(M0, *rows) == [
        (0, 10, HOST, thing(step)),
        (30, 40, DEVICE, thing(slow)),
        (40, 44, COPY, thing(moved)),
        (44, 46, HOST, launching(one)),
        (58, 60, HOST, launching(one)),
        (60, 70, HOST, thing(step)),
        (80, 90, NOTHING, None),
    ]
    assert idle_of(M1, *rows)[1:] == [
        (40, 44, COPY, thing(moved)),
        (44, 46, HOST, launching(one)),
        (46, 58, DEVICE, thing(last)),
        (58, 60, HOST, launching(one)),
        (60, 70, HOST, thing(step)),
        (70, 75, HOST, launching(two)),
    ]


def test_the_worst_is_what_took_longest_over_all_steps():
    """The copy is slower than GPU0 in one step and faster in all."""
    rows = []
    for step, copied in enumerate((2, 12, 3)):
        at = 100 * step
        rows += [
            step_span(at, at + 60, step=step), split(1, at, at + 10, step=step),
            copy(L_OUT, at + 10, at + 10 + copied, step=step),
            split(2, at + 10 + copied, at + 60, step=step),
        ]  # fmt: skip
    chains = Chains(spans_of(*rows), plans())

    use = {use.lane: use for use in lane_uses(chains, idle_times(chains))}[GPU1]

    assert use.wall_ns == 260
    assert use.busy_ns == 48 + 38 + 47
    assert use.idle_ns == {COPY: 17, DEVICE: 30, HOST: 80, NOTHING: 0}
    assert use.worst[DEVICE].total_ns == 30
    assert use.worst[COPY] == (thing(copy(L_OUT, 0, 0, step=1)), 17)
    assert use.worst[HOST] == (None, 80)
    assert NOTHING not in use.worst


def test_without_finished_steps_nothing_is_said():
    chains = Chains(spans_of(split(1, 5, 9)), plans())

    assert idle_times(chains) == ()
    assert critical_path(chains, 0) == ()


def test_spans_of_an_unknown_plan_are_divided_as_far_as_they_are_known():
    rows = (step := step_span(0, 50), copy(L_OUT, 2, 6), split(2, 10, 50))

    chains = Chains(spans_of(*rows), {})

    assert [tuple(piece) for piece in idle_times(chains)] == [(GPU1, 0, 10, HOST, thing(step))]


def works(n_steps):
    """Any splits, copies, waits, planning, shares and exchanges, at any time in any step."""
    indices = {SpanKind.COPY: 10, SpanKind.SPLIT: 2}
    return st.lists(
        st.sampled_from([kind for kind in SpanKind if kind is not SpanKind.STEP]).flatmap(
            lambda kind: st.tuples(
                st.just(kind), st.integers(-10, 130), st.integers(0, 40),
                st.sampled_from([GPU0, GPU1, CPU, M0, M1]), st.integers(0, indices.get(kind, 2)),
                st.integers(0, n_steps), st.sampled_from([GPU0, GPU1, CPU]),
            )
        ),
        max_size=30,
    )  # fmt: skip


def row_of(kind, start, length, lane, index, step, peer):
    lane = HOST_LANE if kind is SpanKind.PLAN else lane
    return span(kind, start, start + length, lane=lane, index=index, step=step, peer=peer)


FRAMES = st.lists(st.tuples(st.integers(0, 100), st.integers(0, 40)), min_size=1, max_size=4)


@pytest.mark.parametrize("n_copies", [1, 3])
@settings(deadline=None)
@given(FRAMES, works(4))
def test_busy_and_idle_times_add_up_to_the_run_and_never_overlap(n_copies, frames, rows):
    steps = [step_span(s, s + n, step=step) for step, (s, n) in enumerate(frames)]
    spans = spans_of(*steps, *(row_of(*row) for row in rows))
    chains = Chains(spans, plans(n_copies=n_copies))

    idle = idle_times(chains)

    begin, end = min(s for s, _ in frames), max(s + n for s, n in frames)
    for use in lane_uses(chains, idle):
        mine = [piece for piece in idle if piece.lane == use.lane]
        units = [unit for piece in mine for unit in range(piece.start_ns, piece.end_ns)]
        starts, ends = busy(spans)[use.lane]
        work = {unit for s, e in zip(starts, ends, strict=True) for unit in range(s, e)}
        assert units == sorted(set(units) - work)
        assert set(units) | work >= set(range(begin, end))
        assert use.busy_ns + sum(use.idle_ns.values()) == use.wall_ns == end - begin
        assert all(piece.start_ns < piece.end_ns for piece in mine)
        for cause, blame in use.worst.items():
            assert 0 < blame.total_ns <= use.idle_ns[cause]


@pytest.mark.parametrize("n_copies", [1, 3])
@settings(deadline=None)
@given(FRAMES, works(4))
def test_the_critical_path_has_no_gaps_and_is_as_long_as_the_step(n_copies, frames, rows):
    steps = [step_span(s, s + n, step=step) for step, (s, n) in enumerate(frames)]
    spans = spans_of(*steps, *(row_of(*row) for row in rows))
    chains = Chains(spans, plans(n_copies=n_copies))

    for step, (start, length) in enumerate(frames):
        at = start
        for piece in critical_path(chains, step):
            assert piece.start_ns == at < piece.end_ns
            at = piece.end_ns
        assert at == start + length
