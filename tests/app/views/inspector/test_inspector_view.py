import pytest
from PySide6.QtGui import QGuiApplication

from app.state.app_state import AppState, DiffMode, Selection
from app.theme.theme import Theme, ThemeChoice
from app.views import inspector
from engine.core.explain import explain
from engine.core.why_text import why_text
from tests.app.models import paper_run
from tests.engine.sched.expert_run import expert_run, without_waits


@pytest.fixture
def state(qapp):
    state = AppState()
    state.set_plans(paper_run.plans())
    return state


@pytest.fixture
def view(qtbot, state):
    view = inspector.make(state, Theme(ThemeChoice.LIGHT))
    qtbot.addWidget(view)
    view.resize(348, 460)
    view.show()
    return view


def test_without_a_selection_it_says_what_to_do(view):
    assert view._empty.isVisible()
    assert not view.why.isVisible()


def test_a_selected_node_is_explained(view, state):
    state.select_node(12)

    assert view.why._sentence.text().startswith("On the CPU because it <b>writes into")
    assert view.why.pass_row.step == "1"
    assert view.why._tag.text() == "1.dst"


def test_the_deciding_step_is_said_to_screen_readers(view, state):
    state.select_node(24)

    assert view.why.pass_row.accessibleName() == "Decided in pass 2, sweep a: GPUs, downwards"


def test_a_link_selects_the_node_it_names(view, state):
    state.select_node(24)

    view.why._neighbour.linkActivated.emit("node:23")

    assert state.selection.node.name == "attn_out-0"


def test_copy_as_text_gives_the_words_of_the_command_line(view, state):
    state.select_node(12)

    view.why._copy.click()

    table = state.shown_plan
    assert QGuiApplication.clipboard().text() == why_text(explain(table, table.slot(12)))
    assert view.why._copy.text() == "Copied"


def test_in_difference_mode_a_moved_node_has_both_sentences(view, state):
    after = paper_run.plans(op_offload=False)
    state.set_plans(after)
    state.set_diff(DiffMode(paper_run.plans(), after, "op_offload"))

    state.select_node(3)

    was, now = (label.text() for label in view.why._was_now._sentences)
    assert was.startswith("On OpenCL0")
    assert now.startswith("On the CPU")
    assert view.why._was_now.isVisible()
    assert view.dock_title.title == "Why here, was and now"


def test_in_difference_mode_a_node_that_stayed_has_one_sentence(view, state):
    after = paper_run.plans(op_offload=False)
    state.set_plans(after)
    state.set_diff(DiffMode(paper_run.plans(), after, "op_offload"))

    state.select_node(0)

    assert not view.why._was_now.isVisible()


def test_the_split_card_is_there_after_a_run_only(view, state, qtbot):
    state.select_node(12)
    assert not view.split.isVisible()

    state.set_trace(paper_run.run_on_paper(paper_run.plans()))
    qtbot.waitUntil(view.split.isVisible)

    assert view.split._name.text() == "split 6"


def test_the_chip_ends_the_selection_of_the_split_and_keeps_the_node(view, state, qtbot):
    state.set_trace(paper_run.run_on_paper(paper_run.plans()))
    state.select_node(12)
    qtbot.waitUntil(view.split.isVisible)

    view.split._chip.click()

    assert state.selection == Selection(node=state.shown_plan.key(12))


def test_nothing_is_wider_than_the_narrowest_dock(view, state, qtbot):
    state.set_trace(paper_run.run_on_paper(paper_run.plans()))
    state.select_node(24)
    qtbot.waitUntil(view.split.isVisible)

    view.resize(320, 460)

    assert view.why.minimumSizeHint().width() <= 320
    assert view.split.minimumSizeHint().width() <= 320


def test_it_paints_in_both_themes(view, state):
    state.select_node(12)
    light = view.grab().toImage()

    view._theme.choose(ThemeChoice.DARK)

    assert view.grab().toImage() != light


def test_experts_have_rows_of_their_own_where_they_were_copied(view, state, qtbot):
    table, recorder = expert_run((7, 1, 5, 2), (3, 1, 2, 3))
    state.show_plan(table)
    state.set_trace(without_waits(recorder))
    state.select(Selection(split_id=0, copy_id=0, step=0))
    qtbot.waitUntil(view.split.isVisible)

    view.resize(320, 460)

    texts = {title.text(): note for title, _, note in view.split._rows}
    assert texts["experts copied"].text().startswith("1-2, 5, 7 of 8")
    assert texts["all experts, estimated"].isVisible()
    assert view.split.minimumSizeHint().width() <= 320


def test_without_expert_copies_those_rows_are_hidden(view, state, qtbot):
    state.set_trace(paper_run.run_on_paper(paper_run.plans()))
    state.select_node(12)
    qtbot.waitUntil(view.split.isVisible)

    shown = [title.text() for title, _, _ in view.split._rows if title.isVisible()]

    assert shown == ["compute, measured", "copy in, measured", "cut because"]


def test_a_node_of_a_device_that_is_gone_keeps_its_badge_in_a_difference(view, state):
    was, now = paper_run.plans_with_another_gpu(), paper_run.plans()
    names = [device.name for device in was.prompt.devices]
    moved = next(
        now.prompt.node_ids()[key]
        for key, node in was.prompt.node_ids().items()
        if names[was.prompt.backend[was.prompt.slot(node)]] == "CUDA0"
        and key in now.prompt.node_ids()
    )

    state.set_diff(DiffMode(was, now, "CUDA0 unloaded"))
    state.select_node(moved)

    assert view.why._was_badge.accessibleName() == "CUDA0"
    assert view.why._badge.accessibleName() != "CUDA0"
