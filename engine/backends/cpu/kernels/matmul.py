"""MUL_MAT and MUL_MAT_ID: which rows and columns a thread multiplies; how stands in products.py."""

from __future__ import annotations

from engine.backends.cpu.codegen import LANES
from engine.backends.cpu.jit import helper, kernel
from engine.backends.cpu.kernels.common import nb, ne, own_scratch, param, row_at, share
from engine.backends.cpu.kernels.products import (
    COLUMN_BYTES,
    COLUMNS_AT,
    DOT,
    GROUP,
    PAIRS_AT,
    PRODUCT,
)
from engine.backends.cpu.layout import DST, GROUP_ROWS, SHARED, SRC0, SRC1
from engine.backends.cpu.simd import call9, load_i64


@helper
def _multiply(
    p: int,
    y: int,
    pairs: int,
    w: int,
    x: int,
    x_stride: int,
    n_columns: int,
    ith: int,
    nth: int,
) -> None:
    """This thread's rows of a matrix w times columns."""
    n, own = ne(p, SRC0, 1), own_scratch(p, ith)
    # Shares are whole tiles, so that a panel is unpacked by one thread only.
    first, end = share((n + LANES - 1) // LANES, ith, nth)
    first, end = first * LANES, min(n, end * LANES)
    step = LANES
    if n_columns == 1 and param(p, DOT) != 0:
        # Nothing is kept between rows.
        step = max(LANES, end - first)
    for r in range(first, end, step):
        rows, count = w + r // GROUP_ROWS * param(p, GROUP), min(step, end - r)
        call9(param(p, PRODUCT), p, y + 4 * r, pairs, rows, count, x, x_stride, n_columns, own)


@kernel
def mul_mat(p: int, ith: int, nth: int) -> int:
    """Give src0 [k, n] times src1 f32 [k, t]; src1 may have been quantised to SHARED."""
    column_bytes, n_columns = param(p, COLUMN_BYTES), ne(p, SRC1, 1)
    n2, n3 = ne(p, SRC1, 2), ne(p, SRC1, 3)
    repeat2, repeat3 = n2 // ne(p, SRC0, 2), n3 // ne(p, SRC0, 3)
    for i in range(n2 * n3):
        i2, i3 = i % n2, i // n2
        x, x_stride = row_at(p, SRC1, 0, i2, i3), nb(p, SRC1, 1)
        if column_bytes != 0:
            x, x_stride = load_i64(p + SHARED) + i * n_columns * column_bytes, column_bytes
        w, y = row_at(p, SRC0, 0, i2 // repeat2, i3 // repeat3), row_at(p, DST, 0, i2, i3)
        _multiply(p, y, 0, w, x, x_stride, n_columns, ith, nth)
    return 0


@kernel
def mul_mat_id(p: int, ith: int, nth: int) -> int:
    """Give src0 [k, n, n_expert] times the columns that were gathered for each expert.

    SHARED holds what kernels/experts.py wrote: the columns of one expert lie side by side.
    """
    shared, x_stride = load_i64(p + SHARED), param(p, COLUMN_BYTES)
    y = row_at(p, DST, 0, 0, 0)
    for i_expert in range(ne(p, SRC0, 2)):
        first, end = load_i64(shared + 8 * i_expert), load_i64(shared + 8 * i_expert + 8)
        if first == end:
            continue
        w, pairs = row_at(p, SRC0, 0, i_expert, 0), shared + param(p, PAIRS_AT) + 8 * first
        x = shared + param(p, COLUMNS_AT) + first * x_stride
        _multiply(p, y, pairs, w, x, x_stride, end - first, ith, nth)
    return 0
