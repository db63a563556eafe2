"""Statistics of pairs: right values for values that are known."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.bench.stats import (
    Ratio,
    Spread,
    median_interval,
    ratio,
    speeds,
    spread,
    turns,
    variation,
)

SECONDS = st.lists(st.floats(0.001, 100), min_size=1, max_size=40)


def test_the_spread_of_known_values():
    assert spread([5, 1, 4, 2, 3]) == Spread(3, 2, 4, 5)
    assert spread([1, 2]) == Spread(1.5, 1.25, 1.75, 2)


def test_a_ratio_above_one_says_that_the_first_side_is_faster():
    found = ratio([1, 2, 4], [2, 4, 8])

    assert found == Ratio(2, 2, 2, 2, 2, 3)


def test_a_ratio_is_taken_pair_by_pair_and_not_of_the_medians():
    # Medians are 2 and 3; the pairs say 3, 2 and 1.
    assert ratio([1, 2, 3], [3, 4, 3]).median == 2


@given(SECONDS, st.floats(0.1, 10))
def test_a_side_that_always_takes_so_much_longer_gives_that_ratio(seconds, factor):
    found = ratio(seconds, [factor * x for x in seconds])

    assert found.median == pytest.approx(factor)
    assert found.low == pytest.approx(factor)
    assert found.high == pytest.approx(factor)


@given(SECONDS)
def test_the_interval_of_a_median_lies_among_the_values_and_is_the_same_each_time(values):
    low, high = median_interval(values, n_resamples=50)

    assert min(values) <= low <= high <= max(values)
    assert median_interval(values, n_resamples=50) == (low, high)


def test_the_interval_of_many_values_has_the_width_that_theory_gives():
    values = np.random.default_rng(1).standard_normal(2500)

    low, high = median_interval([float(x) for x in values])

    # The median of normal values has a standard deviation of 1.2533 / sqrt(n).
    assert high - low == pytest.approx(2 * 1.96 * 1.2533 / 50, rel=0.2)


def test_many_values_are_resampled_in_pieces_without_a_change():
    values = [float(x) for x in range(3000)]

    low, high = median_interval(values, n_resamples=1000)

    assert 1400 < low < 1500 < high < 1600


def test_variation_is_from_the_tenth_to_the_ninetieth_percentile_over_the_median():
    assert variation([float(x) for x in range(90, 111)]) == pytest.approx(0.16)


@given(st.lists(st.floats(1, 100), min_size=2, max_size=30), st.floats(0.01, 100))
def test_variation_does_not_depend_on_the_unit(values, factor):
    assert variation([factor * x for x in values]) == pytest.approx(variation(values), abs=1e-9)


def test_sides_take_turns_at_being_first():
    assert list(turns(4)) == [(0, 1), (1, 0), (0, 1), (1, 0)]


def test_speeds_are_amounts_a_second():
    assert speeds([0.5, 2], 64) == [128, 32]
