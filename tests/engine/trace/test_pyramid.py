from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine.trace.pyramid import appended, lane_pyramid, visible

GAPS = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), max_size=200)


def lane(steps: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Spans one after another: (gap before, length) each."""
    gaps = np.array([gap for gap, _ in steps], np.int64)
    lengths = np.array([length for _, length in steps], np.int64)
    end = np.cumsum(gaps + lengths)
    return end - lengths, end, np.arange(len(steps)) + 100


def test_an_empty_lane_shows_nothing():
    empty = np.zeros(0, np.int64)

    shown = visible(lane_pyramid(empty, empty, empty), 0, 100, 10)

    assert len(shown.x0) == 0


def test_wide_spans_are_drawn_as_themselves_in_pixels():
    pyramid = lane_pyramid(np.array([50, 10]), np.array([90, 30]), np.array([7, 4]))

    shown = visible(pyramid, 0, 100, 10)

    assert shown.x0.tolist() == [1.0, 5.0]
    assert shown.x1.tolist() == [3.0, 9.0]
    assert shown.first_index.tolist() == [4, 7]
    assert shown.n_merged.tolist() == [1, 1]
    assert shown.busy.tolist() == [1.0, 1.0]


def test_a_span_that_reaches_out_of_the_view_is_clipped():
    pyramid = lane_pyramid(np.array([-50]), np.array([500]), np.array([0]))

    shown = visible(pyramid, 0, 100, 10)

    assert (shown.x0.tolist(), shown.x1.tolist()) == ([0.0], [10.0])


def test_narrow_neighbours_become_one_rectangle_that_says_how_many_and_how_busy():
    start = np.arange(0, 100, 2)
    pyramid = lane_pyramid(start, start + 1, np.arange(50))

    shown = visible(pyramid, 0, 1000, 10)

    assert shown.n_merged.tolist() == [50]
    assert shown.busy[0] == pytest.approx(50 / 99)


def test_a_wide_span_among_a_million_narrow_ones_stays_itself():
    start = np.concatenate((np.arange(500_000), np.arange(500_000) + 1_500_000))
    start = np.insert(start, 500_000, 600_000)
    end = start + 1
    end[500_000] = 1_400_000
    pyramid = lane_pyramid(start, end, np.arange(len(start)))

    shown = visible(pyramid, 0, 2_000_000, 1000)

    alone = np.flatnonzero(shown.first_index == 500_000)
    assert shown.n_merged[alone].tolist() == [1]
    assert (shown.x0[alone].tolist(), shown.x1[alone].tolist()) == ([300.0], [700.0])
    assert len(shown.x0) < 3 * 1000


def test_a_span_without_length_is_shown():
    pyramid = lane_pyramid(np.array([50]), np.array([50]), np.array([0]))

    assert visible(pyramid, 0, 100, 10).n_merged.tolist() == [1]
    assert len(visible(pyramid, 60, 100, 10).x0) == 0


@given(GAPS, st.integers(-100, 5000), st.integers(1, 5000), st.integers(1, 40))
@example([(0, 0), (0, 1)], 0, 1, 1)
def test_every_span_in_view_is_counted_and_rectangles_stay_few(steps, t0, length, n_pixels):
    start, end, index = lane(steps)
    t1 = t0 + length

    pyramid = lane_pyramid(start, end, index)
    shown = visible(pyramid, t0, t1, n_pixels)

    inside = ((end > t0) & (start < t1)) | ((start == end) & (start >= t0) & (start <= t1))
    # A rectangle's spans stand together in the pyramid, of equal starts the longer first.
    places = {i: place for place, i in enumerate(pyramid.index.tolist())}
    drawn = np.concatenate(
        [np.zeros(0, np.int64)]
        + [
            pyramid.index[places[int(i)] : places[int(i)] + n]
            for i, n in zip(shown.first_index, shown.n_merged, strict=True)
        ]
    )
    assert np.all(np.isin(index[inside], drawn))
    assert len(set(drawn.tolist())) == len(drawn)
    assert len(shown.x0) <= 3 * n_pixels + 2
    assert np.all(shown.x0 <= shown.x1)
    assert np.all(np.diff(shown.x0) >= 0)
    assert np.all((shown.busy >= 0) & (shown.busy <= 1))


@given(GAPS, st.integers(0, 200))
def test_an_appended_pyramid_equals_one_built_at_once(steps, n_first):
    start, end, index = lane(steps)
    whole = lane_pyramid(start, end, index)

    grown = appended(
        lane_pyramid(start[:n_first], end[:n_first], index[:n_first]),
        start[n_first:], end[n_first:], index[n_first:],
    )  # fmt: skip

    assert len(grown.levels) == len(whole.levels)
    for a, b in zip(grown.levels, whole.levels, strict=True):
        assert np.array_equal(a.start_ns, b.start_ns)
        assert np.array_equal(a.end_ns, b.end_ns)
        assert np.array_equal(a.busy_ns, b.busy_ns)


def test_a_late_span_finds_its_place():
    pyramid = lane_pyramid(np.array([10, 30]), np.array([20, 40]), np.array([0, 1]))

    grown = appended(pyramid, np.array([0]), np.array([5]), np.array([2]))

    assert grown.index.tolist() == [2, 0, 1]
    assert grown.levels[-1].start_ns.tolist() == [0]
