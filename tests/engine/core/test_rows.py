"""Rows of a matrix, divided among devices by their shares."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core import build
from engine.core.devices import (
    BufferFacts,
    BufferTypeFacts,
    BufferUsage,
    DeviceFacts,
    DeviceType,
    RowShares,
    TableRules,
)
from engine.core.rows import (
    ROW_ROUNDING,
    RowRange,
    multiplies_rows,
    reads_split_memory,
    row_bytes_of,
    rows_of,
    shares_among,
    split_memory,
)
from engine.core.tensor import Tensor, shape4
from engine.core.types import TensorType

F32, Q4_0, I32 = TensorType.F32, TensorType.Q4_0, TensorType.I32
HALVES = RowShares(("A", "B"), (1.0, 1.0))


def device(name, reg="X"):
    buft = BufferTypeFacts(name, alignment=128, max_bytes=4096)
    return DeviceFacts(name, "", DeviceType.GPU, reg, buft, TableRules())


A_SPLIT = split_memory(device("A"), HALVES)


def leaf(tensor_type, *ne, buft=None):
    home = None if buft is None else BufferFacts(buft, BufferUsage.WEIGHTS)
    return Tensor(tensor_type, shape4(*ne), buffer=home)


@st.composite
def shares(draw):
    number = st.one_of(st.just(0.0), st.floats(1e-3, 1e6))
    numbers = draw(st.lists(number, min_size=1, max_size=5).filter(any))
    return RowShares(tuple("ABCDE"[: len(numbers)]), tuple(numbers))


@given(st.integers(1, 10_000), shares())
def test_every_row_is_on_one_device_in_order_and_nobody_has_rows_without_a_share(n_rows, split):
    ranges = rows_of(n_rows, split)

    edges = [0, *(held.stop for held in ranges)]
    assert edges[-1] == n_rows
    assert [(held.start, held.stop) for held in ranges] == list(itertools.pairwise(edges))
    assert all(held.n_rows > 0 for held in ranges)
    assert all(edge % ROW_ROUNDING == 0 for edge in edges[:-1])
    names = [held.device for held in ranges]
    assert names == sorted(set(names))
    assert all(split.shares[split.devices.index(name)] > 0 for name in names)


@given(st.integers(1, 10_000), shares())
def test_a_device_has_its_share_but_for_the_rounding(n_rows, split):
    held = {r.device: r.n_rows for r in rows_of(n_rows, split)}

    for name, share in zip(split.devices, split.shares, strict=True):
        exact = n_rows * share / sum(split.shares)
        assert abs(held.get(name, 0) - exact) < ROW_ROUNDING + n_rows * 1e-5 + 1


def test_rows_follow_the_shares():
    split = RowShares(("A", "B", "C"), (3, 0, 1))

    assert rows_of(576, split) == (RowRange("A", 0, 432), RowRange("C", 432, 576))


def test_a_matrix_of_few_rows_is_whole_on_the_last_device():
    assert rows_of(16, HALVES) == (RowRange("B", 0, 16),)


def test_split_memory_is_named_for_the_device_that_computes_and_as_strict_as_its_own():
    assert A_SPLIT.name == "A_Split"
    assert A_SPLIT.row_shares == HALVES
    assert (A_SPLIT.alignment, A_SPLIT.max_bytes) == (128, 4096)


def test_each_device_takes_the_bytes_of_its_rows():
    weights = [leaf(Q4_0, 32, 64), leaf(F32, 3, 16)]

    # 32 rows of 18 bytes are 576, 640 with padding; 16 rows of 12 are 192, 256 with padding.
    assert row_bytes_of(weights, A_SPLIT) == {"A": 640, "B": 640 + 256}


def test_a_product_with_a_matrix_in_split_memory_is_shared_out():
    node = build.mul_mat(leaf(Q4_0, 32, 64, buft=A_SPLIT), leaf(F32, 32, 5))

    assert reads_split_memory(node)
    assert multiplies_rows(node, "A")
    assert multiplies_rows(node, "B")


def test_a_device_shares_out_no_product_of_which_it_has_no_rows():
    node = build.mul_mat(leaf(Q4_0, 32, 16, buft=A_SPLIT), leaf(F32, 32, 5))

    assert not multiplies_rows(node, "A")
    assert multiplies_rows(node, "B")


@pytest.mark.parametrize(
    "node",
    [
        build.get_rows(leaf(F32, 32, 64, buft=A_SPLIT), leaf(I32, 5)),
        build.mul_mat(leaf(F32, 32, 64, 2, buft=A_SPLIT), leaf(F32, 32, 5, 2)),
        build.mul_mat(leaf(F32, 32, 64), leaf(F32, 32, 64, buft=A_SPLIT)),
        build.mul_mat_id(leaf(F32, 32, 64, 2, buft=A_SPLIT), leaf(F32, 32, 1, 5), leaf(I32, 1, 5)),
        build.mul_mat(build.reshape(leaf(F32, 32, 64, buft=A_SPLIT), 64, 32), leaf(F32, 64, 5)),
    ],
    ids=["rows by number", "three dimensions", "on the other side", "experts", "a view"],
)
def test_nothing_else_is_computed_from_split_memory(node):
    assert reads_split_memory(node)
    assert not multiplies_rows(node, "A")


def test_operations_that_compute_nothing_and_other_memory_are_nobodys_concern():
    weight = leaf(F32, 32, 64, buft=A_SPLIT)

    assert not reads_split_memory(build.reshape(weight, 64, 32))
    assert not reads_split_memory(build.mul_mat(leaf(F32, 32, 64), leaf(F32, 32, 5)))


def test_only_devices_of_one_family_share_rows():
    devices = [device("A"), device("R", "RPC"), device("B")]

    assert shares_among(devices, (1, 2, 3), "X") == RowShares(("A", "B"), (1.0, 3.0))
