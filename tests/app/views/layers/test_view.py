import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtTest import QTest

from app.state.app_state import AppState, DiffMode
from app.theme.colours import device_style
from app.theme.theme import Theme, ThemeChoice
from app.views.layers import make
from app.views.layers.model import FIRST_NODE_ROLE
from tests.app.models.paper_run import plans, plans_without_graph


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
    widget.resize(264, 140)
    widget.show()
    state.set_plans(plans())
    return widget


def selected(state):
    plan = state.shown_plan
    return plan.name[plan.slot(state.selected_node_id())]


def middle_of(view, index):
    x, y, w, h = view.strip.layout_now.rects[index]
    return QPoint(int(x + w / 2), int(y + h / 2))


def colours(view):
    image = view.strip.grab().toImage()
    return {
        image.pixelColor(x, y).name() for x in range(image.width()) for y in range(image.height())
    }


def test_the_title_counts_layers(view):
    assert view.fact == "30 + in, out"


def test_a_click_selects_the_layers_first_node(view, state):
    QTest.mouseClick(view.strip, Qt.MouseButton.LeftButton, pos=middle_of(view, 9))

    assert selected(state) == "norm-8"
    assert view.strip.selected == 9


def test_the_strip_follows_a_selection_made_elsewhere(view, state):
    state.select_node(900)

    assert view.strip.selected == 30
    assert view.strip.accessibleDescription().startswith("layer 29")


def test_arrows_walk_along_and_between_rows(view, state):
    state.select_node(1)

    for key, index in [
        (Qt.Key.Key_Right, 2),
        (Qt.Key.Key_Down, 18),
        (Qt.Key.Key_Left, 17),
        (Qt.Key.Key_Up, 1),
        (Qt.Key.Key_End, 31),
        (Qt.Key.Key_Home, 0),
    ]:
        QTest.keyClick(view.strip, key)
        assert view.strip.selected == index


def test_the_model_mirrors_the_strip(view, qtmodeltester):
    qtmodeltester.check(view.model)

    index = view.model.index(1)
    text = view.model.data(index, int(Qt.ItemDataRole.AccessibleTextRole))
    assert view.model.rowCount() == 32
    assert view.model.data(index) == "0"
    assert text.startswith("layer 0: 25 of 31 operations on OpenCL0")
    assert view.model.data(index, FIRST_NODE_ROLE) == 1


def test_devices_have_their_colours_and_a_difference_has_none_of_them(view, state, theme):
    devices = theme.palette.devices[:2]
    plain = colours(view)

    state.set_plans(plans(op_offload=False))
    state.set_diff(DiffMode(plans(), plans(op_offload=False), "op_offload on → off"))
    difference = colours(view)

    assert {look.fill.name() for look in devices} <= plain
    assert {look.base.name() for look in devices} <= plain
    assert theme.palette.more.fill.name() in difference
    assert not {look.fill.name() for look in devices} & difference


def test_nothing_is_shown_without_a_plan(view, state):
    state.set_plans(None)

    assert view.model.rowCount() == 0
    assert view.fact == ""


def test_layers_without_operations_show_where_their_weights_are(view, state, theme, tmp_path):
    state.set_plans(plans_without_graph(tmp_path))

    looks = device_style(theme.palette, state.shown_plan.devices)
    assert {looks[0].colours.base.name(), looks[1].colours.base.name()} <= colours(view)
    assert view._caption.text() == "no operation planned · foot: its weights"
