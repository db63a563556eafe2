import pytest
from PySide6.QtCore import QPointF, Qt

from app.state.app_state import AppState, DiffMode
from app.theme.theme import Theme, ThemeChoice
from app.views import memory
from tests.app.models import paper_pipeline, paper_run


@pytest.fixture
def state(qapp):
    state = AppState()
    state.set_plans(paper_run.plans())
    return state


@pytest.fixture
def view(qtbot, state):
    view = memory.make(state, Theme(ThemeChoice.LIGHT))
    qtbot.addWidget(view)
    view.resize(1280, 72)
    view.show()
    return view


def test_the_title_says_predicted_and_what_is_held_twice(view):
    title = view.dock_title

    assert title.fact == "predicted, MiB · same scale for both devices"
    assert title.right.startswith("token_embd is held twice")


def test_the_tooltip_of_a_segment_has_kind_device_size_and_buffer(view):
    rect = view.shapes[0].rect

    item = view.item_at(QPointF(rect.x + 4, rect.y + 4))

    assert paper_run.words(view.tip_text(item)) == "weights on OpenCL0: 30.80 MiB in OpenCL0"


def test_arrow_keys_walk_the_segments_and_say_them(view, qtbot):
    view.setFocus()

    qtbot.keyClick(view, Qt.Key.Key_Right)
    qtbot.keyClick(view, Qt.Key.Key_Right)

    assert view.accessibleDescription().startswith("KV on OpenCL0")


def test_was_and_now_show_their_own_bytes(view, state):
    before, after = paper_run.plans(), paper_run.plans(op_offload=False)
    state.set_plans(after)

    totals = {}
    for shows in ("was", "difference", "now"):
        state.set_diff(DiffMode(before, after, "op_offload", shows))
        totals[shows] = view.facts.devices[1].total

    assert totals["was"] == before.memory.total("CPU")
    assert totals["now"] == totals["difference"] == after.memory.total("CPU")


def test_without_a_plan_it_says_what_to_do(qtbot):
    view = memory.make(AppState(), Theme(ThemeChoice.DARK))
    qtbot.addWidget(view)

    assert view.shapes == []
    assert view.accessibleDescription().startswith("Open a model")


def test_it_paints_in_both_themes(view):
    light = view.grab().toImage()

    view.theme.choose(ThemeChoice.DARK)

    assert view.grab().toImage() != light


def test_bars_of_devices_that_are_joined_are_painted(view, state):
    state.set_plans(paper_pipeline.plans(split_mode="tensor"))
    view.resize(1280, 140)

    assert len({shape.payload.lane for shape in view.shapes}) == 3
    assert not view.grab().isNull()
