import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from app.views.timeline import store as store_module
from app.views.timeline.slices import pixel_slices, zigzag_rects
from app.views.timeline.store import Lane, LaneKey, LaneKind, TraceStore, stacked
from engine.trace.pyramid import lane_pyramid, visible
from engine.trace.records import MEMBER_LANE, SPAN_DTYPE, SpanKind
from engine.trace.snapshot import TraceSnapshot, extend
from tests.app.models import paper_pipeline, paper_run


def spans(n, first=0, kind=SpanKind.SPLIT, lane=0):
    made = np.zeros(n, SPAN_DTYPE)
    made["kind"], made["lane"] = kind, lane
    made["index"] = np.arange(n)
    made["start_ns"] = 100 * (np.arange(n) + first)
    made["end_ns"] = made["start_ns"] + 60
    return made


def grown(parts):
    """The store after a snapshot for each part."""
    found, seq = TraceStore(), 0
    trace = TraceSnapshot()
    for part in parts:
        newer = TraceSnapshot((part,), since=seq, seq=seq + len(part))
        trace = extend(trace, newer)
        seq += len(part)
        found.update(trace)
    return found


def test_a_trace_read_in_pieces_is_the_trace_read_at_once():
    whole = paper_run.run_on_paper(paper_run.plans())
    everything = whole.spans()

    pieces = grown(np.array_split(everything, 7))
    once = TraceStore()
    once.update(whole)

    assert np.array_equal(pieces.spans, once.spans)
    assert pieces.lanes.keys() == once.lanes.keys()
    for key in once.lanes:
        assert np.array_equal(pieces.lanes[key].rows(), once.lanes[key].rows())


def test_lanes_are_splits_by_device_and_copies_by_link():
    found = TraceStore()
    found.update(paper_run.run_on_paper(paper_run.plans()))

    assert LaneKey(LaneKind.COPIES, 0, 1) in found.lanes
    assert LaneKey(LaneKind.SPLITS, 1) in found.lanes
    assert found.begin_ns == paper_run.ORIGIN_NS


def test_spans_of_nodes_are_left_out():
    found = TraceStore()

    assert not found.update(TraceSnapshot((spans(3, kind=SpanKind.NODE),), seq=3))
    assert found.is_empty


def test_a_new_epoch_starts_over():
    found = grown([spans(5)])

    assert found.update(TraceSnapshot((spans(2),), seq=9, epoch=1))
    assert len(found.spans) == 2


def test_no_trace_empties_the_store():
    found = grown([spans(5)])

    assert found.update(None)
    assert found.is_empty


def test_nothing_new_changes_nothing():
    trace = TraceSnapshot((spans(5),), seq=5)
    found = TraceStore()
    found.update(trace)
    version = found.version

    assert not found.update(trace)
    assert found.version == version


@given(st.integers(1, 40), st.floats(0, 3000), st.floats(1, 3000), st.integers(1, 200))
def test_sealed_pyramids_show_what_one_pyramid_shows_but_for_a_pixel(n, t0, length, n_pixels):
    """A block narrower than a pixel is drawn whole, and blocks of the two end at other spans."""
    made = spans(n)
    lane = Lane()
    before = store_module.SEALED_SPANS
    store_module.SEALED_SPANS = 8
    try:
        lane.append(made["start_ns"], made["end_ns"], np.arange(n))
    finally:
        store_module.SEALED_SPANS = before
    whole = lane_pyramid(made["start_ns"], made["end_ns"], np.arange(n))

    one = visible(whole, t0, t0 + length, n_pixels)
    parts = lane.visible(t0, t0 + length, n_pixels)

    pixel = length / n_pixels
    start, end = made["start_ns"], made["end_ns"]
    least = np.count_nonzero((start < t0 + length) & (end > t0))
    most = np.count_nonzero((start <= t0 + length + pixel) & (end >= t0 - pixel))
    assert least <= parts.n_merged.sum() <= most
    assert least <= one.n_merged.sum() <= most
    assert np.all(np.diff(parts.x0) >= 0)


def test_merged_slices_are_a_pixel_wide_and_have_a_cut_edge():
    lane = Lane()
    made = spans(10_000)
    lane.append(made["start_ns"], made["end_ns"], np.arange(10_000))

    slices = pixel_slices(lane.visible(0, 1_000_000, 100), 10_000)

    assert slices.merged.all()
    assert np.all(slices.x1 - slices.x0 >= 1)
    assert slices.n_merged.sum() == 10_000
    assert set(zigzag_rects(slices, 0.0, 52.0)[:, 1]) == {0.0, 1.5, 3.0}


def test_the_narrowest_slice_under_the_pointer_is_hit():
    lane = Lane()
    lane.append(np.array([0, 400]), np.array([1000, 410]), np.array([7, 8]))

    slices = pixel_slices(lane.visible(0, 1000, 1000), 1.0)

    assert slices.row[slices.at(404)] == 8
    assert slices.row[slices.at(800)] == 7


@given(st.lists(st.tuples(st.integers(0, 100), st.integers(1, 60)), min_size=1, max_size=30))
def test_steps_in_one_row_never_overlap_and_those_in_order_need_no_more_rows_than_at_once(found):
    start = np.sort(np.array([begin for begin, _ in found], np.int64))
    end = np.maximum.accumulate(start + np.array([length for _, length in found], np.int64))

    rows = stacked(start, end)

    for row in range(int(rows.max()) + 1):
        mine = rows == row
        assert np.all(start[mine][1:] >= end[mine][:-1])
    at_once = max(int(np.sum((start <= t) & (end > t))) for t in start)
    assert rows.max() < at_once


def test_steps_one_after_the_other_have_no_lanes_of_their_own():
    found = TraceStore()
    found.update(paper_run.run_on_paper(paper_run.plans()))

    assert found.n_step_rows == 1
    assert not [key for key in found.lanes if key.kind is LaneKind.STEPS]


def test_steps_that_overlap_all_have_a_place():
    found = TraceStore()
    found.update(paper_pipeline.run_on_paper(6))

    rows = [lane.rows() for key, lane in found.lanes.items() if key.kind is LaneKind.STEPS]
    assert found.n_step_rows == len(rows) > 1
    assert (
        sorted(np.concatenate(rows))
        == np.flatnonzero(found.spans["kind"] == SpanKind.STEP).tolist()
    )


def test_exchanges_are_on_the_lane_of_their_link_and_shares_on_that_of_their_device():
    found = TraceStore()
    found.update(paper_pipeline.joined_run())

    assert LaneKey(LaneKind.COPIES, MEMBER_LANE, MEMBER_LANE + 1) in found.lanes
    assert LaneKey(LaneKind.SHARES, MEMBER_LANE + 1) in found.lanes
