"""Rows moved between tensors: GET_ROWS, SET_ROWS, copies (CPY, CONT), PAD."""

from __future__ import annotations

import numpy as np

from engine.backends.cpu.jit import helper, kernel
from engine.backends.cpu.kernels.common import n_rows, nb, ne, own_scratch, param, row_at, share
from engine.backends.cpu.layout import (
    DST,
    KIND_BF16,
    KIND_F16,
    KIND_I64,
    SRC0,
    SRC1,
    STATUS_BAD_INDEX,
)
from engine.backends.cpu.simd import (
    call3,
    load_bf16,
    load_f16,
    load_f32,
    load_i8x32,
    load_i32,
    load_i64,
    load_u8,
    store_bf16,
    store_f16,
    store_f32,
    store_i8,
    store_i8x32,
)

_ZERO = np.float32(0.0)


@helper
def _load_index(kind: int, place: int) -> int:
    if kind == KIND_I64:
        return load_i64(place)
    return load_i32(place)


@kernel
def get_rows(p: int, ith: int, nth: int) -> int:
    """Give rows of src0 picked by src1 i32 [m, b2, b3] as f32 (i32 rows are copied as they are).

    The parameter is the address of what makes floats of a row.
    """
    to_float = param(p, 0)
    n0, n1, n2 = ne(p, DST, 0), ne(p, DST, 1), ne(p, DST, 2)
    first, end = share(n_rows(p, DST), ith, nth)
    for row in range(first, end):
        i1, i2, i3 = row % n1, row // n1 % n2, row // (n1 * n2)
        index = load_i32(row_at(p, SRC1, i2, i3, 0) + i1 * nb(p, SRC1, 0))
        if index < 0 or index >= ne(p, SRC0, 1):
            return STATUS_BAD_INDEX
        x = row_at(p, SRC0, index, i2 % ne(p, SRC0, 2), i3 % ne(p, SRC0, 3))
        y = row_at(p, DST, i1, i2, i3)
        call3(to_float, y, x, n0)
    return 0


@helper
def load_float(kind: int, place: int) -> np.float32:
    """One f32, f16 or bf16."""
    if kind == KIND_F16:
        return load_f16(place)
    if kind == KIND_BF16:
        return load_bf16(place)
    return load_f32(place)


@helper
def _store_float(kind: int, place: int, value: np.float32) -> None:
    if kind == KIND_F16:
        store_f16(place, value)
    elif kind == KIND_BF16:
        store_bf16(place, value)
    else:
        store_f32(place, value)


@kernel
def set_rows(p: int, ith: int, nth: int) -> int:
    """Write rows of src0 f32 to dst, any type, at the rows that src1 i64 or i32 names.

    Parameters: type of dst, type of the indices, address of what makes rows of floats.
    """
    kind, index_kind, from_float = param(p, 0), param(p, 1), param(p, 2)
    n0, n1, n2 = ne(p, SRC0, 0), ne(p, SRC0, 1), ne(p, SRC0, 2)
    first, end = share(n_rows(p, SRC0), ith, nth)
    for row in range(first, end):
        i1, i2, i3 = row % n1, row // n1 % n2, row // (n1 * n2)
        place = row_at(p, SRC1, i2 % ne(p, SRC1, 1), i3 % ne(p, SRC1, 2), 0)
        index = _load_index(index_kind, place + i1 * nb(p, SRC1, 0))
        if index < 0 or index >= ne(p, DST, 1):
            return STATUS_BAD_INDEX
        x, y = row_at(p, SRC0, i1, i2, i3), row_at(p, DST, index, i2, i3)
        if n0 == 1:
            _store_float(kind, y, load_f32(x))
        else:
            call3(from_float, y, x, n0)
    return 0


@helper
def _copy_bytes(y: int, x: int, n: int) -> None:
    for i in range(0, n - 31, 32):
        store_i8x32(y + i, load_i8x32(x + i))
    for i in range(n - n % 32, n):
        store_i8(y + i, load_u8(x + i))


BY_BYTES, TO_FLOATS, FROM_FLOATS, THROUGH_FLOATS, BY_ELEMENT = range(5)
"""Ways to copy a row: as it is, from or to f32, over f32 in between; or one element at a time."""


@helper
def _copy_row(p: int, way: int, y: int, x: int, room: int) -> None:
    n, to_float, from_float = ne(p, DST, 0), param(p, 3), param(p, 4)
    if way == BY_BYTES:
        _copy_bytes(y, x, param(p, 5))
    elif way == TO_FLOATS:
        call3(to_float, y, x, n)
    elif way == FROM_FLOATS:
        call3(from_float, y, x, n)
    else:
        call3(to_float, room, x, n)
        call3(from_float, y, room, n)


@kernel
def copy(p: int, ith: int, nth: int) -> int:
    """Copy src0 to dst, of one shape, any strides; types are converted.

    Parameters: the way, both types, addresses of what makes floats of src0 and rows of floats, and
    bytes of a row. Elements that do not lie side by side are f32, f16 or bf16, or 4 bytes each.
    """
    way, kind, kind_x = param(p, 0), param(p, 1), param(p, 2)
    step, step_x = nb(p, DST, 0), nb(p, SRC0, 0)
    n0, n1, n2 = ne(p, DST, 0), ne(p, DST, 1), ne(p, DST, 2)
    first, end = share(n_rows(p, DST), ith, nth)
    for row in range(first, end):
        i1, i2, i3 = row % n1, row // n1 % n2, row // (n1 * n2)
        y, x = row_at(p, DST, i1, i2, i3), row_at(p, SRC0, i1, i2, i3)
        if way != BY_ELEMENT:
            _copy_row(p, way, y, x, own_scratch(p, ith))
            continue
        for i in range(n0):
            _store_float(kind, y + i * step, load_float(kind_x, x + i * step_x))
    return 0


@kernel
def pad(p: int, ith: int, nth: int) -> int:
    """Give src0 f32 with zeros after the last element of each dimension; any strides."""
    step, step_x, n0, n0_x = nb(p, DST, 0), nb(p, SRC0, 0), ne(p, DST, 0), ne(p, SRC0, 0)
    n1, n2 = ne(p, DST, 1), ne(p, DST, 2)
    first, end = share(n_rows(p, DST), ith, nth)
    for row in range(first, end):
        i1, i2, i3 = row % n1, row // n1 % n2, row // (n1 * n2)
        y, x = row_at(p, DST, i1, i2, i3), row_at(p, SRC0, i1, i2, i3)
        filled = n0_x
        if i1 >= ne(p, SRC0, 1) or i2 >= ne(p, SRC0, 2) or i3 >= ne(p, SRC0, 3):
            filled = 0
        for i in range(filled):
            store_f32(y + i * step, load_f32(x + i * step_x))
        for i in range(filled, n0):
            store_f32(y + i * step, _ZERO)
    return 0
