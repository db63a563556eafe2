"""Elementwise kernels: ADD, SUB, MUL, DIV, ADD_ID, SCALE, CLAMP, UNARY, GLU."""

from __future__ import annotations

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
    row_repeated,
    share,
)
from engine.backends.cpu.layout import DST, SRC0, SRC1, SRC2, STATUS_BAD_INDEX
from engine.backends.cpu.simd import (
    Vector,
    exp,
    fadd,
    fdiv,
    fma,
    fmul,
    fsub,
    larger,
    load_f32,
    load_f32_part,
    load_f32v,
    load_i32,
    round_to_half,
    smaller,
    splat,
    store_f32,
    store_f32_part,
    store_f32v,
    tanh,
    where_less,
)

ADD, SUB, MUL, DIV = range(4)
SILU, GELU, TANH, SIGMOID = range(4)

_GELU_A = np.float32(-2.0 * 0.79788456080286535587989211986876)
_GELU_B = np.float32(-2.0 * 0.79788456080286535587989211986876 * 0.044715)
_ONE = np.float32(1.0)
_ZERO = np.float32(0.0)
_TEN = np.float32(10.0)
_ABOVE_MINUS_TEN = np.nextafter(np.float32(-10.0), np.float32(0.0))


@helper
def _combine(kind: int, a: Vector, b: Vector) -> Vector:
    if kind == ADD:
        return fadd(a, b)
    if kind == SUB:
        return fsub(a, b)
    if kind == MUL:
        return fmul(a, b)
    return fdiv(a, b)


@helper
def _combine_row(kind: int, y: int, a: int, b: int, n: int) -> None:
    for i in range(0, n - LANES + 1, LANES):
        store_f32v(y + 4 * i, _combine(kind, load_f32v(a + 4 * i), load_f32v(b + 4 * i)))
    rest = n % LANES
    if rest:
        i = 4 * (n - rest)
        value = _combine(kind, load_f32_part(a + i, rest), load_f32_part(b + i, rest))
        store_f32_part(y + i, value, rest)


@helper
def _combine_scalar(kind: int, a: np.float32, b: np.float32) -> np.float32:
    if kind == ADD:
        return a + b
    if kind == SUB:
        return a - b
    if kind == MUL:
        return a * b
    return a / b


@kernel
def binary(p: int, ith: int, nth: int) -> int:
    """Give dst = src0 op src1, f32, src1 repeated; any strides."""
    kind, n0, n0_b = param(p, 0), ne(p, DST, 0), ne(p, SRC1, 0)
    n1, n2 = ne(p, DST, 1), ne(p, DST, 2)
    step, step_a, step_b = nb(p, DST, 0), nb(p, SRC0, 0), nb(p, SRC1, 0)
    dense = step == 4 and step_a == 4 and step_b == 4 and n0 == n0_b
    first, end = share(n_rows(p, DST), ith, nth)
    for row in range(first, end):
        i1, i2, i3 = row % n1, row // n1 % n2, row // (n1 * n2)
        y, a = row_at(p, DST, i1, i2, i3), row_at(p, SRC0, i1, i2, i3)
        b = row_repeated(p, SRC1, i1, i2, i3)
        if dense:
            _combine_row(kind, y, a, b, n0)
        else:
            for i in range(n0):
                value_b = load_f32(b + i % n0_b * step_b)
                store_f32(y + i * step, _combine_scalar(kind, load_f32(a + i * step_a), value_b))
    return 0


@kernel
def add_id(p: int, ith: int, nth: int) -> int:
    """Give src0 [n, n_used, t] plus the rows of src1 [n, n_expert] that src2 [n_used, t] picks."""
    n0, n1, n2 = ne(p, DST, 0), ne(p, DST, 1), ne(p, DST, 2)
    first, end = share(n_rows(p, DST), ith, nth)
    for row in range(first, end):
        i1, i2, i3 = row % n1, row // n1 % n2, row // (n1 * n2)
        index = load_i32(row_at(p, SRC2, i2, 0, 0) + i1 * nb(p, SRC2, 0))
        if index < 0 or index >= ne(p, SRC1, 1):
            return STATUS_BAD_INDEX
        y, a = row_at(p, DST, i1, i2, i3), row_at(p, SRC0, i1, i2, i3)
        _combine_row(ADD, y, a, row_at(p, SRC1, index, 0, 0), n0)
    return 0


@helper
def _clamped(x: Vector, low: Vector, high: Vector) -> Vector:
    """Within [low, high]; a NaN becomes `high`, as in ggml."""
    return larger(smaller(x, high), low)


@kernel
def clamp(p: int, ith: int, nth: int) -> int:
    """Give src0 moved into [low, high], f32, rows without gaps."""
    low, high = splat(param_float(p, 0)), splat(param_float(p, 1))
    n0, n1, n2 = ne(p, DST, 0), ne(p, DST, 1), ne(p, DST, 2)
    first, end = share(n_rows(p, DST), ith, nth)
    for row in range(first, end):
        i1, i2, i3 = row % n1, row // n1 % n2, row // (n1 * n2)
        y, x = row_at(p, DST, i1, i2, i3), row_at(p, SRC0, i1, i2, i3)
        for i in range(0, n0 - LANES + 1, LANES):
            store_f32v(y + 4 * i, _clamped(load_f32v(x + 4 * i), low, high))
        rest = n0 % LANES
        if rest:
            i = 4 * (n0 - rest)
            store_f32_part(y + i, _clamped(load_f32_part(x + i, rest), low, high), rest)
    return 0


@kernel
def scale(p: int, ith: int, nth: int) -> int:
    """Give dst = src0 * factor + bias, f32, rows without gaps."""
    factor, bias = splat(param_float(p, 0)), splat(param_float(p, 1))
    n0, n1, n2 = ne(p, DST, 0), ne(p, DST, 1), ne(p, DST, 2)
    first, end = share(n_rows(p, DST), ith, nth)
    for row in range(first, end):
        i1, i2, i3 = row % n1, row // n1 % n2, row // (n1 * n2)
        y, x = row_at(p, DST, i1, i2, i3), row_at(p, SRC0, i1, i2, i3)
        for i in range(0, n0 - LANES + 1, LANES):
            store_f32v(y + 4 * i, fma(load_f32v(x + 4 * i), factor, bias))
        rest = n0 % LANES
        if rest:
            i = 4 * (n0 - rest)
            store_f32_part(y + i, fma(load_f32_part(x + i, rest), factor, bias), rest)
    return 0


@helper
def _gelu(x: Vector) -> Vector:
    """The tanh form, of x rounded to f16 and rounded to f16 itself, as ggml looks it up.

    0 up to -10, x from 10 on. Source: ARCH.md 1.10.
    """
    half = round_to_half(x)
    inner = fmul(half, fma(fmul(half, half), splat(_GELU_B), splat(_GELU_A)))
    value = round_to_half(fdiv(half, fadd(splat(_ONE), exp(inner))))
    inside = where_less(x, splat(_ABOVE_MINUS_TEN), splat(_ZERO), value)
    return where_less(x, splat(_TEN), inside, x)


@helper
def _activate(kind: int, x: Vector) -> Vector:
    if kind == TANH:
        return tanh(x)
    if kind == GELU:
        return _gelu(x)
    divisor = fadd(splat(_ONE), exp(fsub(splat(_ZERO), x)))
    if kind == SIGMOID:
        return fdiv(splat(_ONE), divisor)
    return fdiv(x, divisor)


@kernel
def unary(p: int, ith: int, nth: int) -> int:
    """Give dst = f(src0), f32, rows without gaps."""
    kind = param(p, 0)
    n0, n1, n2 = ne(p, DST, 0), ne(p, DST, 1), ne(p, DST, 2)
    first, end = share(n_rows(p, DST), ith, nth)
    for row in range(first, end):
        i1, i2, i3 = row % n1, row // n1 % n2, row // (n1 * n2)
        y, x = row_at(p, DST, i1, i2, i3), row_at(p, SRC0, i1, i2, i3)
        for i in range(0, n0 - LANES + 1, LANES):
            store_f32v(y + 4 * i, _activate(kind, load_f32v(x + 4 * i)))
        rest = n0 % LANES
        if rest:
            i = 4 * (n0 - rest)
            store_f32_part(y + i, _activate(kind, load_f32_part(x + i, rest)), rest)
    return 0


@helper
def up_of(p: int, gate: int, i1: int, i2: int, i3: int) -> int:
    """Address of what a row's gate multiplies: a row of src1, or what follows the gate."""
    if address(p, SRC1) == 0:
        return gate + 4 * ne(p, DST, 0)
    return row_at(p, SRC1, i1, i2, i3)


@kernel
def glu(p: int, ith: int, nth: int) -> int:
    """Give dst = f(src0) * src1, f32, rows without gaps.

    Without src1 the first half of each row of src0 is the gate, the second half is up.
    """
    kind = param(p, 0)
    n0, n1, n2 = ne(p, DST, 0), ne(p, DST, 1), ne(p, DST, 2)
    first, end = share(n_rows(p, DST), ith, nth)
    for row in range(first, end):
        i1, i2, i3 = row % n1, row // n1 % n2, row // (n1 * n2)
        y, gate = row_at(p, DST, i1, i2, i3), row_at(p, SRC0, i1, i2, i3)
        up = up_of(p, gate, i1, i2, i3)
        for i in range(0, n0 - LANES + 1, LANES):
            active = _activate(kind, load_f32v(gate + 4 * i))
            store_f32v(y + 4 * i, fmul(active, load_f32v(up + 4 * i)))
        rest = n0 % LANES
        if rest:
            i = 4 * (n0 - rest)
            active = _activate(kind, load_f32_part(gate + i, rest))
            store_f32_part(y + i, fmul(active, load_f32_part(up + i, rest)), rest)
    return 0
