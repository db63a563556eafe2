"""Register tiles over rows as they are stored: one column or a few, for small batches.

A tile is ROW_TILE rows, so that their sums do not wait for one another. Rows at or past `n_rows`
repeat the last one. The column is quantised, see kernels/quantize.py.

Products are added up as ggml's x86 code does, to the last bit: whole numbers within four elements,
then eight sums of floats, block after block. Source: ggml-cpu/arch/x86/quants.c.
"""

from __future__ import annotations

from llvmlite import ir
from numba import types

from engine.backends.cpu.codegen import (
    BIASED_E2M1,
    BIASED_NONLINEAR,
    BYTE_BIAS,
    LANES,
    Emit,
    Nearness,
    at,
    call_llvm,
    constant,
    counting,
    dot,
    half_power_of_two,
    half_to_float,
    indices,
    load,
    look_up,
    multiply_add,
    pointer,
    prefetch,
    strided,
    variable,
)
from engine.backends.cpu.layout import (
    GROUP_ROWS,
    KIND_IQ4_NL,
    KIND_MXFP4,
    KIND_Q4_0,
    KIND_Q4_1,
    KIND_Q5_0,
    KIND_Q5_1,
    KIND_Q8_0,
)
from engine.backends.cpu.simd import I8X16, I8X32, Operation, define
from engine.backends.cpu.tiles import BLOCK

TOO_LARGE = {
    KIND_Q4_0: 8,
    KIND_Q4_1: 0,
    KIND_Q5_0: 16,
    KIND_Q5_1: 0,
    KIND_Q8_0: BYTE_BIAS,
    KIND_MXFP4: BYTE_BIAS,
    KIND_IQ4_NL: BYTE_BIAS,
}
"""What is to be subtracted from the bytes that `dot` sees."""

_TABLES = {KIND_MXFP4: BIASED_E2M1, KIND_IQ4_NL: BIASED_NONLINEAR}
_WITH_M = (KIND_Q4_1, KIND_Q5_1)
_FIFTH_BITS_AT = {KIND_Q5_0: 2, KIND_Q5_1: 4}
_NIBBLES_AT = {KIND_Q4_0: 2, KIND_Q4_1: 4, KIND_Q5_0: 6, KIND_Q5_1: 8}
_NIBBLES_AT |= {KIND_MXFP4: 1, KIND_IQ4_NL: 2}

ROW_TILE = GROUP_ROWS
"""Rows that one column is multiplied with at once, so that sums do not wait for one another."""


NEAR, FAR = 2048, 16384
"""Bytes of weights between what is read and what the first cache is asked for, and the second.

Rows of a tile lie side by side, but the processor sees ROW_TILE short streams and asks for little
on its own: from memory, 7 instead of 12 GB/s. The first cache has room for few lines that are on
their way; with the second one asked long before, a token of SmolLM2 takes 0.8 of the time on two
threads, 0.93 on one.
"""

COLUMN_TILE = 4 if LANES == 16 else 2
"""Columns that rows are multiplied with at once, so that they are decoded once."""

ROWS_AT_ONCE = LANES // 8
"""Rows whose blocks fill a register."""

_I8, _I16, _I32, _I64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))
_FLOAT = ir.FloatType()
_SUM = ir.VectorType(_FLOAT, LANES)
_WORDS = ir.VectorType(_I32, LANES)
_PAIRS = ir.VectorType(_FLOAT, 2 * ROW_TILE)


def _row_tile(kind: int, n_columns: int) -> Emit:
    """out[c][r] = row r of blocks . column c; columns at or past their count repeat the last."""

    def emit(b: ir.IRBuilder, a: list[ir.Value]) -> None:
        w, row_stride, block_stride, n_rows, x, x_stride, count, n_blocks, out = a
        starts = [strided(b, w, row, row_stride) for row in tile_rows(b, n_rows)]
        columns = tile_columns(b, count, n_columns)
        xs = [strided(b, x, column, x_stride) for column in columns]
        tile = _Tile(b, kind, n_columns, starts, block_stride)
        with counting(b, b.sdiv(n_blocks, _I64(2))) as step:
            tile.add(2, xs, b.mul(step, _I64(2)), n_blocks)
        with b.if_then(b.icmp_signed("!=", b.srem(n_blocks, _I64(2)), _I64(0))):
            tile.add(1, xs, b.sub(n_blocks, _I64(1)), n_blocks)
        for c in reversed(range(n_columns)):
            target = strided(b, out, columns[c], _I64(4 * LANES))
            store_sums(b, tile.totals(c), target, n_rows)

    return emit


def tile_rows(b: ir.IRBuilder, n_rows: ir.Value) -> list[ir.Value]:
    """Index of each row of a tile."""
    last = b.sub(n_rows, _I64(1))
    inside = [b.icmp_signed("<", _I64(r), n_rows) for r in range(ROW_TILE)]
    return [b.select(is_inside, _I64(r), last) for r, is_inside in enumerate(inside)]


def tile_columns(b: ir.IRBuilder, count: ir.Value, n_columns: int) -> list[ir.Value]:
    """Index of each column of a tile."""
    last = b.sub(count, _I64(1))
    inside = [b.icmp_signed("<", _I64(c), count) for c in range(n_columns)]
    return [b.select(is_inside, _I64(c), last) for c, is_inside in enumerate(inside)]


def store_sums(b: ir.IRBuilder, totals: list[ir.Value], out: ir.Value, n_rows: ir.Value) -> None:
    """Store in descending order, so that the last row's own value is the one that stays."""
    for row, total in zip(reversed(tile_rows(b, n_rows)), reversed(totals), strict=True):
        b.store(total, pointer(b, strided(b, out, row, _I64(4)), _FLOAT), align=4)


def sum_of_lanes(b: ir.IRBuilder, value: ir.Value) -> ir.Value:
    """The lanes of a vector added up, one half to the other."""
    while value.type.count > 1:
        n = value.type.count // 2
        low = b.shuffle_vector(value, value, indices(list(range(n))))
        high = b.shuffle_vector(value, value, indices(list(range(n, 2 * n))))
        value = b.fadd(high, low)
    return b.extract_element(value, _I32(0))


def _eight(b: ir.IRBuilder, values: ir.Value, r: int) -> ir.Value:
    """The lanes of row r of a tile in the register that it shares."""
    first = 8 * (r % ROWS_AT_ONCE)
    return b.shuffle_vector(values, values, indices(list(range(first, first + 8))))


class _Tile:
    """A tile while its code is written.

    A register holds the eight sums of ROWS_AT_ONCE rows with a column. Blocks are taken by two, so
    that scales become floats together. `lows` adds up m * sum in its odd lanes, two lanes a row.
    Types with tables have two times eight sums, for even and odd blocks; an odd number's last block
    is one whole number, in `last`, and its scale.
    """

    def __init__(
        self,
        b: ir.IRBuilder,
        kind: int,
        n_columns: int,
        starts: list[ir.Value],
        stride: ir.Value,
    ) -> None:
        self.b, self.kind, self.starts, self.stride = b, kind, starts, stride
        n_registers, columns = ROW_TILE // ROWS_AT_ONCE, range(n_columns)
        n_sets = 2 if kind in _TABLES else 1
        self.sums = [
            [[variable(b, constant(_SUM, 0.0)) for _ in range(n_registers)] for _ in range(n_sets)]
            for _ in columns
        ]
        rows = constant(ir.VectorType(_FLOAT, ROW_TILE), 0.0)
        self.last = [(variable(b, rows), variable(b, rows)) for _ in columns]
        self.lows = [variable(b, constant(_PAIRS, 0.0)) for _ in columns]

    def add(self, n: int, xs: list[ir.Value], block: ir.Value, n_blocks: ir.Value) -> None:
        """Add `n` blocks of each row, from `block` on, times those of each column."""
        b = self.b
        here = b.mul(block, self.stride)
        places = [
            [b.add(b.add(start, here), b.mul(self.stride, _I64(i))) for start in self.starts]
            for i in range(n)
        ]
        for place in places[0]:
            prefetch(b, at(b, place, NEAR), Nearness.FIRST_CACHE)
            prefetch(b, at(b, place, FAR), Nearness.SECOND_CACHE)
        scales = self._scales([place for row in places for place in row])
        weights = [
            [
                self._weights(row[first : first + ROWS_AT_ONCE])
                for first in range(0, ROW_TILE, ROWS_AT_ONCE)
            ]
            for row in places
        ]
        at_bytes = b.mul(block, _I64(BLOCK))
        at_pairs = b.add(b.mul(n_blocks, _I64(BLOCK)), b.mul(block, _I64(8)))
        for c, x in enumerate(xs):
            pairs = load(b, b.add(x, at_pairs), ir.VectorType(_FLOAT, 2 * n))
            factors = self._factors(c, scales, pairs, n)
            for i in range(n):
                column = load(b, at(b, b.add(x, at_bytes), BLOCK * i), I8X32.llvm)
                if n == 1 and self.kind in _TABLES:
                    self._multiply_last(c, weights[i], column, factors)
                else:
                    self._multiply(c, i, weights[i], column, factors)

    def _factors(self, c: int, scales: ir.Value, pairs: ir.Value, n: int) -> ir.Value:
        """Scales of `n` blocks of each row times those of column `c`; adds up m * sum, if any."""
        b = self.b
        if self.kind not in _WITH_M:
            spread = [2 * (lane // ROW_TILE) for lane in range(n * ROW_TILE)]
            return b.fmul(scales, b.shuffle_vector(pairs, pairs, indices(spread)))
        spread = [2 * (lane // (2 * ROW_TILE)) + lane % 2 for lane in range(2 * n * ROW_TILE)]
        both = b.fmul(scales, b.shuffle_vector(pairs, pairs, indices(spread)))
        for i in range(n):
            lanes = list(range(2 * ROW_TILE * i, 2 * ROW_TILE * (i + 1)))
            # m and sum are halfs, so their product is exact.
            part = b.shuffle_vector(both, both, indices(lanes))
            b.store(b.fadd(b.load(self.lows[c]), part), self.lows[c])
        return both

    def _multiply(
        self,
        c: int,
        i_block: int,
        weights: list[ir.Value],
        column: ir.Value,
        factors: ir.Value,
    ) -> None:
        """Add the products of weights and 32 elements of column `c`."""
        b, step = self.b, 2 if self.kind in _WITH_M else 1
        totals = self.sums[c][i_block % len(self.sums[c])]
        for i, (dots, total) in enumerate(zip(self._dots(weights, column), totals, strict=True)):
            first = ROW_TILE * i_block + ROWS_AT_ONCE * i
            lanes = [step * (first + lane // 8) for lane in range(LANES)]
            factor = b.shuffle_vector(factors, factors, indices(lanes))
            b.store(multiply_add(b, [b.sitofp(dots, _SUM), factor, b.load(total)]), total)

    def _multiply_last(
        self, c: int, weights: list[ir.Value], column: ir.Value, factors: ir.Value
    ) -> None:
        """Keep the products of a last block without neighbour."""
        b, dots = self.b, self._dots(weights, column)
        last, scale = self.last[c]
        numbers = b.load(last)
        for r in range(ROW_TILE):
            lanes = _eight(b, dots[r // ROWS_AT_ONCE], r)
            number = call_llvm(b, "llvm.vector.reduce.add.v8i32", _I32, [lanes])
            numbers = b.insert_element(numbers, b.sitofp(number, _FLOAT), _I32(r))
        b.store(numbers, last)
        b.store(factors, scale)

    def _dots(self, weights: list[ir.Value], column: ir.Value) -> list[ir.Value]:
        """Sums of four products of each register."""
        b = self.b
        x = b.shuffle_vector(column, column, indices([*range(BLOCK)] * ROWS_AT_ONCE))
        start = self._start(x)
        return [dot(b, start, each, x) for each in weights]

    def totals(self, c: int) -> list[ir.Value]:
        """The finished sum of each row with column `c`."""
        b = self.b
        totals = []
        for r in range(ROW_TILE):
            sets = [b.load(each[r // ROWS_AT_ONCE]) for each in self.sums[c]]
            sums = sets[0] if len(sets) == 1 else b.fadd(*sets)
            total = sum_of_lanes(b, _eight(b, sums, r))
            if self.kind in _WITH_M:
                low = b.extract_element(b.load(self.lows[c]), _I32(2 * r + 1))
                total = b.fadd(total, low)
            totals.append(total)
        return self._with_last(c, totals) if self.kind in _TABLES else totals

    def _with_last(self, c: int, totals: list[ir.Value]) -> list[ir.Value]:
        """Sums of rows plus what `_multiply_last` kept."""
        b = self.b
        last, scale = (b.load(place) for place in self.last[c])
        value = ir.Constant(last.type, ir.Undefined)
        for r, total in enumerate(totals):
            value = b.insert_element(value, total, _I32(r))
        value = multiply_add(b, [scale, last, value])
        return [b.extract_element(value, _I32(r)) for r in range(ROW_TILE)]

    def _scales(self, places: list[ir.Value]) -> ir.Value:
        """Lanes d, or where the format has it d and m in turn, of the blocks at `places`."""
        b = self.b
        word = _I8 if self.kind == KIND_MXFP4 else _I32 if self.kind in _WITH_M else _I16
        heads = ir.Constant(ir.VectorType(word, len(places)), ir.Undefined)
        for i, place in enumerate(places):
            heads = b.insert_element(heads, load(b, place, word), _I32(i))
        if self.kind == KIND_MXFP4:
            return half_power_of_two(b, heads)
        if self.kind in _WITH_M:
            heads = b.bitcast(heads, ir.VectorType(_I16, 2 * len(places)))
        return half_to_float(b, heads)

    def _start(self, x: ir.Value) -> ir.Value:
        """What dot products begin with, lane by lane, since weights are too large."""
        b, zero = self.b, constant(_WORDS, 0)
        too_large = TOO_LARGE[self.kind]
        return b.sub(zero, dot(b, zero, constant(x.type, too_large), x)) if too_large else zero

    def _weights(self, blocks: list[ir.Value]) -> ir.Value:
        """The bytes of a block of each of ROWS_AT_ONCE rows, as `dot` wants them."""
        b = self.b
        if self.kind == KIND_Q8_0:
            rows = [load(b, at(b, block, 2), I8X32.llvm) for block in blocks]
            order = list(range(BLOCK * ROWS_AT_ONCE))
            raw = b.shuffle_vector(rows[0], rows[-1], indices(order))
            return b.xor(raw, constant(raw.type, BYTE_BIAS)) if BYTE_BIAS else raw
        packed = [load(b, at(b, block, _NIBBLES_AT[self.kind]), I8X16.llvm) for block in blocks]
        order = [16 * i + j for i in range(ROWS_AT_ONCE) for j in [*range(16)] * 2]
        twice = b.shuffle_vector(packed[0], packed[-1], indices(order))
        # Four-byte lanes, since there is no shift of single bytes: low halves stay, high ones move.
        shifts = ir.Constant(_WORDS, ([0] * 4 + [4] * 4) * ROWS_AT_ONCE)
        moved = b.lshr(b.bitcast(twice, _WORDS), shifts)
        low = b.bitcast(b.and_(moved, constant(_WORDS, 0x0F0F0F0F)), twice.type)
        if self.kind in _TABLES:
            return look_up(b, _TABLES[self.kind], low)
        return b.or_(low, self._fifth_bits(blocks)) if self.kind in _FIFTH_BITS_AT else low

    def _fifth_bits(self, blocks: list[ir.Value]) -> ir.Value:
        """Bytes that are 16 where a block's word has a bit."""
        b, start = self.b, _FIFTH_BITS_AT[self.kind]
        words = ir.Constant(ir.VectorType(_I32, len(blocks)), ir.Undefined)
        for i, block in enumerate(blocks):
            words = b.insert_element(words, load(b, at(b, block, start), _I32), _I32(i))
        mask = b.bitcast(words, ir.VectorType(ir.IntType(1), BLOCK * len(blocks)))
        wide = ir.VectorType(_I8, BLOCK * len(blocks))
        return b.select(mask, constant(wide, 16), constant(wide, 0))


def _of_kind(kind: int) -> tuple[Operation, ...]:
    """Tiles of one column, of two and of COLUMN_TILE."""
    params = [types.int64] * 9
    return tuple(define(_row_tile(kind, n), types.void, *params) for n in (1, 2, COLUMN_TILE))


row_tile_q4_0, row_pair_q4_0, row_tiles_q4_0 = _of_kind(KIND_Q4_0)
"""(w, row stride, block stride, rows, x, x stride, columns, blocks, out): writes out.

At most ROW_TILE rows; one column, or up to COLUMN_TILE; a column of out has room for LANES rows.
"""
row_tile_q4_1, row_pair_q4_1, row_tiles_q4_1 = _of_kind(KIND_Q4_1)
row_tile_q5_0, row_pair_q5_0, row_tiles_q5_0 = _of_kind(KIND_Q5_0)
row_tile_q5_1, row_pair_q5_1, row_tiles_q5_1 = _of_kind(KIND_Q5_1)
row_tile_q8_0, row_pair_q8_0, row_tiles_q8_0 = _of_kind(KIND_Q8_0)
row_tile_iq4_nl, row_pair_iq4_nl, row_tiles_iq4_nl = _of_kind(KIND_IQ4_NL)
row_tile_mxfp4, row_pair_mxfp4, row_tiles_mxfp4 = _of_kind(KIND_MXFP4)
