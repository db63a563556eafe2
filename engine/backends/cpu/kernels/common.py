"""What every kernel needs: its arguments, its share of the rows, addresses of rows."""

from __future__ import annotations

import numpy as np

from engine.backends.cpu.jit import helper
from engine.backends.cpu.layout import OWN, OWN_BYTES, PARAMS
from engine.backends.cpu.simd import load_f64, load_i64


@helper
def ne(p: int, tensor: int, i_dim: int) -> int:
    """Elements of dimension `i_dim` of a tensor of the row."""
    return load_i64(p + tensor + 8 + 8 * i_dim)


@helper
def nb(p: int, tensor: int, i_dim: int) -> int:
    """Stride in bytes of dimension `i_dim`."""
    return load_i64(p + tensor + 40 + 8 * i_dim)


@helper
def address(p: int, tensor: int) -> int:
    """Address of a tensor's first byte; 0 for a source that is absent."""
    return load_i64(p + tensor)


@helper
def param(p: int, i_param: int) -> int:
    """An integer parameter."""
    return load_i64(p + PARAMS + 8 * i_param)


@helper
def param_float(p: int, i_param: int) -> np.float32:
    """A float parameter as float32."""
    return np.float32(load_f64(p + PARAMS + 8 * i_param))


@helper
def param_double(p: int, i_param: int) -> float:
    """A float parameter as float64."""
    return load_f64(p + PARAMS + 8 * i_param)


@helper
def own_scratch(p: int, ith: int) -> int:
    """Address of this thread's scratch memory."""
    return load_i64(p + OWN) + load_i64(p + OWN_BYTES) * ith


@helper
def n_rows(p: int, tensor: int) -> int:
    """ne1 * ne2 * ne3."""
    return ne(p, tensor, 1) * ne(p, tensor, 2) * ne(p, tensor, 3)


@helper
def row_at(p: int, tensor: int, i1: int, i2: int, i3: int) -> int:
    """Address of a row."""
    start = address(p, tensor) + i1 * nb(p, tensor, 1)
    return start + i2 * nb(p, tensor, 2) + i3 * nb(p, tensor, 3)


@helper
def row_repeated(p: int, tensor: int, i1: int, i2: int, i3: int) -> int:
    """Address of a row of a tensor that repeats along dimensions 1 to 3."""
    i1 = i1 % ne(p, tensor, 1)
    i2 = i2 % ne(p, tensor, 2)
    return row_at(p, tensor, i1, i2, i3 % ne(p, tensor, 3))


@helper
def share(count: int, ith: int, nth: int) -> tuple[int, int]:
    """First and end of thread `ith`'s part of `count` things."""
    return count * ith // nth, count * (ith + 1) // nth
