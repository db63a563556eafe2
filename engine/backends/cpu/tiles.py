"""Register tiles: the inner loops of matrix products, written as LLVM code so that they unroll.

A tile is LANES rows (one vector) by N columns. `panel` holds the rows interleaved: for each step
of the inner dimension one vector with that element of every row. Columns are read through a
broadcast. Columns at or past `n_cols` repeat the last one, so a tile never needs a mask.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from llvmlite import ir
from numba import types
from numba.core import cgutils

from engine.backends.cpu.layout import KIND_Q4_0, KIND_Q4_1, KIND_Q8_0
from engine.backends.cpu.simd import (
    BYTE_BIAS,
    F32V,
    I8V,
    I8X16,
    I8X32,
    I32V,
    LANES,
    Emit,
    broadcast,
    call_llvm,
    constant,
    define,
    dot,
    half_to_float,
    indices,
    pointer,
    variable,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

FLOAT_COLUMNS = 8
"""Columns of a float tile: with AVX2's 16 registers, 8 sums, one row vector and a broadcast."""

BYTE_COLUMNS = 8 if LANES == 16 else 4
"""Columns of a byte tile: an int and a float sum each."""

BLOCK = 32
"""Elements of a block of every type here, and of quantised activations."""

PANEL_BLOCK_BYTES = LANES * (BLOCK + 8)
"""A panel's block: LANES x 32 bytes, then LANES scales and LANES offsets in f32."""

BLOCK_BYTES = {KIND_Q4_0: 18, KIND_Q4_1: 20, KIND_Q8_0: 34}
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


@contextmanager
def _counting(b: ir.IRBuilder, count: ir.Value) -> Iterator[ir.Value]:
    with cgutils.for_range(b, count, intp=_I64) as loop:
        yield loop.index


def _column(b: ir.IRBuilder, column: int, n_cols: ir.Value) -> ir.Value:
    last = b.sub(n_cols, _I64(1))
    return b.select(b.icmp_signed("<", _I64(column), n_cols), _I64(column), last)


def _strided(b: ir.IRBuilder, base: ir.Value, index: ir.Value, stride: ir.Value) -> ir.Value:
    return b.add(base, b.mul(index, stride))


def _fma(b: ir.IRBuilder, x: ir.Value, y: ir.Value, z: ir.Value) -> ir.Value:
    return call_llvm(b, f"llvm.fmuladd.v{x.type.count}f32", x.type, [x, y, z])


def _float_tile(b: ir.IRBuilder, a: list[ir.Value]) -> None:
    """out[c] += sum over k of panel[k] * x[c][k]."""
    panel, panel_stride, x, x_stride, n_cols, n_steps, out, out_stride = a
    vector = F32V.llvm
    columns = [_column(b, c, n_cols) for c in range(FLOAT_COLUMNS)]
    xs = [_strided(b, x, column, x_stride) for column in columns]
    outs = [_strided(b, out, column, out_stride) for column in columns]
    sums = [variable(b, b.load(pointer(b, address, vector), align=4)) for address in outs]
    with _counting(b, n_steps) as k:
        row = b.load(pointer(b, _strided(b, panel, k, panel_stride), vector), align=4)
        for address, total in zip(xs, sums, strict=True):
            value = b.load(pointer(b, _strided(b, address, k, _I64(4)), _FLOAT), align=4)
            b.store(_fma(b, row, broadcast(b, value, LANES), b.load(total)), total)
    for address, total in zip(reversed(outs), reversed(sums), strict=True):
        b.store(b.load(total), pointer(b, address, vector), align=4)


def _byte_tile(b: ir.IRBuilder, a: list[ir.Value]) -> None:
    """out[c] = sum over blocks of scale * x scale[c] * (bytes . x bytes[c]) + offset * x sum[c].

    x of a column: n_blocks * 32 bytes, then n_blocks pairs of scale and sum; see quantize.py.
    """
    panel, x, x_stride, n_cols, n_blocks, out = a
    floats, ints = F32V.llvm, I32V.llvm
    columns = [_column(b, c, n_cols) for c in range(BYTE_COLUMNS)]
    xs = [_strided(b, x, column, x_stride) for column in columns]
    pairs_at = b.mul(n_blocks, _I64(BLOCK))
    totals = [variable(b, constant(floats, 0.0)) for _ in columns]
    with _counting(b, n_blocks) as block:
        here = _strided(b, panel, block, _I64(PANEL_BLOCK_BYTES))
        at_bytes = b.mul(block, _I64(BLOCK))
        at_pair = b.add(pairs_at, b.mul(block, _I64(8)))
        dots = [constant(ints, 0) for _ in columns]
        for step in range(BLOCK // 4):
            rows = _load(b, b.add(here, _I64(step * 4 * LANES)), I8V.llvm)
            for c, address in enumerate(xs):
                four = _load(b, b.add(b.add(address, at_bytes), _I64(4 * step)), _I32)
                spread = b.bitcast(broadcast(b, four, LANES), I8V.llvm)
                dots[c] = dot(b, dots[c], rows, spread)
        scale = _load(b, b.add(here, _I64(BLOCK * LANES)), floats)
        offset = _load(b, b.add(here, _I64((BLOCK + 4) * LANES)), floats)
        for c, address in enumerate(xs):
            pair = b.add(address, at_pair)
            x_scale, x_sum = _load(b, pair, _FLOAT), _load(b, b.add(pair, _I64(4)), _FLOAT)
            factor = b.fmul(scale, broadcast(b, x_scale, LANES))
            total = _fma(b, b.sitofp(dots[c], floats), factor, b.load(totals[c]))
            total = _fma(b, offset, broadcast(b, x_sum, LANES), total)
            b.store(total, totals[c])
    for column, total in zip(reversed(columns), reversed(totals), strict=True):
        address = _strided(b, out, column, _I64(4 * LANES))
        b.store(b.load(total), pointer(b, address, floats), align=4)


def _row_tile(kind: int) -> Emit:
    """out[r] = row r of blocks . x, for ROW_TILE rows at once; rows past n_rows repeat the last.

    BLOCKS_AT_ONCE blocks of a row share one dot product. Their scales and offsets (d, m), or for
    formats without m the scale twice, become one vector of all rows that is multiplied by the
    column's pairs (scale, sum).
    """

    def emit(b: ir.IRBuilder, a: list[ir.Value]) -> None:
        w, w_stride, n_rows, x, n_blocks, out = a
        last = b.sub(n_rows, _I64(1))
        starts = []
        for r in range(ROW_TILE):
            inside = b.icmp_signed("<", _I64(r), n_rows)
            starts.append(_strided(b, w, b.select(inside, _I64(r), last), w_stride))
        pairs = b.add(x, b.mul(n_blocks, _I64(BLOCK)))
        work = _RowTile(b, kind, starts, x, pairs)
        with _counting(b, b.sdiv(n_blocks, _I64(BLOCKS_AT_ONCE))) as step:
            work.add(b.mul(step, _I64(BLOCKS_AT_ONCE)), BLOCKS_AT_ONCE)
        if BLOCKS_AT_ONCE > 1:
            rest = b.srem(n_blocks, _I64(BLOCKS_AT_ONCE))
            with b.if_then(b.icmp_signed("!=", rest, _I64(0))):
                work.add(b.sub(n_blocks, _I64(1)), 1)
        for r in reversed(range(ROW_TILE)):
            inside = b.icmp_signed("<", _I64(r), n_rows)
            target = _strided(b, out, b.select(inside, _I64(r), last), _I64(4))
            b.store(work.total(r), pointer(b, target, _FLOAT), align=4)

    return emit


class _RowTile:
    """The sums of a row tile while its code is written."""

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
        x = _load(b, b.add(self.x, b.mul(block, _I64(BLOCK))), ir.VectorType(_I8, BLOCK * n))
        pair = _load(b, b.add(self.pairs, b.mul(block, _I64(8))), ir.VectorType(_FLOAT, 2 * n))
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
        name = f"llvm.vector.reduce.fadd.v{_SUM.count}f32"
        zero = ir.Constant(_FLOAT, -0.0)
        total = call_llvm(b, name, _FLOAT, [zero, b.load(self.sums[r])], "reassoc")
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
                head = _load(b, b.add(place, _I64(i * step)), word)
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
            rows = [_load(b, b.add(place, _I64(i * step + 2)), I8X32.llvm) for i in range(n)]
            raw = rows[0] if n == 1 else b.shuffle_vector(*rows, indices(list(range(64))))
            return b.xor(raw, constant(raw.type, BYTE_BIAS)) if BYTE_BIAS else raw
        first = 4 if self.kind == KIND_Q4_1 else 2
        packed = [_load(b, b.add(place, _I64(i * step + first)), I8X16.llvm) for i in range(n)]
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
            b.store(_fma(b, floats, factor, total), self.sums[r])
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


def _load(b: ir.IRBuilder, address: ir.Value, kind: ir.Type) -> ir.Value:
    return b.load(pointer(b, address, kind), align=1)


def _transpose(b: ir.IRBuilder, rows: list[ir.Value]) -> list[ir.Value]:
    """Eight vectors of eight lanes, rows and columns exchanged: swap 1x1, 2x2, then 4x4 blocks."""
    rows = list(rows)
    for step in (1, 2, 4):
        for i in range(8):
            if i & step:
                continue
            j = i | step
            low = [8 + (lane ^ step) if lane & step else lane for lane in range(8)]
            high = [8 + lane if lane & step else lane | step for lane in range(8)]
            first = b.shuffle_vector(rows[i], rows[j], indices(low))
            second = b.shuffle_vector(rows[i], rows[j], indices(high))
            rows[i], rows[j] = first, second
    return rows


def _store_transposed(b: ir.IRBuilder, a: list[ir.Value]) -> None:
    """Eight rows of eight 4-byte elements at `source` to columns at `target`."""
    source, stride, target, target_stride = a
    kind = ir.VectorType(_I32, 8)
    rows = [_load(b, _strided(b, source, _I64(i), stride), kind) for i in range(8)]
    _store_rows(b, _transpose(b, rows), target, target_stride)


def _store_halfs_transposed(b: ir.IRBuilder, a: list[ir.Value]) -> None:
    """Eight rows of eight f16 at `source` to columns of f32 at `target`."""
    source, stride, target, target_stride = a
    kind = ir.VectorType(ir.IntType(16), 8)
    halfs = [_load(b, _strided(b, source, _I64(i), stride), kind) for i in range(8)]
    rows = [half_to_float(b, row) for row in halfs]
    _store_rows(b, _transpose(b, rows), target, target_stride)


def _store_rows(b: ir.IRBuilder, rows: list[ir.Value], target: ir.Value, stride: ir.Value) -> None:
    for i, row in enumerate(rows):
        b.store(row, pointer(b, _strided(b, target, _I64(i), stride), row.type), align=4)


float_tile = define(_float_tile, types.void, *[types.int64] * 8)
"""(panel, its stride, x, column stride, columns, steps, out, its stride): adds to out."""

byte_tile = define(_byte_tile, types.void, *[types.int64] * 6)
"""(panel, x, column stride, columns, blocks, out): writes out [LANES, columns]."""

store_transposed = define(_store_transposed, types.void, *[types.int64] * 4)
store_halfs_transposed = define(_store_halfs_transposed, types.void, *[types.int64] * 4)

row_tile_q4_0 = define(_row_tile(KIND_Q4_0), types.void, *[types.int64] * 6)
"""(w, row stride, rows, x, blocks, out): writes out [rows], at most ROW_TILE."""
row_tile_q4_1 = define(_row_tile(KIND_Q4_1), types.void, *[types.int64] * 6)
row_tile_q8_0 = define(_row_tile(KIND_Q8_0), types.void, *[types.int64] * 6)
