"""Tensor -> kernel call. Pure: arguments are places and numpy scalars, no device is touched."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.backend.interface import Place
from engine.backends.opencl.arguments import (
    MAX_INT,
    KernelCall,
    chunks,
    floats,
    ints,
    longs,
    one_row,
    pair,
    pairs,
    params_of,
    strides,
)
from engine.backends.opencl.encode_attention import (
    encode_flash_attn,
    encode_rope,
    encode_soft_max,
)
from engine.backends.opencl.encode_copies import (
    encode_concat,
    encode_copy,
    encode_get_rows,
    encode_pad,
    encode_repeat,
    encode_set_rows,
)
from engine.backends.opencl.encode_matmul import encode_matmul
from engine.core.ops import (
    ArgsortParams,
    ClampParams,
    FillParams,
    GluOp,
    GluParams,
    NormParams,
    Op,
    ScaleParams,
    UnaryOp,
    UnaryParams,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.backends.opencl.arguments import PlaceOf
    from engine.backends.opencl.tuning import Tuning
    from engine.core.tensor import Tensor

UNARY_KERNELS = {
    UnaryOp.SILU: "silu",
    UnaryOp.GELU: "gelu",
    UnaryOp.TANH: "tanh_of",
    UnaryOp.SIGMOID: "sigmoid",
    UnaryOp.SOFTPLUS: "softplus",
}
GLU_KERNELS = {
    GluOp.SWIGLU: "swiglu",
    GluOp.GEGLU: "geglu",
    GluOp.SWIGLU_OAI: "swiglu_oai",
}


def encode(node: Tensor, place_of: PlaceOf, tuning: Tuning) -> KernelCall:
    """The launch that computes `node`; the rules must have allowed it."""
    return ENCODERS[node.op](node, place_of, tuning)


def _binary(node: Tensor, place_of: PlaceOf, tuning: Tuning) -> KernelCall:
    a, b = node.src
    name = {Op.ADD: "add", Op.SUB: "sub", Op.MUL: "mul", Op.DIV: "divide"}[node.op]
    if _flat(node, a, b):
        ne, b_ne = one_row(node.n_elems), one_row(node.n_elems)
    else:
        ne, b_ne = node.ne, b.ne
    args = (
        *pairs(place_of, a, b, node),
        *ints(tuning.chunk_elems, *ne[:3], *b_ne),
        *strides(a, b, node),
    )
    return KernelCall(("elementwise", ""), name, args, chunks(ne, tuning.chunk_elems))


def _add_id(node: Tensor, place_of: PlaceOf, tuning: Tuning) -> KernelCall:
    a, b, ids = node.src
    args = (
        *pairs(place_of, a, b, ids, node),
        *ints(tuning.chunk_elems, *node.ne[:2], b.ne[1]),
        *longs(*a.nb[1:3], b.nb[1], *ids.nb[:2], *node.nb[1:3]),
    )
    return KernelCall(("elementwise", ""), "add_id", args, chunks(node.ne, tuning.chunk_elems))


def _map(name: str, node: Tensor, place_of: PlaceOf, tuning: Tuning, *p: float) -> KernelCall:
    ne = one_row(node.n_elems) if _flat(node, *node.src) else node.ne
    args = (
        *pairs(place_of, *node.src, node),
        *ints(tuning.chunk_elems, *ne[:3]),
        *strides(*node.src, node),
        *floats(*p),
    )
    return KernelCall(("elementwise", ""), name, args, chunks(ne, tuning.chunk_elems))


def _scale(node: Tensor, place_of: PlaceOf, tuning: Tuning) -> KernelCall:
    params = params_of(node, ScaleParams)
    return _map("scale", node, place_of, tuning, params.scale, params.bias)


def _clamp(node: Tensor, place_of: PlaceOf, tuning: Tuning) -> KernelCall:
    params = params_of(node, ClampParams)
    return _map("clamp_to", node, place_of, tuning, params.low, params.high)


def _fill(node: Tensor, place_of: PlaceOf, tuning: Tuning) -> KernelCall:
    return _map("fill", node, place_of, tuning, params_of(node, FillParams).value, 0.0)


def _unary(node: Tensor, place_of: PlaceOf, tuning: Tuning) -> KernelCall:
    name = UNARY_KERNELS[params_of(node, UnaryParams).kind]
    return _map(name, node, place_of, tuning, 0.0, 0.0)


def _glu(node: Tensor, place_of: PlaceOf, tuning: Tuning) -> KernelCall:
    params = params_of(node, GluParams)
    name, numbers = GLU_KERNELS[params.kind], (params.alpha, params.limit)
    if len(node.src) > 1:
        return _map(name, node, place_of, tuning, *numbers)
    (x,) = node.src
    gate = place_of(x)
    up = Place(gate.buffer, gate.offset + x.nb[0] * node.ne[0])
    args = (
        *pair(gate),
        *pair(up),
        *pairs(place_of, node),
        *ints(tuning.chunk_elems, *node.ne[:3]),
        *strides(x, x, node),
        *floats(*numbers),
    )
    return KernelCall(("elementwise", ""), name, args, chunks(node.ne, tuning.chunk_elems))


def _norm(node: Tensor, place_of: PlaceOf, tuning: Tuning) -> KernelCall:
    del tuning
    (x,) = node.src
    args = (
        *pairs(place_of, x, node),
        *ints(*x.ne[:3], x.n_rows),
        *strides(x, node),
        *floats(params_of(node, NormParams).eps),
    )
    name = "norm" if node.op is Op.NORM else "rms_norm"
    return KernelCall(("rows", ""), name, args, (x.n_rows, 1, 1))


def _sum_rows(node: Tensor, place_of: PlaceOf, tuning: Tuning) -> KernelCall:
    del tuning
    (x,) = node.src
    args = (*pairs(place_of, x, node), *ints(*x.ne[:3], x.n_rows), *strides(x, node))
    return KernelCall(("rows", ""), "sum_rows", args, (x.n_rows, 1, 1))


def _argsort(node: Tensor, place_of: PlaceOf, tuning: Tuning) -> KernelCall:
    (x,) = node.src
    descending = params_of(node, ArgsortParams).descending
    args = (
        *pairs(place_of, x, node),
        *ints(tuning.chunk_elems, *x.ne[:3], int(descending)),
        *strides(x, node),
    )
    return KernelCall(("rows", ""), "argsort", args, chunks(x.ne, tuning.chunk_elems))


def _matmul(node: Tensor, place_of: PlaceOf, tuning: Tuning) -> KernelCall:
    x = node.src[1]
    return encode_matmul(node, place_of, tuning, x=x, x_place=place_of(x))


ENCODERS: dict[Op, Callable[[Tensor, PlaceOf, Tuning], KernelCall]] = {
    Op.ADD: _binary,
    Op.ADD_ID: _add_id,
    Op.SUB: _binary,
    Op.MUL: _binary,
    Op.DIV: _binary,
    Op.SCALE: _scale,
    Op.CLAMP: _clamp,
    Op.FILL: _fill,
    Op.UNARY: _unary,
    Op.GLU: _glu,
    Op.CPY: encode_copy,
    Op.CONT: encode_copy,
    Op.CONCAT: encode_concat,
    Op.REPEAT: encode_repeat,
    Op.PAD: encode_pad,
    Op.GET_ROWS: encode_get_rows,
    Op.SET_ROWS: encode_set_rows,
    Op.NORM: _norm,
    Op.RMS_NORM: _norm,
    Op.SUM_ROWS: _sum_rows,
    Op.ARGSORT: _argsort,
    Op.SOFT_MAX: encode_soft_max,
    Op.ROPE: encode_rope,
    Op.MUL_MAT: _matmul,
    Op.MUL_MAT_ID: _matmul,
    Op.FLASH_ATTN_EXT: encode_flash_attn,
}
"""How each operation becomes a launch; rules.SUPPORTED has the same keys."""


def _flat(*tensors: Tensor) -> bool:
    """Whether the tensors can be walked as one long row, counted in an int."""
    return tensors[0].n_elems < MAX_INT and all(
        t.is_contiguous and t.ne == tensors[0].ne for t in tensors
    )
