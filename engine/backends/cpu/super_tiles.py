"""Register tiles over stored rows of super-blocks of 256, for one column or a few.

As in row_tiles.py, and as ggml's x86 code to the last bit: sums of four products, each times the
scale of its block, are whole numbers and added up over a super-block in eight lanes; the lanes
become floats and are added, times both scales of the super-block, to eight sums of a row.
Source: ggml-cpu/arch/x86/quants.c.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass

from llvmlite import ir
from numba import types

from engine.backend.host_buffer import CACHE_LINE
from engine.backends.cpu.codegen import (
    BIASED_NONLINEAR,
    BYTE_BIAS,
    LANES,
    Emit,
    at,
    broadcast,
    constant,
    counting,
    dot,
    half_to_float,
    indices,
    load,
    look_up,
    multiply_add,
    prefetch,
    strided,
    sum_pairs,
    variable,
)
from engine.backends.cpu.row_tiles import (
    AHEAD,
    COLUMN_TILE,
    ROW_TILE,
    ROWS_AT_ONCE,
    store_sums,
    sum_of_lanes,
    tile_columns,
    tile_rows,
)
from engine.backends.cpu.simd import Operation, define
from engine.backends.cpu.tiles import BLOCK, BLOCKS, SCALE_AT, TAIL_BYTES

N_REGISTERS = ROW_TILE // ROWS_AT_ONCE
"""Registers that hold eight lanes of each row of a tile."""

ROWS_OF_MINS = LANES // 4
"""Rows whose minima are added up in a register, four lanes each."""

_I8, _I16, _I32, _I64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))
_FLOAT = ir.FloatType()
_SUM = ir.VectorType(_FLOAT, LANES)
_WORDS = ir.VectorType(_I32, LANES)
_BYTES = ir.VectorType(_I8, 4 * LANES)

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


def _super_tile(form: Form, n_columns: int) -> Emit:
    """out[c][r] = row r of super-blocks . column c; columns past their count repeat the last."""

    def emit(b: ir.IRBuilder, a: Values) -> None:
        w, row_stride, block_stride, n_rows, x, x_stride, count, n_blocks, out = a
        starts = [strided(b, w, row, row_stride) for row in tile_rows(b, n_rows)]
        columns = tile_columns(b, count, n_columns)
        xs = [strided(b, x, column, x_stride) for column in columns]
        tile = _SuperTile(b, form, n_columns)
        with counting(b, b.sdiv(n_blocks, _I64(BLOCKS))) as block:
            here = b.mul(block, block_stride)
            places = [b.add(start, here) for start in starts]
            for place in places:
                for line in range(0, form.n_bytes, CACHE_LINE):
                    prefetch(b, at(b, place, AHEAD + line))
            in_row = b.mul(block, _I64(BLOCK * BLOCKS))
            in_tail = b.add(b.mul(n_blocks, _I64(BLOCK)), b.mul(block, _I64(TAIL_BYTES)))
            tile.add(places, [b.add(x, in_row) for x in xs], [b.add(x, in_tail) for x in xs])
        for c in reversed(range(n_columns)):
            target = strided(b, out, columns[c], _I64(4 * LANES))
            store_sums(b, tile.totals(c), target, n_rows)

    return emit


class _SuperTile:
    """A tile while its code is written.

    A register holds the eight sums of ROWS_AT_ONCE rows with a column.
    """

    def __init__(self, b: ir.IRBuilder, form: Form, n_columns: int) -> None:
        self.b, self.form = b, form
        zero, n_lows = constant(_SUM, 0.0), ROW_TILE // ROWS_OF_MINS
        columns = range(n_columns)
        self.sums = [[variable(b, zero) for _ in range(N_REGISTERS)] for _ in columns]
        self.lows = [[variable(b, zero) for _ in range(n_lows)] for _ in columns]

    def add(self, places: Values, xs: Values, tails: Values) -> None:
        """Add a super-block of each row times that of each column."""
        b, form = self.b, self.form
        heads = form.scales(b, places)
        factors = self._factors(heads)
        start = constant(_SUM if form.is_wide else _WORDS, 0)
        parts = [[start] * N_REGISTERS for _ in xs]
        for j in range(BLOCKS):
            columns = [self._column(x, j) for x in xs]
            starts = [self._start(column) for column in columns]
            for i in range(N_REGISTERS):
                rows = places[ROWS_AT_ONCE * i : ROWS_AT_ONCE * (i + 1)]
                weights, factor = form.weights(b, rows, j), self._factor(factors, i, j)
                for c, column in enumerate(columns):
                    products = dot(b, starts[c], weights, column)
                    parts[c][i] = self._times(products, factor, parts[c][i])
        d = half_to_float(b, _numbers(b, places, form.d_at, _I16))
        for c, tail in enumerate(tails):
            scale = load(b, at(b, tail, SCALE_AT), _FLOAT)
            both = b.fmul(d, broadcast(b, scale, ROW_TILE))
            self._take_off(c, parts[c], heads, places, tail, scale)
            for i, total in enumerate(self.sums[c]):
                part = parts[c][i] if form.is_wide else b.sitofp(parts[c][i], _SUM)
                factor = _per_row(b, both, ROWS_AT_ONCE * i, 8)
                b.store(multiply_add(b, [factor, part, b.load(total)]), total)

    def totals(self, c: int) -> Values:
        """The finished sum of each row with column `c`."""
        b, totals = self.b, []
        for r in range(ROW_TILE):
            sums = b.load(self.sums[c][r // ROWS_AT_ONCE])
            total = sum_of_lanes(b, _slice(b, sums, 8 * (r % ROWS_AT_ONCE), 8))
            if self.form.low in (Low.MINS_OF_32, Low.MINS_OF_32_AS_ONE):
                lows = b.load(self.lows[c][r // ROWS_OF_MINS])
                n_lows = 4 if self.form.low is Low.MINS_OF_32 else 1
                low = sum_of_lanes(b, _slice(b, lows, 4 * (r % ROWS_OF_MINS), n_lows))
                total = b.fadd(total, low)
            totals.append(total)
        return totals

    def _column(self, x: ir.Value, j: int) -> ir.Value:
        """Block j of a column, once for each row of a register."""
        words = load(self.b, at(self.b, x, BLOCK * j), ir.VectorType(_I32, 8))
        return self.b.bitcast(_join(self.b, [words] * ROWS_AT_ONCE), _BYTES)

    def _start(self, column: ir.Value) -> ir.Value:
        """What sums of products begin with, lane by lane, since weights are too large."""
        b, zero, too_large = self.b, constant(_WORDS, 0), self.form.too_large
        if not too_large:
            return zero
        return b.sub(zero, dot(b, zero, constant(_BYTES, too_large), column))

    def _times(self, products: ir.Value, factor: ir.Value, part: ir.Value) -> ir.Value:
        """Add products times the scale of each lane's block."""
        b = self.b
        if self.form.is_wide:
            return multiply_add(b, [b.sitofp(products, _SUM), factor, part])
        shorts = ir.VectorType(_I16, 2 * LANES)
        pairs = [b.bitcast(value, shorts) for value in (products, factor)]
        return b.add(part, sum_pairs(b, *pairs))

    def _factors(self, heads: ir.Value) -> ir.Value:
        """Scales as i32 whose upper half is 0, or as floats."""
        b, n = self.b, heads.type.count
        if self.form.is_wide:
            return b.sitofp(heads, ir.VectorType(_FLOAT, n))
        return b.zext(b.sext(heads, ir.VectorType(_I16, n)), ir.VectorType(_I32, n))

    def _factor(self, factors: ir.Value, i: int, j: int) -> ir.Value:
        """The scales of block j of the rows of register i, in each of their lanes."""
        b, per_lane = self.b, self.form.n_scales // 8
        own = [per_lane * j + per_lane * lane // 8 for lane in range(8)]
        first = ROWS_AT_ONCE * i
        order = [16 * row + lane for row in range(first, first + ROWS_AT_ONCE) for lane in own]
        return b.shuffle_vector(factors, factors, indices(order))

    def _take_off(
        self,
        c: int,
        parts: Values,
        heads: ir.Value,
        places: Values,
        tail: ir.Value,
        scale: ir.Value,
    ) -> None:
        """Subtract what `Low` says from the parts, or from the sums of column `c`."""
        b, form = self.b, self.form
        if form.low is Low.NOTHING:
            return
        sums = load(b, tail, ir.VectorType(_I16, 16))
        if form.low is Low.SCALES:
            for i, low in enumerate(self._sums_of_16(heads, sums)):
                parts[i] = b.sub(parts[i], b.shl(low, constant(_WORDS, 5)))
            return
        dmin = half_to_float(b, _numbers(b, [at(b, place, 2) for place in places], form.d_at, _I16))
        factors = b.fmul(dmin, broadcast(b, b.fneg(scale), ROW_TILE))
        if form.low is Low.MINS:
            assert form.mins is not None
            lows, totals, n_lanes = self._sums_of_16(form.mins(b, places), sums), self.sums[c], 8
        else:
            lows, totals, n_lanes = self._sums_of_32(heads, sums), self.lows[c], 4
        for i, (low, total) in enumerate(zip(lows, totals, strict=True)):
            factor = _per_row(b, factors, LANES // n_lanes * i, n_lanes)
            value = multiply_add(b, [factor, b.sitofp(low, _SUM), b.load(total)])
            b.store(value, total)

    def _sums_of_16(self, heads: ir.Value, sums: ir.Value) -> Values:
        """Sixteen bytes of each row times sums of the column, two neighbours in a lane."""
        b = self.b
        columns = _join(b, [sums] * ROWS_AT_ONCE)
        shorts = b.sext(heads, ir.VectorType(_I16, heads.type.count))
        n = 16 * ROWS_AT_ONCE
        rows = [_slice(b, shorts, n * i, n) for i in range(N_REGISTERS)]
        return [sum_pairs(b, row, columns) for row in rows]

    def _sums_of_32(self, heads: ir.Value, sums: ir.Value) -> Values:
        """The upper eight bytes of each row times sums of 32, two neighbours in a lane."""
        b = self.b
        halves = [
            b.shuffle_vector(sums, sums, indices(list(range(first, 16, 2)))) for first in (0, 1)
        ]
        columns = _join(b, [b.add(*halves)] * ROWS_OF_MINS)
        lows = []
        for first in range(0, ROW_TILE, ROWS_OF_MINS):
            rows = range(first, first + ROWS_OF_MINS)
            order = [16 * row + lane for row in rows for lane in range(8, 16)]
            small = b.shuffle_vector(heads, heads, indices(order))
            low = sum_pairs(b, b.sext(small, columns.type), columns)
            if self.form.low is Low.MINS_OF_32_AS_ONE:
                for step in (2, 1):
                    low = b.add(low, _turned(b, low, step))
            lows.append(low)
        return lows


# --- pieces -------------------------------------------------------------------------------------


def _join(b: ir.IRBuilder, parts: Values) -> ir.Value:
    """Vectors one behind another, 1, 2 or 4 of them."""
    while len(parts) > 1:
        order = indices(list(range(2 * parts[0].type.count)))
        pairs = zip(parts[::2], parts[1::2], strict=True)
        parts = [b.shuffle_vector(left, right, order) for left, right in pairs]
    return parts[0]


def _slice(b: ir.IRBuilder, values: ir.Value, first: int, n: int) -> ir.Value:
    """`n` lanes from `first` on."""
    return b.shuffle_vector(values, values, indices(list(range(first, first + n))))


def _turned(b: ir.IRBuilder, values: ir.Value, step: int) -> ir.Value:
    """Lanes exchanged with those `step` further, within four."""
    order = [lane ^ step for lane in range(values.type.count)]
    return b.shuffle_vector(values, values, indices(order))


def _per_row(b: ir.IRBuilder, values: ir.Value, first: int, n_lanes: int) -> ir.Value:
    """A register in which each row, from `first` on, has its value in `n_lanes` lanes."""
    order = [first + lane // n_lanes for lane in range(LANES)]
    return b.shuffle_vector(values, values, indices(order))


def _numbers(b: ir.IRBuilder, places: Values, offset: int, kind: ir.Type) -> ir.Value:
    """One number of each row."""
    value = ir.Constant(ir.VectorType(kind, len(places)), ir.Undefined)
    for i, place in enumerate(places):
        value = b.insert_element(value, load(b, at(b, place, offset), kind), _I32(i))
    return value


def _rows(b: ir.IRBuilder, places: Values, offset: int, n_bytes: int) -> ir.Value:
    """So many bytes of each row, as words."""
    part = ir.VectorType(_I32, n_bytes // 4)
    return _join(b, [load(b, at(b, place, offset), part) for place in places])


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
    words = _join(b, [half for words in packed for half in (words, words)])
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
    words = _join(
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
    low, high = _numbers(b, places, 4, _I32), _numbers(b, places, 2, _I16)
    n_rows, kind = len(places), ir.VectorType(_I32, 16 * len(places))
    each = indices([row for row in range(n_rows) for _ in range(16)])

    def bits(words: ir.Value, per_scale: int, mask: int) -> ir.Value:
        downs = ir.Constant(kind, [per_scale * (i % 8) for i in range(kind.count)])
        moved = b.lshr(b.shuffle_vector(words, words, each), downs)
        return b.and_(moved, constant(kind, mask))

    wide = b.zext(high, ir.VectorType(_I32, n_rows))
    scales = b.or_(bits(low, 4, 15), b.shl(bits(wide, 2, 3), constant(kind, 4)))
    return b.trunc(b.sub(scales, constant(kind, 32)), ir.VectorType(_I8, kind.count))


def _of_form(form: Form) -> tuple[Operation, ...]:
    """Tiles of one column, of two and of COLUMN_TILE."""
    params = [types.int64] * 9
    return tuple(define(_super_tile(form, n), types.void, *params) for n in (1, 2, COLUMN_TILE))


row_tile_q2_k, row_pair_q2_k, row_tiles_q2_k = _of_form(
    Form(84, 80, _weights_q2_k, _halves_q2_k(0), low=Low.MINS, mins=_halves_q2_k(4))
)
"""As those of q4_0 in row_tiles.py."""
row_tile_q3_k, row_pair_q3_k, row_tiles_q3_k = _of_form(
    Form(110, 108, _weights_q3_k, _scales_q3_k, too_large=4)
)
row_tile_q4_k, row_pair_q4_k, row_tiles_q4_k = _of_form(
    Form(144, 0, _nibbles_at(16), _six_bits, n_scales=8, low=Low.MINS_OF_32)
)
row_tile_q5_k, row_pair_q5_k, row_tiles_q5_k = _of_form(
    Form(176, 0, _weights_q5_k, _six_bits, n_scales=8, low=Low.MINS_OF_32_AS_ONE)
)
row_tile_q6_k, row_pair_q6_k, row_tiles_q6_k = _of_form(
    Form(210, 208, _weights_q6_k, _scales_q6_k, low=Low.SCALES)
)
row_tile_iq4_xs, row_pair_iq4_xs, row_tiles_iq4_xs = _of_form(
    Form(136, 0, _weights_iq4_xs, _scales_iq4_xs, n_scales=8, too_large=BYTE_BIAS, is_wide=True)
)
