"""The panel of options in the whole window with a real engine: plan, undo, refuse, remember."""

import pytest
from PySide6.QtCore import Qt, QUrl
from PySide6.QtGui import QGuiApplication, QPalette

from app.shell.panes import OPTIONS
from app.state.option_memory import OptionMemory
from engine.core.options import DEFAULTS, Options, TensorOverride
from tests.oracle import golden

TIMEOUT_MS = 120_000
RULE = TensorOverride(r"blk\.0\.ffn", "CPU")

pytestmark = pytest.mark.slow


@pytest.fixture
def opened(ready_app, qtbot):
    """Return a window with a small model and its options in front."""
    open_file(ready_app, qtbot, golden.model("nano-llama-f32"))
    ready_app.window.actions_["show_options"].trigger()
    return ready_app


def open_file(app, qtbot, path):
    before = app.state.plans
    app.controller.open(str(path))
    qtbot.waitUntil(
        lambda: app.state.plans is not before and not app.controller.is_busy, timeout=TIMEOUT_MS
    )


def settle(app, qtbot):
    planning = app.controller.planning
    qtbot.waitUntil(
        lambda: planning._under_way is None and planning._wanted is None, timeout=TIMEOUT_MS
    )


def type_in(app, qtbot, field, text):
    control = app.window.options.rows[field].control
    control.setText(text)
    qtbot.keyClick(control, Qt.Key.Key_Return)
    settle(app, qtbot)


def memory_of(app, buft):
    return sum(row.n_bytes for row in app.state.plans.memory.rows if row.buft.name == buft)


def test_the_command_brings_the_options_to_the_front(opened):
    dock = opened.window.area.docks["right_dock"]

    assert dock.shown_view is opened.window.area.views[OPTIONS]
    assert opened.window.options.rows["n_gpu_layers"].control.text() == "all"


def test_a_change_is_planned_shown_as_a_difference_copied_and_taken_back(opened, qtbot):
    window = opened.window

    type_in(opened, qtbot, "n_ubatch", "64")

    assert opened.state.plans.n_ubatch == 64
    assert window.change_bar.facts.plain_text.startswith("-ub 512 → 64")
    assert window.toolbar.batch_segment.button(opened.state.batch).text() == "prompt 64"
    window.actions_["copy_command"].trigger()
    assert " -ub 64 " in QGuiApplication.clipboard().text()

    window.actions_["undo"].trigger()
    settle(opened, qtbot)
    assert opened.state.plans.options == DEFAULTS
    assert window.options.rows["n_ubatch"].control.text() == "512"


def test_a_rule_moves_weights_in_the_plan(opened, qtbot):
    editor = opened.window.options.rows["tensor_overrides"].control
    opened.controller.planning.change(n_gpu_layers=0)
    settle(opened, qtbot)
    editor.add_button.click()
    editor.rows[0].pattern.setText(RULE.pattern)
    editor.rows[0].memory.setCurrentText("CPU")

    editor.rows[0].pattern.editingFinished.emit()
    settle(opened, qtbot)

    assert opened.state.plans.options.tensor_overrides == (RULE,)
    assert opened.state.diff.title == f"-ot +{RULE}"


def test_what_no_device_can_meet_is_said_at_its_field_and_leaves_no_undo_step(opened, qtbot):
    stack = opened.controller.planning.undo_stack
    row = opened.window.options.rows["devices"]

    type_in(opened, qtbot, "devices", "GPU7")

    assert row.note.text().startswith("There is no device GPU7.")
    assert row.control.text() == "GPU7"
    assert opened.state.plans.options == DEFAULTS
    assert (stack.count(), stack.canUndo()) == (0, False)
    assert not opened.window.messages.messages

    type_in(opened, qtbot, "devices", "auto")
    assert (row.problem, row.control.text()) == ("", "auto")


def test_a_refusal_out_of_view_is_a_message(opened, qtbot):
    opened.window.area.show_why()

    opened.controller.planning.change(devices=("GPU7",))
    settle(opened, qtbot)

    assert opened.window.messages.messages[0].title == "There is no device GPU7."


def test_a_step_before_a_refused_one_can_still_be_undone(opened, qtbot):
    type_in(opened, qtbot, "n_ubatch", "64")
    type_in(opened, qtbot, "devices", "GPU7")

    opened.window.actions_["undo"].trigger()
    settle(opened, qtbot)

    assert opened.state.plans.options == DEFAULTS


def test_changes_around_an_impossible_one_are_planned_without_it(opened, qtbot):
    planning = opened.controller.planning
    planning.change(n_ubatch=64)
    planning.change(n_ctx=128)
    planning.change(devices=("GPU7",))
    # It is with the engine then, or refused already.
    qtbot.waitUntil(lambda: planning._wanted is None, timeout=TIMEOUT_MS)
    planning.change(n_threads=2)
    settle(opened, qtbot)

    assert opened.state.plans.options == Options(n_ubatch=64, n_ctx=128, n_threads=2)
    titles = [planning.undo_stack.text(i) for i in range(planning.undo_stack.count())]
    assert titles == ["-ub 512 → 64", "ctx 512 → 128", "-t auto → 2"]

    for _ in titles:
        opened.window.actions_["undo"].trigger()
    settle(opened, qtbot)
    assert opened.state.plans.options == DEFAULTS


def test_every_option_goes_back_in_one_step(opened, qtbot):
    type_in(opened, qtbot, "n_ubatch", "64")
    type_in(opened, qtbot, "n_ctx", "128")

    opened.window.options.reset_button.click()
    settle(opened, qtbot)
    assert opened.state.plans.options == DEFAULTS

    opened.window.actions_["undo"].trigger()
    settle(opened, qtbot)
    assert opened.state.plans.options == Options(n_ubatch=64, n_ctx=128)


def test_toolbar_and_panel_show_the_same_options(opened, qtbot):
    opened.window.toolbar.offload_switch.click()
    opened.window.toolbar.slider.setValue(1)
    settle(opened, qtbot)

    rows = opened.window.options.rows
    assert rows["op_offload"].control.text() == "off"
    assert rows["n_gpu_layers"].control.text() == "1"

    type_in(opened, qtbot, "n_gpu_layers", "-2")
    assert opened.window.toolbar.slider.value() == opened.window.toolbar.slider.maximum()


def test_a_model_has_the_options_it_had_last_and_says_those_out_of_view(opened, qtbot):
    type_in(opened, qtbot, "n_ubatch", "64")

    open_file(opened, qtbot, golden.model("nano-llama-f32"))

    assert opened.state.plans.options == Options(n_ubatch=64)
    message = opened.window.messages.messages[0]
    assert message.title == "This model has the options it had last."
    assert message.sentence == "-ub 64"


def test_options_of_last_time_that_do_not_fit_here_are_left_out(opened, qtbot, settings):
    path = str(golden.model("nano-llama-f32").resolve())
    OptionMemory(settings).remember(path, Options(devices=("GPU7",)))

    open_file(opened, qtbot, path)

    assert opened.state.plans.options == DEFAULTS
    assert "There is no device GPU7." in opened.window.messages.messages[0].text
    assert OptionMemory(settings).recall(path) is None


def test_a_picture_depends_on_the_file_alone(make_app, qtbot, settings):
    path = str(golden.model("nano-llama-f32").resolve())
    OptionMemory(settings).remember(path, Options(n_ubatch=64))
    app = make_app(recalls=False)
    qtbot.waitUntil(lambda: app.controller.is_ready, timeout=TIMEOUT_MS)

    open_file(app, qtbot, path)

    assert app.state.plans.options == DEFAULTS
    assert OptionMemory(settings).recall(path) == Options(n_ubatch=64)


def test_open_sections_are_remembered(opened, qtbot, settings):
    qtbot.mouseClick(opened.window.options.sections["weights"].head, Qt.MouseButton.LeftButton)

    assert settings.open_sections == ("layers", "weights")


def test_a_plan_that_may_have_ended_the_engine_is_not_tried_again(opened, qtbot):
    planning = opened.controller.planning
    before = opened.state.plans

    planning.change(n_ubatch=64)
    opened.bridge._host._child._process.kill()
    qtbot.waitUntil(
        lambda: opened.state.plans is not before and not opened.controller.is_busy,
        timeout=TIMEOUT_MS,
    )

    assert opened.state.plans.options == DEFAULTS
    assert planning.undo_stack.count() == 0


def test_help_opens_the_page_of_options_with_links_in_ink(opened, qtbot):
    opened.window.options.help_button.click()
    browser = opened.window.commands._help.browser
    assert "CPU_REPACK" in browser.toPlainText()

    browser.setSource(QUrl("index.md"))

    assert "What the screen shows" in browser.toPlainText()
    cursor = browser.document().find("What each does")
    assert cursor.charFormat().isAnchor()
    ink = browser.palette().color(QPalette.ColorRole.Text)
    assert cursor.charFormat().foreground().color() == ink
