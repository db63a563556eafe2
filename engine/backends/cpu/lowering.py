"""What each operation becomes: rows of the op table.

Most nodes are one row. A product with quantised weights has a row before it that quantises the
activations, unless the row before already did (Q, K and V read the same ones). A product with
experts has two: one sorts pairs of token and slot by expert, one gathers their columns. The angles
of ROPE are computed once for all layers that share positions and parameters.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from engine.backends.cpu import layout
from engine.backends.cpu.codegen import LANES
from engine.backends.cpu.kernels import elementwise, rows, sort
from engine.backends.cpu.kernels.flash_attn import KEYS, QUERIES
from engine.backends.cpu.kernels.traits import TRAITS
from engine.backends.cpu.lowering_products import mul_mat, mul_mat_id
from engine.backends.cpu.tiles import FLOAT_COLUMNS
from engine.core.ops import (
    MULTI_ROPES,
    ArgsortParams,
    ClampParams,
    ConcatParams,
    FillParams,
    FlashAttnParams,
    GluOp,
    GluParams,
    NormParams,
    Op,
    RopeParams,
    ScaleParams,
    SoftMaxParams,
    UnaryOp,
    UnaryParams,
)
from engine.core.rope import rope_factors
from engine.core.tensor import contiguous_strides
from engine.core.types import TensorType

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.backends.cpu.writer import Param, Writer
    from engine.core.tensor import Tensor

_BINARY = {
    Op.ADD: elementwise.ADD,
    Op.SUB: elementwise.SUB,
    Op.MUL: elementwise.MUL,
    Op.DIV: elementwise.DIV,
}
_UNARY = {
    UnaryOp.SILU: elementwise.SILU,
    UnaryOp.GELU: elementwise.GELU,
    UnaryOp.TANH: elementwise.TANH,
    UnaryOp.SIGMOID: elementwise.SIGMOID,
}
_GLU = {GluOp.SWIGLU: elementwise.SILU, GluOp.GEGLU: elementwise.GELU}


def lower(writer: Writer, i_node: int, node: Tensor) -> None:
    """Add the rows of one node; nothing is compiled for that."""
    _ROWS_OF[node.op](writer, i_node, node)
    if node.op in (Op.SET_ROWS, Op.CPY):
        writer.forget_columns()


def _binary(writer: Writer, i_node: int, node: Tensor) -> None:
    writer.add("binary", i_node, node, (_BINARY[node.op],))


def _add_id(writer: Writer, i_node: int, node: Tensor) -> None:
    writer.add("add_id", i_node, node)


def _scale(writer: Writer, i_node: int, node: Tensor) -> None:
    assert isinstance(node.params, ScaleParams), node
    writer.add("scale", i_node, node, (float(node.params.scale), float(node.params.bias)))


def _clamp(writer: Writer, i_node: int, node: Tensor) -> None:
    assert isinstance(node.params, ClampParams), node
    writer.add("clamp", i_node, node, (float(node.params.low), float(node.params.high)))


def _unary(writer: Writer, i_node: int, node: Tensor) -> None:
    assert isinstance(node.params, UnaryParams), node
    if node.params.kind is UnaryOp.SOFTPLUS:
        writer.add("softplus", i_node, node)
        return
    writer.add("unary", i_node, node, (_UNARY[node.params.kind],))


def _glu(writer: Writer, i_node: int, node: Tensor) -> None:
    assert isinstance(node.params, GluParams), node
    if node.params.kind is GluOp.SWIGLU_OAI:
        params = (float(node.params.alpha), float(node.params.limit))
        writer.add("swiglu_oai", i_node, node, params)
        return
    writer.add("glu", i_node, node, (_GLU[node.params.kind],))


def _norm(writer: Writer, i_node: int, node: Tensor) -> None:
    assert isinstance(node.params, NormParams), node
    kernel = "norm" if node.op is Op.NORM else "rms_norm"
    writer.add(kernel, i_node, node, (float(node.params.eps),))


def _fill(writer: Writer, i_node: int, node: Tensor) -> None:
    assert isinstance(node.params, FillParams), node
    writer.add("fill", i_node, node, (float(node.params.value),))


def _concat(writer: Writer, i_node: int, node: Tensor) -> None:
    assert isinstance(node.params, ConcatParams), node
    writer.add("concat", i_node, node, (node.params.dim,))


def _repeat(writer: Writer, i_node: int, node: Tensor) -> None:
    writer.add("repeat", i_node, node)


def _ssm_conv(writer: Writer, i_node: int, node: Tensor) -> None:
    writer.add("ssm_conv", i_node, node, work=node.n_elems * node.src[1].ne[0])


def _ssm_scan(writer: Writer, i_node: int, node: Tensor) -> None:
    state, x = node.src[:2]
    writer.add("ssm_scan", i_node, node, work=x.n_elems * state.ne[0])


def _gated_delta_net(writer: Writer, i_node: int, node: Tensor) -> None:
    v = node.src[2]
    writer.add("gated_delta_net", i_node, node, work=v.n_elems * v.ne[0])


def _sum_rows(writer: Writer, i_node: int, node: Tensor) -> None:
    # Elements read, not written, are what costs.
    writer.add("sum_rows", i_node, node, work=node.src[0].n_elems)


def _argsort(writer: Writer, i_node: int, node: Tensor) -> None:
    assert isinstance(node.params, ArgsortParams), node
    writer.add("argsort", i_node, node, (int(node.params.descending),), own_bytes=sort.STACK_BYTES)


def _soft_max(writer: Writer, i_node: int, node: Tensor) -> None:
    assert isinstance(node.params, SoftMaxParams), node
    mask_kind = int(node.src[1].type) if len(node.src) > 1 else 0
    alibi = _alibi(node.params.max_bias, node.ne[2])
    writer.add("soft_max", i_node, node, (float(node.params.scale), mask_kind, *alibi))


def _alibi(max_bias: float, n_heads: int) -> tuple[int, float, float]:
    """The three parameters that `slope_of` reads."""
    if max_bias == 0.0:
        return 0, 0.0, 0.0
    n_below = 2 ** int(math.log2(n_heads))
    return n_below, 2.0 ** (-max_bias / n_below), 2.0 ** (-max_bias / 2.0 / n_below)


def _get_rows(writer: Writer, i_node: int, node: Tensor) -> None:
    # Integers are copied as they are, as floats would be.
    kind = TensorType.F32 if node.type is TensorType.I32 else node.src[0].type
    writer.add("get_rows", i_node, node, (TRAITS[kind].to_float,))


def _set_rows(writer: Writer, i_node: int, node: Tensor) -> None:
    source, ids = node.src[:2]
    tensors = {
        layout.DST: writer.tensor(node),
        layout.SRC0: writer.tensor(source),
        layout.SRC1: writer.tensor(ids),
    }
    # Single elements are written without the conversion of rows.
    from_float = TRAITS[node.type].from_float if source.ne[0] > 1 else None
    params = (int(node.type), int(ids.type), from_float)
    writer.add_row("set_rows", i_node, tensors, params, n_elems=source.n_elems)


def _copy(writer: Writer, i_node: int, node: Tensor) -> None:
    x = node.src[0]
    target, source = writer.tensor(node), writer.tensor(x)
    if node.ne != x.ne:
        # Elements keep their order, so the gapless side may be seen in the other's shape.
        if node.is_contiguous:
            target = (target[0], x.ne, contiguous_strides(node.type, x.ne))
        else:
            source = (source[0], node.ne, contiguous_strides(x.type, node.ne))
    dense = target[2][0] == node.type.block_bytes and source[2][0] == x.type.block_bytes
    params, own_bytes = _copy_params(node, x, target[1][0], dense=dense)
    tensors = {layout.DST: target, layout.SRC0: source}
    writer.add_row("copy", i_node, tensors, params, n_elems=node.n_elems, own_bytes=own_bytes)


def _copy_params(
    node: Tensor, x: Tensor, n_elems: int, *, dense: bool
) -> tuple[tuple[Param, ...], int]:
    """The way, types, conversions and bytes of a row; and scratch memory of one thread."""
    kinds = (int(node.type), int(x.type))
    if not dense:
        return (rows.BY_ELEMENT, *kinds), 0
    if node.type is x.type:
        return (rows.BY_BYTES, *kinds, 0, 0, x.type.row_bytes(n_elems)), 0
    to_float, from_float = TRAITS[x.type].to_float, TRAITS[node.type].from_float
    if node.type is TensorType.F32:
        return (rows.TO_FLOATS, *kinds, to_float), 0
    if x.type is TensorType.F32:
        return (rows.FROM_FLOATS, *kinds, 0, from_float), 0
    return (rows.THROUGH_FLOATS, *kinds, to_float, from_float), 4 * n_elems


def _pad(writer: Writer, i_node: int, node: Tensor) -> None:
    writer.add("pad", i_node, node)


def _rope(writer: Writer, i_node: int, node: Tensor) -> None:
    params = node.params
    assert isinstance(params, RopeParams), node
    positions, factors = node.src[1], node.src[2] if len(node.src) > 2 else None
    key = (id(positions), id(factors), params)
    name = writer.angles.get(key)
    if name is None:
        n_elems = params.n_dims * node.ne[2]
        name = writer.room(f"angles {len(writer.angles)}", 4 * n_elems)
        writer.angles[key] = name
        tensors = {layout.SRC1: writer.tensor(positions)}
        if factors is not None:
            tensors[layout.SRC2] = writer.tensor(factors)
        writer.add_row(
            "rope_angles_sections" if params.mode in MULTI_ROPES else "rope_angles",
            i_node,
            tensors,
            _angle_params(params),
            shared=name,
            # Sines cost about eight times what an element does elsewhere.
            n_elems=8 * n_elems,
        )
    writer.add("rope", i_node, node, (params.n_dims, params.mode, params.offset), shared=name)


def _angle_params(params: RopeParams) -> tuple[int | float, ...]:
    """What kernels/rope.py reads of angles."""
    factors = rope_factors(params)
    # As C computes it: the exponent is rounded to f32 before the power is.
    exponent = float(np.float32(-2.0) / np.float32(params.n_dims))
    theta_scale = params.freq_base**exponent
    floats = (theta_scale, *(float(value) for value in factors[1:]))
    return (params.n_dims, params.mode, *floats, *params.sections)


def _flash_attn(writer: Writer, i_node: int, node: Tensor) -> None:
    params = node.params
    assert isinstance(params, FlashAttnParams), node
    q, k, v = node.src[:3]
    keys, values = TRAITS[k.type], TRAITS[v.type]
    packed = k.type in (TensorType.F32, TensorType.F16)
    dv = -(-v.ne[0] // LANES) * LANES
    own_floats = KEYS * (FLOAT_COLUMNS + k.ne[0] + dv) + QUERIES * (2 + dv) + LANES * k.ne[0]
    writer.add(
        "flash_attn",
        i_node,
        node,
        (
            float(params.scale),
            float(params.softcap),
            keys.dot,
            int(keys.rounding),
            keys.panel if packed else TRAITS[TensorType.F32].panel,
            None if packed else keys.to_float,
            int(v.type),
            values.to_float,
            *_alibi(params.max_bias, q.ne[2]),
        ),
        work=q.n_elems * k.ne[1],
        own_bytes=4 * own_floats,
    )


_ROWS_OF: dict[Op, Callable[[Writer, int, Tensor], None]] = {
    Op.ADD: _binary,
    Op.SUB: _binary,
    Op.MUL: _binary,
    Op.DIV: _binary,
    Op.ADD_ID: _add_id,
    Op.SCALE: _scale,
    Op.CLAMP: _clamp,
    Op.UNARY: _unary,
    Op.GLU: _glu,
    Op.NORM: _norm,
    Op.RMS_NORM: _norm,
    Op.FILL: _fill,
    Op.CONCAT: _concat,
    Op.REPEAT: _repeat,
    Op.SUM_ROWS: _sum_rows,
    Op.ARGSORT: _argsort,
    Op.SOFT_MAX: _soft_max,
    Op.ROPE: _rope,
    Op.GET_ROWS: _get_rows,
    Op.SET_ROWS: _set_rows,
    Op.CPY: _copy,
    Op.CONT: _copy,
    Op.PAD: _pad,
    Op.MUL_MAT: mul_mat,
    Op.MUL_MAT_ID: mul_mat_id,
    Op.FLASH_ATTN_EXT: _flash_attn,
    Op.SSM_CONV: _ssm_conv,
    Op.SSM_SCAN: _ssm_scan,
    Op.GATED_DELTA_NET: _gated_delta_net,
}
