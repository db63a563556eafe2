"""LANES rows to an interleaved panel of tiles.py, for batches; one kernel a type.

    blocks:  (panel, room, w, group stride, row stride, block stride, rows, blocks of 32)
    floats:  (panel, w, row stride, rows, first element, end)

`room` holds LANES * 32 bytes. Where a row of blocks lies is told at layout.GROUP_ROWS. Rows that do
not exist become zeros. Kernels of blocks give back which tile reads the panel: BY_BLOCK, or for
super-blocks how many elements share a scale.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numba import types

from engine.backends.cpu.codegen import BYTE_BIAS, LANES
from engine.backends.cpu.jit import helper, kernel, template
from engine.backends.cpu.kernels.convert_iq import scale_iq4_xs
from engine.backends.cpu.kernels.convert_k import (
    scale_and_min,
    scale_q3_k,
    weights_q2_k,
    weights_q3_k,
    weights_q4_k,
    weights_q5_k,
    weights_q6_k,
)
from engine.backends.cpu.kernels.dot_rows import row_of
from engine.backends.cpu.simd import (
    I8X32,
    Vector,
    bias_bytes,
    e2m1_bytes,
    fifth_bits,
    join_bytes,
    load_f16,
    load_f32,
    load_i8,
    load_i8x16,
    load_i8x32,
    load_u8,
    load_u32,
    nibbles,
    nonlinear_bytes,
    piece,
    store_f32,
    store_i8x32,
    store_i16,
    store_i64,
)
from engine.backends.cpu.tiles import (
    BLOCK_STRIDE,
    BLOCKS,
    LOWS_AT,
    OFFSET_AT,
    SCALES_AT,
    SUPER_STRIDE,
    store_halfs_transposed,
    store_transposed,
)

if TYPE_CHECKING:
    from collections.abc import Callable

BY_BLOCK = 0
"""The panel is `byte_tile`'s."""

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
_FOUR_TOO_LARGE, _32_TOO_LARGE = np.float32(-4.0), np.float32(-32.0)
_BIAS = np.float32(-BYTE_BIAS)


@helper
def _interleave(panel: int, room: int, n_rows: int) -> None:
    """32 bytes of each row, in words of four."""
    for r in range(n_rows, LANES):
        for i in range(0, 32, 8):
            store_i64(room + 32 * r + i, 0)
    for i in range(0, LANES, 8):
        store_transposed(room + 32 * i, 32, panel + 4 * i, 4 * LANES)


# --- blocks of 32 -------------------------------------------------------------------------------


@template
def _unpack(
    put: Callable[[int, int, int], None],
    panel: int,
    room: int,
    w: int,
    group: int,
    row: int,
    block: int,
    rows: int,
    n_blocks: int,
) -> int:
    """Let `put` write the bytes of each block, and what scale * sum and the sum of x count.

    It takes where the bytes and the two numbers go, and where the block lies.
    """
    for i in range(n_blocks):
        target = panel + i * BLOCK_STRIDE
        numbers = target + 32 * LANES
        for r in range(rows):
            put(room + 32 * r, numbers + 4 * r, row_of(w, group, row, r) + i * block)
        for r in range(rows, LANES):
            _put_numbers(numbers + 4 * r, _ZERO, _ZERO)
        _interleave(target, room, rows)
    return BY_BLOCK


@helper
def _put_numbers(numbers: int, scale: np.float32, offset: np.float32) -> None:
    store_f32(numbers, scale)
    store_f32(numbers + 4 * LANES, offset)


@piece(types.void, 3)
def _put_q4_0(target: int, numbers: int, place: int) -> None:
    d = load_f16(place)
    store_i8x32(target, nibbles(load_i8x16(place + 2)))
    _put_numbers(numbers, d, _EIGHT_TOO_LARGE * d)


@piece(types.void, 3)
def _put_q4_1(target: int, numbers: int, place: int) -> None:
    store_i8x32(target, nibbles(load_i8x16(place + 4)))
    _put_numbers(numbers, load_f16(place), load_f16(place + 2))


@piece(types.void, 3)
def _put_q5_0(target: int, numbers: int, place: int) -> None:
    d = load_f16(place)
    q = join_bytes(nibbles(load_i8x16(place + 6)), fifth_bits(load_u32(place + 2)))
    store_i8x32(target, q)
    _put_numbers(numbers, d, _SIXTEEN_TOO_LARGE * d)


@piece(types.void, 3)
def _put_q5_1(target: int, numbers: int, place: int) -> None:
    q = join_bytes(nibbles(load_i8x16(place + 8)), fifth_bits(load_u32(place + 4)))
    store_i8x32(target, q)
    _put_numbers(numbers, load_f16(place), load_f16(place + 2))


@piece(types.void, 3)
def _put_q8_0(target: int, numbers: int, place: int) -> None:
    d = load_f16(place)
    store_i8x32(target, bias_bytes(load_i8x32(place + 2)))
    _put_numbers(numbers, d, _BIAS * d)


@piece(types.void, 3)
def _put_mxfp4(target: int, numbers: int, place: int) -> None:
    d = np.float32(math.ldexp(1.0, load_u8(place) - 128))
    store_i8x32(target, e2m1_bytes(nibbles(load_i8x16(place + 1))))
    _put_numbers(numbers, d, _BIAS * d)


@piece(types.void, 3)
def _put_iq4_nl(target: int, numbers: int, place: int) -> None:
    d = load_f16(place)
    store_i8x32(target, nonlinear_bytes(nibbles(load_i8x16(place + 2))))
    _put_numbers(numbers, d, _BIAS * d)


@kernel
def q4_0_unpack(
    panel: int, room: int, w: int, group: int, row: int, block: int, rows: int, n: int
) -> int:
    """Rows of q4_0."""
    return _unpack(_put_q4_0, panel, room, w, group, row, block, rows, n)


@kernel
def q4_1_unpack(
    panel: int, room: int, w: int, group: int, row: int, block: int, rows: int, n: int
) -> int:
    """Rows of q4_1."""
    return _unpack(_put_q4_1, panel, room, w, group, row, block, rows, n)


@kernel
def q5_0_unpack(
    panel: int, room: int, w: int, group: int, row: int, block: int, rows: int, n: int
) -> int:
    """Rows of q5_0."""
    return _unpack(_put_q5_0, panel, room, w, group, row, block, rows, n)


@kernel
def q5_1_unpack(
    panel: int, room: int, w: int, group: int, row: int, block: int, rows: int, n: int
) -> int:
    """Rows of q5_1."""
    return _unpack(_put_q5_1, panel, room, w, group, row, block, rows, n)


@kernel
def q8_0_unpack(
    panel: int, room: int, w: int, group: int, row: int, block: int, rows: int, n: int
) -> int:
    """Rows of q8_0."""
    return _unpack(_put_q8_0, panel, room, w, group, row, block, rows, n)


@kernel
def mxfp4_unpack(
    panel: int, room: int, w: int, group: int, row: int, block: int, rows: int, n: int
) -> int:
    """Rows of mxfp4."""
    return _unpack(_put_mxfp4, panel, room, w, group, row, block, rows, n)


@kernel
def iq4_nl_unpack(
    panel: int, room: int, w: int, group: int, row: int, block: int, rows: int, n: int
) -> int:
    """Rows of iq4_nl."""
    return _unpack(_put_iq4_nl, panel, room, w, group, row, block, rows, n)


# --- super-blocks -------------------------------------------------------------------------------


@template
def _unpack_super(
    weights: Callable[[int, int], Vector],
    put_scale: Callable[[int, int, int], None],
    n_scales: int,
    panel: int,
    room: int,
    w: int,
    group: int,
    row: int,
    block: int,
    rows: int,
    n_blocks: int,
) -> int:
    """Let `weights` give the bytes of a block, and `put_scale` write its scales and minima.

    The latter takes where numbers of the row go, where the super-block lies, and which scale; scale
    0 comes with the factor of the minima.
    """
    for i in range(n_blocks // BLOCKS):
        target = panel + i * SUPER_STRIDE
        for r in range(rows):
            place = row_of(w, group, row, r) + i * block
            for j in range(n_scales):
                put_scale(target + 4 * r, place, j)
        for r in range(rows, LANES):
            for j in range(n_scales):
                _put_scale(target + 4 * r, j, _ZERO)
            for j in range(BLOCKS):
                _put_low(target + 4 * r, 2 * j, 0)
                _put_low(target + 4 * r, 2 * j + 1, 0)
            store_f32(target + 4 * r + OFFSET_AT, _ZERO)
        for j in range(BLOCKS):
            for r in range(rows):
                place = row_of(w, group, row, r) + i * block
                store_i8x32(room + 32 * r, weights(place, j))
            _interleave(target + 32 * LANES * j, room, rows)
    return 256 // n_scales


@helper
def _put_scale(numbers: int, j: int, scale: np.float32) -> None:
    store_f32(numbers + SCALES_AT + 4 * LANES * j, scale)


@helper
def _put_low(numbers: int, j: int, low: int) -> None:
    """What the j-th sum of 16 counts, times the factor at OFFSET_AT."""
    store_i16(numbers + LOWS_AT + 4 * LANES * (j // 2) + 2 * (j % 2), low)


@piece(types.void, 3)
def _put_q2_k(numbers: int, place: int, j: int) -> None:
    packed = load_u8(place + j)
    _put_scale(numbers, j, load_f16(place + 80) * np.float32(packed & 15))
    _put_low(numbers, j, packed >> 4)
    if j == 0:
        store_f32(numbers + OFFSET_AT, -load_f16(place + 82))


@piece(types.void, 3)
def _put_q3_k(numbers: int, place: int, j: int) -> None:
    d, scale = load_f16(place + 108), scale_q3_k(place + 96, j)
    _put_scale(numbers, j, d * np.float32(scale))
    _put_low(numbers, j, scale)
    if j == 0:
        store_f32(numbers + OFFSET_AT, _FOUR_TOO_LARGE * d)


@piece(types.void, 3)
def _put_q6_k(numbers: int, place: int, j: int) -> None:
    d, scale = load_f16(place + 208), load_i8(place + 192 + j)
    _put_scale(numbers, j, d * np.float32(scale))
    _put_low(numbers, j, scale)
    if j == 0:
        store_f32(numbers + OFFSET_AT, _32_TOO_LARGE * d)


@piece(types.void, 3)
def _put_q4_k(numbers: int, place: int, j: int) -> None:
    """Of q5_K too."""
    scale, least = scale_and_min(place + 4, j)
    _put_scale(numbers, j, load_f16(place) * np.float32(scale))
    _put_low(numbers, 2 * j, least)
    _put_low(numbers, 2 * j + 1, least)
    if j == 0:
        store_f32(numbers + OFFSET_AT, -load_f16(place + 2))


@piece(types.void, 3)
def _put_iq4_xs(numbers: int, place: int, j: int) -> None:
    d, scale = load_f16(place), scale_iq4_xs(place, j)
    _put_scale(numbers, j, d * np.float32(scale))
    _put_low(numbers, 2 * j, scale)
    _put_low(numbers, 2 * j + 1, scale)
    if j == 0:
        store_f32(numbers + OFFSET_AT, _BIAS * d)


@piece(I8X32, 2)
def _weights_iq4_xs(place: int, j: int) -> Vector:
    return nonlinear_bytes(nibbles(load_i8x16(place + 8 + 16 * j)))


@kernel
def q2_k_unpack(
    panel: int, room: int, w: int, group: int, row: int, block: int, rows: int, n: int
) -> int:
    """Rows of q2_K."""
    weights, put = weights_q2_k, _put_q2_k
    return _unpack_super(weights, put, 16, panel, room, w, group, row, block, rows, n)


@kernel
def q3_k_unpack(
    panel: int, room: int, w: int, group: int, row: int, block: int, rows: int, n: int
) -> int:
    """Rows of q3_K."""
    weights, put = weights_q3_k, _put_q3_k
    return _unpack_super(weights, put, 16, panel, room, w, group, row, block, rows, n)


@kernel
def q4_k_unpack(
    panel: int, room: int, w: int, group: int, row: int, block: int, rows: int, n: int
) -> int:
    """Rows of q4_K."""
    weights, put = weights_q4_k, _put_q4_k
    return _unpack_super(weights, put, 8, panel, room, w, group, row, block, rows, n)


@kernel
def q5_k_unpack(
    panel: int, room: int, w: int, group: int, row: int, block: int, rows: int, n: int
) -> int:
    """Rows of q5_K."""
    weights, put = weights_q5_k, _put_q4_k
    return _unpack_super(weights, put, 8, panel, room, w, group, row, block, rows, n)


@kernel
def q6_k_unpack(
    panel: int, room: int, w: int, group: int, row: int, block: int, rows: int, n: int
) -> int:
    """Rows of q6_K."""
    weights, put = weights_q6_k, _put_q6_k
    return _unpack_super(weights, put, 16, panel, room, w, group, row, block, rows, n)


@kernel
def iq4_xs_unpack(
    panel: int, room: int, w: int, group: int, row: int, block: int, rows: int, n: int
) -> int:
    """Rows of iq4_xs."""
    weights, put = _weights_iq4_xs, _put_iq4_xs
    return _unpack_super(weights, put, 8, panel, room, w, group, row, block, rows, n)
