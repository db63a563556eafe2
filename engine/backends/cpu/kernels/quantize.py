"""Activations quantised to bytes, the first row of a product with quantised weights."""

from __future__ import annotations

import numpy as np

from engine.backends.cpu.codegen import LANES
from engine.backends.cpu.jit import helper, kernel
from engine.backends.cpu.kernels.common import n_rows, ne, param, row_at, share
from engine.backends.cpu.layout import KIND_Q8_1, KIND_Q8_K, SHARED, SRC1
from engine.backends.cpu.simd import (
    absolute,
    as_half,
    fadd,
    fmul,
    larger_or_nan,
    load_f32v,
    load_i64,
    max_lanes_or_nan,
    round_even,
    splat,
    store_f32,
    store_rounded,
    sum_lanes,
)

_ZERO = np.float32(0.0)
_ONE = np.float32(1.0)
_LARGEST = np.float32(127.0)


@helper
def _largest(x: int, n_elems: int) -> np.float32:
    """The largest magnitude of `n_elems` floats; NaN if one of them is."""
    top = splat(_ZERO)
    for i in range(0, n_elems, LANES):
        top = larger_or_nan(absolute(load_f32v(x + 4 * i)), top)
    return max_lanes_or_nan(top)


@helper
def _inverse(largest: np.float32) -> np.float32:
    """What takes `largest` to 127; 0 for 0."""
    inverse = _ZERO
    if largest != _ZERO:
        inverse = _LARGEST / largest
    return inverse


@helper
def _store_block(target: int, x: int, inverse: np.float32) -> np.float32:
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
        largest = _largest(x + 128 * block, 32)
        total = _store_block(target + 32 * block, x + 128 * block, _inverse(largest))
        scale = largest / _LARGEST
        rounded = as_half(scale)
        store_f32(pairs + 8 * block, rounded)
        if kind == KIND_Q8_1:
            store_f32(pairs + 8 * block + 4, as_half(total * scale))
        else:
            store_f32(pairs + 8 * block + 4, total * rounded)


@helper
def quantize_row_k(target: int, x: int, n_blocks: int) -> None:
    """Write what `quantize_row` does, with one d for eight blocks, which stays a f32.

    Source: ggml's q8_K, whose d and q have the other sign; their product is the same.
    """
    pairs = target + 32 * n_blocks
    for first in range(0, n_blocks, 8):
        inverse, scale = _inverse(_largest(x + 128 * first, 256)), _ZERO
        if inverse != _ZERO:
            scale = _ONE / inverse
        for block in range(first, first + 8):
            total = _store_block(target + 32 * block, x + 128 * block, inverse)
            store_f32(pairs + 8 * block, scale)
            store_f32(pairs + 8 * block + 4, total * scale)


@kernel
def quantize(p: int, ith: int, nth: int) -> int:
    """Quantise every row of src1, f32 without gaps inside a row, to SHARED, row after row.

    The parameter says how: KIND_Q8_0, KIND_Q8_1 or KIND_Q8_K. A column of k elements takes k bytes
    and a pair for each 32 of them.
    """
    n_blocks, n1, n2 = ne(p, SRC1, 0) // 32, ne(p, SRC1, 1), ne(p, SRC1, 2)
    target, kind = load_i64(p + SHARED), param(p, 0)
    first, end = share(n_rows(p, SRC1), ith, nth)
    for row in range(first, end):
        x = row_at(p, SRC1, row % n1, row // n1 % n2, row // (n1 * n2))
        y = target + row * n_blocks * 40
        if kind == KIND_Q8_K:
            quantize_row_k(y, x, n_blocks)
        else:
            quantize_row(kind, y, x, n_blocks)
    return 0
