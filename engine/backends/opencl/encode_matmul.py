"""MUL_MAT and MUL_MAT_ID -> kernel calls, and the rounding of what they multiply with. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from engine.backends.opencl.arguments import (
    KernelCall,
    ceil_div,
    ints,
    longs,
    pair,
    pairs,
    strides,
)
from engine.core.ops import Op

if TYPE_CHECKING:
    from engine.backend.interface import Place
    from engine.backends.opencl.arguments import PlaceOf
    from engine.backends.opencl.readers import Rounding
    from engine.backends.opencl.tuning import Tuning
    from engine.core.tensor import Tensor

TILE_ROWS = 4
"""TILE_ROWS of products.cl."""
MATMULS = (Op.MUL_MAT, Op.MUL_MAT_ID)


def encode_matmul(
    node: Tensor, place_of: PlaceOf, tuning: Tuning, *, x: Tensor, x_place: Place
) -> KernelCall:
    """The launch of a matmul whose activations are read from `x_place`, laid out as `x` is."""
    make = _mul_mat if node.op is Op.MUL_MAT else _mul_mat_id
    return make(node, place_of, tuning, x, x_place)


def goes_column_by_column(node: Tensor, tuning: Tuning) -> bool:
    """Whether a matmul has so few columns that weights are read straight from their blocks."""
    weight, x = node.src[:2]
    if node.op is Op.MUL_MAT:
        return x.ne[1] <= tuning.max_vec_columns
    ids = node.src[2]
    return ids.ne[0] * ids.ne[1] <= tuning.max_vec_columns * weight.ne[2]


def encode_round_rows(
    x: Tensor, kind: Rounding, x_place: Place, target: Place, tuning: Tuning
) -> KernelCall:
    """The launch that writes the rows of `x` to `target`, rounded in blocks and without gaps."""
    elems = ceil_div(tuning.chunk_elems, kind.block) * kind.block
    args = (*pair(x_place), *pair(target), *ints(elems, *x.ne[:3]), *strides(x))
    items = (ceil_div(x.ne[0], elems), x.n_rows, 1)
    return KernelCall(("round_rows", ""), kind.kernel, args, items)


def _mul_mat(
    node: Tensor, place_of: PlaceOf, tuning: Tuning, x: Tensor, x_place: Place
) -> KernelCall:
    weight = node.src[0]
    n_columns = x.ne[1]
    n_batches = x.ne[2] * x.ne[3]
    arguments = (
        *pairs(place_of, weight),
        *pair(x_place),
        *pairs(place_of, node),
        *ints(weight.ne[0], weight.ne[1], n_columns, x.ne[2]),
        *ints(x.ne[2] // weight.ne[2], x.ne[3] // weight.ne[3]),
        *strides(weight, x, node),
    )
    program = ("mul_mat", weight.type.label)
    if goes_column_by_column(node, tuning):
        items = (ceil_div(weight.ne[1], tuning.vec_rows), n_columns, n_batches)
        return KernelCall(program, "mul_mat_vec", (*arguments, np.int32(tuning.vec_rows)), items)
    columns = min(tuning.tile_columns, n_columns)
    items = (ceil_div(weight.ne[1], TILE_ROWS), ceil_div(n_columns, columns), n_batches)
    return KernelCall(program, "mul_mat_tile", (*arguments, np.int32(columns)), items)


def _mul_mat_id(
    node: Tensor, place_of: PlaceOf, tuning: Tuning, x: Tensor, x_place: Place
) -> KernelCall:
    weights, _, ids = node.src
    n_experts = weights.ne[2]
    n_slots, n_tokens = ids.ne[:2]
    arguments = (
        *pairs(place_of, weights),
        *pair(x_place),
        *pairs(place_of, ids, node),
        *ints(*weights.ne[:2], n_experts, n_slots, n_tokens, x.ne[1]),
        *longs(*weights.nb[1:3], *x.nb[1:3], *ids.nb[:2], *node.nb[1:3]),
    )
    program = ("mul_mat_id", weights.type.label)
    if goes_column_by_column(node, tuning):
        items = (ceil_div(weights.ne[1], tuning.vec_rows), n_slots, n_tokens)
        return KernelCall(program, "mul_mat_id_vec", (*arguments, np.int32(tuning.vec_rows)), items)
    rows = tuning.expert_rows
    items = (ceil_div(weights.ne[1], rows), n_experts, 1)
    return KernelCall(program, "mul_mat_id_tile", (*arguments, np.int32(rows)), items)
