"""A few rows of weights times a few columns, as the rows are stored; one kernel a type.

    (w, group stride, row stride, block stride, rows, x, x stride, columns, elements of a row, out)

writes out[c][r] = row r of w . column c in f32, a column of out LANES floats apart. Where a row
lies is told at layout.GROUP_ROWS. For f32, f16 and bf16 x is f32; for blocks a column is as
kernels/quantize.py writes it. Floats are added up as ggml's x86 code does: four vectors of sums,
what does not fill them in f64; ggml-cpu/vec.cpp.
"""

from __future__ import annotations

import numpy as np

from engine.backends.cpu.codegen import LANES
from engine.backends.cpu.jit import helper, kernel
from engine.backends.cpu.layout import GROUP_ROWS
from engine.backends.cpu.row_tiles import (
    ROW_TILE,
    row_tile_mxfp4,
    row_tile_q4_0,
    row_tile_q4_1,
    row_tile_q5_0,
    row_tile_q5_1,
    row_tile_q8_0,
    row_tiles_mxfp4,
    row_tiles_q4_0,
    row_tiles_q4_1,
    row_tiles_q5_0,
    row_tiles_q5_1,
    row_tiles_q8_0,
)
from engine.backends.cpu.simd import (
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
from engine.backends.cpu.super_tiles import row_tile_q4_k, row_tile_q5_k, row_tile_q6_k

_ZERO = np.float32(0.0)


@helper
def row_of(w: int, group: int, row: int, r: int) -> int:
    """Address of row r."""
    return w + r // GROUP_ROWS * group + r % GROUP_ROWS * row


@helper
def dot_f32(w: int, x: int, n: int) -> np.float32:
    """Dot product of f32 and f32, n elements."""
    a, b, c, d = splat(_ZERO), splat(_ZERO), splat(_ZERO), splat(_ZERO)
    i = 0
    while i + 4 * LANES <= n:
        y, z = w + 4 * i, x + 4 * i
        a = fma(load_f32v(y), load_f32v(z), a)
        b = fma(load_f32v(y + 4 * LANES), load_f32v(z + 4 * LANES), b)
        c = fma(load_f32v(y + 8 * LANES), load_f32v(z + 8 * LANES), c)
        d = fma(load_f32v(y + 12 * LANES), load_f32v(z + 12 * LANES), d)
        i += 4 * LANES
    total = sum_lanes(fadd(fadd(a, c), fadd(b, d)))
    if i == n:
        return total
    rest = wide(splat(_ZERO))
    while i < n:
        count = min(LANES, n - i)
        part = load_f32_part(w + 4 * i, count)
        rest = fadd(rest, wide(fmul(part, load_f32_part(x + 4 * i, count))))
        i += LANES
    return np.float32(np.float64(total) + sum_lanes_wide(rest))


@helper
def _dot_f16(w: int, x: int, n: int) -> np.float32:
    """Dot product of f16 and f32."""
    a, b, c, d = splat(_ZERO), splat(_ZERO), splat(_ZERO), splat(_ZERO)
    i = 0
    while i + 4 * LANES <= n:
        y, z = w + 2 * i, x + 4 * i
        a = fma(load_f16v(y), load_f32v(z), a)
        b = fma(load_f16v(y + 2 * LANES), load_f32v(z + 4 * LANES), b)
        c = fma(load_f16v(y + 4 * LANES), load_f32v(z + 8 * LANES), c)
        d = fma(load_f16v(y + 6 * LANES), load_f32v(z + 12 * LANES), d)
        i += 4 * LANES
    total = sum_lanes(fadd(fadd(a, c), fadd(b, d)))
    if i == n:
        return total
    rest = wide(splat(_ZERO))
    while i < n:
        count = min(LANES, n - i)
        part = load_f16_part(w + 2 * i, count)
        rest = fadd(rest, wide(fmul(part, load_f32_part(x + 4 * i, count))))
        i += LANES
    return np.float32(np.float64(total) + sum_lanes_wide(rest))


@helper
def _dot_bf16(w: int, x: int, n: int) -> np.float32:
    """Dot product of bf16 and f32."""
    a, b, c, d = splat(_ZERO), splat(_ZERO), splat(_ZERO), splat(_ZERO)
    i = 0
    while i + 4 * LANES <= n:
        y, z = w + 2 * i, x + 4 * i
        a = fma(load_bf16v(y), load_f32v(z), a)
        b = fma(load_bf16v(y + 2 * LANES), load_f32v(z + 4 * LANES), b)
        c = fma(load_bf16v(y + 4 * LANES), load_f32v(z + 8 * LANES), c)
        d = fma(load_bf16v(y + 6 * LANES), load_f32v(z + 12 * LANES), d)
        i += 4 * LANES
    total = sum_lanes(fadd(fadd(a, c), fadd(b, d)))
    if i == n:
        return total
    rest = wide(splat(_ZERO))
    while i < n:
        count = min(LANES, n - i)
        part = load_bf16_part(w + 2 * i, count)
        rest = fadd(rest, wide(fmul(part, load_f32_part(x + 4 * i, count))))
        i += LANES
    return np.float32(np.float64(total) + sum_lanes_wide(rest))


@kernel
def f32_dot(
    w: int, _1: int, row: int, _2: int, rows: int, x: int, step: int, columns: int, k: int, y: int
) -> int:
    """Rows of f32, which are never interleaved."""
    for r in range(rows):
        place = w + r * row
        for c in range(columns):
            store_f32(y + 4 * (LANES * c + r), dot_f32(place, x + c * step, k))
    return 0


@kernel
def f16_dot(
    w: int, _1: int, row: int, _2: int, rows: int, x: int, step: int, columns: int, k: int, y: int
) -> int:
    """Rows of f16, which are never interleaved."""
    for r in range(rows):
        place = w + r * row
        for c in range(columns):
            store_f32(y + 4 * (LANES * c + r), _dot_f16(place, x + c * step, k))
    return 0


@kernel
def bf16_dot(
    w: int, _1: int, row: int, _2: int, rows: int, x: int, step: int, columns: int, k: int, y: int
) -> int:
    """Rows of bf16, which are never interleaved."""
    for r in range(rows):
        place = w + r * row
        for c in range(columns):
            store_f32(y + 4 * (LANES * c + r), _dot_bf16(place, x + c * step, k))
    return 0


@kernel
def q4_0_dot(
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
    """Rows of q4_0."""
    for r in range(0, rows, ROW_TILE):
        place, count = w + r // GROUP_ROWS * group, min(ROW_TILE, rows - r)
        if columns == 1:
            row_tile_q4_0(place, row, block, count, x, step, columns, k // 32, y + 4 * r)
        else:
            row_tiles_q4_0(place, row, block, count, x, step, columns, k // 32, y + 4 * r)
    return 0


@kernel
def q4_1_dot(
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
    """Rows of q4_1."""
    for r in range(0, rows, ROW_TILE):
        place, count = w + r // GROUP_ROWS * group, min(ROW_TILE, rows - r)
        if columns == 1:
            row_tile_q4_1(place, row, block, count, x, step, columns, k // 32, y + 4 * r)
        else:
            row_tiles_q4_1(place, row, block, count, x, step, columns, k // 32, y + 4 * r)
    return 0


@kernel
def q5_0_dot(
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
    """Rows of q5_0."""
    for r in range(0, rows, ROW_TILE):
        place, count = w + r // GROUP_ROWS * group, min(ROW_TILE, rows - r)
        if columns == 1:
            row_tile_q5_0(place, row, block, count, x, step, columns, k // 32, y + 4 * r)
        else:
            row_tiles_q5_0(place, row, block, count, x, step, columns, k // 32, y + 4 * r)
    return 0


@kernel
def q5_1_dot(
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
    """Rows of q5_1."""
    for r in range(0, rows, ROW_TILE):
        place, count = w + r // GROUP_ROWS * group, min(ROW_TILE, rows - r)
        if columns == 1:
            row_tile_q5_1(place, row, block, count, x, step, columns, k // 32, y + 4 * r)
        else:
            row_tiles_q5_1(place, row, block, count, x, step, columns, k // 32, y + 4 * r)
    return 0


@kernel
def q8_0_dot(
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
    """Rows of q8_0."""
    for r in range(0, rows, ROW_TILE):
        place, count = w + r // GROUP_ROWS * group, min(ROW_TILE, rows - r)
        if columns == 1:
            row_tile_q8_0(place, row, block, count, x, step, columns, k // 32, y + 4 * r)
        else:
            row_tiles_q8_0(place, row, block, count, x, step, columns, k // 32, y + 4 * r)
    return 0


@kernel
def mxfp4_dot(
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
    """Rows of mxfp4."""
    for r in range(0, rows, ROW_TILE):
        place, count = w + r // GROUP_ROWS * group, min(ROW_TILE, rows - r)
        if columns == 1:
            row_tile_mxfp4(place, row, block, count, x, step, columns, k // 32, y + 4 * r)
        else:
            row_tiles_mxfp4(place, row, block, count, x, step, columns, k // 32, y + 4 * r)
    return 0


@kernel
def q4_k_dot(
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
    """Rows of q4_K."""
    for r in range(0, rows, ROW_TILE):
        place, count = w + r // GROUP_ROWS * group, min(ROW_TILE, rows - r)
        for c in range(columns):
            target = y + 4 * (LANES * c + r)
            row_tile_q4_k(place, row, block, count, x + c * step, k // 32, target)
    return 0


@kernel
def q5_k_dot(
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
    """Rows of q5_K."""
    for r in range(0, rows, ROW_TILE):
        place, count = w + r // GROUP_ROWS * group, min(ROW_TILE, rows - r)
        for c in range(columns):
            target = y + 4 * (LANES * c + r)
            row_tile_q5_k(place, row, block, count, x + c * step, k // 32, target)
    return 0


@kernel
def q6_k_dot(
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
    """Rows of q6_K."""
    for r in range(0, rows, ROW_TILE):
        place, count = w + r // GROUP_ROWS * group, min(ROW_TILE, rows - r)
        for c in range(columns):
            target = y + 4 * (LANES * c + r)
            row_tile_q6_k(place, row, block, count, x + c * step, k // 32, target)
    return 0
