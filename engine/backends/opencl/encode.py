"""Tensor -> kernel call. Pure: arguments are places and numpy scalars, no device is touched.

Argument orders are those of the .cl files: first the (buffer, offset) pairs, then counts (int),
strides in bytes (ulong), then floats.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np

from engine.backend.interface import Place
from engine.core.ops import (
    FlashAttnParams,
    NormParams,
    Op,
    RopeParams,
    ScaleParams,
    SoftMaxParams,
)
from engine.core.rope import rope_factors
from engine.core.tensor import Shape, Tensor, contiguous_strides
from engine.core.types import TensorType

Argument = Place | np.generic
PlaceOf = Callable[[Tensor], Place]
P = TypeVar("P")

TILE_ROWS = 4
"""TILE_ROWS of mul_mat.cl."""
MAX_INT = 2**31
MIN_SET_ELEMS = 256
"""Elements that an item of SET_ROWS writes at least, so that one-element rows share an item."""


@dataclass(frozen=True, slots=True)
class Tuning:
    """How work is cut into items on one kind of device.

    `group_items` items along dimension 0 form a work-group. `chunk_elems` of a row are one item of
    an elementwise kernel and of rounding. `vec_rows` weight rows are one item of mul_mat_vec, which
    takes batches of up to `max_vec_columns`; larger ones go to mul_mat_tile with up to
    `tile_columns` an item.
    `rope_heads` heads share the angles one item computes. `queries` of a head are one item of
    attention. `build_options` choose between variants inside the .cl files.
    """

    group_items: int
    chunk_elems: int
    vec_rows: int
    max_vec_columns: int
    tile_columns: int
    rope_heads: int
    queries: int
    build_options: tuple[str, ...]


CPU_TUNING = Tuning(
    group_items=1,
    chunk_elems=2048,
    vec_rows=16,
    max_vec_columns=1,
    tile_columns=128,
    rope_heads=1 << 20,
    queries=16,
    build_options=("-DDEVICE_CPU", "-DQUERIES=16"),
)
"""Few fat items: a CPU device runs an item as a loop, and a group as a function call."""

GPU_TUNING = Tuning(
    group_items=64,
    chunk_elems=8,
    vec_rows=1,
    max_vec_columns=1 << 20,
    tile_columns=4,
    rope_heads=1,
    queries=1,
    build_options=("-DQUERIES=1",),
)
"""Many thin items; the tile kernel's scratch is meant for CPUs and not used."""


class KernelCall(NamedTuple):
    """One launch: which kernel of which program, its arguments and number of items.

    `program` is (family, option) as `programs.Programs` takes it.
    """

    program: tuple[str, str]
    kernel: str
    args: tuple[Argument, ...]
    items: tuple[int, int, int]


class Rounding(NamedTuple):
    """A kernel of round_rows.cl and the length of its blocks."""

    kernel: str
    block: int


BLOCKS_OF_32 = Rounding("round_rows_q8_0", 32)
ROUNDINGS: dict[TensorType, Rounding] = {
    TensorType.Q8_0: BLOCKS_OF_32,
    TensorType.Q4_0: BLOCKS_OF_32,
    TensorType.Q4_1: BLOCKS_OF_32,
    TensorType.Q6_K: Rounding("round_rows_q8_k", 256),
}
"""How ggml's CPU rounds the activations of a matmul with weights of this type."""


def encode(node: Tensor, place_of: PlaceOf, tuning: Tuning) -> KernelCall:
    """The launch that computes `node`; the rules must have allowed it."""
    return ENCODERS[node.op](node, place_of, tuning)


def _binary(node: Tensor, place_of: PlaceOf, tuning: Tuning) -> KernelCall:
    a, b = node.src
    name = {Op.ADD: "add", Op.SUB: "sub", Op.MUL: "mul", Op.DIV: "divide"}[node.op]
    if _flat(node, a, b):
        ne, b_ne = _one_row(node.n_elems), _one_row(node.n_elems)
    else:
        ne, b_ne = node.ne, b.ne
    args = (
        *_pairs(place_of, a, b, node),
        *_ints(tuning.chunk_elems, *ne[:3], *b_ne),
        *_strides(a, b, node),
    )
    return KernelCall(("elementwise", ""), name, args, _chunks(ne, tuning))


def _map(name: str, node: Tensor, place_of: PlaceOf, tuning: Tuning, *p: float) -> KernelCall:
    ne = _one_row(node.n_elems) if _flat(node, *node.src) else node.ne
    args = (
        *_pairs(place_of, *node.src, node),
        *_ints(tuning.chunk_elems, *ne[:3]),
        *_strides(*node.src, node),
        *_floats(*p),
    )
    return KernelCall(("elementwise", ""), name, args, _chunks(ne, tuning))


def _scale(node: Tensor, place_of: PlaceOf, tuning: Tuning) -> KernelCall:
    params = _params(node, ScaleParams)
    return _map("scale", node, place_of, tuning, params.scale, params.bias)


def _unary(node: Tensor, place_of: PlaceOf, tuning: Tuning) -> KernelCall:
    return _map(node.op_desc.lower(), node, place_of, tuning, 0.0, 0.0)


def _glu(node: Tensor, place_of: PlaceOf, tuning: Tuning) -> KernelCall:
    return _map(node.op_desc.lower(), node, place_of, tuning)


def _copy(node: Tensor, place_of: PlaceOf, tuning: Tuning) -> KernelCall:
    source = node.src[0]
    ne, source_nb, target_nb = _common_shape(source, node)
    args = (
        *_pairs(place_of, source, node),
        *_ints(tuning.chunk_elems, *ne[:3]),
        *_longs(*source_nb, *target_nb),
    )
    name = f"copy_{source.type.label}_{node.type.label}"
    return KernelCall(("elementwise", ""), name, args, _chunks(ne, tuning))


def _get_rows(node: Tensor, place_of: PlaceOf, tuning: Tuning) -> KernelCall:
    del tuning
    table, ids = node.src
    args = (
        *_pairs(place_of, table, ids, node),
        *_ints(node.ne[0], table.ne[1], ids.ne[0], ids.ne[1], node.n_rows),
        *_strides(table),
        *_longs(*ids.nb[:3]),
        *_strides(node),
    )
    return KernelCall(("get_rows", table.type.label), "get_rows", args, (node.n_rows, 1, 1))


def _set_rows(node: Tensor, place_of: PlaceOf, tuning: Tuning) -> KernelCall:
    del tuning
    rows, ids = node.src[:2]
    rows_per_item = max(1, MIN_SET_ELEMS // rows.ne[0])
    args = (
        *_pairs(place_of, rows, ids, node),
        *_ints(rows_per_item, *rows.ne[:3], rows.n_rows, ids.ne[1], ids.ne[2], node.ne[1]),
        *_strides(rows),
        *_longs(*ids.nb[:3]),
        *_strides(node),
    )
    name = f"set_rows_{node.type.label}_{ids.type.label}"
    return KernelCall(("set_rows", ""), name, args, (ceil_div(rows.n_rows, rows_per_item), 1, 1))


def _rms_norm(node: Tensor, place_of: PlaceOf, tuning: Tuning) -> KernelCall:
    del tuning
    (x,) = node.src
    args = (
        *_pairs(place_of, x, node),
        *_ints(*x.ne[:3], x.n_rows),
        *_strides(x, node),
        *_floats(_params(node, NormParams).eps),
    )
    return KernelCall(("rows", ""), "rms_norm", args, (x.n_rows, 1, 1))


def _soft_max(node: Tensor, place_of: PlaceOf, tuning: Tuning) -> KernelCall:
    del tuning
    x = node.src[0]
    has_mask = len(node.src) > 1
    mask = node.src[1] if has_mask else x
    args = (
        *_pairs(place_of, x, mask, node),
        *_ints(*x.ne[:3], x.n_rows, mask.ne[2], mask.ne[3]),
        *_strides(x, mask, node),
        *_floats(_params(node, SoftMaxParams).scale),
    )
    name = f"soft_max_{mask.type.label}" if has_mask else "soft_max"
    return KernelCall(("rows", ""), name, args, (x.n_rows, 1, 1))


def _rope(node: Tensor, place_of: PlaceOf, tuning: Tuning) -> KernelCall:
    x, positions = node.src[:2]
    has_factors = len(node.src) > 2
    factors = node.src[2] if has_factors else x
    params = _params(node, RopeParams)
    pair_step, pair_gap = (2, 1) if params.mode == 0 else (1, params.n_dims // 2)
    n_tokens = x.ne[2] * x.ne[3]
    heads = min(tuning.rope_heads, x.ne[1])
    args = (
        *_pairs(place_of, x, positions, factors, node),
        *_ints(*x.ne[:3], n_tokens, heads, int(has_factors), params.n_dims, pair_step, pair_gap),
        *_longs(positions.nb[0]),
        *_strides(x, node),
        *_floats(*rope_factors(params)),
    )
    return KernelCall(("rope", ""), "rope", args, (n_tokens, ceil_div(x.ne[1], heads), 1))


def _mul_mat(node: Tensor, place_of: PlaceOf, tuning: Tuning) -> KernelCall:
    x = node.src[1]
    return encode_mul_mat(node, place_of, tuning, x=x, x_place=place_of(x))


def encode_mul_mat(
    node: Tensor, place_of: PlaceOf, tuning: Tuning, *, x: Tensor, x_place: Place
) -> KernelCall:
    """The launch of a matmul whose activations are read from `x_place`, laid out as `x` is."""
    weight = node.src[0]
    n_columns = x.ne[1]
    n_batches = x.ne[2] * x.ne[3]
    arguments = (
        *_pairs(place_of, weight),
        *_pair(x_place),
        *_pairs(place_of, node),
        *_ints(weight.ne[0], weight.ne[1], n_columns, x.ne[2]),
        *_ints(x.ne[2] // weight.ne[2], x.ne[3] // weight.ne[3]),
        *_strides(weight, x, node),
    )
    program = ("mul_mat", weight.type.label)
    if n_columns <= tuning.max_vec_columns:
        items = (ceil_div(weight.ne[1], tuning.vec_rows), n_columns, n_batches)
        return KernelCall(program, "mul_mat_vec", (*arguments, np.int32(tuning.vec_rows)), items)
    columns = min(tuning.tile_columns, n_columns)
    items = (ceil_div(weight.ne[1], TILE_ROWS), ceil_div(n_columns, columns), n_batches)
    return KernelCall(program, "mul_mat_tile", (*arguments, np.int32(columns)), items)


def encode_round_rows(
    x: Tensor, kind: Rounding, x_place: Place, target: Place, tuning: Tuning
) -> KernelCall:
    """The launch that writes the rows of `x` to `target`, rounded in blocks and without gaps."""
    elems = ceil_div(tuning.chunk_elems, kind.block) * kind.block
    args = (*_pair(x_place), *_pair(target), *_ints(elems, *x.ne[:3]), *_strides(x))
    items = (ceil_div(x.ne[0], elems), x.n_rows, 1)
    return KernelCall(("round_rows", ""), kind.kernel, args, items)


def _flash_attn(node: Tensor, place_of: PlaceOf, tuning: Tuning) -> KernelCall:
    q, k, v = node.src[:3]
    has_mask = len(node.src) > 3
    mask = node.src[3] if has_mask else q
    params = _params(node, FlashAttnParams)
    scale = params.scale / params.softcap if params.softcap else params.scale
    args = (
        *_pairs(place_of, q, k, v, mask, node),
        *_ints(k.ne[0], v.ne[0], q.ne[1], k.ne[1]),
        *_ints(q.ne[2] // k.ne[2], q.ne[2] // v.ne[2], q.ne[3] // k.ne[3], q.ne[3] // v.ne[3]),
        *_ints(int(has_mask), mask.ne[2], mask.ne[3]),
        *_strides(q, k, v, mask, node),
        *_floats(scale, params.softcap),
    )
    items = (ceil_div(q.ne[1], tuning.queries), q.ne[2], q.ne[3])
    return KernelCall(("flash_attn", k.type.label), "flash_attn", args, items)


ENCODERS: dict[Op, Callable[[Tensor, PlaceOf, Tuning], KernelCall]] = {
    Op.ADD: _binary,
    Op.SUB: _binary,
    Op.MUL: _binary,
    Op.DIV: _binary,
    Op.SCALE: _scale,
    Op.UNARY: _unary,
    Op.GLU: _glu,
    Op.CPY: _copy,
    Op.CONT: _copy,
    Op.GET_ROWS: _get_rows,
    Op.SET_ROWS: _set_rows,
    Op.RMS_NORM: _rms_norm,
    Op.SOFT_MAX: _soft_max,
    Op.ROPE: _rope,
    Op.MUL_MAT: _mul_mat,
    Op.FLASH_ATTN_EXT: _flash_attn,
}
"""How each operation becomes a launch; rules.SUPPORTED has the same keys."""


def ceil_div(count: int, step: int) -> int:
    """Steps needed to cover `count`."""
    return -(-count // step)


def _params(node: Tensor, kind: type[P]) -> P:
    assert isinstance(node.params, kind), node
    return node.params


def _pairs(place_of: PlaceOf, *tensors: Tensor) -> tuple[Argument, ...]:
    """The (buffer, offset) pair of each tensor."""
    pairs: list[Argument] = []
    for tensor in tensors:
        pairs += _pair(place_of(tensor))
    return tuple(pairs)


def _pair(place: Place) -> tuple[Argument, Argument]:
    return place, np.uint64(place.offset)


def _ints(*values: int) -> tuple[np.int32, ...]:
    return tuple(np.int32(v) for v in values)


def _longs(*values: int) -> tuple[np.uint64, ...]:
    return tuple(np.uint64(v) for v in values)


def _floats(*values: float) -> tuple[np.float32, ...]:
    return tuple(np.float32(v) for v in values)


def _strides(*tensors: Tensor) -> tuple[np.uint64, ...]:
    """Strides of dimensions 1 to 3 of each tensor."""
    return tuple(np.uint64(nb) for t in tensors for nb in t.nb[1:])


def _flat(*tensors: Tensor) -> bool:
    """Whether the tensors can be walked as one long row, counted in an int."""
    return tensors[0].n_elems < MAX_INT and all(
        t.is_contiguous and t.ne == tensors[0].ne for t in tensors
    )


def _one_row(n_elems: int) -> Shape:
    return (n_elems, 1, 1, 1)


def _chunks(ne: Shape, tuning: Tuning) -> tuple[int, int, int]:
    """Items of an elementwise kernel over `ne`."""
    return (ceil_div(ne[0], tuning.chunk_elems), ne[1] * ne[2] * ne[3], 1)


def _common_shape(source: Tensor, target: Tensor) -> tuple[Shape, Shape, Shape]:
    """One shape for both sides of a copy and the strides of each in it.

    Elements correspond by their order. A gapless side takes the shape of the other; two gapless
    sides become one row.
    """
    gapless = source.is_contiguous and target.is_contiguous
    if gapless and source.n_elems < MAX_INT:
        row = _one_row(source.n_elems)
        return row, contiguous_strides(source.type, row), contiguous_strides(target.type, row)
    if source.ne == target.ne:
        return source.ne, source.nb, target.nb
    if target.is_contiguous:
        return source.ne, source.nb, contiguous_strides(target.type, source.ne)
    return target.ne, contiguous_strides(source.type, target.ne), target.nb
