"""Loads of devices and lengths of steps, from spans drawn by hand."""

import numpy as np

from engine.report.prediction import DeviceLoad, Prediction, device_loads, steps_ns
from engine.trace.records import HOST_LANE, MEMBER_LANE, NO_EXPERTS, SPAN_DTYPE, SpanKind, StepKind


def spans(*rows):
    """Make spans of (kind, lane, peer, start, end)."""
    return np.array(
        [(kind, lane, peer, 0, 0, 0, 0, a, b, 0, *NO_EXPERTS) for kind, lane, peer, a, b in rows],
        SPAN_DTYPE,
    )


def step(kind, start, end):
    return (SpanKind.STEP, HOST_LANE, kind, start, end)


def split(lane, start, end):
    return (SpanKind.SPLIT, lane, 255, start, end)


def figures(**changes):
    given = {
        "n_prompt_tokens": 100, "n_tokens": 3, "n_ubatch": 10, "prompt_ns": 10**9,
        "generation_ns": 10**9, "devices": (), "n_copies": 1, "pipeline_off": "",
    } | changes  # fmt: skip
    return Prediction(**given)


def test_time_overlaps_where_another_device_computes_too():
    r"""Draw two devices over a run of 100.

    A  ####----####        10-30, 50-70
    B     ####----         20-60
    """
    drawn = spans(
        step(StepKind.PROMPT, 0, 100), split(0, 10, 30), split(0, 50, 70), split(1, 20, 60)
    )

    assert device_loads(drawn, {0: "A", 1: "B"}) == (
        DeviceLoad("A", busy_ns=40, idle_ns=60, overlapped_ns=20),
        DeviceLoad("B", busy_ns=40, idle_ns=60, overlapped_ns=20),
    )


def test_a_device_that_did_nothing_was_idle():
    drawn = spans(step(StepKind.TOKEN, 5, 25), split(0, 10, 20))

    assert device_loads(drawn, {0: "A", 1: "B"})[1] == DeviceLoad("B", 0, 20, 0)


def test_members_of_a_joined_device_have_loads_of_their_own():
    first, second = MEMBER_LANE, MEMBER_LANE + 1
    drawn = spans(
        step(StepKind.TOKEN, 0, 100), split(0, 10, 60),
        (SpanKind.SHARD, first, 255, 10, 40), (SpanKind.SHARD, second, 255, 20, 60),
    )  # fmt: skip

    assert device_loads(drawn, {first: "A", second: "B"}) == (
        DeviceLoad("A", busy_ns=30, idle_ns=70, overlapped_ns=20),
        DeviceLoad("B", busy_ns=40, idle_ns=60, overlapped_ns=20),
    )


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
