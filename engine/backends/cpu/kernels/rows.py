"""Rows moved between tensors: GET_ROWS, SET_ROWS, and copies (CPY, CONT)."""

from __future__ import annotations

import numpy as np

from engine.backends.cpu.codegen import LANES
from engine.backends.cpu.jit import helper, kernel
from engine.backends.cpu.kernels.common import n_rows, nb, ne, param, row_at, share
from engine.backends.cpu.layout import (
    DST,
    KIND_F16,
    KIND_I64,
    KIND_Q4_0,
    KIND_Q4_1,
    KIND_Q6_K,
    KIND_Q8_0,
    SRC0,
    SRC1,
    STATUS_BAD_INDEX,
)
from engine.backends.cpu.simd import (
    fmul,
    load_bytes_as_f32v,
    load_f16,
    load_f16_part,
    load_f16v,
    load_f32,
    load_f32_part,
    load_f32v,
    load_i8,
    load_i8x16,
    load_i32,
    load_i64,
    splat,
    store_f16,
    store_f16_part,
    store_f16v,
    store_f32,
    store_f32_part,
    store_f32v,
    store_nibbles,
)

_EIGHT = np.float32(8.0)


@helper
def widen(y: int, x: int, n: int) -> None:
    """Write n f16 of x to y as f32."""
    for i in range(0, n - LANES + 1, LANES):
        store_f32v(y + 4 * i, load_f16v(x + 2 * i))
    rest = n % LANES
    if rest:
        store_f32_part(y + 4 * (n - rest), load_f16_part(x + 2 * (n - rest), rest), rest)


@helper
def _narrow(y: int, x: int, n: int) -> None:
    for i in range(0, n - LANES + 1, LANES):
        store_f16v(y + 2 * i, load_f32v(x + 4 * i))
    rest = n % LANES
    if rest:
        store_f16_part(y + 2 * (n - rest), load_f32_part(x + 4 * (n - rest), rest), rest)


@helper
def _copy_f32(y: int, x: int, n: int) -> None:
    for i in range(0, n - LANES + 1, LANES):
        store_f32v(y + 4 * i, load_f32v(x + 4 * i))
    rest = n % LANES
    if rest:
        store_f32_part(y + 4 * (n - rest), load_f32_part(x + 4 * (n - rest), rest), rest)


@helper
def _copy_f16(y: int, x: int, n: int) -> None:
    for i in range(0, n - LANES + 1, LANES):
        store_f16v(y + 2 * i, load_f16v(x + 2 * i))
    rest = n % LANES
    if rest:
        store_f16_part(y + 2 * (n - rest), load_f16_part(x + 2 * (n - rest), rest), rest)


@helper
def _dequantize(kind: int, y: int, x: int, n: int) -> None:
    """Write n elements, whole blocks of 32, as f32."""
    for block in range(n // 32):
        scale = load_f16(x)
        target = y + 128 * block
        if kind == KIND_Q4_0:
            store_nibbles(target, load_i8x16(x + 2), scale, -_EIGHT * scale)
            x += 18
        elif kind == KIND_Q4_1:
            store_nibbles(target, load_i8x16(x + 4), scale, load_f16(x + 2))
            x += 20
        else:
            for i in range(0, 32, LANES):
                store_f32v(target + 4 * i, fmul(load_bytes_as_f32v(x + 2 + i), splat(scale)))
            x += 34


@helper
def _dequantize_q6_k(y: int, x: int, n: int) -> None:
    """Write n elements, whole super-blocks of 256, as f32. Source: ggml-quants.c."""
    for block in range(n // 256):
        place = x + 210 * block
        scale = load_f16(place + 208)
        for i in range(256):
            half, quarter, j = i // 128, i // 32 % 4, i % 32
            low = load_i8(place + 64 * half + 32 * (quarter % 2) + j) >> (4 * (quarter // 2))
            high = load_i8(place + 128 + 32 * half + j) >> (2 * quarter)
            value = ((low & 15) | ((high & 3) << 4)) - 32
            factor = scale * np.float32(load_i8(place + 192 + i // 16))
            store_f32(y + 4 * (256 * block + i), factor * np.float32(value))


@helper
def _load_index(kind: int, place: int) -> int:
    if kind == KIND_I64:
        return load_i64(place)
    return load_i32(place)


@kernel
def get_rows(p: int, ith: int, nth: int) -> int:
    """Give rows of src0 picked by src1 i32 [m, b2, b3] as f32 (i32 rows are copied as they are)."""
    kind = param(p, 0)
    n0, n1, n2 = ne(p, DST, 0), ne(p, DST, 1), ne(p, DST, 2)
    first, end = share(n_rows(p, DST), ith, nth)
    for row in range(first, end):
        i1, i2, i3 = row % n1, row // n1 % n2, row // (n1 * n2)
        index = load_i32(row_at(p, SRC1, i2, i3, 0) + i1 * nb(p, SRC1, 0))
        if index < 0 or index >= ne(p, SRC0, 1):
            return STATUS_BAD_INDEX
        x = row_at(p, SRC0, index, i2 % ne(p, SRC0, 2), i3 % ne(p, SRC0, 3))
        y = row_at(p, DST, i1, i2, i3)
        if kind == KIND_F16:
            widen(y, x, n0)
        elif kind == KIND_Q4_0 or kind == KIND_Q4_1 or kind == KIND_Q8_0:
            _dequantize(kind, y, x, n0)
        elif kind == KIND_Q6_K:
            _dequantize_q6_k(y, x, n0)
        else:
            _copy_f32(y, x, n0)
    return 0


@kernel
def set_rows(p: int, ith: int, nth: int) -> int:
    """Write rows of src0 f32 to dst f16 or f32 at the rows that src1 i64 or i32 names."""
    kind, index_kind = param(p, 0), param(p, 1)
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
            if kind == KIND_F16:
                store_f16(y, load_f32(x))
            else:
                store_f32(y, load_f32(x))
        elif kind == KIND_F16:
            _narrow(y, x, n0)
        else:
            _copy_f32(y, x, n0)
    return 0


@helper
def _copy_row(kind: int, kind_x: int, y: int, x: int, n: int) -> None:
    if kind == KIND_F16:
        if kind_x == KIND_F16:
            _copy_f16(y, x, n)
        else:
            _narrow(y, x, n)
    elif kind_x == KIND_F16:
        widen(y, x, n)
    else:
        _copy_f32(y, x, n)


@helper
def _copy_element(kind: int, kind_x: int, y: int, x: int) -> None:
    if kind_x == KIND_F16:
        value = load_f16(x)
    else:
        value = load_f32(x)
    if kind == KIND_F16:
        store_f16(y, value)
    else:
        store_f32(y, value)


@kernel
def copy(p: int, ith: int, nth: int) -> int:
    """Copy src0 to dst, of one shape, any strides; f32 and f16 are converted."""
    kind, kind_x = param(p, 0), param(p, 1)
    step, step_x = nb(p, DST, 0), nb(p, SRC0, 0)
    size, size_x = 4, 4
    if kind == KIND_F16:
        size = 2
    if kind_x == KIND_F16:
        size_x = 2
    n0, n1, n2 = ne(p, DST, 0), ne(p, DST, 1), ne(p, DST, 2)
    first, end = share(n_rows(p, DST), ith, nth)
    for row in range(first, end):
        i1, i2, i3 = row % n1, row // n1 % n2, row // (n1 * n2)
        y, x = row_at(p, DST, i1, i2, i3), row_at(p, SRC0, i1, i2, i3)
        if step == size and step_x == size_x:
            _copy_row(kind, kind_x, y, x, n0)
        else:
            for i in range(n0):
                _copy_element(kind, kind_x, y + i * step, x + i * step_x)
    return 0
