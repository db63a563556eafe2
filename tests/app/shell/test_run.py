"""A real run in a real engine process, as the window sees it."""

import pytest

from engine.core.summary import RunState, StopReason
from engine.service.messages import TraceFormat
from tests.oracle import golden

TIMEOUT_MS = 280_000

pytestmark = pytest.mark.slow


@pytest.fixture
def opened(ready_app, qtbot):
    ready_app.controller.open(str(golden.model("nano-llama-f32")))
    qtbot.waitUntil(lambda: ready_app.state.plans is not None, timeout=TIMEOUT_MS)
    ready_app.window.run_panel.n_predict.setValue(6)
    return ready_app


def run(app, qtbot):
    app.window.actions_["run"].trigger()
    wait_for_end(app, qtbot)


def wait_for_end(app, qtbot):
    qtbot.waitUntil(lambda: not app.controller.is_busy, timeout=TIMEOUT_MS)


def wait_for_spans(app, qtbot):
    def settled() -> bool:
        return not app.bridge._poll_timer.isActive() and app.state.trace is not None

    qtbot.waitUntil(settled, timeout=TIMEOUT_MS)


def test_a_run_brings_text_speed_plans_and_spans(opened, qtbot):
    states = []
    opened.state.run_changed.connect(lambda run: states.append(run.state))

    run(opened, qtbot)
    wait_for_spans(opened, qtbot)

    state, window = opened.state, opened.window
    summary = state.run.summary
    assert states[0] is RunState.PREPARING
    assert states[-1] is RunState.IDLE
    assert window.run_panel.text.toPlainText() == summary.text == state.run.text
    assert state.plan_that_ran(state.batch) is state.shown_plan
    assert state.trace.n_spans > 0
    assert window.answer.label.plain_text.startswith("Prompt ")
    assert "Of the prompt" in window.answer.label.plain_text
    assert "timeline" in window.area.views
    assert window.actions_["export"].isEnabled()


def test_a_second_run_starts_its_text_and_trace_anew(opened, qtbot):
    run(opened, qtbot)
    wait_for_spans(opened, qtbot)
    first = opened.state.trace

    run(opened, qtbot)
    wait_for_spans(opened, qtbot)

    assert opened.state.trace.epoch != first.epoch
    assert opened.window.run_panel.run_button.text() == "Run again"
    assert opened.window.run_panel.text.toPlainText() == opened.state.run.summary.text


def test_during_a_run_layers_wait_and_op_offload_acts(opened, qtbot):
    toolbar = opened.window.toolbar
    opened.window.run_panel.n_predict.setValue(200)

    opened.window.actions_["run"].trigger()

    assert not toolbar.slider.isEnabled()
    assert toolbar.slider.toolTip() == "applies at the next run"
    assert toolbar.offload_switch.isEnabled()
    assert toolbar.stop_button.isEnabled()
    toolbar.offload_switch.click()
    opened.window.actions_["stop"].trigger()
    wait_for_end(opened, qtbot)
    qtbot.waitUntil(lambda: opened.state.diff is not None, timeout=TIMEOUT_MS)
    assert opened.state.plans.options.op_offload is False
    assert toolbar.slider.isEnabled()


def test_a_stopped_run_keeps_what_it_made(opened, qtbot):
    opened.window.run_panel.n_predict.setValue(400)
    opened.window.actions_["run"].trigger()
    qtbot.waitUntil(lambda: opened.state.run.n_tokens > 2, timeout=TIMEOUT_MS)

    opened.window.toolbar.stop_button.click()
    wait_for_end(opened, qtbot)

    summary = opened.state.run.summary
    assert summary.stop_reason is StopReason.STOPPED
    assert 2 < len(summary.tokens) < 400
    assert "Stopped after" in opened.window.answer.label.plain_text


def test_a_trace_is_exported(opened, qtbot, tmp_path):
    run(opened, qtbot)
    path = tmp_path / "run.pftrace"
    opened.controller.running.export(path, TraceFormat.PERFETTO)
    qtbot.waitUntil(lambda: bool(opened.window.messages.messages), timeout=TIMEOUT_MS)

    assert path.stat().st_size > 1000
    assert opened.window.messages.messages[0].title.startswith("The trace is written")


def test_a_death_during_a_run_keeps_what_was_recorded_and_the_run_can_be_repeated(opened, qtbot):
    opened.window.run_panel.n_predict.setValue(400)
    opened.window.actions_["run"].trigger()
    qtbot.waitUntil(lambda: opened.state.run.n_tokens > 2, timeout=TIMEOUT_MS)
    qtbot.waitUntil(
        lambda: opened.state.trace is not None and opened.state.trace.n_spans > 0,
        timeout=TIMEOUT_MS,
    )

    opened.bridge._host._child._process.kill()
    qtbot.waitUntil(
        lambda: opened.controller.is_ready and bool(opened.window.messages.messages)
        and not opened.controller.is_busy,
        timeout=TIMEOUT_MS,
    )  # fmt: skip

    message = opened.window.messages.messages[0]
    assert "generated tokens" in message.title
    assert message.sentence.startswith("What the run recorded so far is kept")
    assert opened.state.trace.n_spans > 0
    assert not opened.window.actions_["export"].isEnabled()
    assert opened.window.actions_["run"].isEnabled()
