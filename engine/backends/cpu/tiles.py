"""Register tiles over unpacked panels, written as LLVM code so that they unroll: for batches.

A tile is LANES rows (one vector) by N columns. `panel` holds the rows interleaved: for each step
of the inner dimension one vector with that element of every row. Columns are read through a
broadcast. Columns at or past `n_cols` repeat the last one, so a tile never needs a mask.
"""

from __future__ import annotations

from llvmlite import ir
from numba import types

from engine.backends.cpu.codegen import (
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
    multiply_add,
    pointer,
    strided,
    sum_pairs,
    variable,
)
from engine.backends.cpu.simd import F32V, I8V, I32V, define

FLOAT_COLUMNS = 8
"""Columns of a float tile: with AVX2's 16 registers, 8 sums, one row vector and a broadcast."""

BYTE_COLUMNS = 8 if LANES == 16 else 4
"""Columns of a byte tile: an int and a float sum each."""

BLOCK = 32
"""Elements of a block of every type here, and of quantised activations."""

BLOCKS = 8
"""Blocks of 32 in a super-block."""

SCALE_AT, TAIL_BYTES = 32, 64
"""What a column of super-blocks has of each behind its bytes: sixteen sums of 16 in i16, then the
scale in f32; see kernels/quantize.py."""

BLOCK_STRIDE = LANES * (BLOCK + 8)
"""A panel's block: LANES x 32 bytes, then LANES scales and LANES offsets in f32."""

SCALES_AT = LANES * BLOCK * BLOCKS
LOWS_AT = SCALES_AT + LANES * 4 * 2 * BLOCKS
OFFSET_AT = LOWS_AT + LANES * 4 * BLOCKS
SUPER_STRIDE = OFFSET_AT + 4 * LANES
"""A panel's super-block: LANES x 256 bytes; from SCALES_AT sixteen or eight times LANES scales in
f32; from LOWS_AT eight times LANES pairs of i16; from OFFSET_AT LANES factors in f32."""

PANEL_BLOCK_BYTES = max(BLOCK_STRIDE, SUPER_STRIDE // BLOCKS)
"""Room of a block in a panel of either kind."""

_I8, _I16, _I32, _I64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))
_FLOAT = ir.FloatType()


def _column(b: ir.IRBuilder, column: int, n_cols: ir.Value) -> ir.Value:
    last = b.sub(n_cols, _I64(1))
    return b.select(b.icmp_signed("<", _I64(column), n_cols), _I64(column), last)


def _float_tile(b: ir.IRBuilder, a: list[ir.Value]) -> None:
    """out[c] += sum over k of panel[k] * x[c][k]."""
    panel, panel_stride, x, x_stride, n_cols, n_steps, out, out_stride = a
    vector = F32V.llvm
    columns = [_column(b, c, n_cols) for c in range(FLOAT_COLUMNS)]
    xs = [strided(b, x, column, x_stride) for column in columns]
    outs = [strided(b, out, column, out_stride) for column in columns]
    sums = [variable(b, b.load(pointer(b, address, vector), align=4)) for address in outs]
    with counting(b, n_steps) as k:
        row = b.load(pointer(b, strided(b, panel, k, panel_stride), vector), align=4)
        for address, total in zip(xs, sums, strict=True):
            value = b.load(pointer(b, strided(b, address, k, _I64(4)), _FLOAT), align=4)
            b.store(multiply_add(b, [row, broadcast(b, value, LANES), b.load(total)]), total)
    for address, total in zip(reversed(outs), reversed(sums), strict=True):
        b.store(b.load(total), pointer(b, address, vector), align=4)


def _byte_tile(b: ir.IRBuilder, a: list[ir.Value]) -> None:
    """out[c] = sum over blocks of scale * x scale[c] * (bytes . x bytes[c]) + offset * x sum[c].

    x of a column: n_blocks * 32 bytes, then n_blocks pairs of scale and sum; see quantize.py.
    """
    panel, x, x_stride, n_cols, n_blocks, out = a
    floats, ints = F32V.llvm, I32V.llvm
    columns = [_column(b, c, n_cols) for c in range(BYTE_COLUMNS)]
    xs = [strided(b, x, column, x_stride) for column in columns]
    pairs_at = b.mul(n_blocks, _I64(BLOCK))
    totals = [variable(b, constant(floats, 0.0)) for _ in columns]
    with counting(b, n_blocks) as block:
        here = strided(b, panel, block, _I64(BLOCK_STRIDE))
        at_bytes = b.mul(block, _I64(BLOCK))
        at_pair = b.add(pairs_at, b.mul(block, _I64(8)))
        dots = [constant(ints, 0) for _ in columns]
        for step in range(BLOCK // 4):
            rows = load(b, b.add(here, _I64(step * 4 * LANES)), I8V.llvm)
            for c, address in enumerate(xs):
                four = load(b, b.add(b.add(address, at_bytes), _I64(4 * step)), _I32)
                spread = b.bitcast(broadcast(b, four, LANES), I8V.llvm)
                dots[c] = dot(b, dots[c], rows, spread)
        scale = load(b, b.add(here, _I64(BLOCK * LANES)), floats)
        offset = load(b, b.add(here, _I64((BLOCK + 4) * LANES)), floats)
        for c, address in enumerate(xs):
            pair = b.add(address, at_pair)
            x_scale, x_sum = load(b, pair, _FLOAT), load(b, b.add(pair, _I64(4)), _FLOAT)
            factor = b.fmul(scale, broadcast(b, x_scale, LANES))
            total = multiply_add(b, [b.sitofp(dots[c], floats), factor, b.load(totals[c])])
            total = multiply_add(b, [offset, broadcast(b, x_sum, LANES), total])
            b.store(total, totals[c])
    for column, total in zip(reversed(columns), reversed(totals), strict=True):
        address = strided(b, out, column, _I64(4 * LANES))
        b.store(b.load(total), pointer(b, address, floats), align=4)


def _super_tile(group: int) -> Emit:
    """out[c] = sum over super-blocks of x scale[c] * (products + offset * sum of (pair . x sums)).

    Products are the sum of scale * (bytes . x bytes), with a scale for each `group` elements.
    x of a column: n_blocks * 32 bytes, then TAIL_BYTES for each super-block.
    """

    def emit(b: ir.IRBuilder, a: list[ir.Value]) -> None:
        panel, x, x_stride, n_cols, n_blocks, out = a
        floats = F32V.llvm
        columns = [_column(b, c, n_cols) for c in range(BYTE_COLUMNS)]
        xs = [strided(b, x, column, x_stride) for column in columns]
        totals = [variable(b, constant(floats, 0.0)) for _ in columns]
        with counting(b, b.sdiv(n_blocks, _I64(BLOCKS))) as block:
            here = strided(b, panel, block, _I64(SUPER_STRIDE))
            in_row = b.mul(block, _I64(BLOCK * BLOCKS))
            in_tail = b.add(b.mul(n_blocks, _I64(BLOCK)), b.mul(block, _I64(TAIL_BYTES)))
            parts = _group_sums(b, group, here, [b.add(address, in_row) for address in xs])
            tails = [b.add(address, in_tail) for address in xs]
            offset = load(b, at(b, here, OFFSET_AT), floats)
            for low, part, tail, total in zip(
                _low_sums(b, here, tails), parts, tails, totals, strict=True
            ):
                value = multiply_add(b, [offset, b.sitofp(low, floats), part])
                scale = broadcast(b, load(b, at(b, tail, SCALE_AT), _FLOAT), LANES)
                b.store(multiply_add(b, [value, scale, b.load(total)]), total)
        for column, total in zip(reversed(columns), reversed(totals), strict=True):
            address = strided(b, out, column, _I64(4 * LANES))
            b.store(b.load(total), pointer(b, address, floats), align=4)

    return emit


def _group_sums(b: ir.IRBuilder, group: int, panel: ir.Value, xs: list[ir.Value]) -> list[ir.Value]:
    """Products of a super-block with each column, each group times its scale."""
    floats, ints = F32V.llvm, I32V.llvm
    parts = [variable(b, constant(floats, 0.0)) for _ in xs]
    with counting(b, _I64(BLOCK * BLOCKS // group)) as i:
        here, in_row = strided(b, panel, i, _I64(group * LANES)), b.mul(i, _I64(group))
        dots = [constant(ints, 0) for _ in xs]
        for step in range(0, group, 4):
            rows = load(b, at(b, here, step * LANES), I8V.llvm)
            for c, address in enumerate(xs):
                four = load(b, at(b, b.add(address, in_row), step), _I32)
                dots[c] = dot(b, dots[c], rows, b.bitcast(broadcast(b, four, LANES), I8V.llvm))
        scale = load(b, strided(b, at(b, panel, SCALES_AT), i, _I64(4 * LANES)), floats)
        for products, part in zip(dots, parts, strict=True):
            value = multiply_add(b, [b.sitofp(products, floats), scale, b.load(part)])
            b.store(value, part)
    return [b.load(part) for part in parts]


def _low_sums(b: ir.IRBuilder, panel: ir.Value, tails: list[ir.Value]) -> list[ir.Value]:
    """Pairs of i16 of a super-block times each column's sums of 16."""
    shorts = ir.VectorType(_I16, 2 * LANES)
    sums = [constant(I32V.llvm, 0) for _ in tails]
    for i in range(BLOCKS):
        pairs = load(b, at(b, panel, LOWS_AT + 4 * LANES * i), shorts)
        for c, tail in enumerate(tails):
            both = broadcast(b, load(b, at(b, tail, 4 * i), _I32), LANES)
            sums[c] = b.add(sums[c], sum_pairs(b, pairs, b.bitcast(both, shorts)))
    return sums


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
    rows = [load(b, strided(b, source, _I64(i), stride), kind) for i in range(8)]
    _store_rows(b, _transpose(b, rows), target, target_stride)


def _store_halfs_transposed(b: ir.IRBuilder, a: list[ir.Value]) -> None:
    """Eight rows of eight f16 at `source` to columns of f32 at `target`."""
    source, stride, target, target_stride = a
    kind = ir.VectorType(ir.IntType(16), 8)
    halfs = [load(b, strided(b, source, _I64(i), stride), kind) for i in range(8)]
    rows = [half_to_float(b, row) for row in halfs]
    _store_rows(b, _transpose(b, rows), target, target_stride)


def _store_rows(b: ir.IRBuilder, rows: list[ir.Value], target: ir.Value, stride: ir.Value) -> None:
    for i, row in enumerate(rows):
        b.store(row, pointer(b, strided(b, target, _I64(i), stride), row.type), align=4)


def _store_sums_of_16(b: ir.IRBuilder, a: list[ir.Value]) -> None:
    """Write the sum of each 16 of 256 signed bytes at a[1] as i16 to a[0]."""
    zero, one = constant(I32V.llvm, 0), constant(I8V.llvm, 1)
    sums = [
        dot(b, zero, one, load(b, at(b, a[1], first), I8V.llvm))
        for first in range(0, 256, 4 * LANES)
    ]
    for _ in range(2):
        # Neighbours of two vectors are added up to one vector, in order.
        halves = [
            [
                b.shuffle_vector(left, right, indices(list(range(first, 2 * LANES, 2))))
                for first in (0, 1)
            ]
            for left, right in zip(sums[::2], sums[1::2], strict=True)
        ]
        sums = [b.add(even, odd) for even, odd in halves]
    for i, value in enumerate(sums):
        small = b.trunc(value, ir.VectorType(_I16, LANES))
        b.store(small, pointer(b, at(b, a[0], 2 * LANES * i), small.type), align=1)


float_tile = define(_float_tile, types.void, *[types.int64] * 8)
"""(panel, its stride, x, column stride, columns, steps, out, its stride): adds to out."""

byte_tile = define(_byte_tile, types.void, *[types.int64] * 6)
"""(panel, x, column stride, columns, blocks, out): writes out [LANES, columns]."""

super_tile_16 = define(_super_tile(16), types.void, *[types.int64] * 6)
"""As `byte_tile`, over a panel of super-blocks with a scale for each 16 elements."""
super_tile_32 = define(_super_tile(32), types.void, *[types.int64] * 6)

store_transposed = define(_store_transposed, types.void, *[types.int64] * 4)
store_halfs_transposed = define(_store_halfs_transposed, types.void, *[types.int64] * 4)
store_sums_of_16 = define(_store_sums_of_16, types.void, types.int64, types.int64)
"""(target, bytes)"""
