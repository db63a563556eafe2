"""A real run in a real engine process, as the window sees it."""

import json

import pytest
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace as TraceProto
from PySide6.QtCore import Qt

from app.state.app_state import Selection
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


def test_the_button_has_room_for_its_longer_text_at_once(opened, qtbot):
    panel = opened.window.run_panel
    run(opened, qtbot)
    opened.window.area.show_view("run")
    panel.run_button.setText("Run")
    panel._controls.activate()

    panel._sync_buttons()

    assert panel.run_button.text() == "Run again"
    assert panel.run_button.width() >= panel.run_button.sizeHint().width()


def test_a_second_run_starts_its_text_and_trace_anew(opened, qtbot):
    run(opened, qtbot)
    wait_for_spans(opened, qtbot)
    first = opened.state.trace

    run(opened, qtbot)
    wait_for_spans(opened, qtbot)

    assert opened.state.trace.epoch != first.epoch
    assert opened.window.run_panel.run_button.text() == "Run again"
    assert opened.window.run_panel.text.toPlainText() == opened.state.run.summary.text


def start_long_run(app, qtbot, n_tokens=1000):
    """The most likely tokens repeat themselves; others may end the text at any time."""
    app.controller.planning.change(temperature=0.0)
    qtbot.waitUntil(lambda: app.state.diff is not None, timeout=TIMEOUT_MS)
    app.controller.planning.keep()
    qtbot.waitUntil(lambda: app.state.diff is None, timeout=TIMEOUT_MS)
    app.window.run_panel.n_predict.setValue(n_tokens)
    app.window.actions_["run"].trigger()
    qtbot.waitUntil(lambda: app.state.run.n_tokens > 2, timeout=TIMEOUT_MS)


def test_layers_and_context_are_planned_during_a_run_and_apply_at_the_next(opened, qtbot):
    toolbar, bar = opened.window.toolbar, opened.window.change_bar
    start_long_run(opened, qtbot)

    assert toolbar.slider.toolTip().endswith("applies at the next run")
    toolbar.context_box.chosen.emit(256)
    qtbot.waitUntil(lambda: opened.state.diff is not None, timeout=TIMEOUT_MS)

    assert opened.controller.running.is_running
    assert "applies at the next run" in bar.facts.clauses
    assert opened.state.plans.n_ctx == 256
    opened.window.actions_["stop"].trigger()
    wait_for_end(opened, qtbot)
    assert bar.isVisible()


def test_op_offload_acts_during_a_run_and_leaves_a_mark(opened, qtbot):
    start_long_run(opened, qtbot)

    opened.window.toolbar.offload_switch.click()
    qtbot.waitUntil(lambda: opened.state.diff is not None, timeout=TIMEOUT_MS)
    assert "acts from the next graph on" in opened.window.change_bar.facts.clauses

    qtbot.waitUntil(
        lambda: opened.state.trace is not None and bool(opened.state.trace.marks),
        timeout=TIMEOUT_MS,
    )
    assert opened.state.trace.marks[0].text == "op_offload off"
    opened.window.actions_["stop"].trigger()
    wait_for_end(opened, qtbot)
    assert opened.state.plans.options.op_offload is False


def test_a_change_after_a_run_shows_the_plan_and_its_undo_the_run_again(opened, qtbot):
    run(opened, qtbot)
    ran = opened.state.shown_plan

    opened.window.toolbar.offload_switch.click()
    qtbot.waitUntil(lambda: opened.state.diff is not None, timeout=TIMEOUT_MS)
    assert opened.state.shown_plan is opened.state.plans.prompt
    assert not opened.window.answer.label.plain_text.startswith("Prompt ")

    opened.window.actions_["undo"].trigger()
    qtbot.waitUntil(lambda: opened.state.run_is_newest, timeout=TIMEOUT_MS)
    assert opened.state.shown_plan is ran
    assert opened.window.answer.label.plain_text.startswith("Prompt ")


def test_a_file_chosen_during_a_run_is_opened_after_it(opened, qtbot):
    other = golden.header("smollm2-135m-q4_1")
    start_long_run(opened, qtbot)

    opened.controller.open(str(other))

    message = opened.window.messages.messages[0]
    assert message.title == f"{other.name} waits."
    assert message.actions == ("stop",)
    opened.window.actions_["stop"].trigger()
    qtbot.waitUntil(lambda: opened.state.model.path == str(other), timeout=TIMEOUT_MS)


def test_esc_stops_a_run_and_then_ends_the_selection(opened, qtbot):
    window = opened.window
    window.activateWindow()
    start_long_run(opened, qtbot)
    opened.state.select_node(1)

    qtbot.keyClick(window, Qt.Key.Key_Escape)
    wait_for_end(opened, qtbot)

    assert opened.state.run.summary.stop_reason is StopReason.STOPPED
    assert opened.state.selection != Selection()
    qtbot.keyClick(window, Qt.Key.Key_Escape)
    assert opened.state.selection == Selection()


def test_another_model_after_a_run_has_nothing_of_that_run(opened, qtbot):
    other = golden.header("smollm2-135m-q4_1")
    run(opened, qtbot)

    opened.controller.open(str(other))
    qtbot.waitUntil(lambda: opened.state.model.path == str(other), timeout=TIMEOUT_MS)

    assert opened.state.run.summary is None
    assert opened.state.met_plans == {}
    assert not opened.window.actions_["export"].isEnabled()
    assert "936 operations" in opened.window.answer.label.plain_text


def test_the_end_of_a_run_keeps_its_time_when_options_change(opened, qtbot):
    run(opened, qtbot)
    ended = f"run finished {opened.state.run.ended_at:%H:%M:%S}"
    assert opened.state.engine_text == ended
    opened.state.set_engine_text("")

    opened.window.toolbar.offload_switch.click()
    qtbot.waitUntil(lambda: bool(opened.state.engine_text), timeout=TIMEOUT_MS)

    assert opened.state.engine_text == ended


def test_an_empty_prompt_is_not_run(opened):
    opened.window.run_panel.prompt.setPlainText(" \n")

    button = opened.window.run_panel.run_button
    assert not button.isEnabled()
    assert button.toolTip().endswith("the prompt is empty")


def stop_early(app, qtbot):
    """Stop a run; the model's random choices may end a text before, so another may be needed."""
    for _ in range(5):
        app.window.actions_["run"].trigger()
        qtbot.waitUntil(
            lambda: app.state.run.n_tokens > 2 or not app.controller.is_busy, timeout=TIMEOUT_MS
        )
        if app.controller.is_busy:
            app.window.toolbar.stop_button.click()
        wait_for_end(app, qtbot)
        if app.state.run.summary.stop_reason is StopReason.STOPPED:
            return


def test_a_stopped_run_keeps_what_it_made(opened, qtbot):
    opened.window.run_panel.n_predict.setValue(400)

    stop_early(opened, qtbot)

    summary = opened.state.run.summary
    assert summary.stop_reason is StopReason.STOPPED
    assert 2 < len(summary.tokens) < 400
    assert opened.state.engine_text.startswith("run stopped ")
    assert "Stopped after" in opened.window.answer.label.plain_text
    opened.window.run_panel.n_predict.setValue(3)
    run(opened, qtbot)
    assert len(opened.state.run.summary.tokens) == 3


@pytest.mark.parametrize(
    ("trace_format", "is_one"),
    [
        (TraceFormat.PERFETTO, lambda data: TraceProto.FromString(data).packet),
        (TraceFormat.CHROME, lambda data: json.loads(data)["traceEvents"]),
    ],
)
def test_a_trace_is_exported(opened, qtbot, tmp_path, trace_format, is_one):
    run(opened, qtbot)
    path = tmp_path / "run.trace"
    opened.controller.running.export(path, trace_format)
    qtbot.waitUntil(lambda: bool(opened.window.messages.messages), timeout=TIMEOUT_MS)

    assert is_one(path.read_bytes())
    assert opened.window.messages.messages[0].title.startswith("The trace is written")


def test_a_folder_that_cannot_be_written_is_said(opened, qtbot, tmp_path):
    run(opened, qtbot)
    (tmp_path / "file").touch()
    opened.controller.running.export(tmp_path / "file" / "x.pftrace", TraceFormat.PERFETTO)
    qtbot.waitUntil(lambda: bool(opened.window.messages.messages), timeout=TIMEOUT_MS)

    message = opened.window.messages.messages[0]
    assert message.title == "Cannot write x.pftrace"
    assert message.hint == "Choose another folder."


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
    export = opened.window.actions_["export"]
    assert not export.isEnabled()
    assert export.toolTip().endswith("the engine that recorded this run has ended; run again")
    assert opened.window.actions_["run"].isEnabled()
    assert opened.state.plans.options == opened.controller.planning.options
    assert all(plan_id < 0 for plan_id in opened.state.met_plans)
