"""MUL_MAT, MUL_MAT_ID and GET_ROWS of every weight type against numpy in float64.

Where the device is a CPU cases run twice, as it is driven, and as a GPU would be. All three read
rows by the same functions, so MUL_MAT has every type and the others have some of every kind.
"""

from __future__ import annotations

import numpy as np
import pytest

from engine.backends.opencl.readers import READERS
from engine.core import build
from engine.core.types import TensorType
from tests.engine.backends.opencl.numbers import NMSE, as_read, nmse, on_both_kinds, rand

F32, F16, BF16, I32 = TensorType.F32, TensorType.F16, TensorType.BF16, TensorType.I32
Q8_0, Q5_0, MXFP4 = TensorType.Q8_0, TensorType.Q5_0, TensorType.MXFP4
Q4_K, Q6_K = TensorType.Q4_K, TensorType.Q6_K
PLAIN_AND_BLOCKS = [F32, F16, BF16, Q8_0, Q5_0, Q4_K, Q6_K, MXFP4]
"""Every way to read vectors, with and without a product of its own: each costs a compilation."""
SOME_OF_A_KIND = [F32, Q8_0, Q4_K, MXFP4]


pytestmark = pytest.mark.gpu


@pytest.fixture
def bench(every_bench):
    return every_bench


@on_both_kinds("weight_type", READERS, SOME_OF_A_KIND)
@pytest.mark.parametrize("n_blocks", [1, 18])
def test_get_rows_reads_every_weight_type(bench, weight_type, n_blocks):
    n = n_blocks * max(32, weight_type.block_elems)
    table = bench.leaf(weight_type, rand(11, n))
    ids = bench.leaf(I32, np.array([3, 0, 10, 3]))

    got = bench.compute(build.get_rows(table, ids))

    assert nmse(got[0, 0], bench.floats(table)[0, 0][[3, 0, 10, 3]]) <= NMSE


@pytest.mark.parametrize("table_type", [F32, F16, BF16])
def test_get_rows_of_a_plain_type_takes_any_length(bench, table_type):
    table = bench.leaf(table_type, rand(2, 5, 13))
    ids = bench.leaf(I32, np.array([[4, 0], [1, 1]]))

    got = bench.compute(build.get_rows(table, ids))

    values = bench.floats(table)[0]
    assert nmse(got[0], np.stack([values[0][[4, 0]], values[1][[1, 1]]])) <= NMSE


@pytest.mark.parametrize(("n_experts", "n_used", "n_tokens"), [(8, 2, 1), (128, 8, 70)])
def test_get_rows_picks_the_weights_of_experts(bench, n_experts, n_used, n_tokens):
    probs = bench.leaf(F32, rand(n_tokens, n_experts))
    order = np.random.default_rng(n_tokens).permuted(
        np.tile(np.arange(n_experts), (n_tokens, 1)), axis=1
    )
    sorted_ids = bench.leaf(I32, order)
    top = build.view(sorted_ids, (n_used, n_tokens), (n_experts * 4,))
    table = build.reshape(probs, 1, n_experts, n_tokens)

    got = bench.compute(table, top, build.get_rows(table, top))

    want = np.take_along_axis(bench.values[probs], order[:, :n_used], axis=1)
    assert np.array_equal(got[0, :, :, 0], want)


def test_get_rows_shows_an_id_outside_the_table(bench):
    table, ids = bench.leaf(F32, rand(4, 16)), bench.leaf(I32, np.array([1, 99]))

    got = bench.compute(build.get_rows(table, ids))

    assert np.isfinite(got[0, 0, 0]).all()
    assert np.isnan(got[0, 0, 1]).all()


@on_both_kinds("weight_type", READERS, PLAIN_AND_BLOCKS)
@pytest.mark.parametrize("n_columns", [1, 2, 5, 33])
@pytest.mark.parametrize(("n_blocks", "n"), [(1, 5), (18, 19)])
def test_mul_mat_multiplies_every_weight_type(bench, weight_type, n_columns, n_blocks, n):
    k = n_blocks * max(32, weight_type.block_elems)
    weight = bench.leaf(weight_type, rand(n, k, scale=0.1))
    x = bench.leaf(F32, rand(n_columns, k))

    got = bench.compute(build.mul_mat(weight, x))

    want = as_read(bench.floats(x), weight_type)[0, 0] @ bench.floats(weight)[0, 0].T
    assert nmse(got[0, 0], want) <= NMSE


def test_activations_of_quantised_weights_are_rounded_to_even_whole_numbers(bench):
    values = np.zeros((1, 64), np.float32)
    values[0, :6] = [127.0, 0.5, 1.5, 2.5, -0.5, -1.5]  # the second block stays zero
    weight = bench.leaf(TensorType.Q8_0, np.eye(64) * 127)

    got = bench.compute(build.mul_mat(weight, bench.leaf(F32, values)))

    assert (got[0, 0, 0, :6] / 127).tolist() == [127, 0, 2, 2, 0, -2]
    assert not got[0, 0, 0, 6:].any()


@pytest.mark.parametrize(
    ("weight_type", "nibbles", "sum_of_block"),
    [
        (TensorType.Q4_1, 0xFF, 32 * 15),
        (TensorType.Q4_1, 0x0F, 16 * 15),
        (TensorType.Q4_0, 0x00, 32 * -8),
        (TensorType.Q4_0, 0xFF, 32 * 7),
    ],
)
@pytest.mark.parametrize("x", [127, -127])
def test_the_largest_products_of_4_bit_numbers_are_exact(
    bench, weight_type, nibbles, sum_of_block, x
):
    n_blocks, n = 6, 5
    weight = bench.leaf(weight_type, rand(n, 32 * n_blocks))
    blocks = np.full((n * n_blocks, weight_type.block_bytes), nibbles, np.uint8)
    blocks[:, :2] = np.ones(1, np.float16).view(np.uint8)
    if weight_type is TensorType.Q4_1:
        blocks[:, 2:4] = 0  # the minimum
    bench.values[weight] = blocks.reshape(-1)

    got = bench.compute(build.mul_mat(weight, bench.leaf(F32, np.full((1, 32 * n_blocks), x))))

    assert got[0, 0, 0].tolist() == [x * n_blocks * sum_of_block] * n


def test_quantised_weights_take_strided_activations_of_several_matrices(bench):
    weight = bench.leaf(TensorType.Q8_0, rand(2, 5, 64, scale=0.1))
    base = bench.leaf(F32, rand(4, 3, 6, 64))
    x = build.permute(base, (0, 2, 1, 3))

    got = bench.compute(x, build.mul_mat(weight, x))

    w = np.repeat(bench.floats(weight)[0], 3, axis=0).transpose(0, 2, 1)
    want = as_read(bench.floats(base), weight.type).transpose(0, 2, 1, 3) @ w
    assert nmse(got, want) <= NMSE


def test_activations_that_change_between_two_matmuls_are_rounded_again(bench):
    weight = bench.leaf(TensorType.Q4_0, rand(8, 64, scale=0.1))
    x, more = bench.leaf(F32, rand(1, 64)), bench.leaf(F32, rand(1, 64, scale=5.0))
    first, second = build.mul_mat(weight, x), build.mul_mat(weight, x)
    before = bench.floats(x).copy()

    bench.run(first, build.cpy(more, x), second)

    w = bench.floats(weight)[0, 0].T
    assert nmse(bench.read(first), as_read(before, weight.type) @ w) <= NMSE
    assert nmse(bench.read(second), as_read(bench.floats(more), weight.type) @ w) <= NMSE


@pytest.mark.parametrize("weight_type", [F32, F16, BF16])
@pytest.mark.parametrize("n_columns", [1, 9])
@pytest.mark.parametrize("k", [1, 7, 13, 1029])
def test_mul_mat_of_plain_weights_takes_any_length(bench, weight_type, n_columns, k):
    weight, x = bench.leaf(weight_type, rand(6, k)), bench.leaf(F32, rand(n_columns, k))

    got = bench.compute(build.mul_mat(weight, x))

    want = as_read(bench.floats(x), weight_type)[0, 0] @ bench.floats(weight)[0, 0].T
    assert nmse(got[0, 0], want) <= NMSE


@pytest.mark.parametrize("n_tokens", [1, 6])
def test_mul_mat_shares_strided_cache_views_among_heads(bench, n_tokens):
    n_kv, n_heads, n_kv_heads, d = 11, 6, 2, 16
    cache = bench.leaf(F16, rand(32, n_kv_heads * d))
    keys = build.view(cache, (d, n_kv_heads, n_kv), (d * 2, n_kv_heads * d * 2))
    keys = build.permute(keys, (0, 2, 1, 3))
    x = bench.leaf(F32, rand(n_tokens, n_heads, d))
    query = build.permute(x, (0, 2, 1, 3))

    got = bench.compute(keys, query, build.mul_mat(keys, query))

    k = bench.floats(cache)[0, 0, :n_kv].reshape(n_kv, n_kv_heads, d)
    k = np.repeat(k, n_heads // n_kv_heads, axis=1).transpose(1, 2, 0)
    want = bench.floats(x)[0].astype(np.float64).transpose(1, 0, 2) @ k
    assert nmse(got[0], want) <= NMSE


def test_mul_mat_broadcasts_over_both_outer_dimensions(bench):
    weight, x = bench.leaf(F32, rand(2, 1, 5, 8)), bench.leaf(F32, rand(4, 3, 7, 8))

    got = bench.compute(build.mul_mat(weight, x))

    w = np.repeat(bench.floats(weight), 2, axis=0).transpose(0, 1, 3, 2)
    assert nmse(got, bench.floats(x).astype(np.float64) @ w) <= NMSE


def moe(bench, weight_type, *, k, n, n_experts, n_used, n_tokens, x_slots):
    """(MUL_MAT_ID node with strided ids, its result in float64)."""
    weights = bench.leaf(weight_type, rand(n_experts, n, k, scale=0.1))
    x = bench.leaf(F32, rand(n_tokens, x_slots, k))
    picks = np.random.default_rng(n_tokens).integers(0, n_experts, (n_tokens, n_experts))
    ids = build.view(bench.leaf(I32, picks), (n_used, n_tokens), (n_experts * 4,))
    columns = np.broadcast_to(as_read(bench.floats(x), weight_type)[0], (n_tokens, n_used, k))
    picked = bench.floats(weights)[0][picks[:, :n_used]].astype(np.float64)
    return build.mul_mat_id(weights, x, ids), np.einsum("tsnk,tsk->tsn", picked, columns)


@on_both_kinds("weight_type", PLAIN_AND_BLOCKS, SOME_OF_A_KIND)
@pytest.mark.parametrize("x_slots", [1, 2])
@pytest.mark.parametrize("n_tokens", [1, 23])
def test_mul_mat_id_multiplies_with_the_experts_that_ids_name(
    bench, weight_type, x_slots, n_tokens
):
    k = 3 * max(32, weight_type.block_elems)
    node, want = moe(
        bench, weight_type, k=k, n=19, n_experts=4, n_used=2, n_tokens=n_tokens, x_slots=x_slots
    )

    got = bench.compute(node.src[2], node)

    assert nmse(got[0], want) <= NMSE


@pytest.mark.parametrize("n_tokens", [2, 40])
@pytest.mark.parametrize("k", [13, 2100])
def test_mul_mat_id_of_plain_weights_takes_any_length(bench, n_tokens, k):
    node, want = moe(bench, F16, k=k, n=6, n_experts=5, n_used=3, n_tokens=n_tokens, x_slots=3)

    got = bench.compute(node.src[2], node)

    assert nmse(got[0], want) <= NMSE


def test_an_expert_may_be_named_more_often_than_one_list_holds(bench):
    node, want = moe(bench, F32, k=8, n=70, n_experts=2, n_used=2, n_tokens=700, x_slots=2)

    got = bench.compute(node.src[2], node)

    assert nmse(got[0], want) <= NMSE


@pytest.mark.parametrize("n_tokens", [1, 9])
def test_mul_mat_id_shows_an_id_outside_the_experts(bench, n_tokens):
    weights = bench.leaf(F32, rand(2, 6, 32))
    x = bench.leaf(F32, rand(n_tokens, 1, 32))
    picks = np.tile([1, 2], (n_tokens, 1))

    got = bench.compute(build.mul_mat_id(weights, x, bench.leaf(I32, picks)))

    assert np.isfinite(got[0, :, 0]).all()
    assert np.isnan(got[0, :, 1]).all()


def test_experts_in_a_row_share_rounded_activations(bench):
    weights = [bench.leaf(TensorType.Q4_0, rand(4, 8, 64, scale=s)) for s in (0.1, 0.2)]
    x = bench.leaf(F32, rand(3, 1, 64))
    picks = np.array([[0, 3], [1, 1], [2, 0]])
    ids = bench.leaf(I32, picks)
    gate, up = (build.mul_mat_id(w, x, ids) for w in weights)

    bench.run(gate, up)

    columns = as_read(bench.floats(x), TensorType.Q4_0)[0, :, 0]
    for node, w in zip((gate, up), weights, strict=True):
        want = np.einsum("tsnk,tk->tsn", bench.floats(w)[0][picks], columns)
        assert nmse(bench.read(node)[0], want) <= NMSE
