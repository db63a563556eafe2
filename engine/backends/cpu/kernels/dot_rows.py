"""A few rows of weights times a few columns, as the rows are stored; one kernel a type.

    (w, group stride, row stride, block stride, rows, x, x stride, columns, elements of a row, out)

writes out[c][r] = row r of w . column c in f32, a column of out LANES floats apart. Where a row
lies is told at layout.GROUP_ROWS. For f32, f16 and bf16 x is f32; for blocks a column is as
kernels/quantize.py writes it. Floats are added up as ggml's x86 code does: four vectors of sums,
what does not fill them in f64; ggml-cpu/vec.cpp.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from engine.backends.cpu.codegen import LANES
from engine.backends.cpu.jit import helper, kernel, template
from engine.backends.cpu.layout import GROUP_ROWS
from engine.backends.cpu.row_tiles import (
    ROW_TILE,
    row_pair_iq4_nl,
    row_pair_mxfp4,
    row_pair_q4_0,
    row_pair_q4_1,
    row_pair_q5_0,
    row_pair_q5_1,
    row_pair_q8_0,
    row_tile_iq4_nl,
    row_tile_mxfp4,
    row_tile_q4_0,
    row_tile_q4_1,
    row_tile_q5_0,
    row_tile_q5_1,
    row_tile_q8_0,
    row_tiles_iq4_nl,
    row_tiles_mxfp4,
    row_tiles_q4_0,
    row_tiles_q4_1,
    row_tiles_q5_0,
    row_tiles_q5_1,
    row_tiles_q8_0,
)
from engine.backends.cpu.simd import (
    Vector,
    fadd,
    fma,
    fmul,
    load_bf16_part,
    load_bf16v,
    load_f16_part,
    load_f16v,
    load_f32_part,
    load_f32v,
    splat,
    store_f32,
    sum_lanes,
    sum_lanes_wide,
    wide,
)
from engine.backends.cpu.super_tiles import (
    row_pair_iq4_xs,
    row_pair_q2_k,
    row_pair_q3_k,
    row_pair_q4_k,
    row_pair_q5_k,
    row_pair_q6_k,
    row_tile_iq4_xs,
    row_tile_q2_k,
    row_tile_q3_k,
    row_tile_q4_k,
    row_tile_q5_k,
    row_tile_q6_k,
    row_tiles_iq4_xs,
    row_tiles_q2_k,
    row_tiles_q3_k,
    row_tiles_q4_k,
    row_tiles_q5_k,
    row_tiles_q6_k,
)

_ZERO = np.float32(0.0)
_Load = Callable[..., Vector]


@helper
def row_of(w: int, group: int, row: int, r: int) -> int:
    """Address of row r."""
    return w + r // GROUP_ROWS * group + r % GROUP_ROWS * row


@template
def _dot(load: _Load, load_part: _Load, size: int, w: int, x: int, n: int) -> np.float32:
    """Dot product of n numbers of `size` bytes, as the loads give them, and f32."""
    a, b, c, d = splat(_ZERO), splat(_ZERO), splat(_ZERO), splat(_ZERO)
    i = 0
    while i + 4 * LANES <= n:
        y, z = w + size * i, x + 4 * i
        a = fma(load(y), load_f32v(z), a)
        b = fma(load(y + size * LANES), load_f32v(z + 4 * LANES), b)
        c = fma(load(y + 2 * size * LANES), load_f32v(z + 8 * LANES), c)
        d = fma(load(y + 3 * size * LANES), load_f32v(z + 12 * LANES), d)
        i += 4 * LANES
    total = sum_lanes(fadd(fadd(a, c), fadd(b, d)))
    if i == n:
        return total
    rest = wide(splat(_ZERO))
    while i < n:
        count = min(LANES, n - i)
        part = load_part(w + size * i, count)
        rest = fadd(rest, wide(fmul(part, load_f32_part(x + 4 * i, count))))
        i += LANES
    return np.float32(np.float64(total) + sum_lanes_wide(rest))


@helper
def dot_f32(w: int, x: int, n: int) -> np.float32:
    """Dot product of f32 and f32, n elements."""
    return _dot(load_f32v, load_f32_part, 4, w, x, n)


@template
def _dot_floats(
    load: _Load,
    load_part: _Load,
    size: int,
    w: int,
    row: int,
    rows: int,
    x: int,
    step: int,
    columns: int,
    k: int,
    y: int,
) -> int:
    """Rows of numbers, which are never interleaved."""
    for r in range(rows):
        place = w + r * row
        for c in range(columns):
            value = _dot(load, load_part, size, place, x + c * step, k)
            store_f32(y + 4 * (LANES * c + r), value)
    return 0


@template
def _dot_blocks(
    one: Callable[..., None],
    two: Callable[..., None],
    few: Callable[..., None],
    w: int,
    group: int,
    row: int,
    block: int,
    rows: int,
    x: int,
    step: int,
    columns: int,
    k: int,
    y: int,
) -> int:
    """Rows of blocks, by the tile of one column, of two or of a few."""
    for r in range(0, rows, ROW_TILE):
        place, count = w + r // GROUP_ROWS * group, min(ROW_TILE, rows - r)
        if columns == 1:
            one(place, row, block, count, x, step, columns, k // 32, y + 4 * r)
        elif columns == 2:
            two(place, row, block, count, x, step, columns, k // 32, y + 4 * r)
        else:
            few(place, row, block, count, x, step, columns, k // 32, y + 4 * r)
    return 0


@kernel
def f32_dot(
    w: int, _1: int, row: int, _2: int, n: int, x: int, step: int, m: int, k: int, y: int
) -> int:
    """Rows of f32."""
    return _dot_floats(load_f32v, load_f32_part, 4, w, row, n, x, step, m, k, y)


@kernel
def f16_dot(
    w: int, _1: int, row: int, _2: int, n: int, x: int, step: int, m: int, k: int, y: int
) -> int:
    """Rows of f16."""
    return _dot_floats(load_f16v, load_f16_part, 2, w, row, n, x, step, m, k, y)


@kernel
def bf16_dot(
    w: int, _1: int, row: int, _2: int, n: int, x: int, step: int, m: int, k: int, y: int
) -> int:
    """Rows of bf16."""
    return _dot_floats(load_bf16v, load_bf16_part, 2, w, row, n, x, step, m, k, y)


@kernel
def q4_0_dot(
    w: int, group: int, row: int, block: int, n: int, x: int, step: int, m: int, k: int, y: int
) -> int:
    """Rows of q4_0."""
    one, two, few = row_tile_q4_0, row_pair_q4_0, row_tiles_q4_0
    return _dot_blocks(one, two, few, w, group, row, block, n, x, step, m, k, y)


@kernel
def q4_1_dot(
    w: int, group: int, row: int, block: int, n: int, x: int, step: int, m: int, k: int, y: int
) -> int:
    """Rows of q4_1."""
    one, two, few = row_tile_q4_1, row_pair_q4_1, row_tiles_q4_1
    return _dot_blocks(one, two, few, w, group, row, block, n, x, step, m, k, y)


@kernel
def q5_0_dot(
    w: int, group: int, row: int, block: int, n: int, x: int, step: int, m: int, k: int, y: int
) -> int:
    """Rows of q5_0."""
    one, two, few = row_tile_q5_0, row_pair_q5_0, row_tiles_q5_0
    return _dot_blocks(one, two, few, w, group, row, block, n, x, step, m, k, y)


@kernel
def q5_1_dot(
    w: int, group: int, row: int, block: int, n: int, x: int, step: int, m: int, k: int, y: int
) -> int:
    """Rows of q5_1."""
    one, two, few = row_tile_q5_1, row_pair_q5_1, row_tiles_q5_1
    return _dot_blocks(one, two, few, w, group, row, block, n, x, step, m, k, y)


@kernel
def q8_0_dot(
    w: int, group: int, row: int, block: int, n: int, x: int, step: int, m: int, k: int, y: int
) -> int:
    """Rows of q8_0."""
    one, two, few = row_tile_q8_0, row_pair_q8_0, row_tiles_q8_0
    return _dot_blocks(one, two, few, w, group, row, block, n, x, step, m, k, y)


@kernel
def mxfp4_dot(
    w: int, group: int, row: int, block: int, n: int, x: int, step: int, m: int, k: int, y: int
) -> int:
    """Rows of mxfp4."""
    one, two, few = row_tile_mxfp4, row_pair_mxfp4, row_tiles_mxfp4
    return _dot_blocks(one, two, few, w, group, row, block, n, x, step, m, k, y)


@kernel
def iq4_nl_dot(
    w: int, group: int, row: int, block: int, n: int, x: int, step: int, m: int, k: int, y: int
) -> int:
    """Rows of iq4_nl."""
    one, two, few = row_tile_iq4_nl, row_pair_iq4_nl, row_tiles_iq4_nl
    return _dot_blocks(one, two, few, w, group, row, block, n, x, step, m, k, y)


@kernel
def q2_k_dot(
    w: int, group: int, row: int, block: int, n: int, x: int, step: int, m: int, k: int, y: int
) -> int:
    """Rows of q2_K."""
    one, two, few = row_tile_q2_k, row_pair_q2_k, row_tiles_q2_k
    return _dot_blocks(one, two, few, w, group, row, block, n, x, step, m, k, y)


@kernel
def q3_k_dot(
    w: int, group: int, row: int, block: int, n: int, x: int, step: int, m: int, k: int, y: int
) -> int:
    """Rows of q3_K."""
    one, two, few = row_tile_q3_k, row_pair_q3_k, row_tiles_q3_k
    return _dot_blocks(one, two, few, w, group, row, block, n, x, step, m, k, y)


@kernel
def q4_k_dot(
    w: int, group: int, row: int, block: int, n: int, x: int, step: int, m: int, k: int, y: int
) -> int:
    """Rows of q4_K."""
    one, two, few = row_tile_q4_k, row_pair_q4_k, row_tiles_q4_k
    return _dot_blocks(one, two, few, w, group, row, block, n, x, step, m, k, y)


@kernel
def q5_k_dot(
    w: int, group: int, row: int, block: int, n: int, x: int, step: int, m: int, k: int, y: int
) -> int:
    """Rows of q5_K."""
    one, two, few = row_tile_q5_k, row_pair_q5_k, row_tiles_q5_k
    return _dot_blocks(one, two, few, w, group, row, block, n, x, step, m, k, y)


@kernel
def q6_k_dot(
    w: int, group: int, row: int, block: int, n: int, x: int, step: int, m: int, k: int, y: int
) -> int:
    """Rows of q6_K."""
    one, two, few = row_tile_q6_k, row_pair_q6_k, row_tiles_q6_k
    return _dot_blocks(one, two, few, w, group, row, block, n, x, step, m, k, y)


@kernel
def iq4_xs_dot(
    w: int, group: int, row: int, block: int, n: int, x: int, step: int, m: int, k: int, y: int
) -> int:
    """Rows of iq4_xs."""
    one, two, few = row_tile_iq4_xs, row_pair_iq4_xs, row_tiles_iq4_xs
    return _dot_blocks(one, two, few, w, group, row, block, n, x, step, m, k, y)
