"""FLASH_ATTN_EXT: attention with an online softmax, so that no row of scores is ever stored.

Queries of one head meet KEYS keys at a time. Long batches (`_attend_tile`) go through register
tiles over unpacked keys and sum in f32. Short ones (`_attend_row`) take dot products and, as
ggml's CPU does there, round queries to what the keys' type meets, and with f16 values running sums
to f16, so that results agree to the last bit but one. Source: FlashAttention, arXiv 2205.14135,
algorithm 1; ggml-cpu/ops.cpp.
"""

from __future__ import annotations

import numpy as np

from engine.backends.cpu.codegen import LANES
from engine.backends.cpu.jit import helper, kernel
from engine.backends.cpu.kernels.common import (
    address,
    nb,
    ne,
    own_scratch,
    param,
    param_float,
    row_at,
    share,
)
from engine.backends.cpu.kernels.norm import exp_scalar, scale_row, slope_of
from engine.backends.cpu.kernels.quantize import quantize_column
from engine.backends.cpu.layout import (
    DST,
    GROUP_ROWS,
    KIND_F16,
    SRC0,
    SRC1,
    SRC2,
    SRC3,
    SRC4,
)
from engine.backends.cpu.simd import (
    Vector,
    call3,
    call6,
    call10,
    exp,
    exp_exact,
    fadd,
    fma,
    fma_scalar,
    fmul,
    fsub,
    larger,
    load_f16,
    load_f16_part,
    load_f16v,
    load_f32,
    load_f32_part,
    load_f32v,
    max_lanes,
    round_to_half,
    splat,
    store_f32,
    store_f32_part,
    store_f32v,
    sum_lanes,
    tanh,
)
from engine.backends.cpu.tiles import FLOAT_COLUMNS, float_tile

KEYS = 64
"""Keys that queries meet at once; a multiple of LANES."""

QUERIES = 32
"""Queries of a head that share an unpacked panel of keys; a multiple of FLOAT_COLUMNS."""

TILE_FROM_QUERIES = 64
"""From so many queries on ggml sums in f32."""

SCALE, SOFTCAP, KEY_DOT, QUERY_ROUNDING, KEY_PANEL, KEY_TO_FLOAT, VALUE_KIND, VALUE_TO_FLOAT = (
    range(8)
)
"""Parameters: two floats; how a query meets keys as they are stored; how keys become panels of
floats (KEY_TO_FLOAT 0 if directly); and what values are.
"""
ALIBI = 8
"""The first of the three that `slope_of` reads."""

SCORES = 64
"""Where scores begin in the scratch of a head of a short batch, behind its state."""

HEAD_BYTES = SCORES + 8 * KEYS
"""State, scores and shrinks of such a head; its query stands behind them."""

_ZERO = np.float32(0.0)
_ONE = np.float32(1.0)
_MINUS_INF = np.float32(-np.inf)


@helper
def _bias_scores(
    scores: int,
    mask: int,
    slope: np.float32,
    n_keys: int,
    scale: np.float32,
    softcap: np.float32,
) -> np.float32:
    """Scale and mask KEYS scores in place and give back the largest; keys past n_keys get -inf."""
    factor, cap, top = splat(scale), splat(softcap), splat(_MINUS_INF)
    slopes = splat(slope)
    for i in range(0, n_keys, LANES):
        count = min(LANES, n_keys - i)
        value = fmul(load_f32v(scores + 4 * i), factor)
        if softcap != _ZERO:
            value = fmul(tanh(value), cap)
        if mask != 0:
            if count == LANES:
                value = fma(load_f16v(mask + 2 * i), slopes, value)
            else:
                value = fma(load_f16_part(mask + 2 * i, count), slopes, value)
        store_f32v(scores + 4 * i, value)
        if count == LANES:
            top = larger(value, top)
    largest = max_lanes(top)
    for i in range(n_keys - n_keys % LANES, n_keys):
        largest = max(largest, load_f32(scores + 4 * i))
    for i in range(n_keys, KEYS):
        store_f32(scores + 4 * i, _MINUS_INF)
    return largest


@helper
def _weigh(
    scores: int,
    state: int,
    mask: int,
    slope: np.float32,
    n_keys: int,
    scale: np.float32,
    softcap: np.float32,
) -> np.float32:
    """Turn KEYS scores into weights; give back what earlier results must be multiplied with.

    `state` holds the largest score and the sum of weights so far, f32 each.
    """
    before = load_f32(state)
    largest = max(before, _bias_scores(scores, mask, slope, n_keys, scale, softcap))
    if largest == _MINUS_INF:
        # Nothing seen yet, unless a score is NaN: that must reach the result.
        for i in range(KEYS):
            value = load_f32(scores + 4 * i)
            if value == value:
                store_f32(scores + 4 * i, _ZERO)
            else:
                store_f32(state + 4, value)
        return _ONE
    top, total = splat(largest), splat(_ZERO)
    for i in range(0, KEYS, LANES):
        weights = exp(fsub(load_f32v(scores + 4 * i), top))
        store_f32v(scores + 4 * i, weights)
        total = fadd(total, weights)
    shrink = _ONE
    if largest > before:
        shrink = max_lanes(exp(splat(before - largest)))
    store_f32(state, largest)
    store_f32(state + 4, load_f32(state + 4) * shrink + sum_lanes(total))
    return shrink


@helper
def _weigh_in_order(scores: int, shrinks: int, state: int, n_keys: int) -> None:
    """Turn biased scores into weights, each relative to the largest score up to it.

    `shrinks` gets what earlier results are to be multiplied with before a weight is used.
    """
    largest, grows = load_f32(state), False
    for j in range(n_keys):
        score, shrink = load_f32(scores + 4 * j), _ZERO
        if score > largest:
            shrink = largest - score
            largest = score
            grows = True
        if score != _MINUS_INF:
            store_f32(scores + 4 * j, score - largest)
        store_f32(shrinks + 4 * j, shrink)
    for j in range(n_keys, KEYS):
        store_f32(shrinks + 4 * j, _ZERO)
    for j in range(0, KEYS, LANES):
        store_f32v(scores + 4 * j, exp_exact(load_f32v(scores + 4 * j)))
        if grows:
            store_f32v(shrinks + 4 * j, exp_exact(load_f32v(shrinks + 4 * j)))
        else:
            store_f32v(shrinks + 4 * j, splat(_ONE))
    total = load_f32(state + 4)
    for j in range(n_keys):
        # One rounding, as C's compilers fuse it.
        total = fma_scalar(total, load_f32(shrinks + 4 * j), load_f32(scores + 4 * j))
    store_f32(state, largest)
    store_f32(state + 4, total)


@helper
def _add_rounded(total: Vector, row: Vector, weight: np.float32, shrink: np.float32) -> Vector:
    """Give total * shrink + row * weight, rounded to f16 after each step."""
    if shrink != _ONE:
        total = round_to_half(fmul(total, splat(shrink)))
    return round_to_half(fma(row, splat(weight), total))


@helper
def _add_values(
    y: int, v: int, v_stride: int, weights: int, shrinks: int, n_keys: int, dv: int
) -> None:
    """Add the weighted f16 rows of v to y, key by key."""
    i = 0
    # Several vectors at a time: each sum waits for its own rounding only.
    while i + 4 * LANES <= dv:
        a, b = load_f32v(y + 4 * i), load_f32v(y + 4 * (i + LANES))
        c, d = load_f32v(y + 4 * (i + 2 * LANES)), load_f32v(y + 4 * (i + 3 * LANES))
        for j in range(n_keys):
            weight, shrink = load_f32(weights + 4 * j), load_f32(shrinks + 4 * j)
            row = v + j * v_stride + 2 * i
            a = _add_rounded(a, load_f16v(row), weight, shrink)
            b = _add_rounded(b, load_f16v(row + 2 * LANES), weight, shrink)
            c = _add_rounded(c, load_f16v(row + 4 * LANES), weight, shrink)
            d = _add_rounded(d, load_f16v(row + 6 * LANES), weight, shrink)
        store_f32v(y + 4 * i, a)
        store_f32v(y + 4 * (i + LANES), b)
        store_f32v(y + 4 * (i + 2 * LANES), c)
        store_f32v(y + 4 * (i + 3 * LANES), d)
        i += 4 * LANES
    while i < dv:
        count = min(LANES, dv - i)
        total = load_f32_part(y + 4 * i, count)
        for j in range(n_keys):
            row = load_f16_part(v + j * v_stride + 2 * i, count)
            weight, shrink = load_f32(weights + 4 * j), load_f32(shrinks + 4 * j)
            total = _add_rounded(total, row, weight, shrink)
        store_f32_part(y + 4 * i, total, count)
        i += LANES


@helper
def _add_values_twice(
    y: int, z: int, v: int, v_stride: int, weights: int, step: int, n_keys: int, dv: int
) -> None:
    """Add the weighted f16 rows of v to two heads, y and z; dv is a multiple of 4 * LANES.

    By what y shrinks stands 4 * KEYS behind its weights; what is z's, `step` further.
    """
    shrinks = weights + 4 * KEYS
    for i in range(0, dv, 4 * LANES):
        m, n = y + 4 * i, z + 4 * i
        a, b = load_f32v(m), load_f32v(m + 4 * LANES)
        c, d = load_f32v(m + 8 * LANES), load_f32v(m + 12 * LANES)
        e, f = load_f32v(n), load_f32v(n + 4 * LANES)
        g, h = load_f32v(n + 8 * LANES), load_f32v(n + 12 * LANES)
        for j in range(n_keys):
            row, at = v + j * v_stride + 2 * i, 4 * j
            v0, v1 = load_f16v(row), load_f16v(row + 2 * LANES)
            v2, v3 = load_f16v(row + 4 * LANES), load_f16v(row + 6 * LANES)
            weight, shrink = load_f32(weights + at), load_f32(shrinks + at)
            a = _add_rounded(a, v0, weight, shrink)
            b = _add_rounded(b, v1, weight, shrink)
            c = _add_rounded(c, v2, weight, shrink)
            d = _add_rounded(d, v3, weight, shrink)
            weight, shrink = load_f32(weights + step + at), load_f32(shrinks + step + at)
            e = _add_rounded(e, v0, weight, shrink)
            f = _add_rounded(f, v1, weight, shrink)
            g = _add_rounded(g, v2, weight, shrink)
            h = _add_rounded(h, v3, weight, shrink)
        store_f32v(m, a)
        store_f32v(m + 4 * LANES, b)
        store_f32v(m + 8 * LANES, c)
        store_f32v(m + 12 * LANES, d)
        store_f32v(n, e)
        store_f32v(n + 4 * LANES, f)
        store_f32v(n + 8 * LANES, g)
        store_f32v(n + 12 * LANES, h)


@helper
def _add_floats(y: int, v: int, weights: int, shrinks: int, n_keys: int, dv: int) -> None:
    """Add the weighted f32 rows of v, side by side, to y, key by key."""
    for i in range(0, dv, LANES):
        count = min(LANES, dv - i)
        total = load_f32_part(y + 4 * i, count)
        for j in range(n_keys):
            row, shrink = load_f32_part(v + 4 * (j * dv + i), count), load_f32(shrinks + 4 * j)
            if shrink != _ONE:
                total = fmul(total, splat(shrink))
            total = fma(row, splat(load_f32(weights + 4 * j)), total)
        store_f32_part(y + 4 * i, total, count)


@helper
def _n_visible(mask: int, n_keys: int) -> int:
    """Keys up to the last one that a row of the mask shows."""
    n = n_keys
    while n > 0 and load_f16(mask + 2 * (n - 1)) == _MINUS_INF:
        n -= 1
    return n


@helper
def _inverse(total: np.float32) -> np.float32:
    """1 / total, 0 for a query that saw nothing."""
    if total == _ZERO:
        return _ZERO
    return _ONE / total


@helper
def _take_share(p: int, y: int, dv: int, state: int, h: int) -> None:
    """Let the sink of head h, if there is one, take its share of results y."""
    if address(p, SRC4) == 0:
        return
    sink, largest, total = load_f32(address(p, SRC4) + 4 * h), load_f32(state), load_f32(state + 4)
    if sink > largest:
        shrink = exp_scalar(largest - sink)
        scale_row(y, y, dv, shrink)
        store_f32(state + 4, total * shrink + _ONE)
    else:
        store_f32(state + 4, total + exp_scalar(sink - largest))


@helper
def _begin_row(p: int, y: int, q: int, state: int) -> None:
    """Nothing was seen yet; the query is rounded to what keys want, HEAD_BYTES behind."""
    quantize_column(param(p, QUERY_ROUNDING), state + HEAD_BYTES, q, ne(p, SRC1, 0))
    store_f32(state, _MINUS_INF)
    store_f32(state + 4, _ZERO)
    for i in range(ne(p, SRC2, 0)):
        store_f32(y + 4 * i, _ZERO)


@helper
def _weigh_keys(
    p: int,
    k: int,
    mask: int,
    n_keys: int,
    slope: np.float32,
    state: int,
    scale: np.float32,
    softcap: np.float32,
) -> None:
    """Write weights of keys from address k on, and by what earlier results shrink, behind state."""
    stride, scores = nb(p, SRC1, 1), state + SCORES
    group, query = GROUP_ROWS * stride, state + HEAD_BYTES
    d = ne(p, SRC1, 0)
    call10(param(p, KEY_DOT), k, group, stride, nb(p, SRC1, 0), n_keys, query, 0, 1, d, scores)
    _bias_scores(scores, mask, slope, n_keys, scale, softcap)
    _weigh_in_order(scores, scores + 4 * KEYS, state, n_keys)


@helper
def _add_any_values(p: int, y: int, v: int, state: int, n_keys: int, room: int) -> None:
    """Add weighted values from address v on, f16 or what becomes floats in `room`."""
    weights, stride, dv = state + SCORES, nb(p, SRC2, 1), ne(p, SRC2, 0)
    shrinks = weights + 4 * KEYS
    if param(p, VALUE_KIND) == KIND_F16:
        _add_values(y, v, stride, weights, shrinks, n_keys, dv)
        return
    for i in range(n_keys):
        call3(param(p, VALUE_TO_FLOAT), room + 4 * i * dv, v + i * stride, dv)
    _add_floats(y, room, weights, shrinks, n_keys, dv)


@helper
def _attend_rows(
    p: int,
    t: int,
    h: int,
    n_heads: int,
    i3: int,
    scratch: int,
    scale: np.float32,
    softcap: np.float32,
) -> None:
    """Query t of one head, or of two that share keys and values.

    Scratch of a head, f32: state, scores and shrinks [KEYS], query [d]; behind those of two, values
    [dv, KEYS]. Two heads take their turns together, so that neither waits for its own rounding.
    """
    n_kv, dv, n_all = ne(p, SRC1, 1), ne(p, SRC2, 0), ne(p, SRC0, 2)
    step = HEAD_BYTES + 4 * _whole_vectors(ne(p, SRC1, 0))
    room = scratch + 2 * step
    k = row_at(p, SRC1, 0, h // (n_all // ne(p, SRC1, 2)), i3)
    v = row_at(p, SRC2, 0, h // (n_all // ne(p, SRC2, 2)), i3)
    for i in range(n_heads):
        _begin_row(
            p, row_at(p, DST, h + i, t, i3), row_at(p, SRC0, t, h + i, i3), scratch + i * step
        )
    y, z = row_at(p, DST, h, t, i3), row_at(p, DST, h + n_heads - 1, t, i3)
    for first in range(0, n_kv, KEYS):
        n_keys, mask = min(KEYS, n_kv - first), _mask_row(p, t, h, i3)
        if mask != 0:
            mask += 2 * first
            n_keys = _n_visible(mask, n_keys)
        if n_keys == 0:
            continue
        keys, values = k + first * nb(p, SRC1, 1), v + first * nb(p, SRC2, 1)
        for i in range(n_heads):
            slope = slope_of(p, ALIBI, h + i)
            _weigh_keys(p, keys, mask, n_keys, slope, scratch + i * step, scale, softcap)
        if n_heads == 1:
            _add_any_values(p, y, values, scratch, n_keys, room)
        else:
            weights = scratch + SCORES
            _add_values_twice(y, z, values, nb(p, SRC2, 1), weights, step, n_keys, dv)
    for i in range(n_heads):
        y, state = row_at(p, DST, h + i, t, i3), scratch + i * step
        _take_share(p, y, dv, state, h + i)
        scale_row(y, y, dv, _inverse(load_f32(state + 4)))


@helper
def _heads_at_once(p: int, h: int, n_left: int) -> int:
    """Two where head h and the next one share keys, values and mask, and values are whole tiles."""
    per_key, per_value = ne(p, SRC0, 2) // ne(p, SRC1, 2), ne(p, SRC0, 2) // ne(p, SRC2, 2)
    if n_left < 2 or param(p, VALUE_KIND) != KIND_F16 or ne(p, SRC2, 0) % (4 * LANES) != 0:
        return 1
    if address(p, SRC3) != 0 and ne(p, SRC3, 2) != 1:
        return 1
    if h // per_key == (h + 1) // per_key and h // per_value == (h + 1) // per_value:
        return 2
    return 1


@helper
def _mask_row(p: int, t: int, h: int, i3: int) -> int:
    """Address of a query's row of the mask; 0 without one."""
    if address(p, SRC3) == 0:
        return 0
    return row_at(p, SRC3, t, h % ne(p, SRC3, 2), i3 % ne(p, SRC3, 3))


@helper
def _all_are_masked(
    p: int, t: int, n_queries: int, h: int, i3: int, first: int, n_keys: int
) -> bool:
    """Whether none of the queries sees one of the keys."""
    if address(p, SRC3) == 0:
        return False
    for c in range(n_queries):
        if _n_visible(_mask_row(p, t + c, h, i3) + 2 * first, n_keys) > 0:
            return False
    return True


@helper
def _whole_vectors(n: int) -> int:
    """`n` floats rounded up to whole vectors."""
    return (n + LANES - 1) // LANES * LANES


@helper
def _row_bytes(dv: int) -> int:
    """Bytes of a row of unpacked values: dv floats, rounded up to a vector."""
    return 4 * _whole_vectors(dv)


@helper
def _pack_keys(p: int, panel: int, room: int, k: int, n_keys: int) -> None:
    """Up to LANES keys as a panel [LANES, d]; `room` holds as many rows of f32."""
    d, k_stride = ne(p, SRC1, 0), nb(p, SRC1, 1)
    if param(p, KEY_TO_FLOAT) == 0:
        call6(param(p, KEY_PANEL), panel, k, k_stride, n_keys, 0, d)
        return
    for i in range(n_keys):
        call3(param(p, KEY_TO_FLOAT), room + 4 * i * d, k + i * k_stride, d)
    call6(param(p, KEY_PANEL), panel, room, 4 * d, n_keys, 0, d)


@helper
def _unpack(p: int, k: int, v: int, n_keys: int, keys: int, values: int, room: int) -> None:
    """Write n_keys keys as panels [LANES, d] and their values as rows of f32."""
    d, dv, k_stride, v_stride = ne(p, SRC1, 0), ne(p, SRC2, 0), nb(p, SRC1, 1), nb(p, SRC2, 1)
    for i in range(0, n_keys, LANES):
        _pack_keys(p, keys + 4 * i * d, room, k + i * k_stride, min(LANES, n_keys - i))
    for i in range(n_keys):
        call3(param(p, VALUE_TO_FLOAT), values + i * _row_bytes(dv), v + i * v_stride, dv)


@helper
def _score(p: int, q: int, count: int, keys: int, n_keys: int, scores: int) -> None:
    """Write the scores [KEYS, count] of neighbouring queries at q."""
    d = ne(p, SRC1, 0)
    for i in range(0, KEYS * count, LANES):
        store_f32v(scores + 4 * i, splat(_ZERO))
    for i in range(0, n_keys, LANES):
        panel, target = keys + 4 * i * d, scores + 4 * i
        float_tile(panel, 4 * LANES, q, nb(p, SRC0, 1), count, d, target, 4 * KEYS)


@helper
def _add_weighted(
    values: int, row_bytes: int, scores: int, count: int, n_keys: int, results: int
) -> None:
    """Add values weighted by scores [KEYS, count] to results [dv, count]."""
    for i in range(0, row_bytes, 4 * LANES):
        target = results + i
        float_tile(values + i, row_bytes, scores, 4 * KEYS, count, n_keys, target, row_bytes)


@helper
def _attend_tile(
    p: int,
    t: int,
    n_queries: int,
    h: int,
    i3: int,
    scratch: int,
    scale: np.float32,
    softcap: np.float32,
) -> None:
    """Queries t to t + n_queries (at most QUERIES) of one head.

    Scratch, f32: states, scores [KEYS, FLOAT_COLUMNS], keys [KEYS, d], values [dv, KEYS], results
    [dv, QUERIES], room for keys [d, LANES]; dv rounded up to LANES.
    """
    n_kv, dv, n_heads = ne(p, SRC1, 1), ne(p, SRC2, 0), ne(p, SRC0, 2)
    k = row_at(p, SRC1, 0, h // (n_heads // ne(p, SRC1, 2)), i3)
    v = row_at(p, SRC2, 0, h // (n_heads // ne(p, SRC2, 2)), i3)
    row_bytes = _row_bytes(dv)
    states, scores = scratch, scratch + 8 * QUERIES
    keys = scores + 4 * KEYS * FLOAT_COLUMNS
    values = keys + 4 * KEYS * ne(p, SRC1, 0)
    results = values + row_bytes * KEYS
    room, slope = results + row_bytes * QUERIES, slope_of(p, ALIBI, h)
    for c in range(n_queries):
        store_f32(states + 8 * c, _MINUS_INF)
        store_f32(states + 8 * c + 4, _ZERO)
    for i in range(0, n_queries * row_bytes, 4 * LANES):
        store_f32v(results + i, splat(_ZERO))
    for first in range(0, n_kv, KEYS):
        n_keys = min(KEYS, n_kv - first)
        if _all_are_masked(p, t, n_queries, h, i3, first, n_keys):
            continue
        k_first, v_first = k + first * nb(p, SRC1, 1), v + first * nb(p, SRC2, 1)
        _unpack(p, k_first, v_first, n_keys, keys, values, room)
        for c in range(0, n_queries, FLOAT_COLUMNS):
            count = min(FLOAT_COLUMNS, n_queries - c)
            _score(p, row_at(p, SRC0, t + c, h, i3), count, keys, n_keys, scores)
            for j in range(count):
                mask = _mask_row(p, t + c + j, h, i3)
                if mask != 0:
                    mask += 2 * first
                row, state = scores + 4 * KEYS * j, states + 8 * (c + j)
                shrink = _weigh(row, state, mask, slope, n_keys, scale, softcap)
                if shrink != _ONE:
                    result = results + (c + j) * row_bytes
                    scale_row(result, result, dv, shrink)
            target = results + c * row_bytes
            _add_weighted(values, row_bytes, scores, count, n_keys, target)
    for c in range(n_queries):
        state, result = states + 8 * c, results + c * row_bytes
        _take_share(p, result, dv, state, h)
        scale_row(row_at(p, DST, h, t + c, i3), result, dv, _inverse(load_f32(state + 4)))


@kernel
def flash_attn(p: int, ith: int, nth: int) -> int:
    """Give dst [dv, h, t] from q f32 [d, t, h], k, v [d, n_kv, hk], mask f16 [n_kv, t].

    A query whose keys are all masked gives zeros. src4 are the sinks f32 [h] (optional): one more
    score of each query, without a value.
    """
    scale, softcap = param_float(p, SCALE), param_float(p, SOFTCAP)
    if softcap != _ZERO:
        scale /= softcap
    n_tokens, n_heads, n3 = ne(p, SRC0, 1), ne(p, SRC0, 2), ne(p, SRC0, 3)
    step = QUERIES
    if n_tokens < TILE_FROM_QUERIES:
        step = 1
    n_steps = (n_tokens + step - 1) // step
    scratch = own_scratch(p, ith)
    first, end = share(n_steps * n_heads * n3, ith, nth)
    if step > 1:
        for unit in range(first, end):
            t, h, i3 = unit % n_steps * step, unit // n_steps % n_heads, unit // (n_steps * n_heads)
            n_queries = min(step, n_tokens - t)
            _attend_tile(p, t, n_queries, h, i3, scratch, scale, softcap)
        return 0
    unit = first
    while unit < end:
        h, t, i3 = unit % n_heads, unit // n_heads % n_steps, unit // (n_steps * n_heads)
        count = _heads_at_once(p, h, min(end - unit, n_heads - h))
        _attend_rows(p, t, h, count, i3, scratch, scale, softcap)
        unit += count
    return 0
