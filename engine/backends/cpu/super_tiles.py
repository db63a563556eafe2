"""Register tiles over stored rows of super-blocks of 256, for one column or a few.

As in row_tiles.py, and as ggml's x86 code to the last bit: sums of four products, each times the
scale of its block, are whole numbers and added up over a super-block in eight lanes; the lanes
become floats and are added, times both scales of the super-block, to eight sums of a row.
Source: ggml-cpu/arch/x86/quants.c.
"""

from __future__ import annotations

from llvmlite import ir
from numba import types

from engine.backend.host_buffer import CACHE_LINE
from engine.backends.cpu.codegen import (
    LANES,
    Emit,
    Nearness,
    add_pairs,
    at,
    broadcast,
    constant,
    counting,
    dot,
    half_to_float,
    indices,
    load,
    multiply_add,
    pick_in_sixteens,
    prefetch,
    strided,
    sum_pairs,
    variable,
)
from engine.backends.cpu.row_tiles import (
    COLUMN_TILE,
    ROW_TILE,
    ROWS_AT_ONCE,
    store_sums,
    sum_of_lanes,
    tile_columns,
    tile_rows,
)
from engine.backends.cpu.simd import Operation, define
from engine.backends.cpu.super_forms import (
    IQ4_XS,
    Q2_K,
    Q3_K,
    Q4_K,
    Q5_K,
    Q6_K,
    Form,
    Low,
    Values,
    join,
    numbers,
)
from engine.backends.cpu.tiles import BLOCK, BLOCKS, SCALE_AT, TAIL_BYTES

NEAR, FAR = 1024, 4096
"""Bytes of weights between what is read and what the first and the second cache are asked for.

A super-block is several lines. The first cache can wait for few at once, the second for more: asked
early it brings 15 % more, and the first finds there what it wants. They are asked for between the
products of blocks: all at once they fill up what the first cache can wait for, and a token of
Qwen 1.5B takes 3 to 5 % longer on two threads of a Xeon with AVX-512.
"""

N_REGISTERS = ROW_TILE // ROWS_AT_ONCE
"""Registers that hold eight lanes of each row of a tile."""

ROWS_OF_MINS = LANES // 4
"""Rows whose minima are added up in a register, four lanes each."""

_I8, _I16, _I32, _I64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))
_FLOAT = ir.FloatType()
_SUM = ir.VectorType(_FLOAT, LANES)
_WORDS = ir.VectorType(_I32, LANES)
_BYTES = ir.VectorType(_I8, 4 * LANES)


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
        lines = _lines_ahead(places, form.n_bytes)
        for j in range(BLOCKS):
            for place, offset, nearness in lines[j::BLOCKS]:
                prefetch(b, at(b, place, offset), nearness)
            columns = [self._column(x, j) for x in xs]
            starts = [self._start(column) for column in columns]
            for i in range(N_REGISTERS):
                rows = places[ROWS_AT_ONCE * i : ROWS_AT_ONCE * (i + 1)]
                weights, factor = form.weights(b, rows, j), self._factor(factors, i, j)
                for c, column in enumerate(columns):
                    products = dot(b, starts[c], weights, column)
                    parts[c][i] = self._times(products, factor, parts[c][i])
        d, dmin = self._scales_of_rows(places)
        for c, tail in enumerate(tails):
            scale = load(b, at(b, tail, SCALE_AT), _FLOAT)
            both = b.fmul(d, _spread(b, scale))
            self._take_off(
                c, parts[c], heads, places, tail, b.fmul(dmin, _spread(b, b.fneg(scale)))
            )
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
        return self.b.bitcast(join(self.b, [words] * ROWS_AT_ONCE), _BYTES)

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
        return add_pairs(b, part, b.bitcast(products, shorts), b.bitcast(factor, shorts))

    def _factors(self, heads: ir.Value) -> Values:
        """Scales of the rows of each register, as `_factor` wants them: as floats, or as i16.

        Every sixteen bytes have the eight that their own four lanes are multiplied with, block
        after block: one instruction then brings those of a block to their lanes.
        """
        b, per_block = self.b, self.form.n_scales // 8
        if self.form.is_wide:
            return [b.sitofp(heads, ir.VectorType(_FLOAT, heads.type.count))] * N_REGISTERS
        factors = []
        for first in range(0, ROW_TILE, ROWS_AT_ONCE):
            order = [
                16 * row + per_block * j + per_block * half // 2
                for row in range(first, first + ROWS_AT_ONCE)
                for half in range(2)
                for j in range(BLOCKS)
            ]
            shorts = ir.VectorType(_I16, len(order))
            own = b.sext(b.shuffle_vector(heads, heads, indices(order)), shorts)
            factors.append(b.bitcast(own, _BYTES))
        return factors

    def _factor(self, factors: Values, i: int, j: int) -> ir.Value:
        """The scales of block j of the rows of register i in each of their lanes.

        As floats, or as i32 whose upper half is 0.
        """
        b = self.b
        if not self.form.is_wide:
            return pick_in_sixteens(b, factors[i], [2 * j, 2 * j + 1, None, None] * 4)
        rows = range(ROWS_AT_ONCE * i, ROWS_AT_ONCE * (i + 1))
        order = [16 * row + j for row in rows for _ in range(8)]
        return b.shuffle_vector(factors[i], factors[i], indices(order))

    def _scales_of_rows(self, places: Values) -> tuple[ir.Value, ir.Value]:
        """The scale of each row's super-block, and behind it the one of its minima, if any."""
        b, form = self.b, self.form
        if form.low in (Low.NOTHING, Low.SCALES):
            d = half_to_float(b, numbers(b, places, form.d_at, _I16))
            return d, constant(d.type, 0.0)
        words = numbers(b, places, form.d_at, _I32)
        both = half_to_float(b, b.bitcast(words, ir.VectorType(_I16, 2 * ROW_TILE)))
        return (_every_second(b, both, 0), _every_second(b, both, 1))

    def _take_off(
        self,
        c: int,
        parts: Values,
        heads: ir.Value,
        places: Values,
        tail: ir.Value,
        factors: ir.Value,
    ) -> None:
        """Subtract what `Low` says from the parts, or add it, times factors, to sums."""
        b, form = self.b, self.form
        if form.low is Low.NOTHING:
            return
        sums = load(b, tail, ir.VectorType(_I16, 16))
        if form.low is Low.SCALES:
            for i, low in enumerate(self._sums_of_16(heads, sums)):
                parts[i] = b.sub(parts[i], b.shl(low, constant(_WORDS, 5)))
            return
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
        columns = join(b, [sums] * ROWS_AT_ONCE)
        shorts = b.sext(heads, ir.VectorType(_I16, heads.type.count))
        n = 16 * ROWS_AT_ONCE
        rows = [_slice(b, shorts, n * i, n) for i in range(N_REGISTERS)]
        return [sum_pairs(b, row, columns) for row in rows]

    def _sums_of_32(self, heads: ir.Value, sums: ir.Value) -> Values:
        """The upper eight bytes of each row times sums of 32, two neighbours in a lane."""
        b = self.b
        columns = b.add(_every_second(b, sums, 0), _every_second(b, sums, 1))
        columns = join(b, [columns] * ROWS_OF_MINS)
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


def _lines_ahead(places: Values, n_bytes: int) -> list[tuple[ir.Value, int, Nearness]]:
    """Place, offset from it and cache of each line to ask for during a super-block."""
    return [
        (place, distance + line, nearness)
        for distance, nearness in ((NEAR, Nearness.FIRST_CACHE), (FAR, Nearness.SECOND_CACHE))
        for place in places
        for line in range(0, n_bytes, CACHE_LINE)
    ]


def _slice(b: ir.IRBuilder, values: ir.Value, first: int, n: int) -> ir.Value:
    """`n` lanes from `first` on."""
    return b.shuffle_vector(values, values, indices(list(range(first, first + n))))


def _every_second(b: ir.IRBuilder, values: ir.Value, first: int) -> ir.Value:
    order = list(range(first, values.type.count, 2))
    return b.shuffle_vector(values, values, indices(order))


def _spread(b: ir.IRBuilder, value: ir.Value) -> ir.Value:
    return broadcast(b, value, ROW_TILE)


def _turned(b: ir.IRBuilder, values: ir.Value, step: int) -> ir.Value:
    """Lanes exchanged with those `step` further, within four."""
    order = [lane ^ step for lane in range(values.type.count)]
    return b.shuffle_vector(values, values, indices(order))


def _per_row(b: ir.IRBuilder, values: ir.Value, first: int, n_lanes: int) -> ir.Value:
    """A register in which each row, from `first` on, has its value in `n_lanes` lanes."""
    order = [first + lane // n_lanes for lane in range(LANES)]
    return b.shuffle_vector(values, values, indices(order))


def _of_form(form: Form) -> tuple[Operation, ...]:
    """Tiles of one column, of two and of COLUMN_TILE."""
    params = [types.int64] * 9
    return tuple(define(_super_tile(form, n), types.void, *params) for n in (1, 2, COLUMN_TILE))


row_tile_q2_k, row_pair_q2_k, row_tiles_q2_k = _of_form(Q2_K)
"""As those of q4_0 in row_tiles.py."""
row_tile_q3_k, row_pair_q3_k, row_tiles_q3_k = _of_form(Q3_K)
row_tile_q4_k, row_pair_q4_k, row_tiles_q4_k = _of_form(Q4_K)
row_tile_q5_k, row_pair_q5_k, row_tiles_q5_k = _of_form(Q5_K)
row_tile_q6_k, row_pair_q6_k, row_tiles_q6_k = _of_form(Q6_K)
row_tile_iq4_xs, row_pair_iq4_xs, row_tiles_iq4_xs = _of_form(IQ4_XS)
