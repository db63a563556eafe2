"""ROPE in two rows of the table: the angles once for every layer, then the rotation."""

from __future__ import annotations

import math

import numpy as np

from engine.backends.cpu.jit import helper, kernel
from engine.backends.cpu.kernels.common import (
    address,
    n_rows,
    nb,
    ne,
    param,
    param_double,
    row_at,
    share,
)
from engine.backends.cpu.layout import DST, SHARED, SRC0, SRC1, SRC2
from engine.backends.cpu.simd import load_f32, load_i32, load_i64, store_f32

NORM, NEOX = 0, 2
"""Modes: pairs (2j, 2j + 1), or (j, j + n_dims / 2)."""


@helper
def _blend(i_pair: int, low: float, high: float, ext_factor: float) -> float:
    """How much of the unscaled angle YaRN keeps. Source: ARCH.md 1.9."""
    ramp = (i_pair - low) / max(0.001, high - low)
    return (1.0 - min(1.0, max(0.0, ramp))) * ext_factor


@kernel
def rope_angles(p: int, ith: int, nth: int) -> int:
    """Write cos and sin of each pair of each position to SHARED: f32 [2, n_dims / 2, t].

    src1 holds the positions, src2 factors that divide the angles (optional). Angles in f64.
    """
    n_pairs, theta_scale, freq_scale = param(p, 0) // 2, param_double(p, 2), param_double(p, 3)
    ext_factor, magnitude = param_double(p, 4), param_double(p, 5)
    low, high = param_double(p, 6), param_double(p, 7)
    positions, factors = address(p, SRC1), address(p, SRC2)
    table = load_i64(p + SHARED)
    first, end = share(ne(p, SRC1, 0), ith, nth)
    for j in range(n_pairs):
        frequency = theta_scale**j
        if factors != 0:
            frequency /= float(load_f32(factors + j * nb(p, SRC2, 0)))
        blend = 0.0
        if ext_factor != 0.0:
            blend = _blend(j, low, high, ext_factor)
        frequency = frequency * (freq_scale * (1.0 - blend) + blend)
        for t in range(first, end):
            theta = load_i32(positions + t * nb(p, SRC1, 0)) * frequency
            target = table + (t * n_pairs + j) * 8
            store_f32(target, np.float32(math.cos(theta) * magnitude))
            store_f32(target + 4, np.float32(math.sin(theta) * magnitude))
    return 0


@kernel
def rope(p: int, ith: int, nth: int) -> int:
    """Give src0 [d, heads, t] rotated by the angles in SHARED; other channels are copied."""
    n_dims, mode = param(p, 0), param(p, 1)
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
        for j in range(n_dims // 2):
            cos, sin = load_f32(angles + 8 * j), load_f32(angles + 8 * j + 4)
            i, k = j * stride, j * stride + gap
            u, v = load_f32(x + i * step_x), load_f32(x + k * step_x)
            store_f32(y + i * step, u * cos - v * sin)
            store_f32(y + k * step, u * sin + v * cos)
        for i in range(n_dims, n0):
            store_f32(y + i * step, load_f32(x + i * step_x))
    return 0
