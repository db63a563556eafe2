from dataclasses import replace

import numpy as np
import pytest
from PySide6.QtCore import QPoint, QPointF, Qt
from PySide6.QtGui import QWheelEvent

from app.state.app_state import AppState, RunInfo, Selection
from app.theme.text import duration_text
from app.theme.theme import Theme, ThemeChoice
from app.views import timeline
from app.views.timeline.keys import Command
from app.views.timeline.navigation import rows_of
from app.views.timeline.scale import TimeView
from app.views.timeline.sum_check import check_of
from engine.core.plan import Batch
from engine.core.summary import RunState
from engine.trace.records import Mark, SpanKind
from tests.app.models import paper_run
from tests.engine.sched.expert_run import expert_run, without_waits


@pytest.fixture
def state(qapp):
    state = AppState()
    state.set_plans(paper_run.plans())
    return state


@pytest.fixture
def view(qtbot, state):
    view = timeline.make(state, Theme(ThemeChoice.LIGHT))
    qtbot.addWidget(view)
    view.resize(1280, 232)
    view.show()
    return view


@pytest.fixture
def measured(view, state):
    state.set_trace(paper_run.run_on_paper(paper_run.plans()))
    return view


def press(qtbot, view, key):
    qtbot.keyClick(view.lanes, key)


def frame_split(view, state, split_id, step=0):
    state.select(Selection(split_id=split_id, step=step))
    view._on_command(Command.FRAME)
    view.lanes.repaint()


def test_before_a_run_it_says_how_to_get_one(view):
    assert view._empty.isVisible()
    assert "Run (F5)" in view._empty.text()


def test_where_nothing_can_run_it_says_so(view, state, tmp_path):
    state.set_plans(paper_run.plans_without_graph(tmp_path))

    assert view._empty.text() == "Nothing can be measured: this model is placed, not run."


def test_after_a_run_the_whole_of_it_is_shown(measured):
    assert measured.scene.view == measured.scene.bounds
    assert measured.dock_title.fact == "measured"
    assert not measured._empty.isVisible()


def test_all_lanes_stand_in_the_dock_without_scrolling(measured):
    assert not measured._area.verticalScrollBar().isVisible()


def test_a_click_selects_the_split_its_step_and_its_first_node(measured, state):
    frame_split(measured, state, 99)
    row = int(measured.scene.selected_rows[0])
    rect = measured.lanes.row_rect(row)
    state.select(Selection())

    measured.lanes.click(rect.center())

    assert state.selection.split_id == 99
    assert state.selection.step == 0
    assert state.selection.node.name == "ffn_up-8"


def test_a_click_on_a_copy_selects_it_and_its_split(measured, state):
    frame_split(measured, state, 99)
    rect = measured.lanes.row_rect(int(measured.scene.flow_rows[0]))

    measured.lanes.click(rect.center())

    copy = state.shown_plan.copies[state.selection.copy_id]
    assert state.selection.split_id == 99
    assert copy["split"] == 99


def test_a_slice_of_the_other_batch_switches_to_its_plan(measured, state):
    token = paper_run.plans().token
    rows = rows_of(measured.scene.store.spans, SpanKind.SPLIT, token.plan_id, [1], 5)

    measured.choose_row(int(rows[0]))

    assert state.batch is Batch.TOKEN
    assert state.shown_plan is token
    assert state.selection.step == 5


def test_a_selection_from_elsewhere_marks_every_occurrence(measured, state):
    state.set_batch(Batch.TOKEN)

    state.select(Selection(split_id=1))

    assert len(measured.scene.selected_rows) == 12


def test_framing_twice_shows_the_whole_run_again(measured, state, qtbot):
    state.select(Selection(split_id=99, step=0))

    press(qtbot, measured, Qt.Key.Key_F)
    assert measured.scene.view.span < measured.scene.bounds.span / 10

    press(qtbot, measured, Qt.Key.Key_F)
    assert measured.scene.view == measured.scene.bounds


def test_keys_zoom_pan_and_return(measured, qtbot):
    press(qtbot, measured, Qt.Key.Key_W)
    zoomed = measured.scene.view
    press(qtbot, measured, Qt.Key.Key_A)

    assert zoomed.span < measured.scene.bounds.span
    assert measured.scene.view.t0 < zoomed.t0

    press(qtbot, measured, Qt.Key.Key_0)
    assert measured.scene.view == measured.scene.bounds


def test_comma_and_period_step_along_the_lane(measured, state, qtbot):
    frame_split(measured, state, 99)

    press(qtbot, measured, Qt.Key.Key_Period)
    assert state.selection.split_id == 100

    press(qtbot, measured, Qt.Key.Key_Comma)
    assert state.selection.split_id == 99


def wheel(view, steps, modifiers=Qt.KeyboardModifier.NoModifier):
    at = QPointF(view.lanes.width() / 2, 10)
    event = QWheelEvent(
        at, view.lanes.mapToGlobal(at), QPoint(), QPoint(0, 120 * steps),
        Qt.MouseButton.NoButton, modifiers, Qt.ScrollPhase.NoScrollPhase, False,
    )  # fmt: skip
    view.lanes.wheelEvent(event)
    return event


def test_a_plain_wheel_zooms_where_all_lanes_are_in_view(measured):
    before = measured.scene.view

    wheel(measured, 2)

    assert measured.scene.view.span < before.span


def test_a_plain_wheel_scrolls_lanes_that_are_not_all_in_view(measured):
    measured.resize(1280, 150)
    before = measured.scene.view

    event = wheel(measured, 2)

    assert not event.isAccepted()
    assert measured.scene.view == before


def test_brackets_follow_the_flow(measured, state, qtbot):
    frame_split(measured, state, 99)

    press(qtbot, measured, Qt.Key.Key_BracketLeft)
    assert state.selection.copy_id >= 0

    press(qtbot, measured, Qt.Key.Key_BracketRight)
    assert state.selection.copy_id == -1
    assert state.selection.split_id == 99


def test_dragging_selects_a_range_and_escape_ends_it_before_the_selection(measured, state, qtbot):
    state.select(Selection(split_id=99, step=0))
    lanes = measured.lanes
    qtbot.mousePress(lanes, Qt.MouseButton.LeftButton, pos=QPoint(100, 20))
    qtbot.mouseMove(lanes, QPoint(300, 20))
    measured.lanes.range_dragged.emit(
        TimeView(measured.scene.origin_ns, measured.scene.origin_ns + 2e6)
    )

    assert measured.dock_title.chip.startswith("range 0")

    press(qtbot, measured, Qt.Key.Key_Escape)
    assert measured.scene.range is None
    assert state.selection.split_id == 99

    press(qtbot, measured, Qt.Key.Key_Escape)
    assert state.selection == Selection()


def test_merged_slices_say_how_many_they_are(measured):
    measured.lanes.repaint()
    item = next(
        item
        for x in range(measured.lanes.width())
        if (item := measured.lanes.item_at(QPointF(x, 90))) is not None and item.n_merged > 1
    )

    assert "slices merged" in measured.lanes.tip_text(item)


def test_a_running_trace_is_followed_until_a_person_moves_the_view(view, state):
    whole = paper_run.run_on_paper(paper_run.plans())
    first = replace(whole, chunks=(whole.spans()[:200],))
    state.set_run(RunInfo(state=RunState.PROMPT))
    state.set_trace(first)
    assert view.scene.view == view.scene.bounds
    assert view.dock_title.fact == "measuring"

    view.zoom(4, view.scene.origin_ns)
    kept = view.scene.view
    state.set_trace(whole)
    view._take_over()

    assert view.scene.view == kept
    assert len(view.scene.store.spans) == whole.n_spans


def test_marks_are_drawn_where_they_happened(measured, state):
    plain = measured.lanes.grab().toImage()
    trace = state.trace
    at = trace.spans()["start_ns"][50]

    state.set_trace(replace(trace, marks=(Mark(int(at), "op_offload off"),), epoch=7))
    measured._take_over()

    assert measured.lanes.grab().toImage() != plain


def test_the_sum_check_follows_the_selection(measured, state):
    assert measured.check.text().endswith("ms, prompt")

    state.select(Selection(split_id=0, step=4))

    assert measured.check.text().endswith("ms, token step 4")


def test_lost_records_turn_to_an_alert(view, state):
    trace = paper_run.run_on_paper(paper_run.plans())

    state.set_trace(replace(trace, lost=12))

    assert view.lost.text().startswith("12 records lost")
    assert view.lost.property("role") == "alert"


def test_a_new_run_starts_over(measured, state):
    trace = state.trace
    few = np.array(trace.spans()[:10])

    state.set_trace(replace(trace, chunks=(few,), epoch=3))
    measured._take_over()

    assert len(measured.scene.store.spans) == 10


def test_the_overview_moves_the_shown_time(measured, state, qtbot):
    frame_split(measured, state, 99)
    before = measured.scene.view

    qtbot.mouseClick(measured.overview, Qt.MouseButton.LeftButton, pos=QPoint(900, 15))

    assert measured.scene.view.t0 > before.t0
    assert measured.scene.view.span == pytest.approx(before.span)


def test_it_paints_in_both_themes(measured, state):
    frame_split(measured, state, 99)
    light = measured.grab().toImage()

    measured.scene.theme.choose(ThemeChoice.DARK)

    assert measured.grab().toImage() != light


# Copies of experts.


@pytest.fixture
def expert_rows(view, state):
    """Show a run with three pieces in its first step; return their rows."""
    table, recorder = expert_run((7, 1, 5, 2), (3, 1, 2, 3))
    state.show_plan(table)
    state.add_met_plan(table)
    state.set_trace(without_waits(recorder))
    state.select(Selection(split_id=0, copy_id=0, step=0))
    return view.scene.selected_rows.tolist()


def test_the_tip_of_a_piece_says_which_experts_and_what_all_would_have_cost(view, expert_rows):
    lines = paper_run.words(view.scene.tip(expert_rows[0])).splitlines()

    assert lines[0] == "up"
    assert lines[3] == "experts 1-2 of 8"
    assert lines[4] == "this copy: experts 1-2, 5, 7 of 8, 17 KiB of 32 KiB"
    assert lines[5].startswith("copying all: about ")
    assert lines[5].endswith("estimated")


def test_a_selected_copy_is_framed_with_all_its_pieces(view, expert_rows):
    view._on_command(Command.FRAME)

    spans = view.scene.store.spans[expert_rows]
    assert len(expert_rows) == 3
    assert view.scene.view.t0 <= spans["start_ns"].min()
    assert view.scene.view.t1 >= spans["end_ns"].max()


def test_figures_of_pieces_are_their_sums(view, expert_rows):
    spans = view.scene.store.spans[view.scene.pieces(expert_rows[1])]
    took_ns = int((spans["end_ns"] - spans["start_ns"]).sum())

    figures = paper_run.words(view.scene.figures(*expert_rows))

    rate = spans["bytes"].sum() / took_ns
    assert figures == f"17 KiB  {paper_run.words(duration_text(took_ns))}  {rate:.1f} GB/s"


def test_pieces_are_found_among_the_selected_copies_and_those_of_a_selected_split(
    view, state, expert_rows
):
    """Whether the copy is selected or its split, whose other copies are none of its pieces."""
    as_copy = view.scene.pieces(expert_rows[2])

    state.select(Selection(split_id=0, step=0))

    assert as_copy == expert_rows
    assert view.scene.pieces(expert_rows[2]) == expert_rows
    assert len(view.scene.flow_rows) == 5


def test_the_sum_check_counts_copies_and_not_their_pieces(view, expert_rows):
    spans = view.scene.store.spans

    check = check_of(spans, [0])

    assert np.count_nonzero((spans["kind"] == SpanKind.COPY) & (spans["step"] == 0)) == 6
    assert (check.n_splits, check.n_copies) == (2, 4)
