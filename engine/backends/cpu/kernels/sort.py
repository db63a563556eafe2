"""ARGSORT: indices that sort a row, ties in the order in which ggml leaves them.

ggml calls std::sort, which is not stable; so this is the same algorithm with the same choices:
median of three to the front, partition around it, insertion sort for runs of up to 16. What is
left out is its switch to heaps for rows made to defeat it. Source: libstdc++, bits/stl_algo.h.
"""

from __future__ import annotations

from engine.backends.cpu.jit import helper, kernel
from engine.backends.cpu.kernels.common import n_rows, ne, own_scratch, param, row_at, share
from engine.backends.cpu.layout import DST, SRC0
from engine.backends.cpu.simd import load_f32, load_i32, load_i64, store_i32, store_i64

RUN = 16
"""Runs of up to so many are left to the insertion sort."""

STACK_BYTES = 16 * 64
"""Room for pairs (first, end); the smaller part is sorted first, so they halve."""


@helper
def _before(x: int, descending: int, a: int, b: int) -> bool:
    """Whether index a comes before b; never for NaN."""
    if descending != 0:
        return bool(load_f32(x + 4 * a) > load_f32(x + 4 * b))
    return bool(load_f32(x + 4 * a) < load_f32(x + 4 * b))


@helper
def _swap(y: int, i: int, j: int) -> None:
    first = load_i32(y + 4 * i)
    store_i32(y + 4 * i, load_i32(y + 4 * j))
    store_i32(y + 4 * j, first)


@helper
def _median_to_front(y: int, x: int, descending: int, first: int, end: int) -> None:
    """Swap the median of the second, the middle and the last index to the front."""
    a, b, c = first + 1, first + (end - first) // 2, end - 1
    at_a, at_b, at_c = load_i32(y + 4 * a), load_i32(y + 4 * b), load_i32(y + 4 * c)
    if _before(x, descending, at_a, at_b):
        if _before(x, descending, at_b, at_c):
            _swap(y, first, b)
        elif _before(x, descending, at_a, at_c):
            _swap(y, first, c)
        else:
            _swap(y, first, a)
    elif _before(x, descending, at_a, at_c):
        _swap(y, first, a)
    elif _before(x, descending, at_b, at_c):
        _swap(y, first, c)
    else:
        _swap(y, first, b)


@helper
def _partition(y: int, x: int, descending: int, first: int, end: int) -> int:
    """Where the indices that do not come before the pivot at the front begin.

    Bounds are only reached with NaN, which is before and behind nothing.
    """
    pivot, i, j = load_i32(y + 4 * first), first + 1, end
    while True:
        while i < end and _before(x, descending, load_i32(y + 4 * i), pivot):
            i += 1
        j -= 1
        while j > first and _before(x, descending, pivot, load_i32(y + 4 * j)):
            j -= 1
        if i >= j:
            return i
        _swap(y, i, j)
        i += 1


@helper
def _insert(y: int, x: int, descending: int, n: int) -> None:
    """Insertion sort of nearly sorted indices."""
    for i in range(1, n):
        index, j = load_i32(y + 4 * i), i
        while j > 0 and _before(x, descending, index, load_i32(y + 4 * (j - 1))):
            store_i32(y + 4 * j, load_i32(y + 4 * (j - 1)))
            j -= 1
        store_i32(y + 4 * j, index)


@helper
def _push(stack: int, depth: int, first: int, end: int) -> int:
    store_i64(stack + 16 * depth, first)
    store_i64(stack + 16 * depth + 8, end)
    return depth + 1


@helper
def _sort(y: int, x: int, descending: int, n: int, stack: int) -> None:
    """Partition until every part is a short run, then insert."""
    depth = _push(stack, 0, 0, n)
    while depth > 0:
        depth -= 1
        first, end = load_i64(stack + 16 * depth), load_i64(stack + 16 * depth + 8)
        if end - first <= RUN:
            continue
        _median_to_front(y, x, descending, first, end)
        cut = _partition(y, x, descending, first, end)
        if cut >= end:
            continue
        if cut - first > end - cut:
            depth = _push(stack, depth, first, cut)
            depth = _push(stack, depth, cut, end)
        else:
            depth = _push(stack, depth, cut, end)
            depth = _push(stack, depth, first, cut)
    _insert(y, x, descending, n)


@kernel
def argsort(p: int, ith: int, nth: int) -> int:
    """Give indices i32 that sort each row of src0 f32, the largest first if the parameter says."""
    descending, stack = param(p, 0), own_scratch(p, ith)
    n0, n1, n2 = ne(p, DST, 0), ne(p, DST, 1), ne(p, DST, 2)
    first, end = share(n_rows(p, DST), ith, nth)
    for row in range(first, end):
        i1, i2, i3 = row % n1, row // n1 % n2, row // (n1 * n2)
        y, x = row_at(p, DST, i1, i2, i3), row_at(p, SRC0, i1, i2, i3)
        for i in range(n0):
            store_i32(y + 4 * i, i)
        _sort(y, x, descending, n0, stack)
    return 0
