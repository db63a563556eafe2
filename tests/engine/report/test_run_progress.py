"""Counts and speeds of a run in progress."""

import pytest

from engine.core.summary import RunState
from engine.report.run_progress import RunProgress

MS = 1_000_000


class Clock:
    now_ns = 5 * MS

    def __call__(self) -> int:
        return self.now_ns


@pytest.fixture
def told():
    return []


def test_speeds_are_tokens_over_the_time_since_the_state_began(told):
    clock = Clock()
    progress = RunProgress(told.append, clock=clock)
    progress.n_prompt_tokens = 40

    progress.enter(RunState.PROMPT)
    clock.now_ns += 100 * MS
    progress.prompt_done()
    progress.add(7)
    clock.now_ns += 20 * MS
    progress.token_done()
    progress.add(8)

    assert [status.state for status in told] == [RunState.PROMPT, *[RunState.GENERATING] * 3]
    assert told[-1].prefill_tokens_per_s == pytest.approx(400)
    assert told[-1].decode_tokens_per_s == pytest.approx(50)
    assert (told[-1].n_prompt_tokens, told[-1].n_tokens) == (40, 2)


def test_there_is_no_speed_before_something_was_measured(told):
    RunProgress(told.append).enter(RunState.PREPARING)

    assert (told[0].prefill_tokens_per_s, told[0].decode_tokens_per_s) == (0.0, 0.0)
