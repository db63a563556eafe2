"""What carries a state from token to token: SSM_CONV, SSM_SCAN, GATED_DELTA_NET.

Threads share channels or heads, which do not depend on one another; tokens come in order.
"""

from __future__ import annotations

import math

import numpy as np

from engine.backends.cpu.codegen import LANES
from engine.backends.cpu.jit import helper, kernel
from engine.backends.cpu.kernels.activations import softplus_of
from engine.backends.cpu.kernels.common import address, nb, ne, row_at, share
from engine.backends.cpu.kernels.dot_rows import dot_f32
from engine.backends.cpu.kernels.norm import exp_scalar, scale_row
from engine.backends.cpu.layout import (
    DST,
    SRC0,
    SRC1,
    SRC2,
    SRC3,
    SRC4,
    SRC5,
    SRC6,
    STATUS_BAD_INDEX,
)
from engine.backends.cpu.simd import (
    exp,
    fadd,
    fma,
    fmul,
    load_f32,
    load_f32_part,
    load_f32v,
    load_i32,
    splat,
    store_f32,
    store_f32_part,
    store_f32v,
    sum_lanes,
)

_ZERO = np.float32(0.0)
_ONE = np.float32(1.0)


@kernel
def ssm_conv(p: int, ith: int, nth: int) -> int:
    """Give [c, t, s]: channels of src0 [d_conv - 1 + t, c, s] convolved with src1 [d_conv, c]."""
    d_conv, n_tokens, n_seqs = ne(p, SRC1, 0), ne(p, DST, 1), ne(p, DST, 2)
    first, end = share(ne(p, DST, 0), ith, nth)
    for i_seq in range(n_seqs):
        for channel in range(first, end):
            x, w = row_at(p, SRC0, channel, i_seq, 0), row_at(p, SRC1, channel, 0, 0)
            y = row_at(p, DST, 0, i_seq, 0) + 4 * channel
            for t in range(n_tokens):
                total = _ZERO
                for i in range(d_conv):
                    total += load_f32(x + 4 * (t + i)) * load_f32(w + 4 * i)
                store_f32(y + t * nb(p, DST, 1), total)
    return 0


@helper
def _advance(
    y: int,
    x: int,
    rates: int,
    b: int,
    c: int,
    n: int,
    step: np.float32,
    given: np.float32,
    decay: np.float32,
) -> np.float32:
    """Write y = x * decay + b * given, n states of one channel, and give back y . c.

    Where states have rates of their own (the address is not 0), each decays by e^(step * rate).
    """
    steps, givens, decays, total = splat(step), splat(given), splat(decay), splat(_ZERO)
    for i in range(0, 4 * (n - LANES + 1), 4 * LANES):
        if rates != 0:
            decays = exp(fmul(load_f32v(rates + i), steps))
        state = fadd(fmul(load_f32v(x + i), decays), fmul(load_f32v(b + i), givens))
        store_f32v(y + i, state)
        total = fma(state, load_f32v(c + i), total)
    rest = n % LANES
    if rest:
        i = 4 * (n - rest)
        if rates != 0:
            decays = exp(fmul(load_f32_part(rates + i, rest), steps))
        kept = fmul(load_f32_part(x + i, rest), decays)
        state = fadd(kept, fmul(load_f32_part(b + i, rest), givens))
        store_f32_part(y + i, state, rest)
        total = fma(state, load_f32_part(c + i, rest), total)
    return sum_lanes(total)


@helper
def _scan_token(p: int, h: int, t: int, i_seq: int, y: int, after: int, before: int) -> None:
    """One token of one head: outputs y [d], states `after` [d_state, d] from those `before`."""
    d_state, d = ne(p, SRC0, 0), ne(p, SRC0, 1)
    group = h // (ne(p, SRC1, 1) // ne(p, SRC4, 1))
    step = softplus_of(load_f32(row_at(p, SRC2, t, i_seq, 0) + 4 * h))
    rates, decay = row_at(p, SRC3, h, 0, 0), _ONE
    if ne(p, SRC3, 0) == 1:
        decay = exp_scalar(step * load_f32(rates))
        rates = 0
    x, b, c = (
        row_at(p, SRC1, h, t, i_seq),
        row_at(p, SRC4, group, t, i_seq),
        row_at(p, SRC5, group, t, i_seq),
    )
    for i in range(d):
        at, given = 4 * d_state * i, load_f32(x + 4 * i) * step
        value = _advance(after + at, before + at, rates, b, c, d_state, step, given, decay)
        store_f32(y + 4 * i, value)


@kernel
def ssm_scan(p: int, ith: int, nth: int) -> int:
    """Give, flat, outputs [d, h, t, s], then new states [d_state, d, h, s].

    Sources: states [d_state, d, h, rows], x [d, h, t, s], dt [h, t, s], rates [1 or d_state, h],
    b and c [d_state, groups, t, s], and the row of states that each sequence goes on from.
    Source: Mamba, arXiv 2312.00752; Mamba-2, arXiv 2405.21060.
    """
    d_state, d, n_heads = ne(p, SRC0, 0), ne(p, SRC1, 0), ne(p, SRC1, 1)
    n_tokens, n_seqs = ne(p, SRC1, 2), ne(p, SRC1, 3)
    outputs = address(p, DST)
    states = outputs + 4 * d * n_heads * n_tokens * n_seqs
    first, end = share(n_heads * n_seqs, ith, nth)
    for unit in range(first, end):
        h, i_seq = unit % n_heads, unit // n_heads
        index = load_i32(address(p, SRC6) + i_seq * nb(p, SRC6, 0))
        if index < 0 or index >= ne(p, SRC0, 3):
            return STATUS_BAD_INDEX
        before, after = row_at(p, SRC0, 0, h, index), states + 4 * unit * d * d_state
        for t in range(n_tokens):
            y = outputs + 4 * ((i_seq * n_tokens + t) * n_heads + h) * d
            _scan_token(p, h, t, i_seq, y, after, before)
            before = after
    return 0


@helper
def _add_scaled(y: int, x: int, n: int, factor: np.float32) -> None:
    """Add n floats of x times a factor to y."""
    factors = splat(factor)
    for i in range(0, 4 * (n - LANES + 1), 4 * LANES):
        store_f32v(y + i, fma(load_f32v(x + i), factors, load_f32v(y + i)))
    rest = n % LANES
    if rest:
        i = 4 * (n - rest)
        value = fma(load_f32_part(x + i, rest), factors, load_f32_part(y + i, rest))
        store_f32_part(y + i, value, rest)


@kernel
def gated_delta_net(p: int, ith: int, nth: int) -> int:
    """Give rows [d * h, t * s] of outputs, then the new states [d, d, h, s].

    Sources: q and k [d, hk, t, s], v [d, h, t, s], gate and beta [1, h, t, s], states [d, d, h, s],
    whose row j and column i hold S[i, j]. Heads take keys in turn: head h those of h % hk.
    Source: Gated delta networks, arXiv 2412.06464.
    """
    d, n_heads, n_tokens, n_seqs = ne(p, SRC2, 0), ne(p, SRC2, 1), ne(p, SRC2, 2), ne(p, SRC2, 3)
    factor = np.float32(1.0 / math.sqrt(np.float64(d)))
    outputs = address(p, DST)
    states = outputs + 4 * d * n_heads * n_tokens * n_seqs
    first, end = share(n_heads * n_seqs, ith, nth)
    for unit in range(first, end):
        h, i_seq = unit % n_heads, unit // n_heads
        before, after = row_at(p, SRC5, 0, h, i_seq), states + 4 * unit * d * d
        for t in range(n_tokens):
            y = outputs + 4 * ((i_seq * n_tokens + t) * n_heads + h) * d
            q = row_at(p, SRC0, h % ne(p, SRC0, 1), t, i_seq)
            k = row_at(p, SRC1, h % ne(p, SRC1, 1), t, i_seq)
            v = row_at(p, SRC2, h, t, i_seq)
            decay = exp_scalar(load_f32(row_at(p, SRC3, h, t, i_seq)))
            beta = load_f32(row_at(p, SRC4, h, t, i_seq))
            for j in range(d):
                row = after + 4 * j * d
                scale_row(row, before + 4 * j * d, d, decay)
                learnt = (load_f32(v + 4 * j) - dot_f32(row, k, d)) * beta
                _add_scaled(row, k, d, learnt)
                store_f32(y + 4 * j, dot_f32(row, q, d) * factor)
            before = after
    return 0
