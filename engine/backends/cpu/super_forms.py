"""What the bytes of super-blocks of 256 mean, type by type: code that takes weights and scales out.

Source: quants_k.py and quants_iq.py have the layouts.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass

from llvmlite import ir

from engine.backends.cpu.codegen import (
    BIASED_NONLINEAR,
    BYTE_BIAS,
    at,
    constant,
    indices,
    load,
    look_up,
)
from engine.backends.cpu.row_tiles import ROWS_AT_ONCE
from engine.backends.cpu.tiles import BLOCK

_I8, _I16, _I32 = (ir.IntType(bits) for bits in (8, 16, 32))

Values = list[ir.Value]
Blocks = Callable[[ir.IRBuilder, Values, int], ir.Value]
Heads = Callable[[ir.IRBuilder, Values], ir.Value]


class Low(enum.Enum):
    """What is taken off the products of a super-block, by way of the column's sums of 16."""

    NOTHING = enum.auto()
    SCALES = enum.auto()
    """32 times scale times sum: the weights are stored 32 too large."""
    MINS = enum.auto()
    """Minimum times sum, sixteen of them, added to the same sums."""
    MINS_OF_32 = enum.auto()
    """Minimum times sum, eight of them, in four sums of their own."""
    MINS_OF_32_AS_ONE = enum.auto()
    """The same, in one sum of its own."""


@dataclass(frozen=True, slots=True)
class Form:
    """What the bytes of a super-block mean.

    `weights(b, places, j)`: bytes of block j of ROWS_AT_ONCE rows, too large by `too_large`.
    `scales(b, places)`: sixteen bytes of each row of a tile; if there are but eight scales they
    come first, minima after them. `mins`: the same, where both are sixteen.
    """

    n_bytes: int
    d_at: int
    weights: Blocks
    scales: Heads
    n_scales: int = 16
    too_large: int = 0
    low: Low = Low.NOTHING
    mins: Heads | None = None
    is_wide: bool = False
    """Sums of four products may not fit 16 bits; those of a super-block fit a float's 24."""


# --- pieces -------------------------------------------------------------------------------------


def join(b: ir.IRBuilder, parts: Values) -> ir.Value:
    """Vectors one behind another, 1, 2 or 4 of them."""
    while len(parts) > 1:
        order = indices(list(range(2 * parts[0].type.count)))
        pairs = zip(parts[::2], parts[1::2], strict=True)
        parts = [b.shuffle_vector(left, right, order) for left, right in pairs]
    return parts[0]


def numbers(b: ir.IRBuilder, places: Values, offset: int, kind: ir.Type) -> ir.Value:
    """One number of each row."""
    value = ir.Constant(ir.VectorType(kind, len(places)), ir.Undefined)
    for i, place in enumerate(places):
        value = b.insert_element(value, load(b, at(b, place, offset), kind), _I32(i))
    return value


def _rows(b: ir.IRBuilder, places: Values, offset: int, n_bytes: int) -> ir.Value:
    """So many bytes of each row, as words."""
    part = ir.VectorType(_I32, n_bytes // 4)
    return join(b, [load(b, at(b, place, offset), part) for place in places])


def _moved(b: ir.IRBuilder, words: ir.Value, down: int, mask: int) -> ir.Value:
    """Bytes moved down by some bits, up if less than 0; the mask drops what comes in."""
    shift = constant(words.type, abs(down))
    moved = b.lshr(words, shift) if down > 0 else b.shl(words, shift) if down else words
    return b.and_(moved, constant(words.type, mask * 0x01010101))


def _pick(
    b: ir.IRBuilder, words: ir.Value, lanes: list[int], downs: list[int], masks: list[int]
) -> ir.Value:
    """Of each row's four words those named, moved down by their own bits and masked."""
    n_rows = words.type.count // 4
    order = [4 * row + lane for row in range(n_rows) for lane in lanes]
    moved = b.lshr(
        b.shuffle_vector(words, words, indices(order)), ir.Constant(words.type, downs * n_rows)
    )
    return b.and_(moved, ir.Constant(words.type, [m * 0x01010101 for m in masks] * n_rows))


def _as_bytes(b: ir.IRBuilder, words: ir.Value) -> ir.Value:
    return b.bitcast(words, ir.VectorType(_I8, 4 * words.type.count))


# --- what types say -----------------------------------------------------------------------------


def _nibbles_at(start: int) -> Blocks:
    """Four bits a weight: two blocks to 32 bytes."""

    def weights(b: ir.IRBuilder, places: Values, j: int) -> ir.Value:
        words = _rows(b, places, start + BLOCK * (j // 2), BLOCK)
        return _as_bytes(b, _moved(b, words, 4 * (j % 2), 15))

    return weights


def _crumbs(b: ir.IRBuilder, places: Values, start: int, j: int) -> ir.Value:
    """Two bits a weight: four blocks to 32 bytes."""
    words = _rows(b, places, start + BLOCK * (j // 4), BLOCK)
    return _moved(b, words, 2 * (j % 4), 3)


def _weights_q2_k(b: ir.IRBuilder, places: Values, j: int) -> ir.Value:
    return _as_bytes(b, _crumbs(b, places, 16, j))


def _weights_q3_k(b: ir.IRBuilder, places: Values, j: int) -> ir.Value:
    """Two bits, and a third one of the bytes in front."""
    third = _moved(b, _rows(b, places, 0, BLOCK), j - 2, 4)
    return _as_bytes(b, b.or_(_crumbs(b, places, 32, j), third))


def _weights_q5_k(b: ir.IRBuilder, places: Values, j: int) -> ir.Value:
    """Four bits, and a fifth one of the bytes at 16."""
    words = _rows(b, places, 48 + BLOCK * (j // 2), BLOCK)
    fifth = _moved(b, _rows(b, places, 16, BLOCK), j - 4, 16)
    return _as_bytes(b, b.or_(_moved(b, words, 4 * (j % 2), 15), fifth))


def _weights_q6_k(b: ir.IRBuilder, places: Values, j: int) -> ir.Value:
    """Four low bits, and two of the bytes at 128."""
    half, quarter = j // 4, j % 4
    low = _rows(b, places, 64 * half + BLOCK * (quarter % 2), BLOCK)
    high = _rows(b, places, 128 + BLOCK * half, BLOCK)
    low, high = _moved(b, low, 4 * (quarter // 2), 15), _moved(b, high, 2 * quarter - 4, 48)
    return _as_bytes(b, b.or_(low, high))


def _weights_iq4_xs(b: ir.IRBuilder, places: Values, j: int) -> ir.Value:
    """Numbers of four bits: 16 low halves, then the high ones of the same bytes."""
    part = ir.VectorType(_I32, 4)
    packed = [load(b, at(b, place, 8 + 16 * j), part) for place in places]
    words = join(b, [half for words in packed for half in (words, words)])
    shifts = ir.Constant(words.type, ([0] * 4 + [4] * 4) * ROWS_AT_ONCE)
    codes = b.and_(b.lshr(words, shifts), constant(words.type, 0x0F0F0F0F))
    return look_up(b, BIASED_NONLINEAR, _as_bytes(b, codes))


def _six_bits(b: ir.IRBuilder, places: Values) -> ir.Value:
    """Eight scales and eight minima from twelve bytes at 4; see quants_k.py."""
    words = _rows(b, places, 4, 16)
    low = _pick(b, words, [0, 2, 1, 2], [0, 0, 0, 4], [63, 15, 63, 15])
    high = _pick(b, words, [0, 0, 1, 1], [6] * 4, [0, 3, 0, 3])
    return _as_bytes(b, b.or_(low, b.shl(high, constant(high.type, 4))))


def _scales_q3_k(b: ir.IRBuilder, places: Values) -> ir.Value:
    """Sixteen scales from twelve bytes at 96, read with the two before them."""
    size = ir.VectorType(_I8, 16)
    parts = [load(b, at(b, place, 94), size) for place in places]
    order = indices([*range(2, 16), 0, 1])
    words = join(
        b, [b.bitcast(b.shuffle_vector(p, p, order), ir.VectorType(_I32, 4)) for p in parts]
    )
    low = _pick(b, words, [0, 1, 0, 1], [0, 0, 4, 4], [15] * 4)
    high = _pick(b, words, [2] * 4, [0, 2, 4, 6], [3] * 4)
    scales = _as_bytes(b, b.or_(low, b.shl(high, constant(high.type, 4))))
    return b.sub(scales, constant(scales.type, 32))


def _halves_q2_k(down: int) -> Heads:
    """Sixteen nibbles: the low ones are scales, the high ones minima."""
    return lambda b, places: _as_bytes(b, _moved(b, _rows(b, places, 0, 16), down, 15))


def _scales_q6_k(b: ir.IRBuilder, places: Values) -> ir.Value:
    return _as_bytes(b, _rows(b, places, 192, 16))


def _scales_iq4_xs(b: ir.IRBuilder, places: Values) -> ir.Value:
    """Eight scales: four bits each of the word at 4, two of the half word at 2."""
    low, high = numbers(b, places, 4, _I32), numbers(b, places, 2, _I16)
    n_rows, kind = len(places), ir.VectorType(_I32, 16 * len(places))
    each = indices([row for row in range(n_rows) for _ in range(16)])

    def bits(words: ir.Value, per_scale: int, mask: int) -> ir.Value:
        downs = ir.Constant(kind, [per_scale * (i % 8) for i in range(kind.count)])
        moved = b.lshr(b.shuffle_vector(words, words, each), downs)
        return b.and_(moved, constant(kind, mask))

    wide = b.zext(high, ir.VectorType(_I32, n_rows))
    scales = b.or_(bits(low, 4, 15), b.shl(bits(wide, 2, 3), constant(kind, 4)))
    return b.trunc(b.sub(scales, constant(kind, 32)), ir.VectorType(_I8, kind.count))


Q2_K = Form(84, 80, _weights_q2_k, _halves_q2_k(0), low=Low.MINS, mins=_halves_q2_k(4))
Q3_K = Form(110, 108, _weights_q3_k, _scales_q3_k, too_large=4)
Q4_K = Form(144, 0, _nibbles_at(16), _six_bits, n_scales=8, low=Low.MINS_OF_32)
Q5_K = Form(176, 0, _weights_q5_k, _six_bits, n_scales=8, low=Low.MINS_OF_32_AS_ONE)
Q6_K = Form(210, 208, _weights_q6_k, _scales_q6_k, low=Low.SCALES)
IQ4_XS = Form(
    136, 0, _weights_iq4_xs, _scales_iq4_xs, n_scales=8, too_large=BYTE_BIAS, is_wide=True
)
