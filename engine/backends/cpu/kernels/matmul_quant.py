"""MUL_MAT with quantised weights: one column at a time, or tiles over an unpacked panel.

q6_K always takes one column at a time: its scales change every 16 elements, a panel's every 32.
"""

from __future__ import annotations

import numpy as np

from engine.backends.cpu.codegen import BYTE_BIAS, LANES
from engine.backends.cpu.jit import helper, kernel
from engine.backends.cpu.kernels.common import nb, ne, own_scratch, param, row_at, share
from engine.backends.cpu.layout import DST, KIND_Q4_0, KIND_Q4_1, KIND_Q6_K, SHARED, SRC0, SRC1
from engine.backends.cpu.row_tiles import (
    ROW_TILE,
    row_tile_q4_0,
    row_tile_q4_1,
    row_tile_q6_k,
    row_tile_q8_0,
)
from engine.backends.cpu.simd import (
    bias_bytes,
    load_f16,
    load_f32v,
    load_i8x16,
    load_i8x32,
    load_i64,
    nibbles,
    store_f32,
    store_f32_part,
    store_f32v,
    store_i8x32,
    store_i64,
)
from engine.backends.cpu.tiles import (
    BYTE_COLUMNS,
    PANEL_BLOCK_BYTES,
    byte_tile,
    store_transposed,
)

_ZERO = np.float32(0.0)
_Q4_0_OFFSET = np.float32(-8.0)
_Q8_0_OFFSET = np.float32(-BYTE_BIAS)
TILE_FROM_COLUMNS = 4
"""From so many columns on, unpacking a panel costs less than it saves."""


@helper
def _rows_by_column(
    kind: int, y: int, w: int, w_stride: int, x: int, n_blocks: int, n_rows: int
) -> None:
    """One column: y[r] = row r of w . x."""
    for r in range(0, n_rows, ROW_TILE):
        rows, count, target = w + r * w_stride, min(ROW_TILE, n_rows - r), y + 4 * r
        if kind == KIND_Q4_0:
            row_tile_q4_0(rows, w_stride, count, x, n_blocks, target)
        elif kind == KIND_Q4_1:
            row_tile_q4_1(rows, w_stride, count, x, n_blocks, target)
        elif kind == KIND_Q6_K:
            row_tile_q6_k(rows, w_stride, count, x, n_blocks, target)
        else:
            row_tile_q8_0(rows, w_stride, count, x, n_blocks, target)


@helper
def _unpack_block(kind: int, panel: int, rows: int, w: int, w_stride: int, n_rows: int) -> None:
    """LANES blocks, one a row, to one block of the panel; `rows` is room for LANES * 32 bytes."""
    scales, offsets = panel + 32 * LANES, panel + 36 * LANES
    for r in range(n_rows):
        block = w + r * w_stride
        scale = load_f16(block)
        store_f32(scales + 4 * r, scale)
        if kind == KIND_Q4_0:
            store_i8x32(rows + 32 * r, nibbles(load_i8x16(block + 2)))
            store_f32(offsets + 4 * r, _Q4_0_OFFSET * scale)
        elif kind == KIND_Q4_1:
            store_i8x32(rows + 32 * r, nibbles(load_i8x16(block + 4)))
            store_f32(offsets + 4 * r, load_f16(block + 2))
        else:
            store_i8x32(rows + 32 * r, bias_bytes(load_i8x32(block + 2)))
            store_f32(offsets + 4 * r, _Q8_0_OFFSET * scale)
    for r in range(n_rows, LANES):
        store_f32(scales + 4 * r, _ZERO)
        store_f32(offsets + 4 * r, _ZERO)
        for i in range(0, 32, 8):
            store_i64(rows + 32 * r + i, 0)
    for i in range(0, LANES, 8):
        store_transposed(rows + 32 * i, 32, panel + 4 * i, 4 * LANES)


@helper
def store_tile(y: int, y_stride: int, sums: int, n_rows: int, n_columns: int) -> None:
    """Write the valid part of a tile [LANES, columns] to y."""
    for c in range(n_columns):
        value = load_f32v(sums + 4 * LANES * c)
        if n_rows == LANES:
            store_f32v(y + c * y_stride, value)
        else:
            store_f32_part(y + c * y_stride, value, n_rows)


@helper
def _rows_by_tile(p: int, y: int, w: int, x: int, n_blocks: int, n_rows: int, scratch: int) -> None:
    """Up to LANES rows: y[r, c] for every column c of src1."""
    kind, n_columns = param(p, 0), ne(p, SRC1, 1)
    rows = scratch
    sums = rows + 32 * LANES
    panel = sums + 4 * LANES * BYTE_COLUMNS
    block_bytes = nb(p, SRC0, 0)
    for block in range(n_blocks):
        target = panel + block * PANEL_BLOCK_BYTES
        _unpack_block(kind, target, rows, w + block * block_bytes, nb(p, SRC0, 1), n_rows)
    for c in range(0, n_columns, BYTE_COLUMNS):
        count = min(BYTE_COLUMNS, n_columns - c)
        byte_tile(panel, x + c * n_blocks * 40, n_blocks * 40, count, n_blocks, sums)
        store_tile(y + c * nb(p, DST, 1), nb(p, DST, 1), sums, n_rows, count)


@kernel
def mul_mat_quant(p: int, ith: int, nth: int) -> int:
    """Give src0 (q4_0, q4_1, q6_K, q8_0) [k, n] times src1 as quantised in SHARED, in f32."""
    kind, n_blocks, n_columns = param(p, 0), ne(p, SRC0, 0) // 32, ne(p, SRC1, 1)
    n2, n3 = ne(p, SRC1, 2), ne(p, SRC1, 3)
    repeat2, repeat3 = n2 // ne(p, SRC0, 2), n3 // ne(p, SRC0, 3)
    column_bytes, w_stride = n_blocks * 40, nb(p, SRC0, 1)
    # Shares are whole tiles, so that a panel is unpacked by one thread only.
    n = ne(p, SRC0, 1)
    first, end = share((n + LANES - 1) // LANES, ith, nth)
    first, end = first * LANES, min(n, end * LANES)
    for i in range(n2 * n3):
        i2, i3 = i % n2, i // n2
        x = load_i64(p + SHARED) + i * n_columns * column_bytes
        w, y = row_at(p, SRC0, 0, i2 // repeat2, i3 // repeat3), row_at(p, DST, 0, i2, i3)
        for r in range(first, end, LANES):
            count, rows, target = min(LANES, end - r), w + r * w_stride, y + 4 * r
            if n_columns >= TILE_FROM_COLUMNS and kind != KIND_Q6_K:
                _rows_by_tile(p, target, rows, x, n_blocks, count, own_scratch(p, ith))
                continue
            for c in range(n_columns):
                x_c, y_c = x + c * column_bytes, target + c * nb(p, DST, 1)
                _rows_by_column(kind, y_c, rows, w_stride, x_c, n_blocks, count)
    return 0
