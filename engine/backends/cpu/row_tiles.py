"""Register tiles over rows as they are stored: one column at a time, for small batches.

A tile is ROW_TILE rows, so that their sums do not wait for one another. Rows at or past `n_rows`
repeat the last one. The column is quantised, see kernels/quantize.py.
"""

from __future__ import annotations

from llvmlite import ir
from numba import types

from engine.backends.cpu.codegen import (
    BYTE_BIAS,
    LANES,
    Emit,
    at,
    broadcast,
    call_llvm,
    constant,
    counting,
    dot,
    half_to_float,
    indices,
    load,
    multiply_add,
    pointer,
    strided,
    variable,
)
from engine.backends.cpu.layout import KIND_Q4_0, KIND_Q4_1, KIND_Q6_K, KIND_Q8_0
from engine.backends.cpu.simd import I8X16, I8X32, define
from engine.backends.cpu.tiles import BLOCK

BLOCK_BYTES = {KIND_Q4_0: 18, KIND_Q4_1: 20, KIND_Q8_0: 34, KIND_Q6_K: 210}
OFFSET_FACTOR = {KIND_Q4_0: -8.0, KIND_Q4_1: 1.0, KIND_Q8_0: -float(BYTE_BIAS)}
"""What scale * sum counts: nibbles are 8 too large, biased bytes BYTE_BIAS; q4_1 has its own m."""

ROW_TILE = 4
"""Rows that one column is multiplied with at once, so that sums do not wait for one another."""

BLOCKS_AT_ONCE = LANES // 8
"""Blocks whose bytes fill a register."""

_I8, _I16, _I32, _I64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))
_FLOAT = ir.FloatType()
_SUM = ir.VectorType(_FLOAT, LANES)
_OFFSETS = ir.VectorType(_FLOAT, 2 * ROW_TILE * BLOCKS_AT_ONCE)


def _row_tile(kind: int) -> Emit:
    """out[r] = row r of blocks . x."""

    def emit(b: ir.IRBuilder, a: list[ir.Value]) -> None:
        w, w_stride, n_rows, x, n_blocks, out = a
        pairs = b.add(x, b.mul(n_blocks, _I64(BLOCK)))
        starts = [strided(b, w, row, w_stride) for row in _rows(b, n_rows)]
        sums = _Sums(b, kind, starts, x, pairs)
        with counting(b, b.sdiv(n_blocks, _I64(BLOCKS_AT_ONCE))) as step:
            sums.add(b.mul(step, _I64(BLOCKS_AT_ONCE)), BLOCKS_AT_ONCE)
        if BLOCKS_AT_ONCE > 1:
            rest = b.srem(n_blocks, _I64(BLOCKS_AT_ONCE))
            with b.if_then(b.icmp_signed("!=", rest, _I64(0))):
                sums.add(b.sub(n_blocks, _I64(1)), 1)
        _store(b, [sums.total(r) for r in range(ROW_TILE)], out, n_rows)

    return emit


def _rows(b: ir.IRBuilder, n_rows: ir.Value) -> list[ir.Value]:
    """Index of each row of a tile."""
    last = b.sub(n_rows, _I64(1))
    inside = [b.icmp_signed("<", _I64(r), n_rows) for r in range(ROW_TILE)]
    return [b.select(is_inside, _I64(r), last) for r, is_inside in enumerate(inside)]


def _store(b: ir.IRBuilder, totals: list[ir.Value], out: ir.Value, n_rows: ir.Value) -> None:
    """Store in descending order, so that the last row's own value is the one that stays."""
    for row, total in zip(reversed(_rows(b, n_rows)), reversed(totals), strict=True):
        b.store(total, pointer(b, strided(b, out, row, _I64(4)), _FLOAT), align=4)


def _sum_of_lanes(b: ir.IRBuilder, value: ir.Value) -> ir.Value:
    name = f"llvm.vector.reduce.fadd.v{value.type.count}f32"
    return call_llvm(b, name, _FLOAT, [ir.Constant(_FLOAT, -0.0), value], "reassoc")


class _Sums:
    """The sums of a tile while its code is written.

    BLOCKS_AT_ONCE blocks of a row share one dot product. Their scales and offsets (d, m), or for
    formats without m the scale twice, become one vector of all rows that is multiplied by the
    column's pairs (scale, sum).
    """

    def __init__(
        self, b: ir.IRBuilder, kind: int, starts: list[ir.Value], x: ir.Value, pairs: ir.Value
    ) -> None:
        self.b, self.kind, self.starts, self.x, self.pairs = b, kind, starts, x, pairs
        self.sums = [variable(b, constant(_SUM, 0.0)) for _ in starts]
        self.offsets = variable(b, constant(_OFFSETS, 0.0))

    def add(self, block: ir.Value, n: int) -> None:
        """Add `n` blocks from `block` on."""
        b = self.b
        here = b.mul(block, _I64(BLOCK_BYTES[self.kind]))
        places = [b.add(start, here) for start in self.starts]
        x = load(b, b.add(self.x, b.mul(block, _I64(BLOCK))), ir.VectorType(_I8, BLOCK * n))
        pair = load(b, b.add(self.pairs, b.mul(block, _I64(8))), ir.VectorType(_FLOAT, 2 * n))
        spread = b.shuffle_vector(pair, pair, indices(list(range(2 * n)) * ROW_TILE))
        factors = b.fmul(self._scales(places, n), spread)
        self._add_offsets(factors)
        zero = constant(ir.VectorType(_I32, 8 * n), 0)
        for r, place in enumerate(places):
            dots = dot(b, zero, self._weights(place, n), x)
            lanes = [2 * n * r + 2 * (lane // 8) for lane in range(8 * n)]
            factor = b.shuffle_vector(factors, factors, indices(lanes))
            floats = b.sitofp(dots, ir.VectorType(_FLOAT, 8 * n))
            self._add_sum(r, floats, factor)

    def total(self, r: int) -> ir.Value:
        """The finished sum of row `r`."""
        b = self.b
        total = _sum_of_lanes(b, b.load(self.sums[r]))
        offsets = b.load(self.offsets)
        for i in range(BLOCKS_AT_ONCE):
            lane = 2 * BLOCKS_AT_ONCE * r + 2 * i + 1
            offset = b.extract_element(offsets, _I32(lane))
            total = b.fadd(total, b.fmul(offset, ir.Constant(_FLOAT, OFFSET_FACTOR[self.kind])))
        return total

    def _scales(self, places: list[ir.Value], n: int) -> ir.Value:
        """Lanes (d, m) of each block of each row, or (d, d)."""
        b, step = self.b, BLOCK_BYTES[self.kind]
        word = _I32 if self.kind == KIND_Q4_1 else _I16
        heads = ir.Constant(ir.VectorType(word, ROW_TILE * n), ir.Undefined)
        for r, place in enumerate(places):
            for i in range(n):
                head = load(b, b.add(place, _I64(i * step)), word)
                heads = b.insert_element(heads, head, _I32(r * n + i))
        if self.kind == KIND_Q4_1:
            return half_to_float(b, b.bitcast(heads, ir.VectorType(_I16, 2 * ROW_TILE * n)))
        twice = [lane // 2 for lane in range(2 * ROW_TILE * n)]
        floats = half_to_float(b, heads)
        return b.shuffle_vector(floats, floats, indices(twice))

    def _weights(self, place: ir.Value, n: int) -> ir.Value:
        """The bytes of `n` blocks of a row, as `dot` wants them."""
        b, step = self.b, BLOCK_BYTES[self.kind]
        if self.kind == KIND_Q8_0:
            rows = [load(b, b.add(place, _I64(i * step + 2)), I8X32.llvm) for i in range(n)]
            raw = rows[0] if n == 1 else b.shuffle_vector(*rows, indices(list(range(64))))
            return b.xor(raw, constant(raw.type, BYTE_BIAS)) if BYTE_BIAS else raw
        first = 4 if self.kind == KIND_Q4_1 else 2
        packed = [load(b, b.add(place, _I64(i * step + first)), I8X16.llvm) for i in range(n)]
        order = [16 * i + j for i in range(n) for j in [*range(16)] * 2]
        twice = b.shuffle_vector(packed[0], packed[-1], indices(order))
        # Four-byte lanes, since there is no shift of single bytes: low halves stay, high ones move.
        words = ir.VectorType(_I32, 8 * n)
        shifts = ir.Constant(words, ([0] * 4 + [4] * 4) * n)
        moved = b.lshr(b.bitcast(twice, words), shifts)
        return b.bitcast(b.and_(moved, constant(words, 0x0F0F0F0F)), twice.type)

    def _add_offsets(self, factors: ir.Value) -> None:
        b = self.b
        total = b.load(self.offsets)
        b.store(b.fadd(total, _widened(b, factors, _OFFSETS.count, ROW_TILE)), self.offsets)

    def _add_sum(self, r: int, floats: ir.Value, factor: ir.Value) -> None:
        b = self.b
        total = b.load(self.sums[r])
        if floats.type.count == _SUM.count:
            b.store(multiply_add(b, [floats, factor, total]), self.sums[r])
        else:
            product = _widened(b, b.fmul(floats, factor), _SUM.count, 1)
            b.store(b.fadd(total, product), self.sums[r])


def _widened(b: ir.IRBuilder, value: ir.Value, n: int, n_groups: int) -> ir.Value:
    """`value`, `n_groups` groups of lanes, with zeros behind each group so that it has n lanes."""
    have = value.type.count
    if have == n:
        return value
    group, wide = have // n_groups, n // n_groups
    lanes = [
        g * group + lane if lane < group else have for g in range(n_groups) for lane in range(wide)
    ]
    return b.shuffle_vector(value, constant(value.type, 0.0), indices(lanes))


def _row_tile_q6_k(b: ir.IRBuilder, a: list[ir.Value]) -> None:
    """out[r] = row r of q6_K . x; n_blocks counts blocks of 32, eight a super-block."""
    w, w_stride, n_rows, x, n_blocks, out = a
    pairs = b.add(x, b.mul(n_blocks, _I64(BLOCK)))
    starts = [strided(b, w, row, w_stride) for row in _rows(b, n_rows)]
    totals = [variable(b, constant(_SUM, 0.0)) for _ in starts]
    with counting(b, b.sdiv(n_blocks, _I64(8))) as block:
        here = b.mul(block, _I64(BLOCK_BYTES[KIND_Q6_K]))
        places = [b.add(start, here) for start in starts]
        x_here = b.add(x, b.mul(block, _I64(8 * BLOCK)))
        pairs_here = b.add(pairs, b.mul(block, _I64(8 * 8)))
        sums = [constant(_SUM, 0.0) for _ in starts]
        for first in range(0, 8, BLOCKS_AT_ONCE):
            _add_q6_k(b, sums, places, x_here, pairs_here, first)
        for place, part, total in zip(places, sums, totals, strict=True):
            scale = half_to_float(b, load(b, at(b, place, 208), ir.VectorType(_I16, 1)))
            factor = broadcast(b, b.extract_element(scale, _I32(0)), LANES)
            b.store(multiply_add(b, [part, factor, b.load(total)]), total)
    _store(b, [_sum_of_lanes(b, b.load(total)) for total in totals], out, n_rows)


def _add_q6_k(
    b: ir.IRBuilder,
    sums: list[ir.Value],
    places: list[ir.Value],
    x: ir.Value,
    pairs: ir.Value,
    first: int,
) -> None:
    """Add BLOCKS_AT_ONCE blocks of 32 of a super-block, from block `first` on, without its scale.

    Stored values are 32 too large: the dot product starts at -32 times the sum of x, lane by lane.
    """
    n_lanes = 8 * BLOCKS_AT_ONCE
    floats, ints = ir.VectorType(_FLOAT, n_lanes), ir.VectorType(_I32, n_lanes)
    column = load(b, at(b, x, BLOCK * first), ir.VectorType(_I8, 4 * n_lanes))
    too_large = dot(b, constant(ints, 0), constant(column.type, 32), column)
    start = b.sub(constant(ints, 0), too_large)
    pair = load(b, at(b, pairs, 8 * first), ir.VectorType(_FLOAT, 2 * BLOCKS_AT_ONCE))
    x_scale = b.shuffle_vector(pair, pair, indices([2 * (i // 8) for i in range(n_lanes)]))
    for r, place in enumerate(places):
        dots = b.sitofp(dot(b, start, _weights_q6_k(b, place, first), column), floats)
        small = ir.VectorType(_I8, 2 * BLOCKS_AT_ONCE)
        scales = load(b, at(b, place, 192 + 2 * first), small)
        wide = b.sitofp(scales, ir.VectorType(_FLOAT, small.count))
        spread = b.shuffle_vector(wide, wide, indices([i // 4 for i in range(n_lanes)]))
        sums[r] = multiply_add(b, [dots, b.fmul(spread, x_scale), sums[r]])


def _weights_q6_k(b: ir.IRBuilder, place: ir.Value, first: int) -> ir.Value:
    """6-bit values of BLOCKS_AT_ONCE blocks: four low bits, and two of the bytes at 128."""
    half, quarter = first // 4, first % 4
    low_bytes = ir.VectorType(_I8, BLOCK * BLOCKS_AT_ONCE)
    words = ir.VectorType(_I32, 8 * BLOCKS_AT_ONCE)
    low = load(b, at(b, place, 64 * half + 32 * (quarter % 2)), low_bytes)
    low = b.lshr(b.bitcast(low, words), constant(words, 4 * (quarter // 2)))
    high = load(b, at(b, place, 128 + 32 * half), ir.VectorType(_I32, 8))
    twice = b.shuffle_vector(high, high, indices([i % 8 for i in range(words.count)]))
    shifts = [2 * (quarter + i // 8) for i in range(words.count)]
    moved = b.and_(b.lshr(twice, ir.Constant(words, shifts)), constant(words, 0x03030303))
    top = b.shl(moved, constant(words, 4))
    both = b.or_(b.and_(low, constant(words, 0x0F0F0F0F)), top)
    return b.bitcast(both, low_bytes)


row_tile_q4_0 = define(_row_tile(KIND_Q4_0), types.void, *[types.int64] * 6)
"""(w, row stride, rows, x, blocks, out): writes out [rows], at most ROW_TILE."""
row_tile_q4_1 = define(_row_tile(KIND_Q4_1), types.void, *[types.int64] * 6)
row_tile_q8_0 = define(_row_tile(KIND_Q8_0), types.void, *[types.int64] * 6)
row_tile_q6_k = define(_row_tile_q6_k, types.void, *[types.int64] * 6)
