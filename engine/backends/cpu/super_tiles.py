"""Register tiles over stored rows of super-blocks of 256: one column at a time.

As in row_tiles.py; a super-block is eight blocks of 32 that share one scale of the column. Scales
of blocks are applied to sums of 32 (q4_K, q5_K) or 4 (q6_K, whose scales change every 16) products.
"""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir
from numba import types

from engine.backend.host_buffer import CACHE_LINE
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
    prefetch,
    strided,
    variable,
)
from engine.backends.cpu.row_tiles import AHEAD, store_sums, sum_of_lanes, tile_rows
from engine.backends.cpu.simd import define
from engine.backends.cpu.tiles import BLOCK

BLOCKS = 8
"""Blocks of 32 in a super-block."""

BLOCKS_AT_ONCE = LANES // 8
"""Blocks of 32 whose bytes fill a register."""

_I8, _I16, _I32, _I64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))
_FLOAT = ir.FloatType()
_SUM = ir.VectorType(_FLOAT, LANES)
_EIGHT = ir.VectorType(_FLOAT, BLOCKS)
_PART = ir.VectorType(_I8, BLOCK * BLOCKS_AT_ONCE)
"""Weights that meet a column at once."""
_WORDS = ir.VectorType(_I32, BLOCKS * BLOCKS_AT_ONCE)
_PRODUCTS = ir.VectorType(_FLOAT, _WORDS.count)

AddBlock = Callable[[ir.IRBuilder, list[ir.Value], ir.Value, ir.Value], None]
"""(builder, places, x, pairs): writes what one super-block of each row adds."""


def _over_blocks(b: ir.IRBuilder, a: list[ir.Value], n_bytes: int, add: AddBlock) -> None:
    """Call `add` with the addresses of each super-block, `n_bytes` long, and of its column part."""
    w, row_stride, block_stride, n_rows, x, n_blocks, _ = a
    pairs = b.add(x, b.mul(n_blocks, _I64(BLOCK)))
    starts = [strided(b, w, row, row_stride) for row in tile_rows(b, n_rows)]
    with counting(b, b.sdiv(n_blocks, _I64(BLOCKS))) as block:
        here = b.mul(block, block_stride)
        places = [b.add(start, here) for start in starts]
        for place in places:
            for line in range(0, n_bytes, CACHE_LINE):
                prefetch(b, at(b, place, AHEAD + line))
        x_here = b.add(x, b.mul(block, _I64(BLOCKS * BLOCK)))
        add(b, places, x_here, b.add(pairs, b.mul(block, _I64(BLOCKS * 8))))


def _spread(b: ir.IRBuilder, values: ir.Value, first: int, per_lane: int) -> ir.Value:
    """Lane i of the products gets value first + i // per_lane."""
    lanes = [first + i // per_lane for i in range(_PRODUCTS.count)]
    return b.shuffle_vector(values, values, indices(lanes))


def _halfs(b: ir.IRBuilder, address: ir.Value, n: int) -> list[ir.Value]:
    """`n` f16 as scalars."""
    floats = half_to_float(b, load(b, address, ir.VectorType(_I16, n)))
    return [b.extract_element(floats, _I32(i)) for i in range(n)]


def _shift(b: ir.IRBuilder, words: ir.Value, shifts: list[int], mask: int) -> ir.Value:
    """Bytes moved down as four-byte lanes; the mask drops what comes in from neighbours."""
    moved = b.lshr(words, ir.Constant(_WORDS, shifts))
    return b.and_(moved, constant(_WORDS, mask * 0x01010101))


def _twice(b: ir.IRBuilder, address: ir.Value) -> ir.Value:
    """32 bytes, once for each block that meets a column at once."""
    words = load(b, address, ir.VectorType(_I32, 8))
    return b.shuffle_vector(words, words, indices([i % 8 for i in range(_WORDS.count)]))


def _each(first: int, step: int) -> list[int]:
    """Shifts: first * step for the first block, one step more for the next."""
    return [step * (first + i // 8) for i in range(_WORDS.count)]


# --- q4_K, q5_K ---------------------------------------------------------------------------------


def _row_tile_mins(fifth_at: int, nibbles_at: int) -> Emit:
    """Rows of d * scale * q - dmin * min, 6 bits a scale and a minimum; no fifth bits at 0."""

    def emit(b: ir.IRBuilder, a: list[ir.Value]) -> None:
        rows = tile_rows(b, a[3])
        totals = [variable(b, constant(_SUM, 0.0)) for _ in rows]
        lows = [variable(b, constant(_EIGHT, 0.0)) for _ in rows]

        def weights(place: ir.Value, first: int) -> ir.Value:
            group = _twice(b, at(b, place, nibbles_at + 32 * (first // 2)))
            low = _shift(b, group, _each(first % 2, 4), 0x0F)
            if fifth_at:
                bits = _shift(b, _twice(b, at(b, place, fifth_at)), _each(first, 1), 1)
                low = b.or_(low, b.shl(bits, constant(_WORDS, 4)))
            return b.bitcast(low, _PART)

        def add(b: ir.IRBuilder, places: list[ir.Value], x: ir.Value, pairs: ir.Value) -> None:
            both = load(b, pairs, ir.VectorType(_FLOAT, 2 * BLOCKS))
            x_scale = b.extract_element(both, _I32(0))
            x_sums = b.shuffle_vector(both, both, indices(list(range(1, 2 * BLOCKS, 2))))
            scales, parts = [], [constant(_SUM, 0.0) for _ in places]
            for place, low in zip(places, lows, strict=True):
                d, dmin = _halfs(b, place, 2)
                scale, least = _six_bits(b, at(b, place, 4))
                factor = b.fmul(d, x_scale)
                scales.append(b.fmul(scale, broadcast(b, factor, BLOCKS)))
                step = b.fmul(least, broadcast(b, dmin, BLOCKS))
                b.store(multiply_add(b, [step, x_sums, b.load(low)]), low)
            for first in range(0, BLOCKS, BLOCKS_AT_ONCE):
                column = load(b, at(b, x, BLOCK * first), _PART)
                for r, place in enumerate(places):
                    dots = dot(b, constant(_WORDS, 0), weights(place, first), column)
                    factor = _spread(b, scales[r], first, 8)
                    parts[r] = multiply_add(b, [b.sitofp(dots, _PRODUCTS), factor, parts[r]])
            for part, total in zip(parts, totals, strict=True):
                b.store(b.fadd(b.load(total), part), total)

        _over_blocks(b, a, nibbles_at + 128, add)
        sums = [
            b.fsub(sum_of_lanes(b, b.load(total)), sum_of_lanes(b, b.load(low)))
            for total, low in zip(totals, lows, strict=True)
        ]
        store_sums(b, sums, a[6], a[3])

    return emit


def _six_bits(b: ir.IRBuilder, address: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Eight scales and eight minima as floats from their 12 bytes; see quants_k.py."""
    first, second, last = (load(b, at(b, address, 4 * i), _I32) for i in range(3))

    def pick(word: ir.Value, shift: int, mask: int) -> ir.Value:
        return b.and_(b.lshr(word, _I32(shift)), _I32(mask * 0x01010101))

    words = (
        pick(first, 0, 63),
        b.or_(pick(last, 0, 15), b.shl(pick(first, 6, 3), _I32(4))),
        pick(second, 0, 63),
        b.or_(pick(last, 4, 15), b.shl(pick(second, 6, 3), _I32(4))),
    )
    four = ir.Constant(ir.VectorType(_I32, 4), ir.Undefined)
    for i, word in enumerate(words):
        four = b.insert_element(four, word, _I32(i))
    small = b.bitcast(four, ir.VectorType(_I8, 16))
    halves = [b.shuffle_vector(small, small, indices(list(range(i, i + 8)))) for i in (0, 8)]
    return b.uitofp(halves[0], _EIGHT), b.uitofp(halves[1], _EIGHT)


# --- q6_K ---------------------------------------------------------------------------------------


def _row_tile_q6_k(b: ir.IRBuilder, a: list[ir.Value]) -> None:
    """Rows of d * scale * (q - 32)."""
    totals = [variable(b, constant(_SUM, 0.0)) for _ in tile_rows(b, a[3])]

    def add(b: ir.IRBuilder, places: list[ir.Value], x: ir.Value, pairs: ir.Value) -> None:
        sums = [constant(_SUM, 0.0) for _ in places]
        for first in range(0, BLOCKS, BLOCKS_AT_ONCE):
            _add_q6_k(b, sums, places, at(b, x, BLOCK * first), at(b, pairs, 8 * first), first)
        for place, part, total in zip(places, sums, totals, strict=True):
            factor = broadcast(b, _halfs(b, at(b, place, 208), 1)[0], LANES)
            b.store(multiply_add(b, [part, factor, b.load(total)]), total)

    _over_blocks(b, a, 210, add)
    store_sums(b, [sum_of_lanes(b, b.load(total)) for total in totals], a[6], a[3])


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
    column = load(b, x, _PART)
    too_large = dot(b, constant(_WORDS, 0), constant(_PART, 32), column)
    start = b.sub(constant(_WORDS, 0), too_large)
    pair = load(b, pairs, ir.VectorType(_FLOAT, 2 * BLOCKS_AT_ONCE))
    x_scale = b.shuffle_vector(pair, pair, indices([2 * (i // 8) for i in range(_WORDS.count)]))
    small = ir.VectorType(_I8, 2 * BLOCKS_AT_ONCE)
    for r, place in enumerate(places):
        dots = b.sitofp(dot(b, start, _weights_q6_k(b, place, first), column), _PRODUCTS)
        scales = load(b, at(b, place, 192 + 2 * first), small)
        wide = b.sitofp(scales, ir.VectorType(_FLOAT, small.count))
        factor = b.fmul(_spread(b, wide, 0, 4), x_scale)
        sums[r] = multiply_add(b, [dots, factor, sums[r]])


def _weights_q6_k(b: ir.IRBuilder, place: ir.Value, first: int) -> ir.Value:
    """6-bit values of BLOCKS_AT_ONCE blocks: four low bits, and two of the bytes at 128."""
    half, quarter = first // 4, first % 4
    low = load(b, at(b, place, 64 * half + 32 * (quarter % 2)), _WORDS)
    low = _shift(b, low, [4 * (quarter // 2)] * _WORDS.count, 0x0F)
    high = _shift(b, _twice(b, at(b, place, 128 + 32 * half)), _each(quarter, 2), 3)
    return b.bitcast(b.or_(low, b.shl(high, constant(_WORDS, 4))), _PART)


row_tile_q4_k = define(_row_tile_mins(0, 16), types.void, *[types.int64] * 7)
"""(w, row stride, block stride, rows, x, blocks of 32, out): out [rows], at most ROW_TILE."""
row_tile_q5_k = define(_row_tile_mins(16, 48), types.void, *[types.int64] * 7)
row_tile_q6_k = define(_row_tile_q6_k, types.void, *[types.int64] * 7)
