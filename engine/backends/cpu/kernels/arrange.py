"""Elements of four bytes put elsewhere: CONCAT and REPEAT; and FILL."""

from __future__ import annotations

from engine.backends.cpu.jit import helper, kernel
from engine.backends.cpu.kernels.common import (
    n_rows,
    nb,
    ne,
    param,
    param_float,
    row_at,
    row_repeated,
    share,
)
from engine.backends.cpu.layout import DST, SRC0, SRC1
from engine.backends.cpu.simd import load_i32, store_f32, store_i32


@helper
def _copy_words(y: int, step: int, x: int, step_x: int, n: int) -> None:
    if step == 4 and step_x == 4:
        for i in range(n):
            store_i32(y + 4 * i, load_i32(x + 4 * i))
    else:
        for i in range(n):
            store_i32(y + i * step, load_i32(x + i * step_x))


@kernel
def concat(p: int, ith: int, nth: int) -> int:
    """Give src0, then src1 behind it along the dimension that is the parameter; any strides."""
    dim, step, step_a, step_b = param(p, 0), nb(p, DST, 0), nb(p, SRC0, 0), nb(p, SRC1, 0)
    n0_a, n0_b, n_a = ne(p, SRC0, 0), ne(p, SRC1, 0), ne(p, SRC0, dim)
    n1, n2 = ne(p, DST, 1), ne(p, DST, 2)
    first, end = share(n_rows(p, DST), ith, nth)
    for row in range(first, end):
        i1, i2, i3 = row % n1, row // n1 % n2, row // (n1 * n2)
        y, along = row_at(p, DST, i1, i2, i3), i1
        if dim == 2:
            along = i2
        elif dim == 3:
            along = i3
        if dim == 0 or along < n_a:
            _copy_words(y, step, row_at(p, SRC0, i1, i2, i3), step_a, n0_a)
        if dim == 0:
            _copy_words(y + n0_a * step, step, row_at(p, SRC1, i1, i2, i3), step_b, n0_b)
        elif along >= n_a:
            b = row_at(p, SRC1, i1, i2, i3) - n_a * nb(p, SRC1, dim)
            _copy_words(y, step, b, step_b, n0_b)
    return 0


@kernel
def repeat(p: int, ith: int, nth: int) -> int:
    """Give copies of src0 beside one another; any strides."""
    step, step_x, n0, n0_x = nb(p, DST, 0), nb(p, SRC0, 0), ne(p, DST, 0), ne(p, SRC0, 0)
    n1, n2 = ne(p, DST, 1), ne(p, DST, 2)
    first, end = share(n_rows(p, DST), ith, nth)
    for row in range(first, end):
        i1, i2, i3 = row % n1, row // n1 % n2, row // (n1 * n2)
        y, x = row_at(p, DST, i1, i2, i3), row_repeated(p, SRC0, i1, i2, i3)
        for i in range(0, n0, n0_x):
            _copy_words(y + i * step, step, x, step_x, n0_x)
    return 0


@kernel
def fill(p: int, ith: int, nth: int) -> int:
    """Give the parameter everywhere, f32; any strides."""
    value, step, n0 = param_float(p, 0), nb(p, DST, 0), ne(p, DST, 0)
    n1, n2 = ne(p, DST, 1), ne(p, DST, 2)
    first, end = share(n_rows(p, DST), ith, nth)
    for row in range(first, end):
        y = row_at(p, DST, row % n1, row // n1 % n2, row // (n1 * n2))
        for i in range(n0):
            store_f32(y + i * step, value)
    return 0
