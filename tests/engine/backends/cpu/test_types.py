"""Every type of weights: rows as floats, and products, fast where there is a kernel for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.backends.cpu.backend import CpuBackend
from engine.backends.cpu.kernels.traits import TRAITS
from engine.backends.cpu.reg import create
from engine.backends.cpu.rules import QUANTIZED, WRITTEN
from engine.core import build
from engine.core.quants import quantize
from engine.core.types import TensorType as T
from engine.opcheck import reference
from tests.engine.backends.cpu import ggml_order, rounded_reference
from tests.engine.backends.cpu.cpu_split import CpuSplit, nmse, random

if TYPE_CHECKING:
    from engine.core.tensor import Tensor

F32_ROUNDING = 1e-11
FAST = sorted(kind for kind, traits in TRAITS.items() if traits.rounding.is_quantized)
PLAIN = sorted(set(TRAITS) - set(FAST))
FAST_K = [kind for kind in FAST if kind.block_elems == 256]


def name(kind: T) -> str:
    return kind.label


def weights(split: CpuSplit, kind: T, *ne: int) -> Tensor:
    """Random weights of any type."""
    if kind in QUANTIZED:
        return split.random_blocks(kind, *ne)
    return split.leaf(random(tuple(reversed(ne)), 1), kind)


def met(kind: T, x: np.ndarray) -> np.ndarray:
    """Activations as they meet weights of a plain type."""
    return rounded_reference.rounded(TRAITS[kind].rounding, x)


def test_every_type_that_is_planned_for_has_conversions():
    assert set(TRAITS) == QUANTIZED | {T.F32, T.F16, T.BF16}
    assert {kind for kind, traits in TRAITS.items() if traits.from_float is not None} == WRITTEN


@pytest.mark.parametrize("kind", sorted(QUANTIZED | {T.BF16}), ids=name)
def test_get_rows_reads_a_type_bit_for_bit(backend, split, kind):
    table = weights(split, kind, 768, 9)
    ids = np.array([8, 0, 3, 3])

    result = split.compute(backend, build.get_rows(table, split.leaf(ids, T.I32)))

    np.testing.assert_array_equal(result[0, 0], split.read(table)[0, 0][ids])


SHAPES = [(1, 1, 256), (21, 1, 768), (33, 3, 512), (18, 6, 256), (40, 37, 1024)]
"""(rows, columns, inner)."""


@pytest.mark.parametrize(("n", "t", "k"), SHAPES)
@pytest.mark.parametrize("kind", PLAIN, ids=name)
def test_a_product_in_the_plain_way_is_that_of_floats(backend, split, kind, n, t, k):
    weight, x = weights(split, kind, k, n), split.leaf(random((1, 1, t, k), 2))

    result = split.compute(backend, build.mul_mat(weight, x))

    expected = reference.mul_mat(split.read(weight), met(kind, random((1, 1, t, k), 2)))
    assert nmse(result, expected) <= F32_ROUNDING


@pytest.mark.parametrize(("n", "t", "k"), SHAPES)
@pytest.mark.parametrize("kind", FAST, ids=name)
def test_a_fast_product_rounds_activations_and_nothing_else(backend, split, kind, n, t, k):
    weight, x = weights(split, kind, k, n), split.leaf(random((1, 1, t, k), 2))

    result = split.compute(backend, build.mul_mat(weight, x))

    expected = rounded_reference.mul_mat_quantized(
        kind, split.raw(weight), split.read(weight), random((1, 1, t, k), 2)
    )
    assert nmse(result, expected) <= F32_ROUNDING


@pytest.mark.parametrize("n_blocks", [1, 3, 8])
@pytest.mark.parametrize("t", [1, 2, 3, 7])
@pytest.mark.parametrize("kind", FAST, ids=name)
def test_a_product_of_few_columns_is_that_of_ggml_to_the_last_bit(
    backend, split, kind, t, n_blocks
):
    k = n_blocks * kind.block_elems
    weight, values = weights(split, kind, k, 21), random((1, 1, t, k), 2)

    result = split.compute(backend, build.mul_mat(weight, split.leaf(values)))

    raw = split.raw(weight)
    expected = [ggml_order.product(kind, raw, column) for column in values[0, 0]]
    np.testing.assert_array_equal(result[0, 0], np.stack(expected))


@pytest.mark.parametrize("kind", [T.Q5_0, T.Q4_K, T.Q5_K, T.BF16, T.IQ4_XS, T.IQ3_S], ids=name)
@pytest.mark.parametrize("t", [1, 9])
def test_products_repeat_weights_over_heads(backend, split, kind, t):
    weight = weights(split, kind, 256, 18, 2)
    values = random((1, 6, t, 256), 2)

    result = split.compute(backend, build.mul_mat(weight, split.leaf(values)))

    expected = reference.mul_mat(split.read(weight), values)
    if kind is T.BF16:
        expected = reference.mul_mat(split.read(weight), met(kind, values))
    if kind in FAST:
        expected = rounded_reference.mul_mat_quantized(
            kind, split.raw(weight), split.read(weight), values
        )
    assert nmse(result, expected) <= F32_ROUNDING


@pytest.mark.parametrize("kind", [*FAST, T.BF16, T.IQ3_S], ids=name)
@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("t", [1, 6])
def test_nan_and_infinity_in_activations_reach_the_product_of_each_type(
    backend, split, bad, kind, t
):
    values = random((1, 1, t, 256), 2)
    values[0, 0, 0, 5] = bad
    node = build.mul_mat(weights(split, kind, 256, 20), split.leaf(values))

    result = split.compute(backend, node)

    assert not np.isfinite(result[0, 0, 0]).any()
    assert np.isfinite(result[0, 0, 1:]).all()


@settings(max_examples=60, deadline=None)
@given(
    kind=st.sampled_from([*FAST, T.F32, T.F16, T.BF16, T.IQ3_S]),
    n=st.integers(1, 70),
    t=st.integers(1, 20),
    n_blocks=st.integers(1, 5),
    n_threads=st.integers(1, 3),
)
def test_products_of_any_size_stay_near_those_of_floats(kind, n, t, n_blocks, n_threads):
    split, backend = CpuSplit(), CpuBackend(create().devices()[0], n_threads)
    k = n_blocks * kind.block_elems
    values = random((1, 1, t, k), n + t)
    weight = weights(split, kind, k, n)

    result = split.compute(backend, build.mul_mat(weight, split.leaf(values)))
    backend.dispose()

    exact = split.read(weight).astype(np.float64)
    # The error of a sum is measured by the size of its terms: sums may cancel.
    terms = np.abs(values.astype(np.float64)) @ np.abs(exact).swapaxes(-1, -2)
    error = np.abs(result - values.astype(np.float64) @ exact.swapaxes(-1, -2))
    assert (error <= 0.02 * terms + 1e-30).all()


# --- written types ------------------------------------------------------------------------------

BLOCKS_WRITTEN = sorted(WRITTEN & QUANTIZED)


def awkward(n_rows: int, n: int) -> np.ndarray:
    """Rows with zeros, one huge element, tiny ones, and ordinary ones."""
    values = random((1, 1, n_rows, n), 4)
    values[0, 0, 0] = 0.0
    values[0, 0, 1, 7] = 1e4
    values[0, 0, 2] *= 1e-30
    return values


def written(kind: T, values: np.ndarray) -> np.ndarray:
    """The values that bytes of a type mean which ggml makes of `values`."""
    flat = np.ascontiguousarray(values, dtype=np.float32)
    raw = rounded_reference.q8_0_bytes(flat) if kind is T.Q8_0 else quantize(kind, flat)
    return rounded_reference.dequantized(kind, raw, values.shape)


@pytest.mark.parametrize("ids_kind", [T.I64, T.I32], ids=name)
@pytest.mark.parametrize("kind", [*BLOCKS_WRITTEN, T.BF16], ids=name)
def test_set_rows_writes_the_bytes_that_ggml_writes(backend, split, kind, ids_kind):
    before, rows = random((1, 1, 50, 96), 1), awkward(11, 96)
    ids = np.random.default_rng(3).permutation(50)[:11]
    table = split.leaf(before, kind)
    node = build.set_rows(table, split.leaf(rows), split.leaf(ids, ids_kind))

    result = split.compute(backend, node)

    expected = rounded_reference.dequantized(kind, split.raw(table), (1, 1, 50, 96))
    expected[0, 0, ids] = written(kind, rows)[0, 0]
    np.testing.assert_array_equal(result, expected)


def test_set_rows_scatters_single_elements_as_bf16(backend, split):
    rows, ids = random((1, 1, 70, 1)), np.random.default_rng(1).permutation(300)[:70]
    table = split.leaf(np.zeros((1, 1, 300, 1)), T.BF16)

    result = split.compute(backend, build.set_rows(table, split.leaf(rows), split.leaf(ids, T.I64)))

    np.testing.assert_array_equal(result[0, 0, ids], written(T.BF16, rows)[0, 0])


@pytest.mark.parametrize("source", [T.F32, T.F16, T.BF16], ids=name)
@pytest.mark.parametrize("target", sorted(WRITTEN), ids=name)
def test_cpy_converts_floats_to_any_written_type(backend, split, source, target):
    values = split.leaf(awkward(6, 64), source)
    node = build.cpy(values, split.leaf(np.zeros((6, 64)), target))

    result = split.compute(backend, node)

    np.testing.assert_array_equal(result, written(target, split.read(values).astype(np.float32)))


@pytest.mark.parametrize("kind", sorted(QUANTIZED), ids=name)
def test_cpy_makes_floats_of_any_type(backend, split, kind):
    source = weights(split, kind, 512, 5)

    result = split.compute(backend, build.cpy(source, split.leaf(np.zeros((5, 512)))))

    np.testing.assert_array_equal(result, split.read(source))


@pytest.mark.parametrize("kind", [T.Q4_0, T.Q6_K, T.BF16], ids=name)
def test_cont_moves_rows_of_blocks_as_they_are(backend, split, kind):
    permuted = build.permute(weights(split, kind, 256, 3, 4), (0, 2, 1, 3))

    result = split.compute(backend, permuted, build.cont(permuted))

    base = split.read(permuted.src[0])
    np.testing.assert_array_equal(result, base.swapaxes(1, 2))


NUMPY_PLACES = {(1, 0, 2, 3): (1, 3, 2), (2, 0, 1, 3): (2, 3, 1)}
"""Where numpy's axes 1, 2, 3 go when ggml's 0, 1, 2 go to these places."""


@pytest.mark.parametrize("axes", NUMPY_PLACES)
def test_cont_gathers_elements_of_bf16(backend, split, axes):
    permuted = build.permute(split.leaf(random((1, 3, 11, 16)), T.BF16), axes)

    result = split.compute(backend, permuted, build.cont(permuted))

    base = split.read(permuted.src[0])
    np.testing.assert_array_equal(result, np.moveaxis(base, (1, 2, 3), NUMPY_PLACES[axes]))


# --- attention over caches of each type ---------------------------------------------------------

CACHES = [
    (T.F32, T.F32), (T.BF16, T.BF16), (T.Q8_0, T.Q8_0), (T.Q4_0, T.Q4_0), (T.Q4_1, T.Q4_1),
    (T.Q5_0, T.Q5_0), (T.Q5_1, T.Q5_1), (T.Q8_0, T.F16), (T.F16, T.Q4_0), (T.F16, T.F16),
]  # fmt: skip
BATCHES = [(64, 1, 256, 9, 3), (256, 5, 70, 4, 1), (32, 11, 33, 2, 2), (96, 70, 130, 4, 2)]
"""(d, queries, keys, heads, heads of keys)."""
# Queries rounded to 127 steps; sums of f16 values are rounded to f16.
ROUNDED_QUERIES = 2e-4


@pytest.mark.parametrize(("k_kind", "v_kind"), CACHES)
@pytest.mark.parametrize(("d", "t", "n_kv", "h", "hk"), BATCHES)
@pytest.mark.parametrize("softcap", [0.0, 5.0])
def test_attention_reads_a_cache_of_any_type(
    backend, split, k_kind, v_kind, d, t, n_kv, h, hk, softcap
):
    q = build.permute(split.leaf(random((1, t, h, d), 1)), (0, 2, 1, 3))
    cache_k = split.leaf(random((1, n_kv, hk, d), 2), k_kind)
    cache_v = split.leaf(random((1, n_kv, hk, d), 3), v_kind)
    k, v = (build.permute(cache, (0, 2, 1, 3)) for cache in (cache_k, cache_v))
    mask = np.where(np.arange(n_kv)[None] <= np.arange(t)[:, None] + 20, 0.0, -np.inf)
    node = build.flash_attn_ext(
        q, k, v, split.leaf(mask, T.F16), build.FlashAttnParams(d**-0.5, 0.0, softcap)
    )

    result = split.compute(backend, node)

    keys, values = (split.read(cache).swapaxes(1, 2) for cache in (cache_k, cache_v))
    expected = reference.flash_attn(split.read(q), keys, values, mask[None, None], d**-0.5, softcap)
    is_exact = t >= 64 or (k_kind is T.F32 and v_kind is not T.F16)
    assert nmse(result, expected) <= (F32_ROUNDING if is_exact else ROUNDED_QUERIES)
