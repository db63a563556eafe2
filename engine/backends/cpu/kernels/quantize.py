"""Activations as they meet weights: the row before a product, unless they stay as they are."""

from __future__ import annotations

import numpy as np

from engine.backends.cpu.codegen import LANES
from engine.backends.cpu.jit import helper, kernel
from engine.backends.cpu.kernels.common import n_rows, ne, param, row_at, share
from engine.backends.cpu.layout import (
    KIND_BF16,
    KIND_F16,
    KIND_Q8_0,
    KIND_Q8_1,
    KIND_Q8_K,
    SHARED,
    SRC1,
)
from engine.backends.cpu.simd import (
    Vector,
    absolute,
    as_half,
    fadd,
    fmul,
    larger_or_nan,
    load_f32_part,
    load_f32v,
    load_i64,
    max_lanes_or_nan,
    round_even,
    round_to_brain,
    round_to_half,
    splat,
    store_f32,
    store_f32_part,
    store_f32v,
    store_rounded,
    sum_lanes,
)
from engine.backends.cpu.tiles import SCALE_AT, TAIL_BYTES, store_sums_of_16

_ZERO = np.float32(0.0)
_ONE = np.float32(1.0)
_LARGEST = np.float32(127.0)


@helper
def largest_magnitude(x: int, n_elems: int) -> np.float32:
    """The largest magnitude of `n_elems` floats; NaN if one of them is."""
    top = splat(_ZERO)
    for i in range(0, n_elems, LANES):
        top = larger_or_nan(absolute(load_f32v(x + 4 * i)), top)
    return max_lanes_or_nan(top)


@helper
def step_inverse(largest: np.float32) -> np.float32:
    """What takes `largest` to 127; 0 for 0."""
    inverse = _ZERO
    if largest != _ZERO:
        inverse = _LARGEST / largest
    return inverse


@helper
def store_block(target: int, x: int, inverse: np.float32) -> np.float32:
    """Write 32 floats times `inverse` as bytes, rounded to nearest even; give back their sum."""
    factor, total = splat(inverse), splat(_ZERO)
    for i in range(0, 32, LANES):
        value = fmul(load_f32v(x + 4 * i), factor)
        store_rounded(target + i, value)
        total = fadd(total, round_even(value))
    return sum_lanes(total)


@helper
def quantize_row(kind: int, target: int, x: int, n_blocks: int) -> None:
    """Write n_blocks * 32 bytes q, then for each block the pair d = max|x| / 127 and d * sum(q).

    q is rounded to nearest even, d to f16; the sum is that of the rounded d, or for KIND_Q8_1 of d
    itself and then rounded to f16. A block with NaN or infinity gets that as its scale.
    Source: ggml's q8_0 and q8_1 as its x86 code writes them.
    """
    pairs = target + 32 * n_blocks
    for block in range(n_blocks):
        largest = largest_magnitude(x + 128 * block, 32)
        total = store_block(target + 32 * block, x + 128 * block, step_inverse(largest))
        scale = largest / _LARGEST
        rounded = as_half(scale)
        store_f32(pairs + 8 * block, rounded)
        if kind == KIND_Q8_1:
            store_f32(pairs + 8 * block + 4, as_half(total * scale))
        else:
            store_f32(pairs + 8 * block + 4, total * rounded)


@helper
def quantize_row_k(target: int, x: int, n_blocks: int) -> None:
    """Write n_blocks * 32 bytes q, then for each eight blocks TAIL_BYTES.

    These hold the sum of each 16 of q, as i16, and d = max|x| / 127 as f32.
    Source: ggml's q8_K, whose d and q may have the other sign; their product is the same.
    """
    tail = target + 32 * n_blocks
    for first in range(0, n_blocks, 8):
        largest = largest_magnitude(x + 128 * first, 256)
        inverse, scale = step_inverse(largest), _ZERO
        if largest != _ZERO:
            scale = _ONE / inverse
        factor = splat(inverse)
        for i in range(32 * first, 32 * first + 256, LANES):
            store_rounded(target + i, fmul(load_f32v(x + 4 * i), factor))
        store_sums_of_16(tail, target + 32 * first)
        store_f32(tail + SCALE_AT, scale)
        tail += TAIL_BYTES


@helper
def _rounded(kind: int, value: Vector) -> Vector:
    if kind == KIND_F16:
        return round_to_half(value)
    if kind == KIND_BF16:
        return round_to_brain(value)
    return value


@helper
def _round_row(kind: int, target: int, x: int, k: int) -> None:
    """Write k floats rounded to what f16 or bf16 can hold, or as they are."""
    for i in range(0, k - LANES + 1, LANES):
        store_f32v(target + 4 * i, _rounded(kind, load_f32v(x + 4 * i)))
    rest = k % LANES
    if rest:
        i = 4 * (k - rest)
        store_f32_part(target + i, _rounded(kind, load_f32_part(x + i, rest)), rest)


@helper
def quantize_column(kind: int, target: int, x: int, k: int) -> None:
    """Write k elements as they meet weights: KIND_Q8_0, KIND_Q8_1 or KIND_Q8_K, or floats.

    Floats are rounded to KIND_F16 or KIND_BF16 but stay f32, or copied for KIND_F32.
    """
    if kind == KIND_Q8_K:
        quantize_row_k(target, x, k // 32)
    elif kind == KIND_Q8_0 or kind == KIND_Q8_1:
        quantize_row(kind, target, x, k // 32)
    else:
        _round_row(kind, target, x, k)


@kernel
def quantize(p: int, ith: int, nth: int) -> int:
    """Prepare every row of src1, f32 without gaps inside a row, to SHARED, row after row.

    Parameters: how, as `quantize_column` takes it, and bytes of a column.
    """
    k, n1, n2 = ne(p, SRC1, 0), ne(p, SRC1, 1), ne(p, SRC1, 2)
    target, kind, column_bytes = load_i64(p + SHARED), param(p, 0), param(p, 1)
    first, end = share(n_rows(p, SRC1), ith, nth)
    for row in range(first, end):
        x = row_at(p, SRC1, row % n1, row // n1 % n2, row // (n1 * n2))
        quantize_column(kind, target + row * column_bytes, x, k)
    return 0
