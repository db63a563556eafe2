"""Row reductions: NORM, RMS_NORM, SOFT_MAX, SUM_ROWS."""

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
    param_double,
    param_float,
    row_at,
    row_repeated,
    share,
)
from engine.backends.cpu.layout import DST, KIND_F16, SRC0, SRC1, SRC2
from engine.backends.cpu.simd import (
    Vector,
    exp,
    exp_exact,
    fadd,
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
    store_f32,
    store_f32_part,
    store_f32v,
    sum_lanes,
    sum_lanes_wide,
    wide,
)

_ONE = np.float32(1.0)
_ZERO = np.float32(0.0)
_MINUS_INF = np.float32(-np.inf)


@helper
def _sum_of_squares(x: int, n: int) -> float:
    """Squares in f32, their sum in f64."""
    total = wide(splat(_ZERO))
    for i in range(0, n - LANES + 1, LANES):
        value = load_f32v(x + 4 * i)
        total = fadd(total, wide(fmul(value, value)))
    rest = n % LANES
    if rest:
        value = load_f32_part(x + 4 * (n - rest), rest)
        total = fadd(total, wide(fmul(value, value)))
    return sum_lanes_wide(total)


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
    """Give rows of src0 divided by their root mean square, f32; adds up in f64."""
    eps = param_float(p, 0)
    n0, n1, n2 = ne(p, DST, 0), ne(p, DST, 1), ne(p, DST, 2)
    first, end = share(n_rows(p, DST), ith, nth)
    for row in range(first, end):
        i1, i2, i3 = row % n1, row // n1 % n2, row // (n1 * n2)
        y, x = row_at(p, DST, i1, i2, i3), row_at(p, SRC0, i1, i2, i3)
        mean = np.float32(_sum_of_squares(x, n0) / n0)
        scale_row(y, x, n0, _ONE / np.float32(math.sqrt(mean + eps)))
    return 0


@helper
def _sum_of(x: int, n: int) -> float:
    """Sum of n floats in f64."""
    total = wide(splat(_ZERO))
    for i in range(0, n - LANES + 1, LANES):
        total = fadd(total, wide(load_f32v(x + 4 * i)))
    rest = n % LANES
    if rest:
        total = fadd(total, wide(load_f32_part(x + 4 * (n - rest), rest)))
    return sum_lanes_wide(total)


@helper
def _write_less(y: int, x: int, n: int, value: np.float32) -> None:
    """Write n floats of x, less a value, to y."""
    values = splat(value)
    for i in range(0, n - LANES + 1, LANES):
        store_f32v(y + 4 * i, fsub(load_f32v(x + 4 * i), values))
    rest = n % LANES
    if rest:
        i = 4 * (n - rest)
        store_f32_part(y + i, fsub(load_f32_part(x + i, rest), values), rest)


@kernel
def norm(p: int, ith: int, nth: int) -> int:
    """Give rows of src0 less their mean, divided by their deviation, f32; adds up in f64."""
    eps = param_float(p, 0)
    n0, n1, n2 = ne(p, DST, 0), ne(p, DST, 1), ne(p, DST, 2)
    first, end = share(n_rows(p, DST), ith, nth)
    for row in range(first, end):
        i1, i2, i3 = row % n1, row // n1 % n2, row // (n1 * n2)
        y, x = row_at(p, DST, i1, i2, i3), row_at(p, SRC0, i1, i2, i3)
        _write_less(y, x, n0, np.float32(_sum_of(x, n0) / n0))
        variance = np.float32(_sum_of_squares(y, n0) / n0)
        scale_row(y, y, n0, _ONE / np.float32(math.sqrt(variance + eps)))
    return 0


@kernel
def sum_rows(p: int, ith: int, nth: int) -> int:
    """Give the sum of each row of src0 f32, added in order in f64."""
    n0, n1, n2 = ne(p, SRC0, 0), ne(p, DST, 1), ne(p, DST, 2)
    first, end = share(n_rows(p, DST), ith, nth)
    for row in range(first, end):
        i1, i2, i3 = row % n1, row // n1 % n2, row // (n1 * n2)
        x, total = row_at(p, SRC0, i1, i2, i3), 0.0
        for i in range(n0):
            total += float(load_f32(x + 4 * i))
        store_f32(row_at(p, DST, i1, i2, i3), np.float32(total))
    return 0


@helper
def _masked(x: int, mask: int, mask_kind: int, i: int, factor: Vector, slope: Vector) -> Vector:
    value = fmul(load_f32v(x + 4 * i), factor)
    if mask == 0:
        return value
    if mask_kind == KIND_F16:
        return fadd(value, fmul(load_f16v(mask + 2 * i), slope))
    return fadd(value, fmul(load_f32v(mask + 4 * i), slope))


@helper
def _masked_part(
    x: int, mask: int, mask_kind: int, i: int, rest: int, factor: Vector, slope: Vector
) -> Vector:
    value = fmul(load_f32_part(x + 4 * i, rest), factor)
    if mask == 0:
        return value
    if mask_kind == KIND_F16:
        return fadd(value, fmul(load_f16_part(mask + 2 * i, rest), slope))
    return fadd(value, fmul(load_f32_part(mask + 4 * i, rest), slope))


@helper
def _write_masked(
    y: int, x: int, mask: int, mask_kind: int, n: int, factor: Vector, slope: Vector
) -> np.float32:
    """Write x * factor + slope * mask to y and give back the largest."""
    top = splat(_MINUS_INF)
    for i in range(0, n - LANES + 1, LANES):
        value = _masked(x, mask, mask_kind, i, factor, slope)
        store_f32v(y + 4 * i, value)
        top = larger(value, top)
    largest = max_lanes(top)
    rest = n % LANES
    if rest:
        value = _masked_part(x, mask, mask_kind, n - rest, rest, factor, slope)
        store_f32_part(y + 4 * (n - rest), value, rest)
        for i in range(n - rest, n):
            largest = max(largest, load_f32(y + 4 * i))
    return largest


@helper
def _exponentiate(y: int, n: int, largest: np.float32) -> float:
    """Replace y by e^(y - largest) and give back the sum in f64.

    What does not fill a vector takes C's expf, as in ggml_vec_soft_max_f32.
    """
    top, total = splat(largest), 0.0
    for i in range(0, n - LANES + 1, LANES):
        value = exp(fsub(load_f32v(y + 4 * i), top))
        store_f32v(y + 4 * i, value)
        total += float(sum_lanes(value))
    rest = n % LANES
    if rest:
        i = 4 * (n - rest)
        store_f32_part(y + i, exp_exact(fsub(load_f32_part(y + i, rest), top)), rest)
        total += sum_lanes_wide(wide(load_f32_part(y + i, rest)))
    return total


@helper
def slope_of(p: int, i_param: int, i_head: int) -> np.float32:
    """What ALiBi multiplies a head's mask with; 1 without. Source: ggml_compute_forward_soft_max.

    Three parameters from `i_param` on: the power of two up to the number of heads, 0 without
    ALiBi; the ratio of slopes for heads below it, and for those above.
    """
    n_below = param(p, i_param)
    if n_below == 0:
        return _ONE
    if i_head < n_below:
        return np.float32(param_double(p, i_param + 1) ** (i_head + 1))
    return np.float32(param_double(p, i_param + 2) ** (2 * (i_head - n_below) + 1))


@helper
def exp_scalar(x: np.float32) -> np.float32:
    """e^x by way of f64."""
    return np.float32(math.exp(np.float64(x)))


@kernel
def soft_max(p: int, ith: int, nth: int) -> int:
    """Give softmax over ne0 of src0 * scale + slope * mask; mask f16, f32 or absent, repeated.

    src2, the sinks f32 [n_head] (optional), is one more element of each row of a head, which takes
    its share of the sum and is not written.
    """
    factor, mask_kind = splat(param_float(p, 0)), param(p, 1)
    n0, n1, n2 = ne(p, DST, 0), ne(p, DST, 1), ne(p, DST, 2)
    first, end = share(n_rows(p, DST), ith, nth)
    for row in range(first, end):
        i1, i2, i3 = row % n1, row // n1 % n2, row // (n1 * n2)
        y, x = row_at(p, DST, i1, i2, i3), row_at(p, SRC0, i1, i2, i3)
        mask = 0
        if address(p, SRC1) != 0:
            mask = row_repeated(p, SRC1, i1, i2, i3)
        largest = _write_masked(y, x, mask, mask_kind, n0, factor, splat(slope_of(p, 2, i2)))
        sink = _MINUS_INF
        if address(p, SRC2) != 0:
            sink = load_f32(address(p, SRC2) + 4 * i2)
            largest = max(largest, sink)
        total = _exponentiate(y, n0, largest)
        if address(p, SRC2) != 0:
            total += float(exp_scalar(sink - largest))
        scale_row(y, y, n0, np.float32(1.0 / total))
    return 0
