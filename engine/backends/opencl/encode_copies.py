"""Operations that move elements -> kernel calls: copies, joins, repeats, rows by id. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.backends.opencl.arguments import (
    MAX_INT,
    KernelCall,
    ceil_div,
    chunks,
    ints,
    longs,
    one_row,
    pairs,
    params_of,
    strides,
)
from engine.core.ops import ConcatParams
from engine.core.tensor import Shape, Tensor, contiguous_strides
from engine.core.types import TensorType

if TYPE_CHECKING:
    from engine.backends.opencl.arguments import PlaceOf
    from engine.backends.opencl.tuning import Tuning

MIN_ROWS_ELEMS = 256
"""Elements that an item of GET_ROWS or SET_ROWS moves at least: short rows share an item."""


def encode_copy(node: Tensor, place_of: PlaceOf, tuning: Tuning) -> KernelCall:
    """CPY and CONT."""
    source = node.src[0]
    ne, source_nb, target_nb = _common_shape(source, node)
    args = (
        *pairs(place_of, source, node),
        *ints(tuning.chunk_elems, *ne[:3]),
        *longs(*source_nb, *target_nb),
    )
    name = f"copy_{source.type.label}_{node.type.label}"
    return KernelCall(("copies", ""), name, args, chunks(ne, tuning.chunk_elems))


def encode_concat(node: Tensor, place_of: PlaceOf, tuning: Tuning) -> KernelCall:
    """CONCAT."""
    a, b = node.src
    dim = params_of(node, ConcatParams).dim
    args = (
        *pairs(place_of, a, b, node),
        *ints(tuning.chunk_elems, *node.ne[:3], dim, a.ne[dim]),
        *longs(*a.nb, *b.nb),
        *strides(node),
    )
    return KernelCall(("copies", ""), "concat", args, chunks(node.ne, tuning.chunk_elems))


def encode_repeat(node: Tensor, place_of: PlaceOf, tuning: Tuning) -> KernelCall:
    """REPEAT."""
    return _widen("repeat", node, place_of, tuning)


def encode_pad(node: Tensor, place_of: PlaceOf, tuning: Tuning) -> KernelCall:
    """PAD."""
    return _widen("pad", node, place_of, tuning)


def _widen(name: str, node: Tensor, place_of: PlaceOf, tuning: Tuning) -> KernelCall:
    """A kernel whose result has at least the extents of its source."""
    (x,) = node.src
    args = (
        *pairs(place_of, x, node),
        *ints(tuning.chunk_elems, *node.ne[:3], *x.ne),
        *longs(*x.nb),
        *strides(node),
    )
    return KernelCall(("copies", ""), name, args, chunks(node.ne, tuning.chunk_elems))


def encode_get_rows(node: Tensor, place_of: PlaceOf, tuning: Tuning) -> KernelCall:
    """GET_ROWS."""
    del tuning
    table, ids = node.src
    rows_per_item = max(1, MIN_ROWS_ELEMS // node.ne[0])
    args = (
        *pairs(place_of, table, ids, node),
        *ints(rows_per_item, node.ne[0], table.ne[1], ids.ne[0], ids.ne[1], node.n_rows),
        *strides(table),
        *longs(*ids.nb[:3]),
        *strides(node),
    )
    items = (ceil_div(node.n_rows, rows_per_item), 1, 1)
    return KernelCall(("get_rows", table.type.label), "get_rows", args, items)


def encode_set_rows(node: Tensor, place_of: PlaceOf, tuning: Tuning) -> KernelCall:
    """SET_ROWS."""
    del tuning
    rows, ids = node.src[:2]
    rows_per_item = max(1, MIN_ROWS_ELEMS // rows.ne[0])
    args = (
        *pairs(place_of, rows, ids, node),
        *ints(rows_per_item, *rows.ne[:3], rows.n_rows, ids.ne[1], ids.ne[2], node.ne[1]),
        *strides(rows),
        *longs(*ids.nb[:3]),
        *strides(node),
    )
    name = "set_rows_int" if ids.type is TensorType.I32 else "set_rows_long"
    items = (ceil_div(rows.n_rows, rows_per_item), 1, 1)
    return KernelCall(("set_rows", node.type.label), name, args, items)


def _common_shape(source: Tensor, target: Tensor) -> tuple[Shape, Shape, Shape]:
    """One shape for both sides of a copy and the strides of each in it.

    Elements correspond by their order. A gapless side takes the shape of the other; two gapless
    sides become one row.
    """
    gapless = source.is_contiguous and target.is_contiguous
    if gapless and source.n_elems < MAX_INT:
        row = one_row(source.n_elems)
        return row, contiguous_strides(source.type, row), contiguous_strides(target.type, row)
    if source.ne == target.ne:
        return source.ne, source.nb, target.nb
    if target.is_contiguous:
        return source.ne, source.nb, contiguous_strides(target.type, source.ne)
    return target.ne, contiguous_strides(source.type, target.ne), target.nb
