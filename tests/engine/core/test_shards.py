"""Which part of a tensor each of several devices holds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core.shards import one_of, shard_along, share_out

SHARES = st.lists(st.floats(0, 100), min_size=1, max_size=6).filter(any)


@given(n_units=st.integers(0, 40), unit=st.integers(1, 64), rest=st.integers(0, 63), shares=SHARES,
       rotation=st.integers(0, 5))  # fmt: skip
def test_everything_is_given_out_in_whole_units_and_nothing_to_whom_nothing_was_given(
    n_units, unit, rest, shares, rotation
):
    n_elems = n_units * unit + rest % unit

    sizes = share_out(n_elems, unit, shares, rotation=rotation)

    assert sum(sizes) == n_elems
    assert all(size >= 0 for size in sizes)
    assert sum(size % unit != 0 for size in sizes) <= 1
    assert all(size == 0 for size, share in zip(sizes, shares, strict=True) if share == 0)


@pytest.mark.parametrize(("rotation", "sizes"), [(0, (128, 64)), (1, (64, 128)), (2, (128, 64))])
def test_what_rounding_leaves_over_goes_to_another_member_in_the_next_layer(rotation, sizes):
    """Three heads for two."""
    assert share_out(192, 64, (0.5, 0.5), rotation=rotation) == sizes


def test_shares_are_met_as_far_as_units_allow():
    assert share_out(1024, 32, (3, 1)) == (768, 256)
    assert share_out(1000, 32, (2, 1, 1)) == (512, 224, 264)
    assert share_out(1000, 32, (0.4999, 0.5001)) == share_out(1000, 32, (1, 1)) == (512, 488)
    assert share_out(100, 32, (1, 0)) == (100, 0)


def test_parts_follow_one_another():
    shard = shard_along(1, (2, 0, 3))

    assert [shard.start(member) for member in range(3)] == [0, 2, 2]
    assert [shard.ne_on((8, 5, 4, 1), member) for member in range(3)] == [
        (8, 2, 4, 1),
        (8, 0, 4, 1),
        (8, 3, 4, 1),
    ]
    assert [shard.is_on(member) for member in range(3)] == [True, False, True]
    assert shard.owner is None


def test_a_tensor_that_one_member_gets_is_that_members():
    shard = shard_along(0, (0, 96))

    assert shard == one_of(1, 2)
    assert shard.owner == 1
    assert shard.ne_on((96, 4, 1, 1), 1) == (96, 4, 1, 1)
    assert not shard.is_on(0)
