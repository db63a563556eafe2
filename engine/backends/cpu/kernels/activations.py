"""Activations beside those of elementwise.py: SOFTPLUS, and SWIGLU_OAI of gpt-oss."""

from __future__ import annotations

import math

import numpy as np

from engine.backends.cpu.codegen import LANES
from engine.backends.cpu.jit import helper, kernel
from engine.backends.cpu.kernels.common import n_rows, ne, param_float, row_at, share
from engine.backends.cpu.kernels.elementwise import up_of
from engine.backends.cpu.kernels.norm import exp_scalar
from engine.backends.cpu.layout import DST, SRC0
from engine.backends.cpu.simd import (
    Vector,
    exp,
    fadd,
    fdiv,
    fmul,
    larger,
    load_f32,
    load_f32_part,
    load_f32v,
    smaller,
    splat,
    store_f32,
    store_f32_part,
    store_f32v,
)

ALPHA, LIMIT = range(2)
"""Parameters of SWIGLU_OAI."""

_ONE = np.float32(1.0)
_STEEP = np.float32(20.0)


@helper
def softplus_of(x: np.float32) -> np.float32:
    """log(1 + e^x), x itself above 20. Source: ggml_compute_softplus_f32."""
    if x > _STEEP:
        return x
    return np.float32(math.log(np.float64(_ONE + exp_scalar(x))))


@kernel
def softplus(p: int, ith: int, nth: int) -> int:
    """Give log(1 + e^src0), f32, rows without gaps."""
    n0, n1, n2 = ne(p, DST, 0), ne(p, DST, 1), ne(p, DST, 2)
    first, end = share(n_rows(p, DST), ith, nth)
    for row in range(first, end):
        i1, i2, i3 = row % n1, row // n1 % n2, row // (n1 * n2)
        y, x = row_at(p, DST, i1, i2, i3), row_at(p, SRC0, i1, i2, i3)
        for i in range(n0):
            store_f32(y + 4 * i, softplus_of(load_f32(x + 4 * i)))
    return 0


@helper
def _gate(gate: Vector, up: Vector, alpha: np.float32, limit: np.float32) -> Vector:
    """Product of gate, sigmoid(alpha * gate) and up + 1, within limits; a NaN stays one."""
    x = smaller(splat(limit), gate)
    y = larger(splat(-limit), smaller(splat(limit), up))
    active = fdiv(x, fadd(splat(_ONE), exp(fmul(splat(-alpha), x))))
    return fmul(active, fadd(y, splat(_ONE)))


@kernel
def swiglu_oai(p: int, ith: int, nth: int) -> int:
    """Give the gated unit of gate and up as `glu` takes them, f32, rows without gaps."""
    alpha, limit = param_float(p, ALPHA), param_float(p, LIMIT)
    n0, n1, n2 = ne(p, DST, 0), ne(p, DST, 1), ne(p, DST, 2)
    first, end = share(n_rows(p, DST), ith, nth)
    for row in range(first, end):
        i1, i2, i3 = row % n1, row // n1 % n2, row // (n1 * n2)
        y, gate = row_at(p, DST, i1, i2, i3), row_at(p, SRC0, i1, i2, i3)
        up = up_of(p, gate, i1, i2, i3)
        for i in range(0, n0 - LANES + 1, LANES):
            value = _gate(load_f32v(gate + 4 * i), load_f32v(up + 4 * i), alpha, limit)
            store_f32v(y + 4 * i, value)
        rest = n0 % LANES
        if rest:
            i = 4 * (n0 - rest)
            gates, ups = load_f32_part(gate + i, rest), load_f32_part(up + i, rest)
            store_f32_part(y + i, _gate(gates, ups, alpha, limit), rest)
    return 0
