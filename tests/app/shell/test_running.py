"""What Running does with answers in an order that a slow pipe or an old run can bring."""

import sys
from dataclasses import replace

import pytest

from app.bridge.bridge import Bridge
from app.bridge.engine_host import EngineHost
from app.shell.running import Running
from app.state.app_state import AppState
from engine.core.summary import RunState, RunSummary, StopReason
from engine.service.messages import (
    Failed,
    PlanMet,
    RunEnded,
    RunStateChanged,
    TextEmitted,
    TraceArrived,
)
from engine.trace.snapshot import TraceSnapshot
from tests.app.models import paper_run


@pytest.fixture
def running(qapp):
    state = AppState()
    running = Running(state, Bridge(EngineHost([sys.executable]), state), state)
    running.state = state
    running.messages = []
    running.message.connect(running.messages.append)
    yield running
    running._flush_timer.stop()
    state.deleteLater()


def trace(**changes):
    return replace(paper_run.run_on_paper(paper_run.plans(), 1), **changes)


def summary(prompt_plan_id):
    return RunSummary(
        prompt="hello", prompt_tokens=(1,) * 7, tokens=(1,), text="once", prefill_ns=1,
        stop_reason=StopReason.LENGTH, prefill_tokens_per_s=1.0, decode_tokens_per_s=0.0,
        decode_step_ns=(), prompt_plan_id=prompt_plan_id, token_plan_id=-1, splits=(), copies=(),
    )  # fmt: skip


def test_text_is_gathered_and_shown_at_once(running, qtbot):
    running.start("hello", 4)
    texts = []
    running.state.run_changed.connect(lambda run: texts.append(run.text))

    for part in ("on", "ce", " upon"):
        running.on_text(TextEmitted(part))
    qtbot.waitUntil(lambda: bool(texts))

    assert texts == ["once upon"]


def test_text_without_a_run_is_dropped(running):
    running.on_text(TextEmitted("late"))

    assert running._new is None


def test_the_state_is_shown_at_once(running):
    running.start("hello", 4)

    running.on_state(RunStateChanged(RunState.PROMPT, n_prompt_tokens=7))

    assert running.state.run.state is RunState.PROMPT
    assert running.state.run.n_prompt_tokens == 7


def test_spans_of_the_run_before_do_not_come_back(running):
    old = trace(epoch=1)
    running.on_trace(TraceArrived(old))
    running.start("hello", 4)

    running.on_trace(TraceArrived(replace(old, chunks=(), since=old.seq)))
    assert running.state.trace is None

    running.on_trace(TraceArrived(trace(epoch=2)))
    assert running.state.trace.epoch == 2


def test_an_answer_that_does_not_join_what_is_known_is_dropped(running):
    known = trace(epoch=1)
    running.on_trace(TraceArrived(known))

    running.on_trace(TraceArrived(replace(known, since=known.seq - 3)))

    assert running.state.trace.n_spans == known.n_spans


def test_lost_records_are_told_once_a_run(running):
    lossy = trace(epoch=1, lost=9)

    running.on_trace(TraceArrived(lossy))
    running.on_trace(TraceArrived(replace(lossy, chunks=(), since=lossy.seq)))

    assert [message.title for message in running.messages] == [
        "9 records of the run were not kept."
    ]


def test_a_run_that_cannot_be_done_ends_with_its_words(running):
    running.start("", 4)

    assert running.on_failed(Failed(running._run_id, "The prompt is empty."))

    assert not running.is_running
    assert running.state.run.state is RunState.IDLE
    assert running.messages[0].title == "The prompt is empty."


@pytest.fixture
def measured(running):
    """Bring a run that ended, with its plans and spans."""
    plans = paper_run.plans()
    running.state.set_plans(plans)
    running.start("hello", 4)
    running.on_state(RunStateChanged(RunState.PROMPT, n_prompt_tokens=7))
    running.on_plan_met(PlanMet(plans.prompt))
    running.on_trace(TraceArrived(trace(epoch=1)))
    running.on_ended(RunEnded(running._run_id, summary(plans.prompt.plan_id)))
    return running


def shown(running):
    state = running.state
    return (
        state.run.summary, state.run.text, state.run_is_newest, state.trace, dict(state.met_plans),
        state.shown_plan,
    )  # fmt: skip


def test_a_run_that_is_refused_before_it_computes_leaves_the_last_one_as_it_was(measured):
    before = shown(measured)
    measured.start("hello " * 9000, 4)
    cleared = measured.state.trace

    measured.on_state(RunStateChanged(RunState.PREPARING))
    measured.on_failed(Failed(measured._run_id, "The prompt is too long."))

    assert cleared is None
    assert shown(measured) == before
    assert before[0] is not None
    assert before[2] is True
    assert measured.state.run.problem == ""
    assert [message.title for message in measured.messages] == ["The prompt is too long."]


def test_a_text_that_is_refused_leaves_the_last_embedding_and_says_why(measured):
    before = shown(measured)
    measured.embed("hello " * 9000)

    measured.on_failed(Failed(measured._run_id, "The text is too long."))

    assert shown(measured) == before
    assert measured.state.run.problem == "The text is too long."


def test_a_run_that_fails_while_it_computes_leaves_nothing_of_the_last_one(measured):
    measured.start("hello", 4)

    measured.on_state(RunStateChanged(RunState.PROMPT, n_prompt_tokens=7))
    measured.on_failed(Failed(measured._run_id, "The model produced NaN."))

    assert shown(measured)[:4] == (None, "", False, None)


def test_the_spans_of_an_engine_that_ended_are_not_taken_after_a_refusal(measured):
    measured.on_engine_died()
    kept = measured.state.trace
    measured.embed("")

    measured.on_failed(Failed(measured._run_id, "The text is empty."))
    measured.on_trace(TraceArrived(TraceSnapshot()))

    assert measured.state.trace is kept


def test_what_was_said_of_a_run_goes_when_the_next_begins_and_its_losses_when_it_computes(running):
    gone = []
    running.message_gone.connect(gone.append)

    running.start("hello", 4)
    at_begin = list(gone)
    running.on_state(RunStateChanged(RunState.PROMPT, n_prompt_tokens=7))

    assert at_begin == ["run"]
    assert gone == ["run", "lost"]


def test_somebody_elses_failure_is_not_taken(running):
    assert not running.on_failed(Failed(99, "No."))


def test_a_trace_that_the_engine_lost_cannot_be_exported(running):
    running.on_trace(TraceArrived(trace()))
    assert running.has_trace

    running.on_engine_died()
    running.on_trace(TraceArrived(TraceSnapshot()))

    assert not running.has_trace
    assert running.state.trace.n_spans > 0
