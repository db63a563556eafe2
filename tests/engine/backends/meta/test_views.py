"""Parts of views, against numpy: what members see together is what the view sees."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.backends.meta.views import member_view, reshaped_shard, slice_of, view_shard
from engine.core import build
from engine.core.shards import MIRRORED, one_of, shard_along
from engine.core.tensor import Tensor
from engine.core.types import TensorType

F32 = TensorType.F32


def leaf(*ne, tensor_type=F32):
    return Tensor(tensor_type, (*ne, *[1] * (4 - len(ne))))


def elements(tensor, data):
    """Elements of a view of f32 memory, numpy's order of dimensions."""
    raw = data.reshape(-1).view(np.uint8)[tensor.view_offs :]
    return np.ndarray(tensor.ne[::-1], np.float32, raw.tobytes(), strides=tensor.nb[::-1])


def seen_together(base, shard, view):
    """What members see of `view`, put together along the axis that it is shared along."""
    whole = np.arange(base.n_elems, dtype=np.float32).reshape(base.ne[::-1])
    shared = view_shard(base, shard, view)
    assert shared is not None
    parts = []
    for member in range(len(shard.sizes)):
        start, size = shard.start(member), shard.sizes[member]
        axis = 3 - shard.axis
        own_data = np.ascontiguousarray(np.take(whole, range(start, start + size), axis))
        own = leaf(*shard.ne_on(base.ne, member))
        part = member_view(base, shard, view, member, own)
        if part is not None:
            assert part.ne == shared.ne_on(view.ne, member)
            parts.append(elements(part, own_data))
    return np.concatenate(parts, 3 - shared.axis), elements(view, whole), shared


@given(
    heads=st.lists(st.integers(0, 3), min_size=2, max_size=4).filter(
        lambda h: sum(map(bool, h)) > 1
    ),
    width=st.integers(2, 5),
    n_tokens=st.integers(1, 4),
    is_permuted=st.booleans(),
)
def test_heads_of_rows_are_seen_by_the_member_that_has_them(heads, width, n_tokens, is_permuted):
    base = leaf(width * sum(heads), n_tokens)
    view = build.view(base, (width, sum(heads), n_tokens), (4 * width, base.nb[1]))
    if is_permuted:
        view = build.permute(view, (0, 2, 1, 3))

    together, whole, _ = seen_together(base, shard_along(0, [width * n for n in heads]), view)

    assert np.array_equal(together, whole)


@given(
    sizes=st.lists(st.integers(1, 4), min_size=2, max_size=3),
    axis=st.integers(0, 2),
    places=st.permutations(range(4)),
)
def test_a_permuted_tensor_is_shared_along_where_its_axis_went(sizes, axis, places):
    ne = [3, 4, 5, 2]
    ne[axis] = sum(sizes)
    base = leaf(*ne)

    together, whole, shared = seen_together(
        base, shard_along(axis, sizes), build.permute(base, tuple(places))
    )

    assert shared.axis == places[axis]
    assert np.array_equal(together, whole)


def test_a_window_of_some_rows_is_shared_as_the_rows_are():
    base = leaf(48, 10)
    view = build.view(base, (16, 3, 4), (64, 192), 2 * 192)

    together, whole, _ = seen_together(base, shard_along(0, (16, 32)), view)

    assert np.array_equal(together, whole)


def test_heads_of_one_block_of_a_quantised_cache_are_shared():
    cache = leaf(128, 8, tensor_type=TensorType.Q8_0)
    heads = build.view(cache, (32, 4, 8), (34, 136))

    shared = view_shard(cache, shard_along(0, (32, 96)), build.permute(heads, (0, 2, 1, 3)))

    assert shared == shard_along(2, (1, 3))


@pytest.mark.parametrize(
    ("ne", "nb", "offset", "why"),
    [
        ((24, 10), (192,), 0, "half of each row: member 1 would have another half"),
        ((16, 3, 4), (64, 192), 64, "from the middle of a row on"),
        ((5, 96), (20,), 0, "rows of another length"),
        ((24, 2, 10), (96, 192), 0, "parts that end within a part of the view"),
    ],
)
def test_views_of_which_members_have_no_whole_part_are_not_shared(ne, nb, offset, why):
    base = leaf(48, 10)

    assert view_shard(base, shard_along(0, (16, 32)), build.view(base, ne, nb, offset)) is None, why


@pytest.mark.parametrize("shard", [MIRRORED, one_of(1, 2)])
def test_whatever_sees_a_whole_tensor_is_whole(shard):
    base = leaf(48, 10)

    assert view_shard(base, shard, build.view(base, (5, 7), (20,))) == shard


def test_slices_follow_strides_and_blocks():
    table = leaf(64, 6, tensor_type=TensorType.Q8_0)

    part = slice_of(table, shard_along(0, (32, 32)), 1)

    assert (part.ne, part.nb, part.view_offs) == ((32, 6, 1, 1), table.nb, 34)
    assert slice_of(table, MIRRORED, 1) is table
    assert slice_of(table, one_of(0, 2), 0) is table
    assert slice_of(table, one_of(0, 2), 1) is None


@pytest.mark.parametrize(
    ("ne", "shared"),
    [
        ((16, 3, 2, 1), shard_along(1, (1, 2))),
        ((48, 2, 1, 1), shard_along(0, (16, 32))),
        ((96, 1, 1, 1), None),
    ],
)
def test_gapless_copies_of_another_shape_are_shared_where_parts_stay_whole(ne, shared):
    assert reshaped_shard(leaf(48, 2), shard_along(0, (16, 32)), leaf(*ne)) == shared
