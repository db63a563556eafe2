"""Lengths of steps from spans drawn by hand, and speeds."""

import numpy as np

from engine.core.summary import Together
from engine.report.prediction import Prediction, steps_ns
from engine.trace.records import HOST_LANE, NO_EXPERTS, SPAN_DTYPE, SpanKind, StepKind


def spans(*rows):
    """Make spans of (kind, lane, peer, start, end)."""
    return np.array(
        [(kind, lane, peer, 0, 0, 0, 0, a, b, 0, *NO_EXPERTS) for kind, lane, peer, a, b in rows],
        SPAN_DTYPE,
    )


def step(kind, start, end):
    return (SpanKind.STEP, HOST_LANE, kind, start, end)


def figures(**changes):
    given = {
        "n_prompt_tokens": 100, "n_tokens": 3, "n_ubatch": 10, "prompt_ns": 10**9,
        "generation_ns": 10**9, "together": Together(1, (), (), 0, (), 1, "", 0, 0),
    } | changes  # fmt: skip
    return Prediction(**given)


def test_steps_that_overlap_count_once():
    drawn = spans(
        step(StepKind.PROMPT, 0, 50), step(StepKind.PROMPT, 20, 80), step(StepKind.TOKEN, 80, 90)
    )

    assert steps_ns(drawn, StepKind.PROMPT) == 80
    assert steps_ns(drawn, StepKind.TOKEN) == 10
    assert steps_ns(spans(), StepKind.TOKEN) == 0


def test_speeds_leave_out_the_token_that_the_prompt_gives():
    assert figures().prompt_tokens_per_s == 100
    assert figures().tokens_per_s == 2
    assert figures(n_tokens=1, generation_ns=0).tokens_per_s == 0
