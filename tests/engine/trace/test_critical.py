"""The critical path: traces drawn by hand. That it adds up is in test_idle."""

from engine.trace.chains import Chains
from engine.trace.critical import critical_path
from engine.trace.records import MEMBER_LANE, SpanKind
from tests.engine.trace.drawn import (
    EMBD,
    GPU0,
    L_OUT,
    POS,
    POS_1,
    copy,
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


def path_of(step, *rows, n_copies=1):
    found = critical_path(Chains(spans_of(*rows), plans(n_copies=n_copies)), step)
    return [(*tuple(piece), piece.duration_ns) for piece in found]


def test_the_path_of_a_step_goes_through_what_ended_last():
    """The input's copy into split 2 was done long before its other input was made."""
    step = step_span(0, 100)
    rows = (
        step, planned := planning(0, 8), cpu := split(0, 10, 20), copy(POS_1, 2, 4),
        embd := copy(EMBD, 20, 22), gpu0 := split(1, 25, 60), copy(POS, 20, 21),
        l_out := copy(L_OUT, 60, 64), gpu1 := split(2, 64, 90),
    )  # fmt: skip

    assert path_of(0, *rows) == [
        (0, 8, thing(planned), 8),
        (8, 10, thing(step), 2),
        (10, 20, thing(cpu), 10),
        (20, 22, thing(embd), 2),
        (22, 25, thing(step), 3),
        (25, 60, thing(gpu0), 35),
        (60, 64, thing(l_out), 4),
        (64, 90, thing(gpu1), 26),
        (90, 100, thing(step), 10),
    ]


def test_in_a_pipeline_the_path_of_a_step_leads_through_earlier_ones():
    rows = (
        step_span(0, 40), split(1, 0, 10), first := split(2, 10, 40),
        step_span(1, 70, step=1), split(1, 10, 20, step=1), second := split(2, 40, 70, step=1),
    )  # fmt: skip

    path = path_of(1, *rows, n_copies=4)

    assert path[-2:] == [(10, 40, thing(first), 30), (40, 70, thing(second), 30)]
    assert path[0][0] == 1


def test_a_path_leads_through_the_shares_of_a_meta_device():
    meta = span(SpanKind.SPLIT, 5, 40, lane=GPU0, index=1)
    rows = (
        step := step_span(0, 50), meta, shard(MEMBER_LANE, 1, 5, 20),
        slow := shard(MEMBER_LANE + 1, 1, 6, 38),
    )  # fmt: skip

    assert path_of(0, *rows) == [
        (0, 5, thing(step), 5),
        (5, 6, launching(meta), 1),
        (6, 38, thing(slow), 32),
        (38, 40, launching(meta), 2),
        (40, 50, thing(step), 10),
    ]


def test_pieces_of_one_copy_and_a_clock_that_is_off_make_no_gap():
    """The copy says that it ended after the split began."""
    rows = (step := step_span(0, 30), copy(L_OUT, 2, 6), copy(L_OUT, 6, 11), split(2, 10, 30))

    assert [piece[:2] for piece in path_of(0, *rows)] == [(0, 2), (2, 6), (6, 10), (10, 30)]
    assert path_of(0, *rows)[0][2] == thing(step)


def test_a_step_in_which_nothing_was_recorded_is_the_hosts():
    step = step_span(3, 9)

    assert path_of(0, step) == [(3, 9, thing(step), 6)]
    assert path_of(0, step, wait(GPU0, 1, 4, 5)) == [(3, 9, thing(step), 6)]
