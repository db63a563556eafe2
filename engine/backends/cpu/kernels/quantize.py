"""Activations quantised to bytes, the first row of a product with quantised weights."""

from __future__ import annotations

import numpy as np

from engine.backends.cpu.codegen import LANES
from engine.backends.cpu.jit import helper, kernel
from engine.backends.cpu.kernels.common import n_rows, ne, param, row_at, share
from engine.backends.cpu.layout import SHARED, SRC1
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
_LARGEST = np.float32(127.0)


@helper
def quantize_row(target: int, x: int, n_blocks: int, half_sums: int) -> None:
    """Write n_blocks * 32 bytes q, then for each block the pair d = max|x| / 127 and d * sum(q).

    q is rounded to nearest even, d to f16; the sum is that of the rounded d, or with `half_sums`
    of d itself and then rounded to f16. A block with NaN or infinity gets that as its scale.
    Source: ggml's q8_0 and, for `half_sums`, q8_1 as its x86 code writes them.
    """
    pairs = target + 32 * n_blocks
    for block in range(n_blocks):
        top = splat(_ZERO)
        for i in range(0, 32, LANES):
            top = larger_or_nan(absolute(load_f32v(x + 128 * block + 4 * i)), top)
        largest, inverse = max_lanes_or_nan(top), _ZERO
        if largest != _ZERO:
            inverse = _LARGEST / largest
        factor, total = splat(inverse), splat(_ZERO)
        for i in range(0, 32, LANES):
            value = fmul(load_f32v(x + 128 * block + 4 * i), factor)
            store_rounded(target + 32 * block + i, value)
            total = fadd(total, round_even(value))
        scale = largest / _LARGEST
        rounded = as_half(scale)
        store_f32(pairs + 8 * block, rounded)
        if half_sums:
            store_f32(pairs + 8 * block + 4, as_half(sum_lanes(total) * scale))
        else:
            store_f32(pairs + 8 * block + 4, sum_lanes(total) * rounded)


@kernel
def quantize(p: int, ith: int, nth: int) -> int:
    """Quantise every row of src1, f32 without gaps inside a row, to SHARED, row after row."""
    n_blocks, n1, n2 = ne(p, SRC1, 0) // 32, ne(p, SRC1, 1), ne(p, SRC1, 2)
    target, half_sums = load_i64(p + SHARED), param(p, 0)
    first, end = share(n_rows(p, SRC1), ith, nth)
    for row in range(first, end):
        x = row_at(p, SRC1, row % n1, row // n1 % n2, row // (n1 * n2))
        quantize_row(target + row * n_blocks * 40, x, n_blocks, half_sums)
    return 0
