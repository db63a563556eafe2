"""What a person does in the whole window: real views, a real engine, the keyboard and the mouse."""

import pytest
from PySide6.QtCore import QMimeData, QPoint, QPointF, Qt, QUrl
from PySide6.QtGui import QDropEvent
from PySide6.QtWidgets import QApplication

from app.shell.panes import make_view
from app.shell.tab_order import tab_stops
from app.state.app_state import Selection
from engine.core.devices import DeviceType
from engine.trace.records import SpanKind
from tests.oracle import golden

TIMEOUT_MS = 280_000

pytestmark = pytest.mark.slow


@pytest.fixture
def app(make_app, qtbot):
    """Return a window with all its panes and the small model open."""
    app = make_app(make=make_view)
    app.window.resize(1280, 720)
    app.controller.open(str(golden.model("nano-llama-f32")))
    qtbot.waitUntil(lambda: app.state.plans is not None, timeout=TIMEOUT_MS)
    app.window.activateWindow()
    app.window.run_panel.n_predict.setValue(4)
    return app


@pytest.fixture
def ran(app, qtbot):
    """Return that window after a run."""
    app.window.actions_["run"].trigger()
    qtbot.waitUntil(
        lambda: not app.controller.is_busy and not app.bridge._poll_timer.isActive(),
        timeout=TIMEOUT_MS,
    )
    qtbot.waitUntil(lambda: "timeline" in app.window.area.views, timeout=TIMEOUT_MS)
    return app


def settle(app, qtbot):
    planning = app.controller.planning
    qtbot.waitUntil(
        lambda: planning._under_way is None and planning._wanted is None, timeout=TIMEOUT_MS
    )


def front(app, dock="right_dock"):
    return app.window.area.docks[dock].shown_view


def click_cell(app, qtbot, cell):
    canvas = app.window.area.graph.canvas
    centre = canvas._cell_rect(cell).center().toPoint()
    qtbot.mouseClick(canvas, Qt.MouseButton.LeftButton, pos=centre)


def drop(app, *paths):
    data = QMimeData()
    data.setUrls([QUrl.fromLocalFile(str(path)) for path in paths])
    event = QDropEvent(
        QPointF(10, 10), Qt.DropAction.CopyAction, data, Qt.MouseButton.LeftButton,
        Qt.KeyboardModifier.NoModifier,
    )  # fmt: skip
    app.window.dropEvent(event)


def first_title(app):
    return app.window.messages.messages[0].title


# Why.


def test_an_opened_model_shows_why_for_an_operation_on_the_cpu(app):
    plan, area = app.state.shown_plan, app.window.area
    slot = plan.slot(app.state.selected_node_id())

    assert plan.devices[int(plan.backend[slot])].type is DeviceType.CPU
    assert front(app) is area.views["inspector"]
    assert area.views["inspector"].why.isVisible()


def test_a_click_on_any_operation_shows_why_it_is_there_even_after_a_run(ran, qtbot):
    area = ran.window.area
    assert front(ran) is area.views["run"]

    click_cell(ran, qtbot, 3)

    node_id = int(area.graph.canvas._shape.node_id[3])
    assert ran.state.selected_node_id() == node_id
    assert front(ran) is area.views["inspector"]


def test_w_on_the_graph_shows_why(ran, qtbot):
    area = ran.window.area
    area.show_view("run")

    qtbot.keyClick(area.graph.canvas, Qt.Key.Key_W)

    assert front(ran) is area.views["inspector"]


# The context.


def test_a_context_is_chosen_planned_shown_as_a_difference_and_taken_back(app, qtbot):
    box, window = app.window.toolbar.context_box, app.window
    before = window.area.views["memory"].facts
    own = app.state.plans.n_ctx

    box.setEditText("256")
    qtbot.keyClick(box.lineEdit(), Qt.Key.Key_Return)
    settle(app, qtbot)

    assert app.state.plans.n_ctx == 256
    assert window.change_bar.facts.clauses[0].strip("*").endswith("→ 256")
    assert window.area.views["memory"].facts.is_difference
    assert sum(d.total for d in window.area.views["memory"].facts.devices) < sum(
        d.total for d in before.devices
    )

    window.actions_["undo"].trigger()
    settle(app, qtbot)
    assert (app.state.plans.n_ctx, app.state.plans.options.n_ctx) == (own, 0)
    assert app.state.diff is None


@pytest.mark.parametrize("typed", ["", "many", "-3"])
def test_what_is_no_number_of_tokens_is_taken_back(app, qtbot, typed):
    box = app.window.toolbar.context_box
    before = box.currentText()
    box.setEditText(typed)

    qtbot.keyClick(box.lineEdit(), Qt.Key.Key_Return)

    assert box.currentText() == before
    assert app.controller.planning.undo_stack.count() == 0


def test_esc_takes_back_a_typed_number(app, qtbot):
    box = app.window.toolbar.context_box
    before = box.currentText()
    box.setEditText("77")

    qtbot.keyClick(box, Qt.Key.Key_Escape)

    assert box.currentText() == before
    assert app.state.selection != Selection()


# After a run.


def test_a_slice_of_the_timeline_is_selected_in_graph_table_strip_and_card(ran, qtbot):
    area, timeline = ran.window.area, ran.window.area.views["timeline"]
    spans = timeline.scene.store.spans
    plan = ran.state.shown_plan
    rows = (spans["kind"] == SpanKind.SPLIT) & (spans["plan_id"] == plan.plan_id)
    row = int(rows.nonzero()[0][-1])

    timeline.choose_row(row)

    split_id = int(spans[row]["index"])
    splits = area.views["splits"]
    assert ran.state.selection.split_id == split_id
    assert area.graph.canvas.selected_cell >= 0
    assert splits.model.row(splits.table.currentIndex().row()).split_id == split_id
    assert area.views["layers"].strip.selected >= 0
    assert row in timeline.scene.selected_rows
    inspector = area.views["inspector"]
    assert front(ran) is inspector
    # It reads what was measured a moment after that came.
    qtbot.waitUntil(lambda: inspector._column.indexOf(inspector.split) == 0)


def test_the_timeline_zooms_pans_and_returns_by_key(ran, qtbot):
    timeline = ran.window.area.views["timeline"]
    whole = timeline.scene.view
    for key in (Qt.Key.Key_W, Qt.Key.Key_W, Qt.Key.Key_D):
        qtbot.keyClick(timeline.lanes, key)

    assert timeline.scene.view.span < whole.span
    qtbot.keyClick(timeline.lanes, Qt.Key.Key_0)
    assert timeline.scene.view == whole


# Keys.


def test_tab_goes_from_the_toolbar_over_the_bars_through_the_panes(ran, qtbot):
    window = ran.window
    window.toolbar.offload_switch.click()
    settle(ran, qtbot)

    stops = tab_stops(window.tab_panes(), window)

    order = [window.toolbar, window.change_bar, *window.area.tab_order()]
    places = [
        next(i for i, pane in enumerate(order) if pane.isAncestorOf(stop) or stop is pane)
        for stop in stops
    ]
    assert places == sorted(places)
    assert set(places) == set(range(len(order)))
    names = [stop.objectName() or type(stop).__name__ for stop in stops]
    assert names.index("run_button") < names.index("ContextBox")


def test_tab_moves_the_focus_and_comes_round(app, qtbot):
    window = app.window
    stops = tab_stops(window.tab_panes(), window)
    stops[0].setFocus()
    seen = []
    for _ in stops:
        seen.append(QApplication.focusWidget())
        window.focusNextPrevChild(True)

    assert seen == stops
    assert QApplication.focusWidget() is stops[0]
    window.focusNextPrevChild(False)
    assert QApplication.focusWidget() is stops[-1]


def test_f6_and_shift_f6_walk_the_panes_both_ways(app):
    window = app.window
    window.toolbar.run_button.setFocus()
    window.actions_["next_pane"].trigger()
    assert window.area.views["layers"].isAncestorOf(QApplication.focusWidget())

    window.actions_["previous_pane"].trigger()
    assert window.toolbar.isAncestorOf(QApplication.focusWidget())


def test_esc_on_the_graph_closes_the_layer_and_then_ends_the_selection(app, qtbot):
    canvas = app.window.area.graph.canvas
    click_cell(app, qtbot, 3)
    canvas.open_row(int(canvas._shape.row[3]))

    qtbot.keyClick(canvas, Qt.Key.Key_Escape)
    assert canvas.open_layer <= 0
    assert app.state.selection != Selection()

    qtbot.keyClick(canvas, Qt.Key.Key_Escape)
    assert app.state.selection == Selection()


# Files that are no models.


def bad_files(folder):
    (folder / "notes.gguf").write_text("these are my notes")
    (folder / "empty.gguf").touch()
    (folder / "models").mkdir()
    return {
        "it is not a GGUF file": [folder / "notes.gguf"],
        "the file is empty": [folder / "empty.gguf"],
        "there is no such file": [folder / "missing.gguf"],
        "models is a folder": [folder / "models"],
        "2 files were dropped": [folder / "notes.gguf", folder / "empty.gguf"],
    }


def test_what_cannot_be_opened_is_said_and_what_is_open_stays(app, qtbot, tmp_path):
    model, plans = app.state.model, app.state.plans
    for words, paths in bad_files(tmp_path).items():
        drop(app, *paths)
        qtbot.waitUntil(
            lambda: not app.controller.is_busy and bool(app.window.messages.messages),
            timeout=TIMEOUT_MS,
        )

        assert words in first_title(app)
        assert len(app.window.messages.messages) == 1
    assert (app.state.model, app.state.plans) == (model, plans)

    drop(app, golden.model("nano-llama-f32"))
    qtbot.waitUntil(lambda: app.state.plans is not plans, timeout=TIMEOUT_MS)
    assert not app.window.messages.messages


def test_a_file_that_was_cut_is_planned_and_not_run(app, qtbot, tmp_path):
    path = tmp_path / "cut.gguf"
    path.write_bytes(golden.model("nano-llama-f32").read_bytes()[:-4096])

    app.controller.open(str(path))
    qtbot.waitUntil(lambda: app.state.model.path == str(path), timeout=TIMEOUT_MS)

    assert first_title(app) == "cut.gguf ends too early. It can be planned, not run."
    assert app.state.shown_plan is not None
    button = app.window.toolbar.run_button
    assert not button.isEnabled()
    assert "the file does not hold the weights" in button.toolTip()


# The layout.


def side_px(app) -> tuple[int, int]:
    docks = app.window.area.docks
    return docks["splits_dock"].width(), docks["right_dock"].width()


def test_the_sides_have_the_designs_widths_again_when_the_window_grows(app, qtbot):
    qtbot.waitUntil(lambda: side_px(app) == (264, 348))
    app.window.resize(1024, 640)
    qtbot.waitUntil(lambda: side_px(app) == (220, 320))

    app.window.resize(1280, 720)

    qtbot.waitUntil(lambda: side_px(app) == (264, 348))


def test_a_layout_saved_in_a_small_window_grows_with_the_next_one(app, qtbot, make_app):
    app.window.resize(1024, 640)
    qtbot.waitUntil(lambda: side_px(app) == (220, 320))
    app.window.close()

    second = make_app(make=make_view)
    second.window.resize(1280, 720)
    qtbot.waitUntil(lambda: second.controller.is_ready, timeout=TIMEOUT_MS)
    second.controller.open(str(golden.model("nano-llama-f32")))

    qtbot.waitUntil(lambda: side_px(second) == (264, 348), timeout=TIMEOUT_MS)


def test_a_width_that_a_person_gave_stays(app, qtbot):
    area = app.window.area
    qtbot.waitUntil(lambda: side_px(app) == (264, 348))
    area.resizeDocks([area.docks["splits_dock"]], [400], Qt.Orientation.Horizontal)

    app.window.resize(1600, 900)

    qtbot.waitUntil(lambda: side_px(app)[1] == 380)
    assert side_px(app)[0] == 400


def test_the_split_table_has_its_nodes_at_the_designs_width(app, qtbot):
    qtbot.waitUntil(lambda: side_px(app) == (264, 348))

    table = app.window.area.views["splits"].table

    assert not table.isColumnHidden(2)
    assert table.columnViewportPosition(2) + table.columnWidth(2) <= table.viewport().width()


def test_the_arrow_of_the_context_opens_its_choices(app, qtbot):
    box = app.window.toolbar.context_box

    qtbot.mouseClick(box, Qt.MouseButton.LeftButton, pos=QPoint(box.width() - 6, 10))

    qtbot.waitUntil(lambda: box.view().isVisible())
    assert box.itemData(box.count() - 1) == 0
    box.hidePopup()
