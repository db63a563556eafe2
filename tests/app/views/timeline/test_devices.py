"""Several devices on the timeline: idle time, the critical path, links, overlapping graphs."""

import numpy as np
import pytest
from PySide6.QtCore import QPointF, Qt
from PySide6.QtGui import QHelpEvent

from app.state.app_state import AppState, RunInfo, Selection
from app.theme.theme import Theme, ThemeChoice
from app.views import timeline
from app.views.timeline.analysis import analyse, path_of, rows_of_things
from app.views.timeline.device_lines import DeviceLines, packed
from app.views.timeline.device_words import (
    path_words,
    pipeline_words,
    run_words,
    thing_words,
    use_tip,
)
from app.views.timeline.lane_canvas import IdleHit, PathHit
from app.views.timeline.overview import strips, tokens_text
from app.views.timeline.store import LaneKind
from engine.core.plan import Batch
from engine.core.summary import RunState, Together
from engine.trace.idle import IdleCause
from engine.trace.lanes import Thing
from engine.trace.records import HOST_LANE, SPAN_DTYPE, SpanKind
from engine.trace.snapshot import TraceSnapshot
from tests.app.models import paper_pipeline, paper_run
from tests.app.models.paper_run import words

N_GRAPHS = 6


@pytest.fixture
def state(qapp):
    state = AppState()
    state.set_plans(paper_pipeline.plans())
    return state


@pytest.fixture
def view(qtbot, state):
    view = timeline.make(state, Theme(ThemeChoice.LIGHT))
    qtbot.addWidget(view)
    view.resize(1280, 360)
    view.show()
    return view


@pytest.fixture
def measured(qtbot, view, state):
    """Show a run whose devices were looked at."""
    state.set_trace(paper_pipeline.run_on_paper(N_GRAPHS))
    qtbot.waitUntil(lambda: view.scene.analysis is not None)
    return view


@pytest.fixture
def with_path(qtbot, measured, state):
    """Show the critical path too."""
    state.set_shows_path(shows=True)
    qtbot.waitUntil(lambda: bool(measured.scene.path.pieces))
    return measured


def titles(view):
    return [lane.title for lane in view.scene.lanes]


def longest_idle(view, lane, cause):
    idle = view.scene.analysis.idle
    mine = [i for i, moment in enumerate(idle) if (moment.lane, moment.cause) == (lane, cause)]
    return max(mine, key=lambda i: idle[i].duration_ns)


def name(lane):
    return f"device {lane}"


# Lanes.


def test_graphs_under_way_at_once_stand_in_rows_above_the_devices(measured):
    rows = [lane for lane in measured.scene.lanes if lane.key.kind is LaneKind.STEPS]

    assert len(rows) == measured.scene.store.n_step_rows > 1
    assert titles(measured)[0] == "graphs"
    assert measured.scene.name(int(measured.scene.store.lanes[rows[0].key].rows()[0])) == (
        "prompt, graph 1 of 6"
    )


def test_a_click_on_a_graph_selects_its_step(measured, state, qtbot):
    spans = measured.scene.store.spans
    row = int(np.flatnonzero((spans["kind"] == SpanKind.STEP) & (spans["step"] == 2))[0])
    measured.lanes.repaint()

    measured.lanes.click(measured.lanes.row_rect(row).center())
    assert state.selection == Selection(step=2)
    assert measured.scene.selected_rows.tolist() == [row]
    assert measured.check.text().endswith("ms, prompt")

    for key in (Qt.Key.Key_F, Qt.Key.Key_BracketLeft, Qt.Key.Key_Comma):
        qtbot.keyClick(measured.lanes, key)
    assert state.selection.split_id == -1
    assert measured.lanes.grab()


def test_each_link_into_a_device_has_a_lane(measured):
    assert "from OpenCL0" in titles(measured)
    assert titles(measured).count("from CPU") == 2


def test_a_copy_says_where_it_comes_from(measured):
    spans = measured.scene.store.spans
    row = int(np.flatnonzero((spans["kind"] == SpanKind.COPY) & (spans["peer"] == 0))[0])

    assert "copied into OpenCL1 from OpenCL0" in measured.scene.tip(row)


def test_devices_that_may_compute_at_once_have_a_strip_each_in_the_overview(measured):
    found = strips(measured.scene)

    assert len({y for _, y, _ in found}) == len(found) == 3


def test_before_any_device_has_computed_the_overview_has_no_strip(view, state):
    spans = paper_pipeline.run_on_paper(2).spans()
    state.set_run(RunInfo(state=RunState.PROMPT))

    state.set_trace(TraceSnapshot((spans[spans["kind"] == SpanKind.COPY],), seq=4))

    assert strips(view.scene) == []
    assert not view.overview.grab().isNull()


def test_a_plan_with_other_devices_that_a_run_meets_has_lanes_with_looks(view, state):
    state.set_plans(paper_run.plans())
    state.set_run(RunInfo(state=RunState.PROMPT))

    state.met_plans[paper_pipeline.plans().prompt.plan_id] = paper_pipeline.plans().prompt
    state.set_trace(paper_pipeline.run_on_paper(2))

    lanes = {lane.key.lane for lane in view.scene.lanes if lane.is_device}
    assert lanes == {0, 1, 2} == set(view.scene.looks)


def test_shares_and_what_they_hand_over_are_shown_with_the_devices_that_are_joined(qtbot, state):
    state.set_plans(paper_pipeline.joined_plans())
    view = timeline.make(state, Theme(ThemeChoice.DARK))
    qtbot.addWidget(view)
    view.resize(1280, 360)
    view.show()
    state.set_trace(paper_pipeline.joined_run())
    qtbot.waitUntil(lambda: view.scene.analysis is not None)
    spans = view.scene.store.spans

    share = int(np.flatnonzero(spans["kind"] == SpanKind.SHARD)[0])
    exchange = int(np.flatnonzero(spans["kind"] == SpanKind.EXCHANGE)[0])
    view.choose_row(share)

    assert titles(view)[:6] == [
        "Meta()", "OpenCL0", "from CPU", "from OpenCL1", "OpenCL1", "from CPU",
    ]  # fmt: skip
    assert "its share computed on OpenCL0" in view.scene.tip(share)
    assert "handed over into OpenCL0 from OpenCL1" in view.scene.tip(exchange)
    assert state.selection.split_id == int(spans[share]["index"])
    assert share in view.scene.selected_rows
    assert exchange in view.scene.flow_rows


# Idle time.


def test_each_device_says_how_much_it_computed_and_why_it_was_idle(measured):
    text = words(measured.foot.devices.text())

    assert text.startswith("whole run: several at once ")
    assert "OpenCL0 busy" in text
    assert "OpenCL1 busy" in text
    assert measured.scene.lanes[-1].key.lane == 2
    subtitles = {lane.title: lane.subtitle for lane in measured.scene.lanes}
    assert subtitles["OpenCL0"].startswith("busy ")


def test_figures_of_a_device_add_up_to_the_run(measured):
    for use in measured.scene.analysis.uses.values():
        assert use.busy_ns + sum(use.idle_ns.values()) == use.wall_ns


def test_idle_time_is_painted_by_what_the_device_waits_for(measured, state):
    measured.lanes.repaint()
    with_idle = measured.lanes.grab().toImage()

    measured.scene.set_analysis(None)

    assert measured.lanes.grab().toImage() != with_idle


def test_the_pointer_on_idle_time_says_the_cause_and_what_is_at_fault(measured):
    idle_id = longest_idle(measured, 1, IdleCause.DEVICE)
    rect = measured.lanes.idle_rect(measured.scene.analysis.idle[idle_id])
    measured.lanes.repaint()

    hit = measured.lanes.item_at(rect.center())
    tip = words(measured.lanes.tip_text(hit))

    assert isinstance(hit, IdleHit)
    assert tip.startswith("OpenCL1 idle ")
    assert "waits for another device" in tip
    assert "on OpenCL0" in tip


def test_a_click_on_idle_time_says_it_below_and_j_goes_to_what_was_at_fault(measured, state, qtbot):
    idle_id = longest_idle(measured, 1, IdleCause.DEVICE)
    fault = measured.scene.analysis.idle[idle_id].fault
    measured.lanes.repaint()
    rect = measured.lanes.idle_rect(measured.scene.analysis.idle[idle_id])

    measured.lanes.click(rect.center())
    assert "waits for another device" in measured.foot.idle.text()
    assert measured.foot.fault.isVisible()

    qtbot.keyClick(measured.lanes, Qt.Key.Key_J)
    assert state.selection.split_id == fault.item_id
    assert state.selection.step == fault.step
    assert measured.scene.idle_id == -1
    assert not measured.foot.idle.isVisible()


def test_the_button_beside_an_idle_moment_does_what_j_does(measured, state):
    measured.choose_idle(longest_idle(measured, 1, IdleCause.COPY))
    fault = measured.scene.idle.fault

    measured.foot.fault.click()

    assert state.selection.copy_id == fault.item_id


def test_a_device_without_work_has_nothing_to_go_to(measured):
    measured.choose_idle(longest_idle(measured, 0, IdleCause.NOTHING))

    assert "nothing to do" in measured.foot.idle.text()
    assert not measured.foot.fault.isVisible()


def test_escape_ends_an_idle_selection(measured, qtbot):
    measured.choose_idle(0)

    qtbot.keyClick(measured.lanes, Qt.Key.Key_Escape)

    assert measured.scene.idle is None


def test_the_foot_takes_room_from_the_lanes_and_gives_it_back(measured):
    before = measured.foot.height_px

    measured.choose_idle(0)
    grown = measured.foot.height_px
    measured.choose_idle(-1)

    assert grown > before == measured.foot.height_px


def test_the_head_of_a_lane_says_the_figures_of_its_device_or_link(measured, monkeypatch):
    said = []
    monkeypatch.setattr(
        "app.views.timeline.lane_heads.QToolTip.showText",
        lambda at, text, widget: said.append(text),
    )
    for lane in measured.scene.lanes:
        at = QPointF(20, lane.y + 3).toPoint()
        measured.heads.event(QHelpEvent(QHelpEvent.Type.ToolTip, at, at))

    tips = [words(tip) for tip in said]
    assert any(tip.startswith("OpenCL0: busy ") and "most of it" in tip for tip in tips)
    assert any(tip.startswith("OpenCL0 to OpenCL1") and "GB/s" in tip for tip in tips)


def test_a_run_that_goes_on_is_not_looked_at_before_it_ends(view, state, qtbot):
    state.set_run(RunInfo(state=RunState.PROMPT))
    state.set_trace(paper_pipeline.run_on_paper(2))
    assert view.scene.analysis is None
    assert not view.foot.devices.isVisible()

    state.set_run(RunInfo(state=RunState.IDLE))
    qtbot.waitUntil(lambda: view.scene.analysis is not None)

    assert view.foot.devices.isVisible()


def test_another_run_drops_what_was_found_of_the_last(with_path, state, qtbot):
    measured = with_path

    state.set_trace(None)
    qtbot.waitUntil(lambda: measured.scene.store.is_empty)

    assert measured.scene.analysis is None
    assert not measured.scene.path_rows
    assert not measured.scene.path.pieces


# The critical path.


def test_without_being_asked_for_there_is_no_critical_path(measured):
    assert "critical path" not in titles(measured)
    assert not measured.foot.path.isVisible()


def test_the_critical_path_has_a_lane_and_a_line_that_adds_up(with_path):
    shares = [
        float(part.split()[1])
        for part in words(with_path.foot.path.text()).split(" of ")[0].split(", ")
    ]

    assert titles(with_path)[0] == "critical path"
    assert sum(shares) == pytest.approx(100, abs=0.2)
    assert with_path.foot.path.text().endswith("of the prompt, all 6 graphs")


def test_the_critical_path_follows_the_selected_step_and_goes_when_switched_off(
    with_path, state, qtbot
):
    state.select(Selection(split_id=1, step=2))
    qtbot.waitUntil(lambda: with_path.scene.path.step == 2)
    assert with_path.foot.path.text().endswith("graph 3 of 6")

    state.set_shows_path(shows=False)

    assert not with_path.scene.path.pieces
    assert "critical path" not in titles(with_path)


def test_what_is_not_on_the_critical_path_is_dimmed(measured, state, qtbot):
    measured.lanes.repaint()
    spans = measured.scene.store.spans
    first = np.flatnonzero((spans["kind"] == SpanKind.SPLIT) & (spans["lane"] == 1))[0]

    def colour():
        rect = measured.lanes.row_rect(int(first))
        return (
            measured.lanes.grab()
            .toImage()
            .pixelColor(rect.topLeft().toPoint() + QPointF(20, 2).toPoint())
        )

    before = colour()
    state.set_shows_path(shows=True)
    qtbot.waitUntil(lambda: bool(measured.scene.path.pieces))

    assert int(first) not in np.concatenate(list(measured.scene.path_rows.values()))
    assert colour().lightness() > before.lightness()


def test_a_click_on_a_piece_of_the_path_selects_what_took_that_time(with_path, state):
    lane = with_path.scene.lanes[0]
    pieces = with_path.scene.path.pieces
    piece = [piece for piece in pieces if piece.thing.kind is SpanKind.SPLIT][-1]
    middle = (piece.start_ns + piece.end_ns) / 2
    at = QPointF(with_path.scene.view.x_of(middle, with_path.lanes.width()), lane.y + 4)
    with_path.lanes.repaint()

    hit = with_path.lanes.item_at(at)
    assert isinstance(hit, PathHit)
    assert "on the critical path" in with_path.lanes.tip_text(hit)
    with_path.lanes.click(at)

    assert state.selection.split_id == piece.thing.item_id
    assert state.selection.step == piece.thing.step


def test_without_a_selection_the_path_is_that_of_the_last_step_of_the_shown_batch(
    qtbot, view, state
):
    state.set_plans(paper_run.plans())
    state.set_shows_path(shows=True)
    state.set_trace(paper_run.run_on_paper(paper_run.plans()))
    qtbot.waitUntil(lambda: view.scene.path.step == 0)

    state.set_batch(Batch.TOKEN)
    qtbot.waitUntil(lambda: view.scene.path.step == 12)

    assert view.foot.path.text().endswith("token step 12")


# Pure parts.


@pytest.fixture(scope="module")
def analysis():
    plans = paper_pipeline.plans()
    trace = paper_pipeline.run_on_paper(N_GRAPHS)
    return analyse(trace.spans(), {plans.prompt.plan_id: plans.prompt})


def test_every_idle_moment_is_in_the_pyramid_of_its_device_and_cause(analysis):
    found = {int(i): key for key, pyramid in analysis.pyramids.items() for i in pyramid.index}

    assert found == {i: (idle.lane, idle.cause) for i, idle in enumerate(analysis.idle)}


def test_pieces_of_a_path_follow_one_another_and_are_found_by_time(analysis):
    path = path_of(analysis, [3])

    assert np.array_equal(path.start_ns[1:], path.end_ns[:-1])
    middle = (path.start_ns + path.end_ns) / 2
    assert [path.at(t) for t in middle] == list(range(len(path.pieces)))
    assert path.at(path.start_ns[0] - 1) == path.at(path.end_ns[-1] + 1) == -1


def test_the_path_of_a_whole_prompt_goes_back_over_its_graphs_to_the_start_of_the_first(analysis):
    frames = analysis.chains.steps

    path = path_of(analysis, sorted(frames))

    assert path.n_steps == N_GRAPHS
    assert path.start_ns[0] == min(frame.start_ns for frame in frames.values())
    assert path.end_ns[-1] == max(frame.end_ns for frame in frames.values())
    assert np.array_equal(path.start_ns[1:], path.end_ns[:-1])
    work_ns = [p.duration_ns for p in path.pieces if p.thing.kind is SpanKind.SPLIT]
    assert sum(work_ns) > 0.9 * (path.end_ns[-1] - path.start_ns[0])
    assert path.pieces[-1:] == path_of(analysis, [N_GRAPHS - 1]).pieces[-1:]


def test_steps_that_were_not_analysed_have_no_path(analysis):
    assert path_of(analysis, [99]).pieces == ()


def test_tokens_in_the_overview_have_a_median_beside_their_sum():
    steps = np.zeros(3, SPAN_DTYPE)
    steps["start_ns"] = [0, 10_000_000, 30_000_000]
    steps["end_ns"] = [10_000_000, 30_000_000, 70_000_000]

    assert words(tokens_text(steps)) == "3 tokens, median 20.00 ms, together 70.0 ms"


def test_things_are_found_among_the_spans_with_all_their_pieces():
    spans = np.concatenate([paper_pipeline.run_on_paper(3).spans()] * 2)
    thing = Thing(SpanKind.SPLIT, 1, paper_pipeline.plans().prompt.plan_id, 2, 1)

    rows = rows_of_things(spans, [thing])

    assert len(rows) == 2
    assert np.all(spans[rows]["index"] == 2)
    assert np.all(spans[rows]["step"] == 1)


def test_things_in_words_name_split_device_copy_and_what_the_host_does():
    table = paper_pipeline.plans().prompt
    plan_id = table.plan_id

    def say(thing):
        return thing_words(thing, {plan_id: table}.get, name)

    assert say(None) == "the host, between steps"
    assert say(Thing(SpanKind.PLAN, 255, plan_id, 0, 0)) == "the host plans a new batch shape"
    assert say(Thing(SpanKind.SPLIT, 1, plan_id, 2, 0)).startswith("split 2 on device 1, ")
    assert say(Thing(SpanKind.COPY, 1, plan_id, 5, 0)) == (
        f"{table.copy_name(5)}, copied into device 1"
    )
    launching = say(Thing(SpanKind.SPLIT, HOST_LANE, plan_id, 2, 0))
    assert launching == f"the host launches pieces of split 2, {table.split_name(2)}"
    assert say(Thing(SpanKind.SHARD, 128, 99, 2, 0)) == "the share of split 2 on device 128"
    assert say(Thing(SpanKind.EXCHANGE, 128, 99, 2, 0)) == ("what split 2 hands over to device 128")


def test_the_line_of_a_run_leaves_out_what_is_less_than_a_hundredth(analysis):
    run, first, second = (words(text) for text in run_words(analysis, (1, 0), name))

    assert run.startswith("whole run: several at once ")
    assert first.startswith("device 1 busy")
    use = analysis.uses[0]
    assert use.idle_ns[IdleCause.HOST] < 0.01 * use.wall_ns
    assert second.startswith("device 0 busy")
    assert "host" not in second
    assert "waits for the host" in use_tip(use, "GPU", lambda plan_id: None, name)


@pytest.mark.parametrize(
    ("n_copies", "why_off", "said"),
    [
        (4, "", ", pipeline of 4 graphs"),
        (1, "not every layer is on a device", ", no pipeline: not every layer is on a device"),
        (1, "", ""),
    ],
)
def test_whether_there_was_a_pipeline_is_said_with_the_devices(n_copies, why_off, said):
    assert pipeline_words(Together(1, (), (), 0, (), n_copies, why_off, 1, 1)) == said


def test_the_words_of_a_device_are_never_cut_by_the_end_of_a_line():
    texts = ["whole run", "GPU busy 50 %", "CPU busy 2 %"]

    assert packed(texts, 1000, len) == [" · ".join(texts)]
    assert packed(texts, 25, len) == ["whole run · GPU busy 50 %", "CPU busy 2 %"]
    assert packed(texts, 1, len) == texts


def test_a_narrow_foot_has_more_lines_and_of_many_devices_the_tooltip_has_the_rest(qtbot):
    lines = DeviceLines()
    qtbot.addWidget(lines)
    lines.resize(2000, 20)
    lines.show()

    lines.say(["whole run", *(f"GPU{i} busy 10 %" for i in range(6))])
    assert lines.n_lines == 1
    assert lines.text().endswith("GPU3 busy 10 % · and 2 more")
    assert "GPU5 busy" in lines.toolTip()

    with qtbot.waitSignal(lines.lines_changed):
        lines.resize(120, 200)
    assert lines.n_lines > 3
    lines.set_short(is_short=True)
    assert lines.n_lines == 1


def test_a_path_without_pieces_has_no_words():
    assert path_words(()) == ""
