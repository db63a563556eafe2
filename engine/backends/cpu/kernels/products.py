"""Some rows of weights times columns: the inside of MUL_MAT and MUL_MAT_ID.

    (row address, y, pairs, w, rows, x, column stride, columns, scratch)

At most LANES rows, or with one column any number. `y` is where the first column's result for the
first row goes; see `column_place` for the others.
What a type brings stands in parameters of the row, by address; see kernels/traits.py.
"""

from __future__ import annotations

import numpy as np

from engine.backends.cpu.codegen import LANES
from engine.backends.cpu.jit import helper, kernel
from engine.backends.cpu.kernels.common import nb, ne, param
from engine.backends.cpu.kernels.dot_rows import dot_f32, row_of
from engine.backends.cpu.kernels.unpack import BY_BLOCK
from engine.backends.cpu.layout import DST, SRC0
from engine.backends.cpu.row_tiles import COLUMN_TILE
from engine.backends.cpu.simd import (
    call3,
    call6,
    call8,
    call10,
    load_f32v,
    load_i64,
    splat,
    store_f32,
    store_f32_part,
    store_f32v,
)
from engine.backends.cpu.tiles import (
    BYTE_COLUMNS,
    FLOAT_COLUMNS,
    byte_tile,
    float_tile,
    super_tile_16,
    super_tile_32,
)

PRODUCT, DOT, PANEL, TO_FLOAT, BLOCK_ELEMS, GROUP, COLUMN_BYTES, PANEL_FROM = range(8)
"""Parameters: addresses of kernels, 0 for none; elements of a block; strides of rows and columns.

PANEL unpacks blocks or packs floats, those that TO_FLOAT made if it is there; it is used from
PANEL_FROM columns on. A column stride of 0 says that columns are src1 itself.
"""
PAIRS_AT, COLUMNS_AT = 8, 9
"""Only for MUL_MAT_ID: where in SHARED these lie; see kernels/experts.py."""

PANEL_STEPS = 256
"""Elements of the inner dimension that a panel of floats holds: 16 KiB with 16 lanes."""

_ZERO = np.float32(0.0)


@helper
def column_place(p: int, y: int, pairs: int, c: int) -> int:
    """Where the result of column c goes: a row further each, or the row that a pair names.

    A pair is token * n_used + slot, for dst [n, n_used, t].
    """
    if pairs == 0:
        return y + c * nb(p, DST, 1)
    pair, n_used = load_i64(pairs + 8 * c), ne(p, DST, 1)
    return y + pair % n_used * nb(p, DST, 1) + pair // n_used * nb(p, DST, 2)


@helper
def _store_tile(
    p: int, y: int, pairs: int, first: int, sums: int, n_rows: int, n_columns: int
) -> None:
    """Write the valid part of a tile [LANES, columns], columns from `first` on."""
    for c in range(n_columns):
        value, place = load_f32v(sums + 4 * LANES * c), column_place(p, y, pairs, first + c)
        if n_rows == LANES:
            store_f32v(place, value)
        else:
            store_f32_part(place, value, n_rows)


@helper
def _dot_columns(
    p: int, y: int, pairs: int, w: int, n_rows: int, x: int, x_stride: int, n_columns: int, own: int
) -> None:
    """A few columns after the other, weights read as they are stored."""
    row_stride, block_stride, k = nb(p, SRC0, 1), nb(p, SRC0, 0), ne(p, SRC0, 0)
    group, dot = param(p, GROUP), param(p, DOT)
    for c in range(0, n_columns, COLUMN_TILE):
        count, columns = min(COLUMN_TILE, n_columns - c), x + c * x_stride
        target = own
        if count == 1:
            target = column_place(p, y, pairs, c)
        call10(dot, w, group, row_stride, block_stride, n_rows, columns, x_stride, count, k, target)
        if count > 1:
            _store_tile(p, y, pairs, c, own, n_rows, count)


@kernel
def quant_product(
    p: int, y: int, pairs: int, w: int, n_rows: int, x: int, x_stride: int, n_columns: int, own: int
) -> int:
    """Blocks times quantised columns."""
    if n_columns < param(p, PANEL_FROM):
        _dot_columns(p, y, pairs, w, n_rows, x, x_stride, n_columns, own)
        return 0
    n_blocks, sums = ne(p, SRC0, 0) // 32, own + 32 * LANES
    panel = sums + 4 * LANES * BYTE_COLUMNS
    row_stride, block_stride = nb(p, SRC0, 1), nb(p, SRC0, 0)
    group = param(p, GROUP)
    unpack = param(p, PANEL)
    way = call8(unpack, panel, own, w, group, row_stride, block_stride, n_rows, n_blocks)
    for c in range(0, n_columns, BYTE_COLUMNS):
        count, columns = min(BYTE_COLUMNS, n_columns - c), x + c * x_stride
        if way == BY_BLOCK:
            byte_tile(panel, columns, x_stride, count, n_blocks, sums)
        elif way == 16:
            super_tile_16(panel, columns, x_stride, count, n_blocks, sums)
        else:
            super_tile_32(panel, columns, x_stride, count, n_blocks, sums)
        _store_tile(p, y, pairs, c, sums, n_rows, count)
    return 0


@helper
def _to_floats(p: int, room: int, w: int, k: int, n: int) -> None:
    """Write n elements of a row from element k on as f32, whole blocks.

    Such a row is never interleaved; see repack.py.
    """
    call3(param(p, TO_FLOAT), room, w + k // param(p, BLOCK_ELEMS) * nb(p, SRC0, 0), n)


@helper
def _pack_any(p: int, panel: int, room: int, w: int, n_rows: int, first: int, end: int) -> None:
    """A panel of floats, or of whatever becomes floats on the way."""
    group, row = param(p, GROUP), nb(p, SRC0, 1)
    if param(p, TO_FLOAT) == 0:
        call6(param(p, PANEL), panel, w, row, n_rows, first, end)
        return
    for r in range(n_rows):
        target = room + 4 * PANEL_STEPS * r
        _to_floats(p, target, row_of(w, group, row, r), first, end - first)
    call6(param(p, PANEL), panel, room, 4 * PANEL_STEPS, n_rows, 0, end - first)


@helper
def _dot_converted(
    p: int, y: int, pairs: int, w: int, n_rows: int, x: int, x_stride: int, n_columns: int, own: int
) -> None:
    """One row after the other, as floats."""
    k, group, row = ne(p, SRC0, 0), param(p, GROUP), nb(p, SRC0, 1)
    for r in range(n_rows):
        _to_floats(p, own, row_of(w, group, row, r), 0, k)
        for c in range(n_columns):
            value = dot_f32(own, x + c * x_stride, k)
            store_f32(column_place(p, y, pairs, c) + 4 * r, value)


@kernel
def float_product(
    p: int, y: int, pairs: int, w: int, n_rows: int, x: int, x_stride: int, n_columns: int, own: int
) -> int:
    """Weights of any type times columns of f32, products of floats.

    Scratch: sums [LANES, columns], panel [LANES, PANEL_STEPS], then room for rows as floats.
    """
    if n_columns < param(p, PANEL_FROM):
        if param(p, DOT) != 0:
            _dot_columns(p, y, pairs, w, n_rows, x, x_stride, n_columns, own)
        else:
            _dot_converted(p, y, pairs, w, n_rows, x, x_stride, n_columns, own)
        return 0
    k_all, panel = ne(p, SRC0, 0), own
    sums = panel + 4 * LANES * PANEL_STEPS
    room = sums + 4 * LANES * (n_columns + FLOAT_COLUMNS)
    for c in range(n_columns):
        store_f32v(sums + 4 * LANES * c, splat(_ZERO))
    for k in range(0, k_all, PANEL_STEPS):
        end = min(k + PANEL_STEPS, k_all)
        _pack_any(p, panel, room, w, n_rows, k, end)
        for c in range(0, n_columns, FLOAT_COLUMNS):
            count, target = min(FLOAT_COLUMNS, n_columns - c), sums + 4 * LANES * c
            column = x + c * x_stride + 4 * k
            float_tile(panel, 4 * LANES, column, x_stride, count, end - k, target, 4 * LANES)
    _store_tile(p, y, pairs, 0, sums, n_rows, n_columns)
    return 0
