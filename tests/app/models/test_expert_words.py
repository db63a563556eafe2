"""Copies of used experts in words, from a run on devices that compute nothing."""

import numpy as np
import pytest

from app.models.expert_words import expert_words, piece_lines
from app.theme.text import duration_text
from engine.trace.records import SpanKind
from tests.app.models.paper_run import words
from tests.engine.sched.expert_run import expert_run

UP = 0
"""The copy of the weight whose experts are those that the run was told."""


@pytest.fixture(scope="module")
def ran():
    """Return the plan and the spans of two steps."""
    table, recorder = expert_run((7, 1, 5, 2), (3, 1, 2, 3))
    return table, recorder.snapshot().spans()


def rows_of_up(spans, step):
    mine = (spans["kind"] == SpanKind.COPY) & (spans["index"] == UP) & (spans["step"] == step)
    return np.flatnonzero(mine)


def test_a_step_says_which_experts_of_how_many_and_what_all_would_be(ran):
    found = expert_words(*ran, UP, step=0)

    assert found is not None
    assert found.which == "1-2, 5, 7 of 8"
    assert (words(found.moved), words(found.whole)) == ("17 KiB", "32 KiB")


def test_several_steps_say_how_many_on_average(ran):
    """Steps of four experts and of three."""
    found = expert_words(*ran, UP)

    assert found is not None
    assert found.which == "3.5 of 8 on average over 2 steps"
    assert words(found.moved) == "14.8 KiB"


def test_what_all_would_take_is_estimated_from_the_copys_own_rate(ran):
    table, spans = ran
    mine = spans[rows_of_up(spans, 0)]
    took_ns, moved = (mine["end_ns"] - mine["start_ns"]).sum(), mine["bytes"].sum()

    found = expert_words(table, spans, UP, step=0)

    assert found is not None
    assert found.whole_ns == pytest.approx(32 * 1024 * took_ns / moved)
    assert words(found.basis) == f"{moved / took_ns:.1f} GB/s"


@pytest.mark.parametrize(("copy_id", "step"), [(1, -1), (UP, 5), (-1, -1)])
def test_what_is_no_expert_copy_or_has_not_run_has_no_words(ran, copy_id, step):
    assert expert_words(*ran, copy_id, step=step) is None


def test_another_plans_spans_are_not_this_plans(ran):
    table, spans = ran
    others = spans.copy()
    others["plan_id"] += 1

    assert expert_words(table, others, UP) is None


def test_a_piece_says_its_own_experts_and_those_of_the_whole_copy(ran):
    table, spans = ran
    found = expert_words(table, spans, UP, step=0)

    first, middle = (piece_lines(table, spans, row) for row in rows_of_up(spans, 0)[:2])

    assert found is not None
    assert words(first[0]) == "experts 1-2 of 8"
    assert words(middle[0]) == "expert 5 of 8"
    assert words(first[1]) == "this copy: experts 1-2, 5, 7 of 8, 17 KiB of 32 KiB"
    time, basis = duration_text(found.whole_ns), found.basis
    assert first[2] == f"copying all: about {time} at this copy's {basis}, estimated"


def test_a_copy_of_one_piece_says_it_once(ran):
    table, spans = ran
    (row,) = rows_of_up(spans, 1)

    lines = piece_lines(table, spans, row)

    assert words(lines[0]) == "experts 1-3 of 8, 12.5 KiB of 32 KiB"
    assert len(lines) == 2


def test_without_a_time_nothing_is_estimated(ran):
    table, spans = ran
    instant = spans.copy()
    instant["end_ns"] = instant["start_ns"]

    assert len(piece_lines(table, instant, rows_of_up(spans, 1)[0])) == 1


def test_a_span_that_is_no_run_of_experts_adds_nothing(ran):
    table, spans = ran

    for row in np.flatnonzero(spans["first_expert"] < 0):
        assert piece_lines(table, spans, row) == []
