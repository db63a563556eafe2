"""Every kernel against its numpy reference, with odd sizes, strides and broadcasting."""

from __future__ import annotations

import numpy as np
import pytest

from engine.core import build
from engine.core.ops import (
    ROPE_IMROPE,
    ROPE_MROPE,
    FlashAttnParams,
    GluOp,
    Op,
    RopeParams,
    SoftMaxParams,
    UnaryOp,
)
from engine.core.types import TensorType
from engine.opcheck import reference
from tests.engine.backends.cpu import rounded_reference
from tests.engine.backends.cpu.cpu_split import nmse, random

F32_ROUNDING = 1e-11
"""A few units in the last place of f32, squared."""

TYPES = (TensorType.F32, TensorType.F16, TensorType.Q8_0, TensorType.Q4_0, TensorType.Q4_1)
QUANTIZED = TYPES[2:]


@pytest.mark.parametrize("op", [Op.ADD, Op.SUB, Op.MUL, Op.DIV])
@pytest.mark.parametrize(
    ("shape", "small"),
    [
        ((2, 3, 5, 7), (2, 3, 5, 7)),
        ((1, 2, 33, 64), (1, 1, 1, 64)),
        ((1, 2, 6, 12), (1, 1, 3, 4)),
        ((1, 1, 40, 576), (1, 1, 40, 576)),
        ((1, 3, 4, 17), (1, 1, 1, 1)),
    ],
)
def test_binary_operations_repeat_the_second_source(backend, split, op, shape, small):
    a, b = split.leaf(random(shape, 1)), split.leaf(random(small, 2))

    result = split.compute(backend, build.binary(op, a, b))

    expected = reference.binary(op, random(shape, 1), random(small, 2))
    np.testing.assert_array_equal(result, expected)


def test_binary_operations_read_permuted_sources(backend, split):
    a = build.permute(split.leaf(random((2, 5, 3, 9))), (1, 0, 2, 3))
    b = split.leaf(random((2, 5, 9, 3), 1))

    result = split.compute(backend, build.add(a, b))

    expected = random((2, 5, 3, 9)).swapaxes(-1, -2) + random((2, 5, 9, 3), 1)
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (2, 3, 5, 7), (1, 1, 40, 576)])
def test_scale_multiplies_and_adds(backend, split, shape):
    x = split.leaf(random(shape))

    result = split.compute(backend, build.scale(x, 0.125, -3.0))

    assert nmse(result, reference.scale(random(shape), 0.125, -3.0)) <= F32_ROUNDING


@pytest.mark.parametrize(("low", "high"), [(-0.5, 0.75), (6.103515625e-5, np.inf)])
@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (2, 3, 5, 7), (1, 1, 40, 576)])
def test_clamp_moves_elements_into_the_range(backend, split, low, high, shape):
    result = split.compute(backend, build.clamp(split.leaf(random(shape)), low, high))

    np.testing.assert_array_equal(result, reference.clamp(random(shape), low, high))


# GELU is rounded to f16; a value that falls on the other side of a rounding is 2^-11 off.
UNARY_BAR = {kind: 1e-7 if kind is UnaryOp.GELU else F32_ROUNDING for kind in UnaryOp}
GLU_BAR = {GluOp.SWIGLU: F32_ROUNDING, GluOp.GEGLU: 1e-7}


@pytest.mark.parametrize("kind", UNARY_BAR)
@pytest.mark.parametrize("size", [1e-3, 0.5, 8.0])
@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (2, 3, 5, 7), (1, 1, 40, 576)])
def test_unary_functions_equal_their_formula(backend, split, kind, size, shape):
    values = random(shape) * np.float32(size)
    x = split.leaf(values)

    result = split.compute(backend, build.unary(x, kind))

    assert nmse(result, rounded_reference.unary(kind, values)) <= UNARY_BAR[kind]


def test_gelu_is_zero_below_its_table_and_x_above_it(backend, split):
    values = np.array([-np.inf, -1e4, -10.0, 10.0, 10.00123, 1e4, np.inf], dtype=np.float32)

    result = split.compute(backend, build.unary(split.leaf(values), UnaryOp.GELU))

    np.testing.assert_array_equal(result[0, 0, 0], np.where(values <= -10.0, 0.0, values))


def test_gelu_of_any_half_is_a_half(backend, split):
    values = np.arange(0x8000, dtype=np.uint16).view(np.float16)
    values = values[np.isfinite(values) & (values < 10.0)].astype(np.float32)

    result = split.compute(backend, build.unary(split.leaf(values), UnaryOp.GELU))

    np.testing.assert_array_equal(result, result.astype(np.float16).astype(np.float32))


@pytest.mark.parametrize("kind", GLU_BAR)
@pytest.mark.parametrize("shape", [(1, 1, 1, 3), (1, 2, 5, 48), (1, 1, 17, 1536)])
def test_glu_gates_by_the_first_source(backend, split, kind, shape):
    gate, up = split.leaf(random(shape, 1)), split.leaf(random(shape, 2))

    result = split.compute(backend, build.glu_split(gate, up, kind))

    assert (
        nmse(result, rounded_reference.glu(kind, random(shape, 1), random(shape, 2)))
        <= GLU_BAR[kind]
    )


def test_glu_reads_both_halves_of_a_merged_product(backend, split):
    values = random((1, 4, 2, 96))
    merged = split.leaf(values)
    gate, up = (build.view(merged, (48, 2, 4), (384, 768), offset) for offset in (0, 192))

    result = split.compute(backend, gate, up, build.glu_split(gate, up, GluOp.SWIGLU))

    expected = rounded_reference.glu(GluOp.SWIGLU, values[..., :48], values[..., 48:])
    assert nmse(result, expected) <= F32_ROUNDING


@pytest.mark.parametrize("kind", GLU_BAR)
@pytest.mark.parametrize("shape", [(1, 1, 1, 6), (1, 2, 5, 96), (1, 1, 17, 3072)])
def test_glu_of_one_tensor_gates_by_the_first_half_of_each_row(backend, split, kind, shape):
    values, half = random(shape, 1), shape[3] // 2

    result = split.compute(backend, build.glu(split.leaf(values), kind))

    expected = rounded_reference.glu(kind, values[..., :half], values[..., half:])
    assert nmse(result, expected) <= GLU_BAR[kind]


@pytest.mark.parametrize("size", [0.5, 8.0])
@pytest.mark.parametrize("shape", [(1, 1, 1, 3), (1, 2, 5, 48), (1, 1, 17, 1536)])
def test_swiglu_oai_limits_gate_and_up(backend, split, size, shape):
    gate, up = (random(shape, seed) * np.float32(size) for seed in (1, 2))
    leafs = split.leaf(gate), split.leaf(up)
    node = build.glu_split(*leafs, GluOp.SWIGLU_OAI, alpha=1.702, limit=7.0)

    result = split.compute(backend, node)

    assert nmse(result, reference.swiglu_oai(gate, up, 1.702, 7.0)) <= F32_ROUNDING


@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (2, 3, 5, 7), (1, 1, 40, 576), (1, 1, 3, 64)])
def test_rms_norm_divides_rows_by_their_root_mean_square(backend, split, shape):
    x = split.leaf(random(shape))

    result = split.compute(backend, build.rms_norm(x, 1e-5))

    assert nmse(result, reference.rms_norm(random(shape), 1e-5)) <= F32_ROUNDING


@pytest.mark.parametrize("mask_kind", [None, TensorType.F32, TensorType.F16])
@pytest.mark.parametrize("shape", [(1, 4, 11, 256), (2, 3, 5, 7), (1, 1, 1, 37)])
def test_soft_max_adds_the_mask_and_sums_to_one(backend, split, mask_kind, shape):
    mask_values = random((1, 1, shape[2], shape[3]), 3)
    mask_values[..., 1:3] = -np.inf
    x = split.leaf(random(shape))
    mask = None if mask_kind is None else split.leaf(mask_values, mask_kind)

    result = split.compute(backend, build.soft_max(x, mask, SoftMaxParams(0.25)))

    seen = None if mask is None else split.read(mask)
    expected = reference.soft_max(random(shape), seen, 0.25)
    assert nmse(result, expected) <= F32_ROUNDING
    np.testing.assert_allclose(result.sum(axis=-1), 1.0, rtol=1e-5)


@pytest.mark.parametrize("n_heads", [1, 4, 6, 12])
def test_soft_max_slopes_the_mask_of_each_head(backend, split, n_heads):
    shape = (1, n_heads, 5, 33)
    distances = -np.abs(np.arange(33)[None] - np.arange(5)[:, None]).astype(np.float32)
    mask = split.leaf(distances[None, None])

    node = build.soft_max(split.leaf(random(shape)), mask, SoftMaxParams(0.25, 8.0))
    result = split.compute(backend, node)

    expected = reference.soft_max(random(shape), distances[None, None], 0.25, 8.0)
    assert nmse(result, expected) <= F32_ROUNDING


@pytest.mark.parametrize("size", [1.0, 30.0])
@pytest.mark.parametrize("shape", [(1, 4, 11, 256), (1, 3, 5, 7)])
def test_the_sink_of_a_head_takes_its_share_of_the_sum(backend, split, shape, size):
    mask_values, sinks = random((1, 1, *shape[2:]), 3), random((shape[1],), 4) * np.float32(size)
    leafs = split.leaf(random(shape)), split.leaf(mask_values)
    node = build.soft_max(*leafs, SoftMaxParams(0.25), sinks=split.leaf(sinks))

    result = split.compute(backend, node)

    expected = reference.soft_max(random(shape), mask_values, 0.25, sinks=sinks)
    assert nmse(result, expected) <= F32_ROUNDING
    assert (result.sum(axis=-1) < 1.0 - 1e-6).any()


YARN = RopeParams(16, 0, 2048, 10000.0, 0.25, 1.0, 1.1, 32.0, 1.0)


@pytest.mark.parametrize(
    "params",
    [
        RopeParams(16, 0),
        RopeParams(16, 2),
        RopeParams(2, 2),
        RopeParams(10, 2),
        RopeParams(12, 2, freq_scale=0.5),
        RopeParams(12, 0, attn_factor=0.75),
        YARN,
        RopeParams(6, 0, offset=4),
        RopeParams(8, 2, offset=8),
    ],
    ids=[
        "norm",
        "neox",
        "neox, one pair",
        "neox, partial",
        "neox, partial, scaled",
        "norm, partial",
        "yarn",
        "norm, in the middle",
        "neox, at the end",
    ],
)
@pytest.mark.parametrize("with_factors", [False, True], ids=["plain", "factors"])
def test_rope_rotates_pairs_by_position(backend, split, params, with_factors):
    values, positions = random((1, 9, 4, 16)), np.array([0, 1, 2, 7, 100, 4095, 3, 3, 5])
    factors = np.linspace(1.0, 4.0, params.n_dims // 2, dtype=np.float32)
    factor_leaf = split.leaf(factors) if with_factors else None
    node = build.rope(
        split.leaf(values), split.leaf(positions, TensorType.I32), factor_leaf, params
    )

    result = split.compute(backend, node)

    expected = reference.rope(values, positions, factors if with_factors else None, params)
    assert nmse(result, expected) <= F32_ROUNDING


@pytest.mark.parametrize("sections", [(3, 3, 2, 0), (2, 1, 1, 4), (1, 1, 1, 0)])
@pytest.mark.parametrize("mode", [ROPE_MROPE, ROPE_IMROPE])
@pytest.mark.parametrize("with_factors", [False, True], ids=["plain", "factors"])
def test_rope_with_sections_takes_one_of_four_positions(
    backend, split, mode, sections, with_factors
):
    values, positions = random((1, 5, 3, 20)), np.arange(20)[::-1] * 7
    factors = np.linspace(1.0, 4.0, 8, dtype=np.float32) if with_factors else None
    factor_leaf = None if factors is None else split.leaf(factors)
    params = RopeParams(16, mode, freq_base=1e6, sections=sections)
    leafs = split.leaf(values), split.leaf(positions, TensorType.I32)

    result = split.compute(backend, build.rope(*leafs, factor_leaf, params))

    expected = reference.rope(values, positions, factors, params)
    assert nmse(result, expected) <= F32_ROUNDING


def test_rope_reads_heads_out_of_a_wider_row(backend, split):
    values, positions = random((1, 1, 6, 96)), np.arange(6)
    window = build.view(split.leaf(values), (16, 2, 6), (64, 384), 128)
    node = build.rope(window, split.leaf(positions, TensorType.I32), None, RopeParams(16))

    result = split.compute(backend, window, node)

    heads = values[..., 32:64].reshape(1, 6, 2, 16)
    expected = reference.rope(heads, positions, None, RopeParams(16))
    assert nmse(result, expected) <= F32_ROUNDING


def test_layers_with_equal_positions_share_angles_and_others_do_not(backend, split):
    values, positions = random((1, 3, 2, 8)), split.leaf(np.arange(3), TensorType.I32)
    x = split.leaf(values)
    first = build.rope(x, positions, None, RopeParams(8))
    second = build.rope(x, positions, None, RopeParams(8, freq_base=500.0))

    split.compute(backend, first, second)

    for node, params in ((first, RopeParams(8)), (second, RopeParams(8, freq_base=500.0))):
        expected = reference.rope(values, np.arange(3), None, params)
        assert nmse(split.read(node), expected) <= F32_ROUNDING


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("n", [32, 96, 576])
def test_get_rows_gives_floats_of_any_table(backend, split, kind, n):
    table = split.leaf(random((1, 1, 40, n)), kind)
    ids = np.array([3, 0, 39, 3, 17])

    result = split.compute(backend, build.get_rows(table, split.leaf(ids, TensorType.I32)))

    expected = split.read(table)[0, 0][ids][None, None].astype(np.float32)
    np.testing.assert_allclose(result, expected, rtol=1e-6, atol=1e-7)


def test_get_rows_picks_from_each_batch(backend, split):
    table, ids = random((2, 3, 10, 7)), np.random.default_rng(0).integers(0, 10, (2, 3, 4))
    node = build.get_rows(split.leaf(table), split.leaf(ids, TensorType.I32))

    result = split.compute(backend, node)

    np.testing.assert_array_equal(result, reference.get_rows(table, ids[None]))


def test_get_rows_copies_integers(backend, split):
    table = np.arange(60).reshape(12, 5) * 1_000_003
    node = build.get_rows(
        split.leaf(table, TensorType.I32), split.leaf(np.array([11, 2]), TensorType.I32)
    )

    result = split.compute(backend, node)

    np.testing.assert_array_equal(result[0, 0], table[[11, 2]])


@pytest.mark.parametrize("ids_kind", [TensorType.I64, TensorType.I32])
@pytest.mark.parametrize("kind", [TensorType.F16, TensorType.F32])
@pytest.mark.parametrize(("n", "m"), [(32, 11), (7, 3), (576, 40)])
def test_set_rows_writes_the_named_rows_and_no_others(backend, split, ids_kind, kind, n, m):
    before, rows = random((1, 1, 50, n), 1), random((1, 1, m, n), 2)
    ids = np.random.default_rng(3).permutation(50)[:m]
    table = split.leaf(before, kind)
    node = build.set_rows(table, split.leaf(rows), split.leaf(ids, ids_kind))

    result = split.compute(backend, node)

    typed = before.astype(result.dtype)
    np.testing.assert_array_equal(result, reference.set_rows(typed, rows, ids[None, None, None]))


def test_set_rows_scatters_single_elements_into_a_transposed_cache(backend, split):
    rows, ids = random((1, 1, 352, 1)), np.random.default_rng(1).permutation(4096)[:352]
    table = split.leaf(np.zeros((1, 1, 4096, 1)), TensorType.F16)
    node = build.set_rows(table, split.leaf(rows), split.leaf(ids, TensorType.I64))

    result = split.compute(backend, node)

    np.testing.assert_array_equal(result[0, 0, ids, 0], rows[0, 0, :, 0].astype(np.float16))
    assert np.count_nonzero(result) == np.count_nonzero(rows[0, 0, :, 0].astype(np.float16))


@pytest.mark.parametrize("kind", [TensorType.F32, TensorType.F16])
@pytest.mark.parametrize("axes", [(0, 1, 2, 3), (0, 2, 1, 3), (1, 0, 2, 3), (2, 0, 1, 3)])
def test_cont_gathers_permuted_elements(backend, split, kind, axes):
    leaf = split.leaf(random((1, 3, 11, 16)), kind)
    permuted = build.permute(leaf, axes)

    result = split.compute(backend, permuted, build.cont(permuted))

    np.testing.assert_array_equal(result, split.read(permuted))


def test_cont_may_change_the_shape(backend, split):
    heads = build.permute(split.leaf(random((1, 4, 11, 16))), (0, 2, 1, 3))

    result = split.compute(backend, heads, build.cont(heads, (64, 11, 1, 1)))

    np.testing.assert_array_equal(result[0, 0], split.read(heads).reshape(11, 64))


@pytest.mark.parametrize("kind", [TensorType.F32, TensorType.F16])
@pytest.mark.parametrize("target_kind", [TensorType.F32, TensorType.F16])
def test_cpy_converts_into_a_window_of_another_shape(backend, split, kind, target_kind):
    source = split.leaf(random((1, 1, 6, 20)), kind)
    target = split.leaf(np.zeros((1, 1, 5, 40)), target_kind)
    size = target_kind.block_bytes
    window = build.view(target, (24, 5), (40 * size,), 3 * size)

    result = split.compute(backend, window, build.cpy(source, window))

    expected = split.read(source).reshape(5, 24).astype(result.dtype)
    np.testing.assert_array_equal(result[0, 0], expected)
    assert not split.read(target)[..., :3].any()
    assert not split.read(target)[..., 27:].any()


@pytest.mark.parametrize("n_after", [0, 1, 24])
def test_pad_appends_zeros_to_each_row(backend, split, n_after):
    rows = build.permute(split.leaf(random((1, 2, 16, 5))), (1, 0, 2, 3))

    result = split.compute(backend, rows, build.pad(rows, n_after))

    before = random((1, 2, 16, 5)).swapaxes(-1, -2)
    np.testing.assert_array_equal(result[..., :16], before)
    assert result.shape == (1, 2, 5, 16 + n_after)
    assert not result[..., 16:].any()


SMALL = [6.1e-5, 6e-5, 5.97e-8, 2.9e-8, 3e-8, -1e-7]
SPECIAL = [np.inf, -np.inf, np.nan, 1.0009765625, 1.00048828125, 1.00146484375]
HALF_EDGES = np.array(
    [
        0.0,
        -0.0,
        65504.0,
        65519.9,
        65520.0,
        1000000000.0,
        6.1e-05,
        6e-05,
        5.97e-08,
        2.9e-08,
        3e-08,
        -1e-07,
        *SPECIAL,
    ],
    dtype=np.float32,
)


def test_halfs_round_to_nearest_even_and_keep_nan_and_infinity(backend, split):
    node = build.cpy(split.leaf(HALF_EDGES), split.leaf(np.zeros(18), TensorType.F16))

    result = split.compute(backend, node)

    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(result[0, 0, 0], HALF_EDGES.astype(np.float16))


PRODUCTS = [
    (1, 1, 1),
    (17, 1, 32),
    (64, 2, 96),
    (5, 3, 64),
    (33, 4, 64),
    (48, 11, 576),
    (20, 37, 96),
]
"""(rows, columns, inner)."""


@pytest.mark.parametrize(("n", "t", "k"), [(33, 9, 576), (64, 1, 1536), *PRODUCTS])
@pytest.mark.parametrize("kind", [TensorType.F32, TensorType.F16])
def test_mul_mat_with_floats_equals_the_product(backend, split, kind, n, t, k):
    weight, x = split.leaf(random((1, 1, n, k), 1), kind), split.leaf(random((1, 1, t, k), 2))

    result = split.compute(backend, build.mul_mat(weight, x))

    expected = reference.mul_mat(
        split.read(weight), rounded_reference.rounded(kind, random((1, 1, t, k), 2))
    )
    assert nmse(result, expected) <= F32_ROUNDING


@pytest.mark.parametrize(("n", "t", "k"), PRODUCTS[1:])
@pytest.mark.parametrize("kind", QUANTIZED)
def test_mul_mat_with_blocks_equals_the_product_of_rounded_activations(
    backend, split, kind, n, t, k
):
    weight, x = split.leaf(random((1, 1, n, k), 1), kind), split.leaf(random((1, 1, t, k), 2))

    result = split.compute(backend, build.mul_mat(weight, x))

    expected = rounded_reference.mul_mat_quantized(
        kind, split.raw(weight), split.read(weight), random((1, 1, t, k), 2)
    )
    assert nmse(result, expected) <= F32_ROUNDING


@pytest.mark.parametrize("kind", [TensorType.F16, TensorType.Q4_1])
@pytest.mark.parametrize("t", [1, 7])
def test_mul_mat_repeats_weights_over_heads(backend, split, kind, t):
    weight, x = split.leaf(random((1, 2, 18, 32), 1), kind), split.leaf(random((2, 6, t, 32), 2))

    result = split.compute(backend, build.mul_mat(weight, x))

    values = random((2, 6, t, 32), 2)
    expected = reference.mul_mat(
        split.read(weight), rounded_reference.rounded(TensorType.F16, values)
    )
    if kind.is_quantized:
        expected = rounded_reference.mul_mat_quantized(
            kind, split.raw(weight), split.read(weight), values
        )
    assert nmse(result, expected) <= F32_ROUNDING


@pytest.mark.parametrize("t", [1, 11])
def test_mul_mat_reads_views_of_the_cache(backend, split, t):
    """kq: cache [32, 64] seen as [16, 64 keys, 2 heads]; q [16, t, 4 heads] permuted."""
    cache = split.leaf(random((1, 1, 64, 32), 1), TensorType.F16)
    keys = build.permute(build.view(cache, (16, 2, 64), (32, 64)), (0, 2, 1, 3))
    queries = build.permute(split.leaf(random((1, t, 4, 16), 2)), (0, 2, 1, 3))

    result = split.compute(backend, keys, queries, build.mul_mat(keys, queries))

    halfs = rounded_reference.rounded(TensorType.F16, split.read(queries))
    expected = reference.mul_mat(split.read(keys), halfs)
    assert nmse(result, expected) <= F32_ROUNDING


def test_products_of_the_same_activations_agree_with_separate_ones(backend, split):
    x = split.leaf(random((1, 1, 3, 64), 9))
    kinds = (TensorType.Q4_0, TensorType.Q4_0, TensorType.Q4_1, TensorType.Q8_0)
    weights = [split.leaf(random((1, 1, 20, 64), i), kind) for i, kind in enumerate(kinds)]
    nodes = [build.mul_mat(weight, x) for weight in weights]

    split.compute(backend, *nodes)
    together = [split.read(node) for node in nodes]

    for node, seen in zip(nodes, together, strict=True):
        np.testing.assert_array_equal(split.compute(backend, node), seen)


SHORT = [(16, 1, 32, 4, 2), (64, 1, 256, 9, 3), (32, 11, 64, 8, 4), (128, 5, 33, 2, 1)]
SHORT += [(40, 20, 70, 2, 1), (8, 9, 5, 1, 1), (96, 2, 130, 2, 2), (256, 3, 96, 4, 1)]
SHORT += [(24, 7, 40, 3, 1), (32, 1, 33, 2, 2), (48, 5, 65, 2, 1)]
LONG = [(16, 64, 64, 2, 1), (64, 70, 200, 3, 1), (128, 65, 90, 2, 2), (40, 97, 97, 2, 1)]
LONG += [(256, 66, 128, 4, 1), (24, 64, 70, 2, 1), (48, 80, 65, 1, 1), (96, 65, 33, 2, 2)]
"""(d, queries, keys, heads, heads of keys)."""
# A sum that falls on the other side of a rounding to f16 is half a step of 2^-11 off.
F16_ROUNDING = 1e-7
# What sums of a few hundred terms rounded to f16 each time may be off from exact ones.
F16_SUMS = 1e-5


@pytest.mark.parametrize(("d", "t", "n_kv", "h", "hk"), SHORT + LONG)
@pytest.mark.parametrize("softcap", [0.0, 5.0])
@pytest.mark.parametrize("masked", [False, True])
def test_flash_attention_equals_its_reference(backend, split, d, t, n_kv, h, hk, softcap, masked):
    q = build.permute(split.leaf(random((1, t, h, d), 1)), (0, 2, 1, 3))
    cache_k = split.leaf(random((1, n_kv, hk, d), 2), TensorType.F16)
    cache_v = split.leaf(random((1, n_kv, hk, d), 3), TensorType.F16)
    k, v = (build.permute(cache, (0, 2, 1, 3)) for cache in (cache_k, cache_v))
    mask = split.leaf(causal_mask(t, n_kv), TensorType.F16) if masked else None
    params = FlashAttnParams(d**-0.5, 0.0, softcap)

    result = split.compute(backend, build.flash_attn_ext(q, k, v, mask, params))

    seen = None if mask is None else split.read(mask)
    sources = (split.read(q), split.read(k), split.read(v), seen, params.scale, softcap)
    if t >= 64:
        assert nmse(result, reference.flash_attn(*sources)) <= F32_ROUNDING
    else:
        assert nmse(result, reference.flash_attn(*sources)) <= F16_SUMS
        assert nmse(result, rounded_reference.flash_attn_in_halfs(*sources)) <= F16_ROUNDING


def causal_mask(t: int, n_kv: int) -> np.ndarray:
    """Query i sees the first n_kv - t + i + 1 keys, at least one."""
    last = np.maximum(n_kv - t + np.arange(t), 0)
    return np.where(np.arange(n_kv)[None] <= last[:, None], 0.0, -np.inf).astype(np.float32)


@pytest.mark.parametrize("n_queries", [6, 70])
def test_a_query_that_sees_nothing_gives_zeros(backend, split, n_queries):
    q = split.leaf(random((1, 1, n_queries, 16)))
    k, v = (split.leaf(random((1, 1, 8, 16)), TensorType.F16) for _ in range(2))
    mask = np.zeros((n_queries, 8))
    mask[2] = -np.inf
    node = build.flash_attn_ext(q, k, v, split.leaf(mask, TensorType.F16), FlashAttnParams(0.25))

    result = split.compute(backend, node)

    assert not result[0, 2].any()
    assert np.isfinite(result).all()


@pytest.mark.parametrize("n_queries", [6, 70])
def test_nan_in_a_key_reaches_the_queries_that_see_it(backend, split, n_queries):
    q = split.leaf(random((1, 1, n_queries, 16)))
    keys = random((1, 1, 8, 16))
    keys[0, 0, 3, 2] = np.nan
    mask = np.zeros((n_queries, 8))
    mask[1, 3] = -np.inf
    k, v = split.leaf(keys, TensorType.F16), split.leaf(random((1, 1, 8, 16)), TensorType.F16)
    node = build.flash_attn_ext(q, k, v, split.leaf(mask, TensorType.F16), FlashAttnParams(0.25))

    result = split.compute(backend, node)

    assert np.isnan(result[0, 0]).all()
    assert np.isnan(result[0, 2:]).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("t", [1, 6])
def test_nan_and_infinity_in_activations_reach_the_product(backend, split, bad, kind, t):
    values = random((1, 1, t, 64), 2)
    values[0, 0, 0, 5] = bad
    node = build.mul_mat(split.leaf(random((1, 1, 20, 64), 1), kind), split.leaf(values))

    result = split.compute(backend, node)

    assert not np.isfinite(result[0, 0, 0]).any()
    assert np.isfinite(result[0, 0, 1:]).all()


def test_nan_passes_through_every_elementwise_kernel(backend, split):
    values = random((1, 1, 1, 20))
    values[..., 3] = np.nan
    x = split.leaf(values)
    nodes = (
        *(build.unary(x, kind) for kind in UnaryOp),
        build.scale(x, 2.0),
        build.glu_split(x, x, GluOp.SWIGLU),
        build.glu_split(x, x, GluOp.GEGLU),
        build.glu_split(x, x, GluOp.SWIGLU_OAI, alpha=1.702, limit=7.0),
        build.add(x, x),
    )

    split.compute(backend, *nodes)

    for node in nodes:
        assert np.isnan(split.read(node)).tolist() == np.isnan(values).tolist()


def test_silu_of_large_numbers_does_not_overflow(backend, split):
    values = np.array([-1e4, -89.0, -88.0, 0.0, 88.0, 1e4, np.inf], dtype=np.float32)

    result = split.compute(backend, build.unary(split.leaf(values), UnaryOp.SILU))

    expected = np.array([0.0, 0.0, 0.0, 0.0, 88.0, 1e4, np.inf])
    np.testing.assert_allclose(result[0, 0, 0], expected, atol=1e-30)
