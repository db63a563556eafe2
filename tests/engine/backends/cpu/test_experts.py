"""The operations of a mixture of experts: choosing, weighting and multiplying."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.backends.cpu.backend import CpuBackend
from engine.backends.cpu.kernels.traits import TRAITS
from engine.backends.cpu.reg import create
from engine.backends.cpu.rules import QUANTIZED
from engine.core import build
from engine.core.types import TensorType as T
from engine.errors import DeviceError
from engine.opcheck import reference
from tests.engine.backends.cpu import rounded_reference
from tests.engine.backends.cpu.cpu_split import CpuSplit, nmse, random

if TYPE_CHECKING:
    from engine.core.tensor import Tensor

F32_ROUNDING = 1e-11
KINDS = [T.F32, T.F16, T.BF16, T.Q8_0, T.Q4_0, T.Q4_1, T.Q5_0, T.Q4_K, T.Q6_K, T.IQ3_S, T.MXFP4]
KINDS += [T.IQ4_NL, T.IQ4_XS, T.Q2_K, T.Q3_K]
SHAPES = [(1, 3, 5, 2), (5, 1, 4, 1), (2, 9, 4, 2), (3, 40, 3, 2), (17, 70, 8, 8), (33, 5, 2, 2)]
"""(rows, tokens, experts, used)."""


def choose(n_experts: int, n_used: int, t: int, seed: int = 0) -> np.ndarray:
    """Different experts for each token, (t, n_used)."""
    rng = np.random.default_rng(seed)
    return np.stack([rng.permutation(n_experts)[:n_used] for _ in range(t)])


def experts(split: CpuSplit, kind: T, *ne: int) -> Tensor:
    if kind in QUANTIZED:
        return split.random_blocks(kind, *ne)
    return split.leaf(random(tuple(reversed(ne)), 1), kind)


def all_products(split: CpuSplit, weight: Tensor, x: np.ndarray) -> np.ndarray:
    """Every expert with every column, x (t, slots, k) -> (n_expert, t, slots, n)."""
    matrices = split.read(weight)[0]
    raw = split.raw(weight).reshape(weight.ne[2], -1)
    results = []
    for i_expert, matrix in enumerate(matrices):
        if weight.type in QUANTIZED and weight.type is not T.IQ3_S:
            product = rounded_reference.mul_mat_quantized(
                weight.type, raw[i_expert], matrix[None, None], x[None]
            )
        else:
            columns = rounded_reference.rounded(TRAITS[weight.type].rounding, x[None])
            product = reference.mul_mat(matrix[None, None], columns)
        results.append(product[0])
    return np.stack(results)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.label)
@pytest.mark.parametrize(("n", "t", "n_experts", "n_used"), SHAPES)
@pytest.mark.parametrize("shared", [True, False], ids=["one column", "a column a slot"])
def test_mul_mat_id_multiplies_with_the_chosen_experts(
    backend, split, kind, n, t, n_experts, n_used, shared
):
    weight = experts(split, kind, 256, n, n_experts)
    x = random((t, 1 if shared else n_used, 256), 2)
    ids = choose(n_experts, n_used, t)
    node = build.mul_mat_id(weight, split.leaf(x[None]), split.leaf(ids, T.I32))

    result = split.compute(backend, node)

    columns = np.repeat(x, n_used, axis=1) if shared else x
    expected = rounded_reference.mul_mat_id(all_products(split, weight, columns), ids[None, None])
    assert nmse(result, expected) <= F32_ROUNDING


def test_gate_up_and_down_of_one_layer_and_the_next_use_their_own_columns(backend, split):
    """Scratch memory is shared; another order of ids or another source must not be mistaken."""
    x, ids = random((6, 1, 64), 1), [choose(4, 2, 6, seed) for seed in (0, 1)]
    gates = [split.leaf(random((4, 20, 64), seed), T.Q8_0) for seed in (2, 3, 4)]
    downs = [split.leaf(random((4, 32, 20), seed)) for seed in (5, 6)]
    leaf, chosen = split.leaf(x[None]), [split.leaf(each, T.I32) for each in ids]
    nodes = [build.mul_mat_id(gates[0], leaf, chosen[0])]
    nodes.append(build.mul_mat_id(gates[1], leaf, chosen[0]))
    nodes.append(build.mul_mat_id(downs[0], nodes[1], chosen[0]))
    nodes.append(build.mul_mat_id(gates[2], leaf, chosen[1]))
    nodes.append(build.mul_mat_id(downs[1], nodes[3], chosen[1]))

    split.compute(backend, *nodes)
    together = [split.read(node) for node in nodes]

    columns = np.repeat(x, 2, axis=1)
    for i, i_gate, i_ids in ((0, 0, 0), (1, 1, 0), (3, 2, 1)):
        products = all_products(split, gates[i_gate], columns)
        expected = rounded_reference.mul_mat_id(products, ids[i_ids][None, None])
        assert nmse(together[i], expected) <= F32_ROUNDING
    for i, i_ids in ((2, 0), (4, 1)):
        products = all_products(split, downs[i_ids], together[i - 1][0])
        expected = rounded_reference.mul_mat_id(products, ids[i_ids][None, None])
        assert nmse(together[i], expected) <= F32_ROUNDING


def test_mul_mat_id_reads_ids_out_of_the_sorted_row(backend, split):
    probabilities, x = random((1, 1, 7, 5), 3), random((7, 1, 32), 2)
    weight = split.leaf(random((5, 12, 32), 1))
    order = build.argsort(split.leaf(probabilities), descending=True)
    ids = build.view(order, (2, 7), (order.nb[1],))
    node = build.mul_mat_id(weight, split.leaf(x[None]), ids)

    result = split.compute(backend, order, ids, node)

    best = np.argsort(-probabilities[0, 0], axis=-1)[:, :2]
    products = all_products(split, weight, np.repeat(x, 2, axis=1))
    assert nmse(result, rounded_reference.mul_mat_id(products, best[None, None])) <= F32_ROUNDING


@settings(max_examples=40, deadline=None)
@given(
    kind=st.sampled_from([T.F32, T.Q8_0, T.Q5_1]),
    n=st.integers(1, 40),
    t=st.integers(1, 30),
    n_experts=st.integers(1, 12),
    n_used=st.integers(1, 4),
    n_threads=st.integers(1, 3),
)
def test_experts_may_be_chosen_more_than_once_or_not_at_all(
    kind, n, t, n_experts, n_used, n_threads
):
    split, backend = CpuSplit(), CpuBackend(create().devices()[0], n_threads)
    ids = np.random.default_rng(n + t).integers(0, n_experts, (t, n_used))
    weight, x = experts(split, kind, 32, n, n_experts), random((t, n_used, 32), 2)
    node = build.mul_mat_id(weight, split.leaf(x[None]), split.leaf(ids, T.I32))

    result = split.compute(backend, node)
    backend.dispose()

    expected = rounded_reference.mul_mat_id(all_products(split, weight, x), ids[None, None])
    assert nmse(result, expected) <= F32_ROUNDING


@pytest.mark.parametrize("bad", [-1, 4])
def test_an_expert_that_does_not_exist_is_an_error_that_names_the_product(backend, split, bad):
    weight = split.leaf(random((4, 8, 32)))
    ids = np.array([[0, 3], [bad, 1]])
    node = build.mul_mat_id(weight, split.leaf(random((1, 2, 1, 32))), split.leaf(ids, T.I32))
    node.name, weight.name = "ffn_moe_gate-0", "blk.0.ffn_gate_exps.weight"

    with pytest.raises(DeviceError, match=r"blk\.0\.ffn_gate_exps\.weight") as caught:
        split.compute(backend, node)

    assert caught.value.title == "The CPU cannot compute ffn_moe_gate-0."


@pytest.mark.parametrize(("n", "n_used", "t"), [(64, 2, 3), (7, 1, 40), (33, 4, 1)])
def test_add_id_adds_the_chosen_rows(backend, split, n, n_used, t):
    a, b, ids = random((1, t, n_used, n), 1), random((1, 1, 6, n), 2), choose(6, n_used, t)
    node = build.add_id(split.leaf(a), split.leaf(b), split.leaf(ids, T.I32))

    result = split.compute(backend, node)

    np.testing.assert_array_equal(result, reference.add_id(a, b, ids[None, None]))


def test_add_id_of_a_row_that_does_not_exist_is_an_error(backend, split):
    ids = split.leaf(np.array([[6]]), T.I32)
    node = build.add_id(split.leaf(random((1, 1, 8))), split.leaf(random((6, 8))), ids)

    with pytest.raises(DeviceError):
        split.compute(backend, node)


@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (2, 3, 5, 7), (1, 1, 40, 577)])
def test_sum_rows_adds_up_each_row(backend, split, shape):
    result = split.compute(backend, build.sum_rows(split.leaf(random(shape))))

    np.testing.assert_array_equal(result, reference.sum_rows(random(shape)))


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (2, 3, 5, 8), (1, 1, 9, 128), (1, 1, 2, 3000)])
def test_argsort_gives_the_indices_in_order(backend, split, descending, shape):
    values = random(shape)

    result = split.compute(backend, build.argsort(split.leaf(values), descending=descending))

    expected = np.argsort(-values if descending else values, axis=-1)
    np.testing.assert_array_equal(result, expected)


TIED = "1122002200210201110022212012000120112010"
UPWARDS = [
    8, 28, 29, 14, 30, 12, 18, 33, 9, 19, 25, 5, 4, 37, 39, 23, 1, 26, 31, 34, 35, 38, 11, 0, 15,
    16, 17, 27, 20, 24, 13, 22, 32, 10, 7, 6, 36, 3, 2, 21,
]  # fmt: skip
DOWNWARDS = [
    10, 20, 21, 22, 24, 13, 27, 32, 7, 6, 36, 3, 2, 34, 1, 31, 35, 26, 23, 38, 17, 16, 15, 0, 11,
    30, 39, 37, 4, 5, 8, 33, 9, 19, 29, 28, 12, 14, 25, 18,
]  # fmt: skip
"""What std::sort of libstdc++ makes of the indices; it is not stable."""


@pytest.mark.parametrize(("descending", "expected"), [(False, UPWARDS), (True, DOWNWARDS)])
def test_argsort_leaves_ties_as_ggml_does(backend, split, descending, expected):
    values = np.array([float(digit) for digit in TIED])

    result = split.compute(backend, build.argsort(split.leaf(values), descending=descending))

    assert result[0, 0, 0].tolist() == expected


@pytest.mark.parametrize("n", [5, 40, 3000])
def test_argsort_of_nan_gives_every_index_once(backend, split, n):
    values = np.where(np.arange(n) % 3 == 0, np.nan, np.arange(n) % 7)

    result = split.compute(backend, build.argsort(split.leaf(values)))

    assert sorted(result[0, 0, 0].tolist()) == list(range(n))


def test_weights_of_experts_are_picked_and_normalised(backend, split):
    """GET_ROWS of [1, n_expert, t] by [k, t], then SUM_ROWS, CLAMP and DIV."""
    probabilities, ids = random((1, 5, 8, 1)), choose(8, 3, 5)
    picked = build.get_rows(split.leaf(probabilities), split.leaf(ids, T.I32))
    flat = build.reshape(picked, 3, 5)
    total = build.clamp(build.sum_rows(flat), 6.103515625e-5, np.inf)
    node = build.binary(build.Op.DIV, flat, total)

    result = split.compute(backend, picked, flat, total.src[0], total, node)

    chosen = np.take_along_axis(probabilities[0, :, :, 0], ids, axis=1)
    np.testing.assert_array_equal(split.read(picked)[0, :, :, 0], chosen)
    expected = chosen / np.maximum(chosen.sum(axis=1, keepdims=True), 6.103515625e-5)
    np.testing.assert_allclose(result[0, 0], expected, rtol=1e-6)
