"""ROPE in two rows of the table: the angles once for every layer, then the rotation."""

from __future__ import annotations

import math

import numpy as np

from engine.backends.cpu.codegen import LANES
from engine.backends.cpu.jit import helper, kernel
from engine.backends.cpu.kernels.common import (
    address,
    n_rows,
    nb,
    ne,
    param,
    param_float,
    row_at,
    share,
)
from engine.backends.cpu.layout import DST, SHARED, SRC0, SRC1, SRC2
from engine.backends.cpu.simd import (
    every_other_second,
    every_second,
    first_of_pairs,
    fma,
    fma_scalar,
    fmul,
    fsub,
    load_f32,
    load_f32v,
    load_i32,
    load_i64,
    second_of_pairs,
    splat,
    store_f32,
    store_f32v,
    turned_pairs,
)

NORM = 0
"""The mode whose pairs are (2j, 2j + 1); others have (j, j + n_dims / 2)."""

IMROPE = 40
"""The mode whose sections alternate from pair to pair."""

N_DIMS, MODE, THETA_SCALE, FREQ_SCALE, EXT_FACTOR, MAGNITUDE, RAMP_BEGIN, RAMP_END, SECTIONS = (
    range(9)
)
"""Parameters of angles: two whole numbers, floats, then four whole numbers."""

OFFSET = 2
"""A parameter of the rotation, after N_DIMS and MODE: channels before the first pair."""

_ZERO, _ONE, _MINUS_ZERO = np.float32(0.0), np.float32(1.0), np.float32(-0.0)


@helper
def _blend(i_pair: int, low: np.float32, high: np.float32, ext_factor: np.float32) -> np.float32:
    """How much of the unscaled angle YaRN keeps. Source: ARCH.md 1.9."""
    ramp = (np.float32(i_pair) - low) / max(np.float32(0.001), high - low)
    return (_ONE - min(_ONE, max(_ZERO, ramp))) * ext_factor


@helper
def _store_angle(p: int, target: int, j: int, theta: np.float32) -> None:
    """Write cos and sin of pair j, whose position's angle is theta."""
    freq_scale, ext_factor = param_float(p, FREQ_SCALE), param_float(p, EXT_FACTOR)
    factors, magnitude = address(p, SRC2), param_float(p, MAGNITUDE)
    extrapolated = theta
    if factors != 0:
        extrapolated = theta / load_f32(factors + j * nb(p, SRC2, 0))
    angle = freq_scale * extrapolated
    if ext_factor != _ZERO:
        blend = _blend(j, param_float(p, RAMP_BEGIN), param_float(p, RAMP_END), ext_factor)
        angle = angle * (_ONE - blend) + extrapolated * blend
    store_f32(target, np.float32(math.cos(np.float64(angle))) * magnitude)
    store_f32(target + 4, np.float32(math.sin(np.float64(angle))) * magnitude)


@helper
def _position(p: int, i: int) -> np.float32:
    return np.float32(load_i32(address(p, SRC1) + i * nb(p, SRC1, 0)))


@kernel
def rope_angles(p: int, ith: int, nth: int) -> int:
    """Write cos and sin of each pair of each position to SHARED: f32 [2, n_dims / 2, t].

    src1 holds the positions, src2 factors that divide the angles (optional). Angles are f32 and
    each is the one before times a constant, so that they are off by what ggml's are.
    """
    n_pairs, theta_scale = param(p, N_DIMS) // 2, param_float(p, THETA_SCALE)
    table = load_i64(p + SHARED)
    first, end = share(ne(p, SRC1, 0), ith, nth)
    for t in range(first, end):
        theta = _position(p, t)
        for j in range(n_pairs):
            _store_angle(p, table + (t * n_pairs + j) * 8, j, theta)
            theta = theta * theta_scale
    return 0


@helper
def _section_of(p: int, j: int) -> int:
    """Which of the four positions pair j takes. Source: ggml_mrope_cache_init."""
    a, b, c, d = (
        param(p, SECTIONS),
        param(p, SECTIONS + 1),
        param(p, SECTIONS + 2),
        param(p, SECTIONS + 3),
    )
    sector = j % (a + b + c + d)
    if param(p, MODE) == IMROPE:
        kind = sector % 3
        if sector < 3 * param(p, SECTIONS + kind):
            return kind
        return 3
    if sector < a:
        return 0
    if sector < a + b:
        return 1
    if sector < a + b + c:
        return 2
    return 3


@kernel
def rope_angles_sections(p: int, ith: int, nth: int) -> int:
    """The same where src1 holds four positions a token, [t, 4], and a pair takes one of them."""
    n_pairs, theta_scale = param(p, N_DIMS) // 2, param_float(p, THETA_SCALE)
    table, n_tokens = load_i64(p + SHARED), ne(p, SRC1, 0) // 4
    first, end = share(n_tokens, ith, nth)
    for t in range(first, end):
        a, b = _position(p, t), _position(p, n_tokens + t)
        c, d = _position(p, 2 * n_tokens + t), _position(p, 3 * n_tokens + t)
        for j in range(n_pairs):
            section, theta = _section_of(p, j), d
            if section == 0:
                theta = a
            elif section == 1:
                theta = b
            elif section == 2:
                theta = c
            _store_angle(p, table + (t * n_pairs + j) * 8, j, theta)
            a, b, c, d = a * theta_scale, b * theta_scale, c * theta_scale, d * theta_scale
    return 0


@helper
def _turn(y: int, z: int, x: int, w: int, angle: int) -> None:
    """Rotate one pair, at x and w, to y and z."""
    cos, sin = load_f32(angle), load_f32(angle + 4)
    u, v = load_f32(x), load_f32(w)
    store_f32(y, fma_scalar(u, cos, -(v * sin)))
    store_f32(z, fma_scalar(u, sin, v * cos))


@helper
def _turn_halves(y: int, x: int, angles: int, gap: int) -> int:
    """Rotate pairs (j, j + gap) of elements side by side, whole vectors of them; give the rest."""
    j = 0
    while j + LANES <= gap:
        a, b = load_f32v(angles + 8 * j), load_f32v(angles + 8 * j + 4 * LANES)
        cos, sin = every_second(a, b), every_other_second(a, b)
        u, v = load_f32v(x + 4 * j), load_f32v(x + 4 * (j + gap))
        store_f32v(y + 4 * j, fma(u, cos, fsub(splat(_MINUS_ZERO), fmul(v, sin))))
        store_f32v(y + 4 * (j + gap), fma(u, sin, fmul(v, cos)))
        j += LANES
    return j


@helper
def _turn_neighbours(y: int, x: int, angles: int, n_pairs: int) -> int:
    """Rotate pairs (2j, 2j + 1) of elements side by side, whole vectors of them; give the rest."""
    j = 0
    while j + LANES // 2 <= n_pairs:
        both, turns = load_f32v(x + 8 * j), load_f32v(angles + 8 * j)
        other = fmul(second_of_pairs(both), turned_pairs(turns))
        store_f32v(y + 8 * j, fma(first_of_pairs(both), turns, other))
        j += LANES // 2
    return j


@kernel
def rope(p: int, ith: int, nth: int) -> int:
    """Give src0 [d, heads, t] rotated by the angles in SHARED; other channels are copied."""
    n_dims, mode, offset = param(p, N_DIMS), param(p, MODE), param(p, OFFSET)
    step, step_x = nb(p, DST, 0), nb(p, SRC0, 0)
    stride = 1
    gap = n_dims // 2
    if mode == NORM:
        stride = 2
        gap = 1
    n0, n1, n2 = ne(p, DST, 0), ne(p, DST, 1), ne(p, DST, 2)
    first, end = share(n_rows(p, DST), ith, nth)
    for row in range(first, end):
        i1, i2, i3 = row % n1, row // n1 % n2, row // (n1 * n2)
        y, x = row_at(p, DST, i1, i2, i3), row_at(p, SRC0, i1, i2, i3)
        angles = load_i64(p + SHARED) + i2 * n_dims * 4
        for i in range(offset):
            store_f32(y + i * step, load_f32(x + i * step_x))
        v, u = y + offset * step, x + offset * step_x
        done = 0
        if step == 4 and step_x == 4 and mode == NORM:
            done = _turn_neighbours(v, u, angles, n_dims // 2)
        elif step == 4 and step_x == 4:
            done = _turn_halves(v, u, angles, gap)
        for j in range(done, n_dims // 2):
            i, k = j * stride, j * stride + gap
            _turn(v + i * step, v + k * step, u + i * step_x, u + k * step_x, angles + 8 * j)
        for i in range(offset + n_dims, n0):
            store_f32(y + i * step, load_f32(x + i * step_x))
    return 0
