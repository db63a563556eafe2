"""The sums of a run, from spans written by hand for a real plan."""

import threading
from dataclasses import replace

import pytest

from engine.core.options import Options
from engine.core.summary import ExchangeSum, StopReason
from engine.report.run_sums import Generated, run_notes, run_summary, settled_snapshot
from engine.session import Session
from engine.trace.recorder import Recorder
from engine.trace.records import HOST_LANE, SpanKind, StepKind
from tests.engine.nano import nano
from tests.engine.sched.expert_run import EXPERT_BYTES, N_EXPERTS, PAD_BYTES, expert_run

GENERATED = Generated("p", [1, 2, 3], [4, 5], "text", StopReason.LENGTH)


@pytest.fixture(scope="module")
def plans():
    """Return the nano model's plans, by id, and the two ids; three splits in the prompt's."""
    session = Session(virtual=["GPU0:gpu:100", "GPU1:gpu:100"])
    session.open(nano())
    plan_set = session.plan(Options(n_ctx=256))
    session.close()
    by_id = {plan.plan_id: plan for plan in (plan_set.prompt, plan_set.token)}
    return by_id, plan_set.prompt.plan_id, plan_set.token.plan_id


def add_times(recorder, plans, plan_id, step, start_ns, split_ns, *, order=1):
    """Record a step's splits, of which split s takes split_ns + s, in either order, and copies."""
    plan = plans[plan_id]
    for split_id in range(len(plan.splits))[::order]:
        span_ns = split_ns + split_id
        recorder.span(
            SpanKind.SPLIT, 0, plan_id, split_id, step, start_ns, start_ns + span_ns
        )  # fmt: skip
    for copy_id in range(len(plan.copies)):
        recorder.span(SpanKind.COPY, 0, plan_id, copy_id, step, start_ns, start_ns + 1)


def add_late(recorder, plan_id, expected):
    recorder.span(SpanKind.SPLIT, 0, plan_id, 0, 0, 0, 5, expected=expected)


def add_step(recorder, plan_id, kind, step, start_ns, n_tokens=1):
    recorder.span(
        SpanKind.STEP, HOST_LANE, plan_id, step, step, start_ns, start_ns + 1000,
        peer=int(kind), n_bytes=n_tokens,
    )  # fmt: skip


def test_of_a_prompt_that_was_stopped_in_it_the_finished_graphs_were_read(plans):
    by_id, prompt_id, _ = plans
    recorder = Recorder()
    for step in range(2):
        add_step(recorder, prompt_id, StepKind.PROMPT, step, 1000 * step, n_tokens=4)
    stopped = Generated("p", range(11), [], "", StopReason.STOPPED)

    summary = run_summary(stopped, recorder.snapshot(), by_id)

    assert (summary.n_prompt_read, summary.n_unread) == (8, 3)


@pytest.mark.parametrize(
    ("tokens", "reason"), [([7], StopReason.STOPPED), ([], StopReason.END_OF_TEXT)]
)
def test_a_prompt_that_gave_a_token_or_an_end_was_read(plans, tokens, reason):
    generated = Generated("p", [1, 2, 3], tokens, "", reason)

    summary = run_summary(generated, Recorder().snapshot(), plans[0])

    assert (summary.n_prompt_read, summary.n_unread) == (3, 0)


def test_exchanges_are_those_of_the_last_step_with_a_plan(plans):
    by_id, prompt_id, token_id = plans
    recorder = Recorder()
    add_step(recorder, prompt_id, StepKind.PROMPT, 0, 0)
    for step, n in ((1, 3), (2, 2)):
        add_step(recorder, token_id, StepKind.TOKEN, step, 1000 * step)
        for _ in range(n):
            recorder.span(SpanKind.EXCHANGE, 0, token_id, 0, step, 0, 1, peer=1, n_bytes=50)

    summary = run_summary(GENERATED, recorder.snapshot(), by_id)

    assert summary.exchanges == (ExchangeSum(token_id, 2, 100),)


def test_a_generation_that_the_context_cut_says_so():
    cut = replace(GENERATED, stop_reason=StopReason.CONTEXT_FULL)

    notes = run_notes(("first", ""), cut, 8192)

    assert notes == (
        "first",
        "the context of 8,192 tokens is full after 2 generated tokens: a longer one (-c) takes "
        "more",
    )
    assert run_notes(("first", ""), GENERATED, 8192) == ("first",)


def test_times_stand_in_the_order_of_the_steps_however_they_arrive(plans):
    by_id, _, token_id = plans
    recorder = Recorder()
    for step, split_ns, order in ((2, 300, -1), (1, 200, 1)):
        add_times(recorder, by_id, token_id, step, 0, split_ns, order=order)
        add_step(recorder, token_id, StepKind.TOKEN, step, 0)

    summary = run_summary(GENERATED, recorder.snapshot(), by_id)

    assert [split.time_ns for split in summary.splits] == [
        (200 + i, 300 + i) for i in range(len(by_id[token_id].splits))
    ]
    assert {copy.time_ns for copy in summary.copies} == {(1, 1)}


def test_a_long_prompt_has_the_splits_of_every_plan_it_met(plans):
    """A plan that was met and never finished a step has no rows."""
    by_id, prompt_id, _ = plans
    last, unused = max(by_id) + 1, max(by_id) + 2
    by_id = by_id | {plan: replace(by_id[prompt_id], plan_id=plan) for plan in (last, unused)}
    recorder = Recorder()
    for step, plan_id in enumerate((prompt_id, prompt_id, last)):
        add_times(recorder, by_id, plan_id, step, 0, 100 * (step + 1))
        add_step(recorder, plan_id, StepKind.PROMPT, step, 0)

    summary = run_summary(GENERATED, recorder.snapshot(), by_id)

    first_of = {split.plan: split.time_ns for split in summary.splits if split.id == 0}
    assert first_of == {prompt_id: (100, 200), last: (300,)}
    assert {copy.plan for copy in summary.copies} == {prompt_id, last}
    assert (summary.prompt_plan_id, summary.token_plan_id) == (last, -1)
    n_times = sum(len(split.time_ns) for split in summary.splits)
    assert n_times == len(recorder.snapshot().of_kind(SpanKind.SPLIT))


def test_speeds_are_tokens_over_the_time_of_their_steps(plans):
    by_id, prompt_id, token_id = plans
    recorder = Recorder()
    add_step(recorder, prompt_id, StepKind.PROMPT, 0, 0, n_tokens=2)
    add_step(recorder, prompt_id, StepKind.PROMPT, 1, 1000, n_tokens=1)
    add_step(recorder, token_id, StepKind.TOKEN, 2, 2000)

    summary = run_summary(GENERATED, recorder.snapshot(), by_id)

    assert (summary.prefill_ns, summary.decode_step_ns) == (2000, (1000,))
    assert summary.prefill_tokens_per_s == pytest.approx(3 / 2e-6)
    assert summary.decode_tokens_per_s == pytest.approx(1 / 1e-6)
    assert (summary.prompt_plan_id, summary.token_plan_id) == (prompt_id, token_id)


def test_overlapping_steps_of_a_prompt_take_the_union_of_their_times(plans):
    """Three ubatches of 1000 ns in a pipeline, each 250 ns behind the one before."""
    by_id, prompt_id, _ = plans
    recorder = Recorder()
    for step in range(3):
        add_step(recorder, prompt_id, StepKind.PROMPT, step, 250 * step, n_tokens=3)

    summary = run_summary(GENERATED, recorder.snapshot(), by_id)

    assert summary.prefill_ns == 1500
    assert summary.prefill_tokens_per_s == pytest.approx(9 / 1.5e-6)


def test_a_run_without_steps_has_no_speed_and_no_splits(plans):
    summary = run_summary(GENERATED, Recorder().snapshot(), plans[0])

    assert (summary.prefill_tokens_per_s, summary.decode_tokens_per_s) == (0.0, 0.0)
    assert (summary.splits, summary.prompt_plan_id) == ((), -1)


def test_a_snapshot_waits_for_times_that_come_late(plans):
    *_, token_id = plans
    recorder = Recorder()
    add_step(recorder, token_id, StepKind.TOKEN, 0, 0)
    late = threading.Timer(0.05, add_late, args=(recorder, token_id, recorder.expect()))
    late.start()

    snapshot = settled_snapshot(recorder)
    late.join()

    assert len(snapshot.of_kind(SpanKind.SPLIT)) == 1


def test_an_expert_copy_has_one_time_a_step_and_says_what_it_moved():
    table, recorder = expert_run((7, 1, 5, 2), (0, 1, 2, 3))

    summary = run_summary(GENERATED, recorder.snapshot(), {table.plan_id: table})

    up, x = summary.copies[:2]
    assert (up.n_experts, up.n_bytes) == (N_EXPERTS, N_EXPERTS * EXPERT_BYTES)
    assert up.experts == (((1, 2), (5, 5), (7, 7)), ((0, 3),))
    assert up.copied_bytes == (4 * EXPERT_BYTES + 2 * PAD_BYTES, 4 * EXPERT_BYTES + PAD_BYTES)
    assert len(up.time_ns) == 2
    assert (x.n_experts, x.experts, x.copied_bytes) == (0, (), ())


def test_sums_of_experts_are_those_of_the_steps_of_their_kind():
    table, recorder = expert_run((7, 1, 5, 2), kind=StepKind.PROMPT)

    summary = run_summary(GENERATED, recorder.snapshot(), {table.plan_id: table})

    use = summary.prompt_experts
    assert summary.token_experts is None
    assert use is not None
    moved = [copy for copy in summary.copies if copy.n_experts]
    assert use.copied_bytes == sum(sum(copy.copied_bytes) for copy in moved)
    assert use.whole_bytes == sum(copy.n_bytes for copy in moved)
    assert use.copy_ns == sum(sum(copy.time_ns) for copy in moved)


def test_a_run_without_expert_copies_has_no_sums_of_them(plans):
    by_id, _, token_id = plans
    recorder = Recorder()
    add_times(recorder, by_id, token_id, 1, 0, 200)
    add_step(recorder, token_id, StepKind.TOKEN, 1, 0)

    summary = run_summary(GENERATED, recorder.snapshot(), by_id)

    assert (summary.prompt_experts, summary.token_experts) == (None, None)
