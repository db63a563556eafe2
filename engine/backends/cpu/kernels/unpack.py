"""LANES rows to the interleaved panel of tiles.py, for batches; one kernel a type.

    blocks:  (panel, room, w, group stride, row stride, block stride, rows, blocks of 32)
    floats:  (panel, w, row stride, rows, first element, end)

`room` holds LANES * 32 bytes. Where a row of blocks lies is told at layout.GROUP_ROWS. Rows that do
not exist become zeros.
"""

from __future__ import annotations

import math

import numpy as np

from engine.backends.cpu.codegen import BYTE_BIAS, LANES
from engine.backends.cpu.jit import helper, kernel
from engine.backends.cpu.kernels.convert_k import scale_and_min
from engine.backends.cpu.kernels.dot_rows import row_of
from engine.backends.cpu.simd import (
    Vector,
    bias_bytes,
    fifth_bits,
    fp4_bytes,
    join_bytes,
    load_f16,
    load_f32,
    load_i8x16,
    load_i8x32,
    load_u8,
    load_u32,
    nibbles,
    raised,
    shifted,
    store_f32,
    store_i8x32,
    store_i64,
)
from engine.backends.cpu.tiles import (
    PANEL_BLOCK_BYTES,
    store_halfs_transposed,
    store_transposed,
)

_ZERO = np.float32(0.0)


@helper
def _first_single(first: int, end: int, n_rows: int) -> int:
    """Where elements begin that are packed one by one, not eight rows and columns at a time."""
    if n_rows < LANES:
        return first
    return first + (end - first) // 8 * 8


@helper
def _zero_rows(panel: int, n_rows: int) -> None:
    for r in range(n_rows, LANES):
        store_f32(panel + 4 * r, _ZERO)


@kernel
def f32_pack(panel: int, w: int, w_stride: int, n_rows: int, first: int, end: int) -> int:
    """Elements `first` to `end` of rows of f32."""
    whole = _first_single(first, end, n_rows)
    for k in range(first, whole, 8):
        for r in range(0, LANES, 8):
            target = panel + (k - first) * 4 * LANES + 4 * r
            store_transposed(w + r * w_stride + 4 * k, w_stride, target, 4 * LANES)
    for k in range(whole, end):
        target = panel + (k - first) * 4 * LANES
        for r in range(n_rows):
            store_f32(target + 4 * r, load_f32(w + r * w_stride + 4 * k))
        _zero_rows(target, n_rows)
    return 0


@kernel
def f16_pack(panel: int, w: int, w_stride: int, n_rows: int, first: int, end: int) -> int:
    """Elements `first` to `end` of rows of f16."""
    whole = _first_single(first, end, n_rows)
    for k in range(first, whole, 8):
        for r in range(0, LANES, 8):
            target = panel + (k - first) * 4 * LANES + 4 * r
            store_halfs_transposed(w + r * w_stride + 2 * k, w_stride, target, 4 * LANES)
    for k in range(whole, end):
        target = panel + (k - first) * 4 * LANES
        for r in range(n_rows):
            store_f32(target + 4 * r, load_f16(w + r * w_stride + 2 * k))
        _zero_rows(target, n_rows)
    return 0


_EIGHT_TOO_LARGE, _SIXTEEN_TOO_LARGE = np.float32(-8.0), np.float32(-16.0)
_TWELVE_TOO_LARGE = np.float32(-12.0)
_BIAS = np.float32(-BYTE_BIAS)


@helper
def _put(
    panel: int, room: int, r: int, weights: Vector, scale: np.float32, offset: np.float32
) -> None:
    """One block of row r: bytes, and what scale * sum and the sum of x count."""
    store_i8x32(room + 32 * r, weights)
    store_f32(panel + 32 * LANES + 4 * r, scale)
    store_f32(panel + 36 * LANES + 4 * r, offset)


@helper
def _interleave(panel: int, room: int, n_rows: int) -> None:
    for r in range(n_rows, LANES):
        store_f32(panel + 32 * LANES + 4 * r, _ZERO)
        store_f32(panel + 36 * LANES + 4 * r, _ZERO)
        for i in range(0, 32, 8):
            store_i64(room + 32 * r + i, 0)
    for i in range(0, LANES, 8):
        store_transposed(room + 32 * i, 32, panel + 4 * i, 4 * LANES)


@kernel
def q4_0_unpack(
    panel: int, room: int, w: int, group: int, row: int, block: int, rows: int, n_blocks: int
) -> int:
    """Nibbles, 8 too large."""
    for i in range(n_blocks):
        target = panel + i * PANEL_BLOCK_BYTES
        for r in range(rows):
            place = row_of(w, group, row, r) + i * block
            d = load_f16(place)
            _put(target, room, r, nibbles(load_i8x16(place + 2)), d, _EIGHT_TOO_LARGE * d)
        _interleave(target, room, rows)
    return 0


@kernel
def q4_1_unpack(
    panel: int, room: int, w: int, group: int, row: int, block: int, rows: int, n_blocks: int
) -> int:
    """Nibbles and a minimum."""
    for i in range(n_blocks):
        target = panel + i * PANEL_BLOCK_BYTES
        for r in range(rows):
            place = row_of(w, group, row, r) + i * block
            d, m = load_f16(place), load_f16(place + 2)
            _put(target, room, r, nibbles(load_i8x16(place + 4)), d, m)
        _interleave(target, room, rows)
    return 0


@kernel
def q5_0_unpack(
    panel: int, room: int, w: int, group: int, row: int, block: int, rows: int, n_blocks: int
) -> int:
    """Five bits, 16 too large."""
    for i in range(n_blocks):
        target = panel + i * PANEL_BLOCK_BYTES
        for r in range(rows):
            place = row_of(w, group, row, r) + i * block
            d = load_f16(place)
            q = join_bytes(nibbles(load_i8x16(place + 6)), fifth_bits(load_u32(place + 2)))
            _put(target, room, r, q, d, _SIXTEEN_TOO_LARGE * d)
        _interleave(target, room, rows)
    return 0


@kernel
def q5_1_unpack(
    panel: int, room: int, w: int, group: int, row: int, block: int, rows: int, n_blocks: int
) -> int:
    """Five bits and a minimum."""
    for i in range(n_blocks):
        target = panel + i * PANEL_BLOCK_BYTES
        for r in range(rows):
            place = row_of(w, group, row, r) + i * block
            d, m = load_f16(place), load_f16(place + 2)
            q = join_bytes(nibbles(load_i8x16(place + 8)), fifth_bits(load_u32(place + 4)))
            _put(target, room, r, q, d, m)
        _interleave(target, room, rows)
    return 0


@kernel
def q8_0_unpack(
    panel: int, room: int, w: int, group: int, row: int, block: int, rows: int, n_blocks: int
) -> int:
    """Bytes, BYTE_BIAS too large."""
    for i in range(n_blocks):
        target = panel + i * PANEL_BLOCK_BYTES
        for r in range(rows):
            place = row_of(w, group, row, r) + i * block
            d = load_f16(place)
            _put(target, room, r, bias_bytes(load_i8x32(place + 2)), d, _BIAS * d)
        _interleave(target, room, rows)
    return 0


@kernel
def mxfp4_unpack(
    panel: int, room: int, w: int, group: int, row: int, block: int, rows: int, n_blocks: int
) -> int:
    """Doubled values of fp4, 12 too large, and a power of two."""
    for i in range(n_blocks):
        target = panel + i * PANEL_BLOCK_BYTES
        for r in range(rows):
            place = row_of(w, group, row, r) + i * block
            d = np.float32(math.ldexp(1.0, load_u8(place) - 128))
            q = fp4_bytes(nibbles(load_i8x16(place + 1)))
            _put(target, room, r, q, d, _TWELVE_TOO_LARGE * d)
        _interleave(target, room, rows)
    return 0


@kernel
def q4_k_unpack(
    panel: int, room: int, w: int, group: int, row: int, block: int, rows: int, n_blocks: int
) -> int:
    """Nibbles with a scale and a minimum of 6 bits; block j of eight in a super-block."""
    for i in range(n_blocks):
        target, j = panel + i * PANEL_BLOCK_BYTES, i % 8
        for r in range(rows):
            place = row_of(w, group, row, r) + i // 8 * block
            scale, least = scale_and_min(place + 4, j)
            step = load_f16(place) * np.float32(scale)
            low = -load_f16(place + 2) * np.float32(least)
            q = shifted(load_i8x32(place + 16 + 32 * (j // 2)), 4 * (j % 2), 15)
            _put(target, room, r, q, step, low)
        _interleave(target, room, rows)
    return 0


@kernel
def q5_k_unpack(
    panel: int, room: int, w: int, group: int, row: int, block: int, rows: int, n_blocks: int
) -> int:
    """The same with a fifth bit."""
    for i in range(n_blocks):
        target, j = panel + i * PANEL_BLOCK_BYTES, i % 8
        for r in range(rows):
            place = row_of(w, group, row, r) + i // 8 * block
            scale, least = scale_and_min(place + 4, j)
            step = load_f16(place) * np.float32(scale)
            low = -load_f16(place + 2) * np.float32(least)
            q = shifted(load_i8x32(place + 48 + 32 * (j // 2)), 4 * (j % 2), 15)
            fifth = raised(shifted(load_i8x32(place + 16), j, 1), 4)
            _put(target, room, r, join_bytes(q, fifth), step, low)
        _interleave(target, room, rows)
    return 0
