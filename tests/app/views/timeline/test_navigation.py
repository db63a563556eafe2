import pytest

from app.theme.text import THIN
from app.views.timeline.lanes import (
    Member,
    Shown,
    lane_at,
    lanes_height,
    members_of,
    place_lanes,
    planned_links,
)
from app.views.timeline.navigation import downstream, next_row, row_at, rows_of, upstream
from app.views.timeline.store import LaneKey, LaneKind, TraceStore
from app.views.timeline.sum_check import check_of, check_text, lost_text, steps_of
from engine.trace.records import SpanKind
from tests.app.models import paper_pipeline, paper_run

PLAN = "prompt"
BOTH_WAYS = Shown(links=frozenset({(0, 1), (1, 0)}))


@pytest.fixture(scope="module")
def store():
    store = TraceStore()
    store.update(paper_run.run_on_paper(paper_run.plans()))
    return store


@pytest.fixture(scope="module")
def plan():
    return paper_run.plans().prompt


def row_of(store, plan, kind, index):
    return int(rows_of(store.spans, kind, plan.plan_id, [index])[0])


def test_upstream_of_a_split_is_its_copy_and_of_that_the_split_that_made_it(store, plan):
    row = row_of(store, plan, SpanKind.SPLIT, 6)

    copy = upstream(store.spans, plan, row)
    source = upstream(store.spans, plan, copy)

    assert store.spans[copy]["kind"] == SpanKind.COPY
    assert plan.copies[int(store.spans[copy]["index"])]["split"] == 6
    assert store.spans[source]["kind"] == SpanKind.SPLIT
    assert store.spans[source]["index"] < 6


def test_downstream_of_a_copy_is_its_split(store, plan):
    row = row_of(store, plan, SpanKind.COPY, 20)

    split = downstream(store.spans, plan, row)

    assert store.spans[split]["index"] == plan.copies[20]["split"]


def test_the_flow_of_a_weight_begins_with_its_copy(store, plan):
    copy_id = next(i for i, copy in enumerate(plan.copies) if copy["is_weight"])
    row = row_of(store, plan, SpanKind.COPY, copy_id)

    assert upstream(store.spans, plan, row) == row


def test_the_next_slice_is_the_next_of_the_same_lane(store, plan):
    lane = store.lanes[LaneKey(LaneKind.SPLITS, 0)]
    row = row_of(store, plan, SpanKind.SPLIT, 99)

    after = next_row(lane, row, 1)

    assert store.spans[after]["index"] == 100
    assert next_row(lane, after, -1) == row


def test_a_lane_ends_at_its_ends(store):
    lane = store.lanes[LaneKey(LaneKind.SPLITS, 0)]
    last = int(lane.rows()[-1])

    assert next_row(lane, last, 1) == last


def test_the_slice_at_a_moment_is_found(store, plan):
    lane = store.lanes[LaneKey(LaneKind.SPLITS, 0)]
    row = row_of(store, plan, SpanKind.SPLIT, 99)
    span = store.spans[row]

    assert row_at(store.spans, lane, (span["start_ns"] + span["end_ns"]) / 2) == row


def test_the_parts_of_the_sum_check_add_up_as_printed(store):
    check = check_of(store.spans, steps_of(store.steps(), -1))
    text = check_text(check).replace(THIN, "").replace("\u00a0", "")

    left, right = text.split("=")
    figures = [float(term.split()[-1]) for term in left.split("+")]
    assert round(sum(figures), 2) == float(right.split("ms")[0])
    assert text.startswith("321")
    assert check.n_copies == 383
    assert text.endswith("ms, prompt")


def test_a_token_step_is_checked_by_itself(store):
    check = check_of(store.spans, steps_of(store.steps(), 3))

    assert check.n_splits == 2
    assert check.word == "token step 3"


def test_a_step_that_has_not_ended_has_no_check(store):
    assert check_of(store.spans, steps_of(store.steps(), 4_000)) is None


def test_lost_records_are_counted():
    assert lost_text(0) == "0 lost"
    assert lost_text(1).startswith("1 record lost")


def test_lanes_are_devices_with_the_copies_into_them_and_the_cpu_last(plan):
    lanes = place_lanes(plan.devices, BOTH_WAYS, 200)

    assert [lane.title for lane in lanes] == ["OpenCL0", "copies in", "copies out", "CPU"]
    assert [lane.height for lane in lanes] == [52, 28, 28, 28]


def test_gaps_shrink_where_there_is_little_height(plan):
    roomy, tight = (place_lanes(plan.devices, BOTH_WAYS, height) for height in (300, 146))

    assert lanes_height(tight) < lanes_height(roomy)
    assert [lane.height for lane in tight] == [lane.height for lane in roomy]


@pytest.mark.parametrize("height", [80, 100, 121])
def test_lanes_shrink_where_gaps_are_not_enough(plan, height):
    lanes = place_lanes(plan.devices, BOTH_WAYS, height)

    assert lanes_height(lanes) <= height
    assert all(lane.height >= 14 for lane in lanes)


def test_names_of_lanes_stay_readable_and_the_lanes_scroll(plan):
    lanes = place_lanes(plan.devices, BOTH_WAYS, 20)

    assert [lane.height for lane in lanes] == [28, 14, 14, 14]
    assert lanes_height(lanes) > 20


def test_a_height_belongs_to_one_lane(plan):
    lanes = place_lanes(plan.devices, BOTH_WAYS, 200)

    assert lane_at(lanes, lanes[2].y + 3) == 2
    assert lane_at(lanes, 10_000) == -1


def test_a_computer_without_a_gpu_has_one_tall_lane(plan):
    lanes = place_lanes(plan.devices[1:], Shown(), 200)

    assert [(lane.title, lane.height) for lane in lanes] == [("CPU", 52)]


def titles(lanes):
    return [lane.title for lane in lanes]


def test_several_gpus_have_a_lane_for_each_link_below_the_device_it_ends_in():
    plan = paper_pipeline.plans().prompt
    links = frozenset({(0, 2), (1, 0), (1, 2), (2, 1)})

    lanes = place_lanes(plan.devices, Shown(links=links), 400)

    assert titles(lanes) == [
        "OpenCL0", "from CPU", "OpenCL1", "from OpenCL0", "from CPU", "from OpenCL1", "CPU",
    ]  # fmt: skip
    assert lanes[3].key == LaneKey(LaneKind.COPIES, 1, 0)


def test_the_links_of_a_plan_are_those_that_it_copies_over():
    plan = paper_pipeline.plans().prompt

    found = planned_links(plan)

    assert found == {(int(c["target"]), int(c["source"])) for c in plan.copies}
    assert (1, 0) in found


def test_what_is_copied_to_devices_that_are_joined_goes_to_each_of_them():
    plan = paper_pipeline.joined_plans().prompt
    sources = set(plan.copies["source"][plan.copies["target"] == 0].tolist())

    found = planned_links(plan)

    assert sources
    assert {pair for pair in found if pair[0] >= 128} == {
        (lane, source) for lane in (128, 129) for source in sources
    }
    assert not [target for target, _ in found if target == 0]


def test_devices_that_a_backend_joins_have_lanes_below_it():
    plan = paper_pipeline.joined_plans().prompt
    members = members_of(plan.devices)
    shown = Shown(links=frozenset({(128, 129)}), members=members)

    lanes = place_lanes(plan.devices, shown, 400)

    assert members == (Member(128, "OpenCL0", 0), Member(129, "OpenCL1", 0))
    assert titles(lanes) == ["Meta()", "OpenCL0", "from OpenCL1", "OpenCL1", "CPU"]
    assert [lane.is_device for lane in lanes] == [True, True, False, True, True]


def test_a_device_that_computes_rows_has_a_lane_for_them(plan):
    lanes = place_lanes(plan.devices, Shown(sharing=frozenset({0})), 400)

    assert titles(lanes) == ["OpenCL0", "its share", "CPU"]
    assert not lanes[1].is_device


def test_steps_that_overlap_and_the_critical_path_stand_above_the_devices(plan):
    lanes = place_lanes(plan.devices, Shown(n_step_rows=3, has_path=True), 400)

    assert titles(lanes) == ["critical path", "graphs", "", "", "OpenCL0", "CPU"]


def test_steps_give_up_their_names_before_devices_have_to_scroll(plan):
    shown = Shown(links=frozenset({(0, 1)}), n_step_rows=4)

    lanes = place_lanes(plan.devices, shown, 124)

    assert lanes_height(lanes) <= 124
    assert [lane.height < 14 for lane in lanes[:4]] == [True] * 4
    assert lanes[4].height >= 28
