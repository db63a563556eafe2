"""What Running does with answers in an order that a slow pipe or an old run can bring."""

import sys
from dataclasses import replace

import pytest

from app.bridge.bridge import Bridge
from app.bridge.engine_host import EngineHost
from app.shell.running import Running
from app.state.app_state import AppState
from engine.core.summary import RunState
from engine.service.messages import Failed, RunStateChanged, TextEmitted, TraceArrived
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


def test_somebody_elses_failure_is_not_taken(running):
    assert not running.on_failed(Failed(99, "No."))


def test_a_trace_that_the_engine_lost_cannot_be_exported(running):
    running.on_trace(TraceArrived(trace()))
    assert running.has_trace

    running.on_engine_died()
    running.on_trace(TraceArrived(TraceSnapshot()))

    assert not running.has_trace
    assert running.state.trace.n_spans > 0
