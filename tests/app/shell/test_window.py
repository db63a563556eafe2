"""The whole window with a real engine process: open, plan, change, undo, fail, restart."""

import pytest
from PySide6.QtCore import QMimeData, QPointF, Qt, QUrl
from PySide6.QtGui import QDropEvent, QGuiApplication

from app.commands.table import MENUS
from app.models.dock_title import DockTitle
from app.shell.messages import Message
from app.shell.panes import TITLE_PX, PaneTitle
from app.state.app_state import Selection
from app.theme.theme import ThemeChoice
from engine.core.plan import Batch
from engine.gguf.writer import write_gguf
from tests.oracle import golden

TIMEOUT_MS = 120_000


@pytest.fixture
def opened(ready_app, qtbot):
    """Return a window with the demo model's header open: it can be planned, not run."""
    open_file(ready_app, qtbot, golden.header("smollm2-135m-q4_1"))
    change(ready_app, qtbot, n_ctx=512, n_gpu_layers=2)
    ready_app.controller.planning.keep()
    ready_app.controller.planning.undo_stack.clear()
    return ready_app


def open_file(app, qtbot, path):
    app.controller.open(str(path))
    qtbot.waitUntil(
        lambda: app.state.model is not None and not app.controller.is_busy, timeout=TIMEOUT_MS
    )


def settle(app, qtbot):
    """Wait until the newest options asked for are those that are shown."""
    planning = app.controller.planning
    qtbot.waitUntil(
        lambda: planning._under_way is None and planning._wanted is None, timeout=TIMEOUT_MS
    )


def change(app, qtbot, **options):
    app.controller.planning.change(**options)
    settle(app, qtbot)


def titles(app) -> list[str]:
    return [message.title for message in app.window.messages.messages]


# Nothing open.


def test_the_welcome_page_lists_the_devices_and_nothing_can_be_run(ready_app):
    window = ready_app.window

    assert window.pages.currentWidget() is window.welcome
    assert "CPU" in [device.name for device in ready_app.state.devices]
    assert not window.toolbar.run_button.isEnabled()
    assert "open a model first" in window.toolbar.run_button.toolTip()
    assert window.welcome.open_button.isEnabled()


def test_a_file_that_is_no_model_leaves_the_window_as_it_was(ready_app, qtbot, tmp_path):
    path = tmp_path / "broken.gguf"
    path.write_bytes(b"not a model")

    ready_app.controller.open(str(path))
    qtbot.waitUntil(lambda: bool(titles(ready_app)), timeout=TIMEOUT_MS)

    assert ready_app.state.model is None
    assert ready_app.window.pages.currentWidget() is ready_app.window.welcome
    assert "broken.gguf" in ready_app.window.messages.messages[0].text


# Opening.


def test_a_header_without_weights_is_planned_and_says_that_it_cannot_be_run(opened):
    window = opened.window

    assert window.pages.currentWidget() is window.area
    assert titles(opened)[0].endswith("ends too early. It can be planned, not run.")
    assert not window.toolbar.run_button.isEnabled()
    assert "the file does not hold the weights" in window.toolbar.run_button.toolTip()
    assert "936 operations run on" in window.answer.label.plain_text


def test_something_is_selected_as_soon_as_a_model_is_open(opened):
    assert opened.state.selection != Selection()
    assert opened.state.selected_node_id() >= 0


def test_an_opened_file_is_remembered(opened, settings):
    assert settings.recent[0].path == str(golden.header("smollm2-135m-q4_1"))
    assert opened.window.recent_menu.actions()[0].data() == settings.recent[0].path


def test_a_model_without_a_graph_lists_its_tensors_and_says_why(ready_app, qtbot, tmp_path):
    path = tmp_path / "mystery.gguf"
    write_gguf(path, {"general.architecture": "mystery"}, ())

    open_file(ready_app, qtbot, path)

    window = ready_app.window
    assert window.pages.currentWidget() is window.tensors
    assert ready_app.state.plans is None
    assert "mystery" in window.messages.messages[0].text


def test_a_dropped_model_is_opened(ready_app, qtbot):
    path = golden.model("nano-llama-f32")
    data = QMimeData()
    data.setUrls([QUrl.fromLocalFile(str(path))])
    drop = QDropEvent(
        QPointF(10, 10), Qt.DropAction.CopyAction | Qt.DropAction.MoveAction, data,
        Qt.MouseButton.LeftButton, Qt.KeyboardModifier.ShiftModifier,
    )  # fmt: skip
    drop.setDropAction(Qt.DropAction.MoveAction)

    ready_app.window.dropEvent(drop)

    assert drop.dropAction() is Qt.DropAction.CopyAction
    qtbot.waitUntil(lambda: ready_app.state.plans is not None, timeout=TIMEOUT_MS)
    assert ready_app.state.model.path == str(path)


# Changing.


def test_a_switch_shows_its_difference_until_it_is_kept(opened, qtbot):
    window = opened.window

    window.toolbar.offload_switch.click()
    settle(opened, qtbot)

    assert window.change_bar.isVisible()
    assert window.change_bar.facts.plain_text.startswith("op_offload on → off")
    assert window.toolbar.offload_switch.text() == "off"

    window.change_bar.keep_button.click()
    assert opened.state.diff is None
    assert not window.change_bar.isVisible()
    assert opened.state.plans.options.op_offload is False


def test_undo_plans_with_the_old_options_and_redo_shows_the_difference_again(opened, qtbot):
    window = opened.window
    window.toolbar.offload_switch.click()
    settle(opened, qtbot)
    assert window.actions_["undo"].text() == "Undo op_offload on → off"

    window.change_bar.undo_button.click()
    settle(opened, qtbot)
    assert opened.state.plans.options.op_offload is True
    assert opened.state.diff is None

    window.actions_["redo"].trigger()
    settle(opened, qtbot)
    assert opened.state.plans.options.op_offload is False
    assert opened.state.diff is not None


def test_dragging_plans_on_the_way_and_makes_one_undo_step(opened, qtbot):
    toolbar, stack = opened.window.toolbar, opened.controller.planning.undo_stack
    toolbar.slider.setSliderDown(True)
    for value in (5, 9, 12):
        toolbar.slider.setValue(value)
    settle(opened, qtbot)
    assert opened.state.plans.options.n_gpu_layers == 12
    assert opened.state.diff is None
    assert stack.count() == 0

    toolbar.slider.setSliderDown(False)
    settle(opened, qtbot)

    assert stack.count() == 1
    assert opened.state.diff.title == "-ngl 2 → 12"
    assert toolbar.layers_field.text() == "12 / 31"


def test_a_number_can_be_typed(opened, qtbot):
    field = opened.window.toolbar.layers_field
    field.setText("40")

    field.editingFinished.emit()
    settle(opened, qtbot)

    assert opened.state.plans.options.n_gpu_layers == 31
    assert field.text() == "31 / 31"


def test_the_batch_switch_is_no_change(opened):
    opened.window.toolbar.batch_segment.button(Batch.TOKEN).click()

    assert opened.state.shown_plan is opened.state.plans.token
    assert opened.controller.planning.undo_stack.count() == 0
    assert opened.window.answer.label.plain_text.startswith("For one token, ")


def test_the_command_line_is_copied(opened):
    opened.window.actions_["copy_command"].trigger()

    text = QGuiApplication.clipboard().text()
    assert text.startswith("llama-cli -ngl 2 -c 512 -m ")


# The engine ends.


def test_after_a_death_the_same_model_is_open_with_the_same_options(opened, qtbot):
    change(opened, qtbot, op_offload=False)
    before = opened.state.plans

    opened.bridge._host._child._process.kill()
    qtbot.waitUntil(lambda: opened.state.plans is not before, timeout=TIMEOUT_MS)

    assert opened.state.plans.options == before.options
    assert titles(opened)[0] == "The engine stopped and was restarted."
    assert opened.state.engine_text.startswith("engine restarted")


def test_an_engine_that_never_gets_ready_is_said_and_can_be_started_again(make_app, qtbot):
    app = make_app("never connects")
    qtbot.waitUntil(lambda: bool(titles(app)), timeout=TIMEOUT_MS)

    message = app.window.messages.messages[0]
    assert message.title == "The engine stopped and was not restarted."
    assert "no driver found" in message.details
    assert not app.window.welcome.open_button.isEnabled()


# The frame.


@pytest.mark.parametrize("size", [(1024, 640), (1280, 720), (1600, 1000)])
@pytest.mark.parametrize("theme", [ThemeChoice.LIGHT, ThemeChoice.DARK])
def test_nothing_in_the_rows_is_clipped(opened, qtbot, size, theme):
    window = opened.window
    opened.theme.choose(theme)
    window.toolbar.offload_switch.click()
    window.resize(*size)
    settle(opened, qtbot)

    toolbar = window.toolbar
    controls = [toolbar.run_button, toolbar.stop_button, toolbar.slider, toolbar.layers_field,
                toolbar.offload_switch, toolbar.batch_segment, window.change_bar.keep_button,
                window.change_bar.undo_button]  # fmt: skip
    for control in controls:
        assert control.width() >= control.minimumSizeHint().width(), control
        right = control.mapTo(window, control.rect().topRight()).x()
        bottom = control.mapTo(control.parentWidget(), control.rect().bottomRight()).y()
        assert right <= window.width(), control
        assert bottom <= control.parentWidget().height(), control
    assert window.answer.label.n_shown >= 3


def test_a_narrow_answer_drops_whole_clauses_and_says_all_in_its_tooltip(opened):
    label = opened.window.answer.label
    everything = label.plain_text

    label.resize(420, 30)

    assert 1 <= label.n_shown < len(label.clauses)
    assert everything in label.toolTip()


def test_the_theme_is_switched_at_once_and_remembered(ready_app, settings):
    ready_app.theme.choose(ThemeChoice.LIGHT)

    ready_app.window.actions_["switch_theme"].trigger()

    assert ready_app.theme.name == "dark"
    assert settings.theme is ThemeChoice.DARK
    assert ready_app.theme.palette.bg1.name() in ready_app.window.styleSheet()
    assert ready_app.window.actions_["theme_dark"].isChecked()


def test_panes_can_be_put_back(opened, qtbot):
    window = opened.window
    dock = window.area.docks["splits_dock"]
    dock.hide()

    window.actions_["reset_layout"].trigger()

    assert dock.isVisible()


def test_the_layout_is_remembered(opened, settings):
    opened.window.close()

    assert settings.geometry is not None
    assert settings.layout is not None


def test_f6_walks_through_the_panes(opened, qtbot):
    window = opened.window
    window.activateWindow()
    seen = []
    for _ in window.panes():
        window.actions_["next_pane"].trigger()
        seen.append(window.focusWidget())

    assert window.toolbar.isAncestorOf(seen[0])
    assert len(set(seen)) > 1


def test_every_menu_has_a_letter_of_its_own_and_f10_goes_to_them(ready_app):
    menus = ready_app.window.menuBar()

    letters = [action.text().partition("&")[2][0] for action in menus.actions()]
    assert len(set(letters)) == len(letters) == 7
    ready_app.window.actions_["menu_bar"].trigger()
    assert menus.activeAction() is menus.actions()[0]


def test_facts_beside_tabs_give_way_before_a_tab_is_hidden(qtbot):
    bar = PaneTitle()
    qtbot.addWidget(bar)
    bar.set_titles(["Why here", "Options", "Run"])
    bar.show_title(DockTitle("Why here", "a long fact about what is shown here", "and another"))
    bar.resize(260, TITLE_PX)
    bar.show()

    assert bar._tabs.width() >= bar._tabs.sizeHint().width()


def test_help_shows_the_manual_and_every_key(ready_app):
    window = ready_app.window
    window.actions_["manual"].trigger()
    assert "op_offload" in window.commands._help.browser.toPlainText()

    window.actions_["manual_several"].trigger()
    assert "--n-copies" in window.commands._help.browser.toPlainText()

    window.actions_["keys"].trigger()
    sheet = window.commands._help.browser.toPlainText()
    assert "Shift+F5" in sheet
    assert "Why the selected operation is where it is" in sheet


def test_at_most_two_messages_are_shown_the_newest_on_top(ready_app):
    for i in range(3):
        ready_app.window.messages.show_message(Message(f"message {i}"))

    assert titles(ready_app) == ["message 2", "message 1"]


def test_the_critical_path_is_switched_in_the_trace_menu_and_remembered(ready_app):
    window, state = ready_app.window, ready_app.state
    action = window.actions_["critical_path"]
    before = (state.shows_path, action.isChecked())

    action.trigger()

    assert before == (False, False)
    assert state.shows_path
    assert action.isChecked()
    assert ready_app.settings.shows_path
    assert "critical_path" in dict(MENUS)["Trace"]
