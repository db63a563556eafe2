"""What copies wait for where slots are used again, and how much of a run is looked at."""

import pytest

from engine.trace.chains import Chains, last_steps
from tests.engine.trace.drawn import EMBD, L_OUT, copy, plans, spans_of, split, step_span, thing


def path_of(step, *rows, n_copies):
    """Return what is on the path to the end of a step, by time."""
    chains = Chains(spans_of(*rows), plans(n_copies=n_copies))
    return [piece.thing for piece in chains.before_end(step)][::-1]


READERS = {0: (10, 40), 1: (40, 70), 2: (70, 100)}
"""When GPU1 computes in each step."""


@pytest.mark.parametrize(("n_copies", "guard"), [(1, 2), (2, 1), (3, 0)])
def test_a_copy_waits_for_what_may_still_read_its_slot(n_copies, guard):
    """The copy of step 3 goes where that of step 3 - n_copies was. Here with two slots:

    GPU0  0[]1[]2[]3[]
    GPU1      0[10.....40]1[40.....70]2[70....100]    3[120..130]
    copy                             3[70.........120]
    """
    begin = READERS[guard][1]
    rows = [row for i in range(3) for row in (
        step_span(10 * i, READERS[i][1] + 2, step=i), split(1, 10 * i, 10 * i + 10, step=i),
        split(2, *READERS[i], step=i),
        # The step goes on elsewhere: its end is not what the copy waits for.
        split(0, READERS[i][1], READERS[i][1] + 2, step=i),
    )]  # fmt: skip
    copied, last = copy(L_OUT, begin, 120, step=3), split(2, 120, 130, step=3)
    rows += [step_span(30, 130, step=3), split(1, 30, 38, step=3), copied, last]

    path = path_of(3, *rows, n_copies=n_copies)

    assert path[-3:] == [thing(split(2, 0, 0, step=guard)), thing(copied), thing(last)]


def test_a_copy_into_a_slot_that_is_free_waits_for_its_source_only():
    """GPU1 still computes step 0 while step 1's copy goes to the other slot."""
    rows = (
        step_span(0, 50), split(1, 0, 10), slow := split(2, 10, 50),
        step_span(10, 90, step=1), made := split(1, 12, 30, step=1),
        copied := copy(L_OUT, 30, 60, step=1), last := split(2, 60, 90, step=1),
    )  # fmt: skip

    path = path_of(1, *rows, n_copies=2)

    assert path[-3:] == [thing(made), thing(copied), thing(last)]
    assert thing(slow) not in path


def test_a_copy_on_the_host_waits_for_the_reader_of_its_slot_too():
    """The CPU's result goes to GPU0, which computed the step with the same slot before."""
    rows = (
        step_span(0, 40), reader := split(1, 0, 40),
        step_span(5, 30, step=1), split(1, 50, 55, step=1),
        step_span(10, 80, step=2), split(0, 12, 14, step=2),
        copied := copy(EMBD, 40, 60, step=2), last := split(1, 60, 80, step=2),
    )  # fmt: skip

    assert path_of(2, *rows, n_copies=2)[-3:] == [thing(reader), thing(copied), thing(last)]


def run_of(n_steps):
    """Return steps of 3 spans each."""
    return spans_of(*(
        row for i in range(n_steps) for row in (
            step_span(10 * i, 10 * i + 9, step=i), split(1, 10 * i, 10 * i + 4, step=i),
            split(2, 10 * i + 4, 10 * i + 9, step=i),
        )
    ))  # fmt: skip


@pytest.mark.parametrize(("most", "kept"), [(29, 9), (12, 4), (11, 3), (3, 1), (1, 1)])
def test_of_a_very_long_run_the_last_whole_steps_are_looked_at(most, kept):
    found = last_steps(run_of(10), most)

    assert found["step"].tolist() == [i for i in range(10 - kept, 10) for _ in range(3)]


def test_a_run_that_is_not_long_is_looked_at_as_it_is():
    spans = run_of(10)

    assert last_steps(spans, 30) is spans
    assert last_steps(spans) is spans
