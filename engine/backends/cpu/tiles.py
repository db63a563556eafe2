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
    variable,
)
from engine.backends.cpu.simd import F32V, I8V, I32V, define

FLOAT_COLUMNS = 8
"""Columns of a float tile: with AVX2's 16 registers, 8 sums, one row vector and a broadcast."""

BYTE_COLUMNS = 8 if LANES == 16 else 4
"""Columns of a byte tile: an int and a float sum each."""

BLOCK = 32
"""Elements of a block of every type here, and of quantised activations."""

PANEL_BLOCK_BYTES = LANES * (BLOCK + 8)
"""A panel's block: LANES x 32 bytes, then LANES scales and LANES offsets in f32."""

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
        here = strided(b, panel, block, _I64(PANEL_BLOCK_BYTES))
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


float_tile = define(_float_tile, types.void, *[types.int64] * 8)
"""(panel, its stride, x, column stride, columns, steps, out, its stride): adds to out."""

byte_tile = define(_byte_tile, types.void, *[types.int64] * 6)
"""(panel, x, column stride, columns, blocks, out): writes out [LANES, columns]."""

store_transposed = define(_store_transposed, types.void, *[types.int64] * 4)
store_halfs_transposed = define(_store_halfs_transposed, types.void, *[types.int64] * 4)
