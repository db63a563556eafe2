"""Row reductions: RMS_NORM and SOFT_MAX."""

from __future__ import annotations

import math

import numpy as np

from engine.backends.cpu.codegen import LANES
from engine.backends.cpu.jit import helper, kernel
from engine.backends.cpu.kernels.common import (
    address,
    n_rows,
    ne,
    param,
    param_float,
    row_at,
    row_repeated,
    share,
)
from engine.backends.cpu.layout import DST, KIND_F16, SRC0, SRC1
from engine.backends.cpu.simd import (
    Vector,
    exp,
    fadd,
    fma,
    fmul,
    fsub,
    larger,
    load_f16_part,
    load_f16v,
    load_f32,
    load_f32_part,
    load_f32v,
    max_lanes,
    splat,
    store_f32_part,
    store_f32v,
    sum_lanes,
)

_ONE = np.float32(1.0)
_ZERO = np.float32(0.0)
_MINUS_INF = np.float32(-np.inf)


@helper
def _sum_of_squares(x: int, n: int) -> np.float32:
    total = splat(_ZERO)
    for i in range(0, n - LANES + 1, LANES):
        value = load_f32v(x + 4 * i)
        total = fma(value, value, total)
    rest = n % LANES
    if rest:
        value = load_f32_part(x + 4 * (n - rest), rest)
        total = fma(value, value, total)
    return sum_lanes(total)


@helper
def scale_row(y: int, x: int, n: int, factor: np.float32) -> None:
    """Write n floats of x times a factor to y, which may be x."""
    factors = splat(factor)
    for i in range(0, n - LANES + 1, LANES):
        store_f32v(y + 4 * i, fmul(load_f32v(x + 4 * i), factors))
    rest = n % LANES
    if rest:
        i = 4 * (n - rest)
        store_f32_part(y + i, fmul(load_f32_part(x + i, rest), factors), rest)


@kernel
def rms_norm(p: int, ith: int, nth: int) -> int:
    """Give rows of src0 divided by their root mean square, f32; accumulates in f32 lanes."""
    eps = param_float(p, 0)
    n0, n1, n2 = ne(p, DST, 0), ne(p, DST, 1), ne(p, DST, 2)
    first, end = share(n_rows(p, DST), ith, nth)
    for row in range(first, end):
        i1, i2, i3 = row % n1, row // n1 % n2, row // (n1 * n2)
        y, x = row_at(p, DST, i1, i2, i3), row_at(p, SRC0, i1, i2, i3)
        mean = _sum_of_squares(x, n0) / np.float32(n0)
        scale_row(y, x, n0, _ONE / np.float32(math.sqrt(mean + eps)))
    return 0


@helper
def _masked(x: int, mask: int, mask_kind: int, i: int, factor: Vector) -> Vector:
    value = fmul(load_f32v(x + 4 * i), factor)
    if mask == 0:
        return value
    if mask_kind == KIND_F16:
        return fadd(value, load_f16v(mask + 2 * i))
    return fadd(value, load_f32v(mask + 4 * i))


@helper
def _masked_part(x: int, mask: int, mask_kind: int, i: int, rest: int, factor: Vector) -> Vector:
    value = fmul(load_f32_part(x + 4 * i, rest), factor)
    if mask == 0:
        return value
    if mask_kind == KIND_F16:
        return fadd(value, load_f16_part(mask + 2 * i, rest))
    return fadd(value, load_f32_part(mask + 4 * i, rest))


@helper
def _write_masked(y: int, x: int, mask: int, mask_kind: int, n: int, factor: Vector) -> np.float32:
    """Write x * factor + mask to y and give back the largest."""
    top = splat(_MINUS_INF)
    for i in range(0, n - LANES + 1, LANES):
        value = _masked(x, mask, mask_kind, i, factor)
        store_f32v(y + 4 * i, value)
        top = larger(value, top)
    largest = max_lanes(top)
    rest = n % LANES
    if rest:
        value = _masked_part(x, mask, mask_kind, n - rest, rest, factor)
        store_f32_part(y + 4 * (n - rest), value, rest)
        for i in range(n - rest, n):
            largest = max(largest, load_f32(y + 4 * i))
    return largest


@helper
def _exponentiate(y: int, n: int, largest: np.float32) -> np.float32:
    """Replace y by e^(y - largest) and give back the sum."""
    top, total = splat(largest), splat(_ZERO)
    for i in range(0, n - LANES + 1, LANES):
        value = exp(fsub(load_f32v(y + 4 * i), top))
        store_f32v(y + 4 * i, value)
        total = fadd(total, value)
    rest = n % LANES
    if rest:
        i = 4 * (n - rest)
        store_f32_part(y + i, exp(fsub(load_f32_part(y + i, rest), top)), rest)
        total = fadd(total, load_f32_part(y + i, rest))
    return sum_lanes(total)


@kernel
def soft_max(p: int, ith: int, nth: int) -> int:
    """Give softmax over ne0 of src0 * scale + mask; mask f16 or f32, repeated, or absent."""
    factor, mask_kind = splat(param_float(p, 0)), param(p, 1)
    n0, n1, n2 = ne(p, DST, 0), ne(p, DST, 1), ne(p, DST, 2)
    first, end = share(n_rows(p, DST), ith, nth)
    for row in range(first, end):
        i1, i2, i3 = row % n1, row // n1 % n2, row // (n1 * n2)
        y, x = row_at(p, DST, i1, i2, i3), row_at(p, SRC0, i1, i2, i3)
        mask = 0
        if address(p, SRC1) != 0:
            mask = row_repeated(p, SRC1, i1, i2, i3)
        largest = _write_masked(y, x, mask, mask_kind, n0, factor)
        scale_row(y, y, n0, _ONE / _exponentiate(y, n0, largest))
    return 0
