"""FLASH_ATTN_EXT: attention with an online softmax, so that no row of scores is ever stored."""

from __future__ import annotations

import math

import numpy as np

from engine.backends.cpu.jit import helper, kernel
from engine.backends.cpu.kernels.common import (
    address,
    nb,
    ne,
    param_float,
    row_at,
    share,
)
from engine.backends.cpu.kernels.matmul_float import dot_f16
from engine.backends.cpu.layout import DST, SRC0, SRC1, SRC2, SRC3
from engine.backends.cpu.simd import (
    LANES,
    fma,
    fmul,
    load_f16,
    load_f16_part,
    load_f16v,
    load_f32_part,
    load_f32v,
    splat,
    store_f32_part,
    store_f32v,
)

_ZERO = np.float32(0.0)
_ONE = np.float32(1.0)
_MINUS_INF = np.float32(-np.inf)


@helper
def _scale_in_place(y: int, n: int, factor: float) -> None:
    factors = splat(factor)
    for i in range(0, n - LANES + 1, LANES):
        store_f32v(y + 4 * i, fmul(load_f32v(y + 4 * i), factors))
    rest = n % LANES
    if rest:
        i = 4 * (n - rest)
        store_f32_part(y + i, fmul(load_f32_part(y + i, rest), factors), rest)


@helper
def _add_scaled(y: int, x: int, n: int, factor: float) -> None:
    """Add factor * x (f16) to y (f32)."""
    factors = splat(factor)
    for i in range(0, n - LANES + 1, LANES):
        store_f32v(y + 4 * i, fma(load_f16v(x + 2 * i), factors, load_f32v(y + 4 * i)))
    rest = n % LANES
    if rest:
        i = n - rest
        total = fma(load_f16_part(x + 2 * i, rest), factors, load_f32_part(y + 4 * i, rest))
        store_f32_part(y + 4 * i, total, rest)


@helper
def _attend(
    p: int, y: int, q: int, k: int, v: int, mask: int, scale: float, softcap: float
) -> None:
    """One query of one head: y [dv] in f32."""
    n_kv, d, dv = ne(p, SRC1, 1), ne(p, SRC1, 0), ne(p, SRC2, 0)
    k_stride, v_stride = nb(p, SRC1, 1), nb(p, SRC2, 1)
    largest, total = _MINUS_INF, _ZERO
    for i in range(dv):
        store_f32_part(y + 4 * i, splat(_ZERO), 1)
    for i in range(n_kv):
        bias = _ZERO
        if mask != 0:
            bias = load_f16(mask + 2 * i)
            if bias == _MINUS_INF:
                continue
        score = dot_f16(k + i * k_stride, q, d) * scale
        if softcap != _ZERO:
            score = softcap * np.float32(math.tanh(score))
        score += bias
        weight = _ONE
        if score > largest:
            shrink = np.float32(math.exp(largest - score))
            _scale_in_place(y, dv, shrink)
            total *= shrink
            largest = score
        else:
            weight = np.float32(math.exp(score - largest))
        _add_scaled(y, v + i * v_stride, dv, weight)
        total += weight
    inverse = _ZERO
    if total != _ZERO:
        inverse = _ONE / total
    _scale_in_place(y, dv, inverse)


@kernel
def flash_attn(p: int, ith: int, nth: int) -> int:
    """Give dst [dv, h, t] from q f32 [d, t, h], k, v f16 [d, n_kv, hk], mask f16 [n_kv, t].

    Accumulates in f32. A query whose keys are all masked gives zeros.
    """
    scale, softcap = param_float(p, 0), param_float(p, 1)
    if softcap != _ZERO:
        scale /= softcap
    n_tokens, n_heads, n3 = ne(p, SRC0, 1), ne(p, SRC0, 2), ne(p, SRC0, 3)
    group, group_v = n_heads // ne(p, SRC1, 2), n_heads // ne(p, SRC2, 2)
    first, end = share(n_tokens * n_heads * n3, ith, nth)
    for unit in range(first, end):
        t, h, i3 = unit % n_tokens, unit // n_tokens % n_heads, unit // (n_tokens * n_heads)
        mask = 0
        if address(p, SRC3) != 0:
            mask = row_at(p, SRC3, t, h % ne(p, SRC3, 2), i3 % ne(p, SRC3, 3))
        k, v = row_at(p, SRC1, 0, h // group, i3), row_at(p, SRC2, 0, h // group_v, i3)
        y = row_at(p, DST, h, t, i3)
        _attend(p, y, row_at(p, SRC0, t, h, i3), k, v, mask, scale, softcap)
    return 0
