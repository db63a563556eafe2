import pytest
from PySide6.QtCore import QEvent, QPoint, QPointF, Qt
from PySide6.QtGui import QMouseEvent, QWheelEvent
from PySide6.QtTest import QTest

from app.state.app_state import AppState, DiffMode, Selection
from app.theme.theme import Theme, ThemeChoice
from app.views.graph import make
from engine.core.plan import Batch
from tests.app.models.paper_run import plans, run_on_paper, small_plans


@pytest.fixture
def state(qapp):
    return AppState()


@pytest.fixture
def theme(qapp):
    return Theme(ThemeChoice.LIGHT)


@pytest.fixture
def view(qtbot, state, theme):
    widget = make(state, theme)
    qtbot.addWidget(widget)
    widget.resize(668, 491)
    widget.show()
    return widget


@pytest.fixture
def planned(view, state):
    state.set_plans(plans())
    return view


def selected(state):
    plan = state.shown_plan
    return plan.name[plan.slot(state.selected_node_id())]


def middle_of(view, node_id):
    canvas = view.canvas
    rect = canvas.layout_now.rects[canvas._shape.cell_of_node(node_id)]
    return QPoint(round(rect[0] + rect[2] / 2), round(rect[1] + rect[3] / 2))


def colours(view):
    image = view.canvas.grab().toImage()
    return {
        image.pixelColor(x, y).name()
        for x in range(0, image.width(), 2)
        for y in range(0, image.height(), 2)
    }


def key(view, *keys):
    for one in keys:
        QTest.keyClick(view.canvas, one)


def test_the_first_plan_opens_the_first_cpu_operation(planned, state):
    assert selected(state) == "cache_k_l0 (view)"
    assert state.selection.split_id == 6
    assert planned.canvas.open_layer == 1
    assert planned.title.fact == "prompt 512 · a row a layer, layer 0 open"
    assert planned.title.toolTip() == "936 nodes: 576 compute, 360 views"


def test_a_selection_made_elsewhere_is_kept_when_a_plan_arrives(view, state):
    state.select(Selection(node=plans().prompt.key(200)))

    state.set_plans(plans())

    assert state.selected_node_id() == 200


def test_a_click_selects_the_node_under_it(planned, state):
    node_id = planned.canvas._shape.node_id[200]

    QTest.mouseClick(planned.canvas, Qt.MouseButton.LeftButton, pos=middle_of(planned, node_id))

    assert state.selected_node_id() == node_id
    assert planned.canvas.selected_cell == 200


def test_a_click_in_the_opened_layer_selects_its_node(planned, state):
    QTest.mouseClick(planned.canvas, Qt.MouseButton.LeftButton, pos=middle_of(planned, 27))

    assert selected(state) == "ffn_gate-0"


def test_a_click_beside_the_cells_selects_the_layer(planned, state):
    y = int(planned.canvas.layout_now.row_y[11]) + 2

    QTest.mouseClick(planned.canvas, Qt.MouseButton.LeftButton, pos=QPoint(10, y))

    assert selected(state) == "norm-10"


def test_arrows_go_to_the_next_operation_and_the_next_layer(planned, state):
    key(planned, Qt.Key.Key_Right)
    assert selected(state) == "cache_v_l0 (view)"

    key(planned, Qt.Key.Key_Down)
    assert selected(state) == "cache_v_l1 (view)"

    key(planned, Qt.Key.Key_Left, Qt.Key.Key_Up)
    assert selected(state) == "cache_k_l0 (view)"


def test_up_from_the_first_layer_reaches_the_input(planned, state):
    key(planned, Qt.Key.Key_Up, Qt.Key.Key_Up)

    assert selected(state) == "embd"


def test_enter_opens_one_layer_at_a_time_and_escape_closes_it(planned):
    key(planned, Qt.Key.Key_Down, Qt.Key.Key_Return)
    assert planned.canvas.open_layer == 2
    assert planned.title.fact.endswith("layer 1 open")

    key(planned, Qt.Key.Key_Escape)
    assert planned.canvas.open_layer == -1
    assert planned.title.fact == "prompt 512 · a row a layer"


def test_a_double_click_opens_a_layer_and_closes_it_again(planned):
    for expected in (6, -1):
        y = int(planned.canvas.layout_now.row_y[6]) + 2
        QTest.mouseDClick(planned.canvas, Qt.MouseButton.LeftButton, pos=QPoint(300, y))

        assert planned.canvas.open_layer == expected


def test_the_wheel_zooms_at_the_pointer_and_space_fits(planned):
    canvas = planned.canvas
    canvas.open_row(-1)
    at = middle_of(planned, 300)

    for _ in range(8):
        wheel(canvas, at)

    assert canvas.zoom > 4
    assert (middle_of(planned, 300) - at).manhattanLength() < 20
    key(planned, Qt.Key.Key_Space)
    assert canvas.zoom == 1


def wheel(canvas, at):
    event = QWheelEvent(
        QPointF(at), QPointF(canvas.mapToGlobal(at)), QPoint(), QPoint(0, 120),
        Qt.MouseButton.NoButton, Qt.KeyboardModifier.ControlModifier,
        Qt.ScrollPhase.NoScrollPhase, False,
    )  # fmt: skip
    canvas.wheelEvent(event)


def test_dragging_pans_and_selects_nothing(planned, state):
    canvas = planned.canvas
    canvas.open_row(-1)
    canvas.zoom_at(QPointF(300, 250), 6)
    before, chosen = middle_of(planned, 300), state.selection

    QTest.mousePress(canvas, Qt.MouseButton.LeftButton, pos=QPoint(300, 250))
    move(canvas, QPoint(280, 235))
    QTest.mouseRelease(canvas, Qt.MouseButton.LeftButton, pos=QPoint(280, 235))

    assert middle_of(planned, 300) - before == QPoint(-20, -15)
    assert state.selection == chosen


def move(canvas, to):
    event = QMouseEvent(
        QEvent.Type.MouseMove, QPointF(to), QPointF(canvas.mapToGlobal(to)),
        Qt.MouseButton.NoButton, Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier,
    )  # fmt: skip
    canvas.mouseMoveEvent(event)


def test_a_selection_out_of_sight_is_scrolled_to(planned, state):
    canvas = planned.canvas
    canvas.open_row(-1)
    canvas.zoom_at(QPointF(100, 100), 8)

    state.select_node(900)

    at = middle_of(planned, 900)
    assert canvas.rect().contains(at)
    assert at.x() > 34


def test_hovering_repaints_neither_background_nor_place(planned):
    canvas = planned.canvas
    canvas.grab()
    painted, layout = canvas._background.cacheKey(), canvas.layout_now

    canvas.set_hovered(100)
    canvas.grab()

    assert canvas._background.cacheKey() == painted
    assert canvas.layout_now is layout


def test_the_tooltip_tells_the_node_under_the_pointer(planned):
    item = planned.canvas.item_at(QPointF(middle_of(planned, 12)))

    assert planned.canvas.tip_text(item).startswith("cache_k_l0 (view)  #12\nSET_ROWS")


def test_beside_the_cells_the_tooltip_tells_the_row(planned):
    y = planned.canvas.layout_now.row_y[11] + 2

    item = planned.canvas.item_at(QPointF(640, y))

    assert planned.canvas.tip_text(item).startswith("layer 10: 11 splits begin here")


def test_a_screen_reader_hears_the_selected_node(planned):
    assert planned.canvas.accessibleDescription().startswith("cache_k_l0 (view)  #12, SET_ROWS")


def test_the_token_plan_keeps_the_node(planned, state):
    state.set_batch(Batch.TOKEN)

    assert selected(state) == "cache_k_l0 (view)"
    assert planned.title.fact == "one token · a row a layer, layer 0 open"


def test_a_view_is_shown_at_the_node_it_looks_at(planned, state):
    state.select_node(4)

    assert planned.canvas.selected_cell == planned.canvas._shape.cell_of_node(3)


def test_was_difference_and_now_switch_the_canvas(planned, state, theme):
    devices = {look.fill.name() for look in theme.palette.devices[:2]}
    orange = theme.palette.more.fill.name()
    state.set_plans(plans(op_offload=False))

    state.set_diff(DiffMode(plans(), plans(op_offload=False), "op_offload on → off"))
    difference = colours(planned)
    state.set_diff(DiffMode(plans(), plans(op_offload=False), "op_offload", "was"))
    was = colours(planned)
    state.set_diff(DiffMode(plans(), plans(op_offload=False), "op_offload", "now"))
    now = colours(planned)

    assert orange in difference
    assert not devices & difference
    assert devices <= was
    assert orange not in was | now


def test_a_click_while_looking_at_what_was_selects_the_node_by_name(planned, state):
    state.set_plans(plans(op_offload=False))
    state.set_diff(DiffMode(plans(), plans(op_offload=False), "op_offload", "was"))

    QTest.mouseClick(planned.canvas, Qt.MouseButton.LeftButton, pos=middle_of(planned, 27))

    assert selected(state) == "ffn_gate-0"


def test_after_a_run_the_gutter_has_times(planned, state):
    state.set_trace(run_on_paper(plans()))

    row_ms = planned.canvas._row_ms
    assert len(row_ms) == 32
    assert row_ms.sum() > 0


def test_a_plan_that_ran_is_named_so(planned, state):
    state.add_met_plan(plans().prompt)
    state.show_plan(plans().prompt)

    assert planned.title.fact == "the prompt batch that ran: 512 tokens · 321 splits"


@pytest.mark.parametrize("choice", [ThemeChoice.LIGHT, ThemeChoice.DARK])
@pytest.mark.parametrize("size", [(668, 491), (916, 752), (480, 260), (1600, 1200)])
def test_it_paints_at_every_size_in_both_themes(planned, state, theme, choice, size):
    theme.choose(choice)
    planned.resize(*size)

    seen = colours(planned)

    assert {look.fill.name() for look in theme.palette.devices[:2]} <= seen
    assert theme.palette.copy_mark.name() in seen


def test_only_the_graph_of_one_layer_kind_is_laid_out_again(planned, state):
    shape = planned.canvas._shape

    state.set_plans(small_plans())

    assert planned.canvas._shape is shape
    assert list(planned.canvas._blocks) == [0]


def test_without_a_model_it_says_what_to_do(view, state):
    state.set_plans(plans())
    state.set_plans(None)

    assert view.canvas.layout_now is None
    assert view.title.fact == ""
    assert view.canvas.grab().toImage().pixelColor(5, 5) == view._theme.palette.bg1
