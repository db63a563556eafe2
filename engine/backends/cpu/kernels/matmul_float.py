"""MUL_MAT with f32 or f16 on the left: one column at a time, or tiles over an unpacked panel."""

from __future__ import annotations

import numpy as np

from engine.backends.cpu.codegen import LANES
from engine.backends.cpu.jit import helper, kernel
from engine.backends.cpu.kernels.common import nb, ne, own_scratch, param, row_at, share
from engine.backends.cpu.kernels.matmul_quant import store_tile
from engine.backends.cpu.layout import DST, KIND_F16, SRC0, SRC1
from engine.backends.cpu.simd import (
    fadd,
    fma,
    load_f16,
    load_f16_part,
    load_f16v,
    load_f32,
    load_f32_part,
    load_f32v,
    splat,
    store_f32,
    store_f32v,
    sum_lanes,
)
from engine.backends.cpu.tiles import (
    FLOAT_COLUMNS,
    float_tile,
    store_halfs_transposed,
    store_transposed,
)

_ZERO = np.float32(0.0)
TILE_FROM_COLUMNS = 4


@helper
def dot_f32(w: int, x: int, n: int) -> np.float32:
    """Dot product of f32 and f32, n elements."""
    even, odd = splat(_ZERO), splat(_ZERO)
    i = 0
    while i + 2 * LANES <= n:
        even = fma(load_f32v(w + 4 * i), load_f32v(x + 4 * i), even)
        i += LANES
        odd = fma(load_f32v(w + 4 * i), load_f32v(x + 4 * i), odd)
        i += LANES
    while i < n:
        count = min(LANES, n - i)
        part = load_f32_part(w + 4 * i, count)
        even = fma(part, load_f32_part(x + 4 * i, count), even)
        i += LANES
    return sum_lanes(fadd(even, odd))


@helper
def dot_f16(w: int, x: int, n: int) -> np.float32:
    """Dot product of f16 and f32, n elements."""
    even, odd = splat(_ZERO), splat(_ZERO)
    i = 0
    while i + 2 * LANES <= n:
        even = fma(load_f16v(w + 2 * i), load_f32v(x + 4 * i), even)
        i += LANES
        odd = fma(load_f16v(w + 2 * i), load_f32v(x + 4 * i), odd)
        i += LANES
    while i < n:
        count = min(LANES, n - i)
        part = load_f16_part(w + 2 * i, count)
        even = fma(part, load_f32_part(x + 4 * i, count), even)
        i += LANES
    return sum_lanes(fadd(even, odd))


@helper
def pack_panel(
    kind: int, panel: int, w: int, w_stride: int, n_rows: int, first: int, end: int
) -> None:
    """Write elements `first` to `end` of up to LANES rows to a panel, f32 [LANES, end - first]."""
    size = 4
    if kind == KIND_F16:
        size = 2
    whole = first
    if n_rows == LANES:
        whole = first + (end - first) // 8 * 8
        for k in range(first, whole, 8):
            for r in range(0, LANES, 8):
                target = panel + (k - first) * 4 * LANES + 4 * r
                source = w + r * w_stride + k * size
                if kind == KIND_F16:
                    store_halfs_transposed(source, w_stride, target, 4 * LANES)
                else:
                    store_transposed(source, w_stride, target, 4 * LANES)
    for k in range(whole, end):
        target = panel + (k - first) * 4 * LANES
        for r in range(n_rows):
            source = w + r * w_stride + k * size
            if kind == KIND_F16:
                store_f32(target + 4 * r, load_f16(source))
            else:
                store_f32(target + 4 * r, load_f32(source))
        for r in range(n_rows, LANES):
            store_f32(target + 4 * r, _ZERO)


PANEL_STEPS = 256
"""Elements of the inner dimension that one panel holds: 16 KiB with 16 lanes."""


@helper
def _rows_by_tile(p: int, y: int, w: int, i2: int, i3: int, n_rows: int, scratch: int) -> None:
    """Up to LANES rows: y[r, c] for every column c of src1."""
    kind, k_all, n_columns = param(p, 0), ne(p, SRC0, 0), ne(p, SRC1, 1)
    x_stride, y_stride = nb(p, SRC1, 1), nb(p, DST, 1)
    panel = scratch
    sums = panel + PANEL_STEPS * 4 * LANES
    for c in range(n_columns):
        store_f32v(sums + 4 * LANES * c, splat(_ZERO))
    for k in range(0, k_all, PANEL_STEPS):
        end = min(k + PANEL_STEPS, k_all)
        pack_panel(kind, panel, w, nb(p, SRC0, 1), n_rows, k, end)
        for c in range(0, n_columns, FLOAT_COLUMNS):
            count = min(FLOAT_COLUMNS, n_columns - c)
            x = row_at(p, SRC1, c, i2, i3) + 4 * k
            target = sums + 4 * LANES * c
            float_tile(panel, 4 * LANES, x, x_stride, count, end - k, target, 4 * LANES)
    store_tile(y, y_stride, sums, n_rows, n_columns)


@kernel
def mul_mat_float(p: int, ith: int, nth: int) -> int:
    """Give src0 (f32, f16) [k, n] times src1 f32 [k, t]; rows may have any stride."""
    kind, k_all = param(p, 0), ne(p, SRC0, 0)
    n_columns, n2, n3 = ne(p, SRC1, 1), ne(p, SRC1, 2), ne(p, SRC1, 3)
    repeat2, repeat3 = n2 // ne(p, SRC0, 2), n3 // ne(p, SRC0, 3)
    n, w_stride = ne(p, SRC0, 1), nb(p, SRC0, 1)
    first, end = share((n + LANES - 1) // LANES, ith, nth)
    first, end = first * LANES, min(n, end * LANES)
    for i in range(n2 * n3):
        i2, i3 = i % n2, i // n2
        w, y = row_at(p, SRC0, 0, i2 // repeat2, i3 // repeat3), row_at(p, DST, 0, i2, i3)
        if n_columns >= TILE_FROM_COLUMNS:
            for r in range(first, end, LANES):
                count = min(LANES, end - r)
                rows = w + r * w_stride
                _rows_by_tile(p, y + 4 * r, rows, i2, i3, count, own_scratch(p, ith))
            continue
        for c in range(n_columns):
            x, target = row_at(p, SRC1, c, i2, i3), y + c * nb(p, DST, 1)
            for r in range(first, end):
                if kind == KIND_F16:
                    store_f32(target + 4 * r, dot_f16(w + r * w_stride, x, k_all))
                else:
                    store_f32(target + 4 * r, dot_f32(w + r * w_stride, x, k_all))
    return 0
