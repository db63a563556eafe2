import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import ModelError
from engine.text.sampling import Sampler, SamplingOptions, _highest, gap

LOGITS = np.array([0.0, 3.0, 1.0, 3.0, 2.0], np.float32)


def draws(options, logits=LOGITS, n=2000):
    sampler = Sampler(options)
    return [sampler.sample(logits) for _ in range(n)]


def test_temperature_zero_takes_the_highest_and_the_lower_id_in_a_tie():
    assert set(draws(SamplingOptions(temp=0), n=5)) == {1}


def test_top_k_keeps_the_lower_id_in_a_tie():
    assert set(draws(SamplingOptions(top_k=1, top_p=1, seed=1), n=50)) == {1}
    assert set(draws(SamplingOptions(temp=9, top_k=3, top_p=1, seed=1))) == {1, 3, 4}


def test_top_p_is_measured_before_the_temperature():
    # Shares at temperature 1: 0.39, 0.39, 0.14, 0.05, 0.02.
    assert set(draws(SamplingOptions(temp=50, top_k=0, top_p=0.7, seed=1))) == {1, 3}
    assert set(draws(SamplingOptions(temp=50, top_k=0, top_p=0.9, seed=1))) == {1, 3, 4}
    assert set(draws(SamplingOptions(temp=50, top_k=0, top_p=0.0, seed=1))) == {1}


def test_without_cuts_tokens_come_as_often_as_their_shares():
    counts = np.bincount(draws(SamplingOptions(temp=2, top_k=0, top_p=1, seed=3), n=20_000))

    expected = np.exp(LOGITS / 2) / np.exp(LOGITS / 2).sum()
    np.testing.assert_allclose(counts / 20_000, expected, atol=0.015)


def test_a_seed_gives_the_same_tokens_again():
    options = SamplingOptions(temp=1, seed=7)

    assert draws(options, n=50) == draws(options, n=50)
    assert draws(options, n=50) != draws(SamplingOptions(temp=1, seed=8), n=50)


def test_logits_of_minus_infinity_are_never_chosen():
    logits = np.array([-np.inf, 0, -np.inf], np.float32)

    assert set(draws(SamplingOptions(temp=5, top_k=0, top_p=1), logits, n=50)) == {1}


@pytest.mark.parametrize(
    ("logits", "said"),
    [
        ([1.0, np.nan, np.nan], "The model produced NaN in 2 of 3 logits."),
        ([1.0, np.inf, 0.0], "The model produced no finite logits."),
        ([-np.inf, -np.inf, -np.inf], "The model produced no finite logits."),
    ],
)
@pytest.mark.parametrize("temp", [0.0, 0.8])
def test_logits_that_are_no_numbers_are_told(logits, said, temp):
    with pytest.raises(ModelError) as caught:
        Sampler(SamplingOptions(temp=temp)).sample(np.array(logits, np.float32))

    assert caught.value.title == said


def test_gap_is_the_distance_to_the_highest():
    assert gap(LOGITS, 3) == 0.0
    assert gap(LOGITS, 2) == 2.0


@given(st.lists(st.floats(-5, 5, width=32), min_size=1, max_size=40), st.integers(1, 40))
def test_the_highest_are_a_stable_sort_cut_short(values, n):
    logits = np.array(values, np.float32)

    ids = _highest(logits, n).tolist()

    assert ids == sorted(range(len(values)), key=lambda token: -logits[token])[:n]
