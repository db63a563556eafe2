from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from engine.trace.export.layout import lay_out, slots
from engine.trace.export.meta import TraceMeta
from engine.trace.records import SPAN_DTYPE, Mark, SpanKind
from engine.trace.snapshot import TraceSnapshot

INTERVALS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 15)), max_size=40)


def test_intervals_that_touch_share_a_track():
    assert slots(np.array([0, 5, 5]), np.array([5, 5, 9])).tolist() == [0, 0, 0]


def test_an_interval_that_overlaps_takes_the_lowest_free_track():
    start, end = np.array([0, 2, 3, 6]), np.array([10, 5, 9, 7])

    assert slots(start, end).tolist() == [0, 1, 2, 1]


@given(INTERVALS)
def test_intervals_of_a_track_never_overlap_and_tracks_are_as_few_as_possible(intervals):
    start = np.array([start for start, _ in intervals], np.int64)
    end = start + np.array([length for _, length in intervals], np.int64)

    taken = slots(start, end)

    for slot in set(taken.tolist()):
        mine = sorted(zip(start[taken == slot], end[taken == slot], strict=True))
        assert all(a_end <= b_start for (_, a_end), (b_start, _) in pairwise(mine))
    open_at_once = [int(np.sum((start <= t) & (t < end))) for t in range(60)]
    around_a_moment = [int(np.sum((start < t) & (t < end))) + 1 for t in start[start == end]]
    assert len(set(taken.tolist())) == max(open_at_once + around_a_moment)


def test_devices_are_processes_and_overlapping_copies_get_a_child_track(meta, snapshot):
    layout = lay_out(meta, snapshot)

    names = {process.name: [track.name for track in process.tracks] for process in layout.processes}
    assert names == {
        "Splitscope": ["marks", "steps", "waits"],
        "OpenCL0": ["splits", "copies from CPU", "copies from CPU (2)"],
        "CPU": ["splits", "nodes", "copies from OpenCL0"],
    }
    gpu = layout.processes[1]
    assert gpu.description == 'GPU, PoCL "cpu"'
    assert gpu.tracks[2].parent == gpu.tracks[1].tid


def test_every_span_is_on_exactly_one_track(meta, snapshot):
    layout = lay_out(meta, snapshot)

    rows = np.concatenate([track.rows for process in layout.processes for track in process.tracks])
    assert sorted(rows.tolist()) == list(range(snapshot.n_spans))


def test_times_count_from_the_earliest_one(meta, snapshot):
    layout = lay_out(meta, snapshot)

    assert layout.origin_ns == int(snapshot.spans()["start_ns"].min())
    assert int(layout.spans["start_ns"].min()) == 0
    assert layout.marks[0].time_ns == 10_000


def test_a_mark_can_be_the_earliest_time(meta):
    spans = np.zeros(1, SPAN_DTYPE)
    spans["start_ns"], spans["end_ns"] = 50, 60

    layout = lay_out(meta, TraceSnapshot((spans,), (Mark(40, "early"),)))

    assert (layout.origin_ns, layout.spans["start_ns"].tolist()) == (40, [10])


def test_an_end_before_its_start_becomes_a_span_without_length(meta):
    spans = np.zeros(1, SPAN_DTYPE)
    spans["start_ns"], spans["end_ns"] = 50, 49

    layout = lay_out(meta, TraceSnapshot((spans,)))

    assert (layout.spans["start_ns"].tolist(), layout.spans["end_ns"].tolist()) == ([0], [0])


def test_a_flow_goes_from_the_producing_split_through_the_copy_to_the_split_it_feeds(
    meta, snapshot
):
    layout = lay_out(meta, snapshot)

    def told(ends: dict[int, list[int]]) -> set[tuple[int, int, int, int]]:
        spans = layout.spans
        return {
            (int(spans["kind"][row]), int(spans["index"][row]), int(spans["step"][row]), flow)
            for row, flows in ends.items()
            for flow in flows
        }

    ids = {
        (int(layout.spans["index"][row]), int(layout.spans["step"][row])): row + 1
        for row in np.flatnonzero(layout.spans["kind"] == SpanKind.COPY)
    }
    split, copy = SpanKind.SPLIT, SpanKind.COPY
    for step in range(2):
        flow = [ids[i, step] for i in range(4)]
        assert {row for row in told(layout.flows.starts) if row[2] == step} == {
            (copy, 0, step, flow[0]), (split, 0, step, flow[1]),
            (split, 1, step, flow[2]), (copy, 3, step, flow[3]),
        }  # fmt: skip
        assert {row for row in told(layout.flows.steps) if row[2] == step} == {
            (copy, 1, step, flow[1]), (copy, 2, step, flow[2])
        }  # fmt: skip
        assert {row for row in told(layout.flows.ends) if row[2] == step} == {
            (split, 0, step, flow[0]), (split, 1, step, flow[1]),
            (split, 2, step, flow[2]), (split, 2, step, flow[3]),
        }  # fmt: skip


def test_without_plans_there_are_no_flows_but_all_lanes(snapshot):
    layout = lay_out(TraceMeta(), snapshot)

    assert [process.name for process in layout.processes] == ["Splitscope", "lane 0", "lane 1"]
    assert not layout.flows.starts
    assert not layout.flows.ends


def test_a_copy_whose_split_has_not_run_has_no_flow(meta, snapshot):
    spans = snapshot.spans()
    unfinished = TraceSnapshot((spans[spans["kind"] != SpanKind.SPLIT],))

    assert not lay_out(meta, unfinished).flows.starts


def test_an_empty_trace_has_its_processes(meta):
    layout = lay_out(meta, TraceSnapshot())

    assert [process.name for process in layout.processes] == ["Splitscope", "OpenCL0", "CPU"]
