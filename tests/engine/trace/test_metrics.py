from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.trace import metrics
from engine.trace.metrics import LaneTime, Parts
from engine.trace.records import HOST_LANE, NO_EXPERTS, SPAN_DTYPE, SpanKind, StepKind

SPLIT, COPY, WAIT, NODE, STEP, PLAN, SHARD, EXCHANGE = SpanKind


def span(kind, start, end, *, lane=0, index=0, step=0, peer=255, n_bytes=0, plan_id=0):
    return (kind, lane, peer, 0, plan_id, index, step, start, end, n_bytes, *NO_EXPERTS)


def step_span(start, end, *, step=0, kind=StepKind.TOKEN, n_tokens=1):
    return span(STEP, start, end, lane=HOST_LANE, step=step, peer=kind, n_bytes=n_tokens)


def spans_of(*rows):
    return np.array(list(rows), SPAN_DTYPE)


def test_touching_overlapping_and_nested_intervals_count_once():
    start, end = np.array([10, 0, 2, 20, 30]), np.array([15, 10, 4, 25, 29])

    assert metrics.union_ns(start, end) == 20


def test_no_intervals_have_no_length():
    assert metrics.union_ns(np.zeros(0, np.int64), np.zeros(0, np.int64)) == 0


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(-3, 20)), max_size=30))
def test_the_union_is_the_number_of_covered_units(intervals):
    covered = {unit for start, length in intervals for unit in range(start, start + length)}
    start = np.array([start for start, _ in intervals], np.int64)
    length = np.array([length for _, length in intervals], np.int64)

    assert metrics.union_ns(start, start + length) == len(covered)


def test_a_step_is_divided_into_computing_copying_waiting_planning_and_the_rest():
    spans = spans_of(
        step_span(100, 200, kind=StepKind.PROMPT, n_tokens=8),
        span(SPLIT, 110, 140, lane=0),
        span(SPLIT, 130, 150, lane=1),
        span(COPY, 145, 160, lane=1, n_bytes=64),
        span(COPY, 155, 165, lane=1, n_bytes=36),
        span(WAIT, 100, 180, lane=0),
        span(PLAN, 170, 195, lane=HOST_LANE),
        span(NODE, 110, 199, lane=0),
    )

    summary = metrics.steps_summary(spans, (0,))

    assert summary is not None
    assert summary.parts == Parts(compute_ns=40, copy_ns=15, wait_ns=25, plan_ns=15, rest_ns=5)
    assert summary.wall_ns == summary.parts.wall_ns == 100
    assert summary.lanes == (LaneTime(0, 30, 30), LaneTime(1, 20, 10))
    assert (summary.copy_ns, summary.wait_ns, summary.copied_bytes) == (20, 80, 100)
    assert (summary.kind, summary.n_tokens) == (StepKind.PROMPT, 8)


def test_spans_of_other_steps_and_outside_the_step_do_not_count():
    spans = spans_of(
        step_span(100, 200),
        span(SPLIT, 50, 120),
        span(SPLIT, 190, 260),
        span(SPLIT, 300, 400),
        span(SPLIT, 100, 200, step=1),
    )

    summary = metrics.steps_summary(spans, (0,))

    assert summary is not None
    assert summary.parts == Parts(compute_ns=30, rest_ns=70)


def test_a_step_that_is_not_finished_has_no_summary():
    assert metrics.steps_summary(spans_of(span(SPLIT, 0, 10)), (0,)) is None


@given(
    st.lists(
        st.tuples(
            st.sampled_from([SPLIT, COPY, WAIT]),
            st.integers(0, 300), st.integers(0, 100), st.integers(0, 2),
        ),
        max_size=25,
    )
)  # fmt: skip
def test_the_parts_always_add_up_to_the_wall_time(rows):
    spans = spans_of(step_span(100, 250), *(span(k, s, s + n, lane=lane) for k, s, n, lane in rows))

    summary = metrics.steps_summary(spans, (0,))

    assert summary is not None
    assert summary.parts.wall_ns == summary.wall_ns == 150
    assert min(summary.parts.compute_ns, summary.parts.copy_ns) >= 0
    assert min(summary.parts.wait_ns, summary.parts.rest_ns) >= 0
    assert sum(lane.exclusive_ns for lane in summary.lanes) == summary.parts.compute_ns


def test_steps_of_a_kind_are_summed_together():
    spans = spans_of(
        step_span(200, 300, step=2),
        step_span(100, 190, step=1),
        step_span(0, 100, step=0, kind=StepKind.PROMPT),
        span(SPLIT, 110, 120, step=1),
        span(SPLIT, 210, 230, step=2, lane=1),
        span(SPLIT, 400, 410, step=3),
    )

    steps = metrics.steps_of_kind(spans, StepKind.TOKEN)
    found = metrics.steps_summary(spans, [*steps, 3])

    assert steps == [1, 2]
    assert found is not None
    assert found.steps == (1, 2)
    assert found.parts == Parts(compute_ns=30, rest_ns=160)
    assert found.lanes == (LaneTime(0, 10, 10), LaneTime(1, 20, 20))
    assert (found.start_ns, found.end_ns, found.wall_ns) == (100, 300, 190)
    assert metrics.steps_summary(spans, ()) is None


def test_time_of_overlapping_steps_counts_once():
    """Two ubatches on two devices, the second behind the first.

    lane 0  [0 ... 40][40 .. 80]
    lane 1            [50 .. 90][90 .. 120]
    """
    spans = spans_of(
        step_span(0, 90, step=0, kind=StepKind.PROMPT, n_tokens=8),
        step_span(5, 120, step=1, kind=StepKind.PROMPT, n_tokens=8),
        span(SPLIT, 0, 40, lane=0, step=0),
        span(SPLIT, 40, 80, lane=0, step=1),
        span(SPLIT, 50, 90, lane=1, step=0),
        span(SPLIT, 90, 120, lane=1, step=1),
        span(WAIT, 10, 50, lane=0, step=1),
    )

    found = metrics.steps_summary(spans, (0, 1))

    assert found is not None
    assert found.parts == Parts(compute_ns=120)
    assert found.lanes == (LaneTime(0, 80, 80), LaneTime(1, 70, 40))
    assert (found.wall_ns, found.n_tokens, found.wait_ns) == (120, 16, 40)


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 30)), min_size=1, max_size=6),
    st.lists(
        st.tuples(
            st.sampled_from([SPLIT, COPY, WAIT]),
            st.integers(-10, 90), st.integers(0, 40), st.integers(0, 2), st.integers(0, 5),
        ),
        max_size=25,
    ),
)  # fmt: skip
def test_the_parts_of_several_steps_add_up_to_the_union_of_their_times(frames, rows):
    steps = [step_span(s, s + n, step=step) for step, (s, n) in enumerate(frames)]
    spans = spans_of(*steps, *(span(k, s, s + n, lane=lane, step=i) for k, s, n, lane, i in rows))

    found = metrics.steps_summary(spans, range(len(frames)))

    assert found is not None
    units = {unit for start, length in frames for unit in range(start, start + length)}
    assert found.wall_ns == len(units)
    parts = found.parts
    assert min(parts.compute_ns, parts.copy_ns, parts.wait_ns, parts.plan_ns, parts.rest_ns) >= 0


def test_statistics_of_a_split_run_over_its_steps():
    spans = spans_of(
        *(span(SPLIT, 0, 10 * (i + 1), index=4, step=i) for i in range(5)),
        span(SPLIT, 0, 7, index=3),
        span(SPLIT, 0, 8, index=4, plan_id=1),
        span(COPY, 0, 1000, index=4),
    )

    found = metrics.statistics_by_id(spans, SPLIT)

    assert list(found) == [(0, 3), (0, 4), (1, 4)]
    figures = found[0, 4]
    assert (figures.n, figures.min_ns, figures.max_ns, figures.sum_ns) == (5, 10, 50, 150)
    assert (figures.p50_ns, figures.p95_ns) == (30.0, pytest.approx(48.0))
    assert found[0, 3].p95_ns == 7.0


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=40))
def test_percentiles_agree_with_numpy(durations):
    spans = spans_of(
        *(span(SPLIT, 5, 5 + duration, step=step) for step, duration in enumerate(durations))
    )

    figures = metrics.statistics(spans)

    assert figures is not None
    expected = np.percentile(durations, (50, 95))
    assert (figures.p50_ns, figures.p95_ns) == pytest.approx(tuple(expected))


def test_pieces_of_one_thing_in_one_step_are_one_time():
    """A copy of three pieces in step 0 and one in step 1, out of order."""
    pieces = ((1, 40, 3), (0, 10, 5), (0, 20, 6), (0, 30, 7))
    spans = spans_of(
        *(span(COPY, at, at + at // 10, step=step, n_bytes=n) for step, at, n in pieces)
    )

    sums = metrics.step_sums(spans)
    figures = metrics.statistics(spans)

    assert sums.step.tolist() == [0, 1]
    assert (sums.duration_ns.tolist(), sums.n_bytes.tolist()) == ([6, 4], [18, 3])
    assert metrics.statistics_by_id(spans, COPY) == {(0, 0): figures}
    assert figures is not None
    assert (figures.n, figures.min_ns, figures.max_ns, figures.sum_ns) == (2, 4, 6, 10)


def test_without_spans_there_are_no_statistics_rather_than_zeros():
    empty = spans_of()

    assert metrics.statistics(empty) is None
    assert metrics.statistics_by_id(empty, SPLIT) == {}
    assert len(metrics.step_sums(empty).step) == 0
