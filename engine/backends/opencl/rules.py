"""Which operations have a kernel: types and layouts, one predicate an operation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.core.devices import CUDA_MIN_BATCH, BufferTypeFacts, offload_batch
from engine.core.ops import (
    EMPTY_OPS,
    FlashAttnParams,
    GluOp,
    GluParams,
    Op,
    RopeParams,
    SoftMaxParams,
    UnaryOp,
    UnaryParams,
)
from engine.core.types import TensorType

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.core.tensor import Tensor

WEIGHT_TYPES = (
    TensorType.F32,
    TensorType.F16,
    TensorType.Q8_0,
    TensorType.Q4_0,
    TensorType.Q4_1,
    TensorType.Q6_K,
)
"""Types whose rows kernels/weights.cl can read."""

FLOAT_TYPES = (TensorType.F32, TensorType.F16)
MAX_ROPE_DIMS = 512
"""Channels that one item can rotate; MAX_PAIRS of rope.cl, twice."""
MAX_HEAD = 256
"""Longest head of flash_attn.cl."""
ROPE_NORM, ROPE_NEOX = 0, 2


@dataclass(frozen=True, slots=True)
class OpenClRules:
    """What a device of this backend computes; `buft_name` is the name of its own memory."""

    buft_name: str
    offload_min_batch: int = CUDA_MIN_BATCH

    def supports_op(self, tensor: Tensor) -> bool:
        """Whether a kernel exists for this operation with these types and layouts."""
        if tensor.op in EMPTY_OPS:
            return True
        rule = SUPPORTED.get(tensor.op)
        return rule is not None and rule(tensor)

    def supports_buft(self, buft: BufferTypeFacts) -> bool:
        """Whether it is the device's own memory."""
        return buft.name == self.buft_name

    def offload_op(self, tensor: Tensor) -> bool:
        """CUDA's batch rule with this device's threshold."""
        return offload_batch(tensor) >= self.offload_min_batch


def _binary(tensor: Tensor) -> bool:
    return len(tensor.src) == 2 and _rows_of_f32(tensor, *tensor.src)


def _one_source(tensor: Tensor) -> bool:
    return len(tensor.src) == 1 and _rows_of_f32(tensor, *tensor.src)


def _unary(tensor: Tensor) -> bool:
    params = tensor.params
    known = isinstance(params, UnaryParams) and params.kind in (UnaryOp.SILU, UnaryOp.GELU)
    return known and _one_source(tensor)


def _glu(tensor: Tensor) -> bool:
    params = tensor.params
    known = isinstance(params, GluParams) and params.kind is GluOp.SWIGLU
    return known and len(tensor.src) == 2 and _rows_of_f32(tensor, *tensor.src)


def _get_rows(tensor: Tensor) -> bool:
    table, ids = tensor.src
    return (
        table.type in WEIGHT_TYPES
        and _gapless_rows(table)
        and ids.type is TensorType.I32
        and _rows_of_f32(tensor)
    )


def _set_rows(tensor: Tensor) -> bool:
    rows, ids = tensor.src[:2]
    return (
        _rows_of_f32(rows)
        and ids.type in (TensorType.I32, TensorType.I64)
        and tensor.type in FLOAT_TYPES
        and _gapless_rows(tensor)
    )


def _copy(tensor: Tensor) -> bool:
    source = tensor.src[0]
    mappable = source.ne == tensor.ne or source.is_contiguous or tensor.is_contiguous
    return source.type in FLOAT_TYPES and tensor.type in FLOAT_TYPES and mappable


def _soft_max(tensor: Tensor) -> bool:
    params = tensor.params
    if not isinstance(params, SoftMaxParams) or params.max_bias != 0.0 or len(tensor.src) > 2:
        return False
    masks_fit = all(m.type in FLOAT_TYPES and _gapless_rows(m) for m in tensor.src[1:])
    return masks_fit and _rows_of_f32(tensor, tensor.src[0])


def _rope(tensor: Tensor) -> bool:
    params = tensor.params
    if not isinstance(params, RopeParams) or params.mode not in (ROPE_NORM, ROPE_NEOX):
        return False
    n_dims_fit = params.n_dims <= min(MAX_ROPE_DIMS, tensor.ne[0]) and params.n_dims % 2 == 0
    factors_fit = all(f.type is TensorType.F32 and f.nb[0] == 4 for f in tensor.src[2:])
    positions_fit = tensor.src[1].type is TensorType.I32
    return n_dims_fit and factors_fit and positions_fit and _rows_of_f32(tensor, tensor.src[0])


def _mul_mat(tensor: Tensor) -> bool:
    weight, x = tensor.src
    return weight.type in WEIGHT_TYPES and _gapless_rows(weight) and _rows_of_f32(tensor, x)


def _flash_attn(tensor: Tensor) -> bool:
    params = tensor.params
    if not isinstance(params, FlashAttnParams) or params.max_bias != 0.0 or len(tensor.src) > 4:
        return False
    q, k, v = tensor.src[:3]
    heads_fit = all(width % 8 == 0 and width <= MAX_HEAD for width in (k.ne[0], v.ne[0]))
    caches_fit = k.type is v.type and k.type in FLOAT_TYPES
    masks_fit = all(m.type is TensorType.F16 and _gapless_rows(m) for m in tensor.src[3:])
    rows_fit = _rows_of_f32(tensor, q) and _gapless_rows(k) and _gapless_rows(v)
    return heads_fit and caches_fit and masks_fit and rows_fit


SUPPORTED: dict[Op, Callable[[Tensor], bool]] = {
    Op.ADD: _binary,
    Op.SUB: _binary,
    Op.MUL: _binary,
    Op.DIV: _binary,
    Op.SCALE: _one_source,
    Op.RMS_NORM: _one_source,
    Op.UNARY: _unary,
    Op.GLU: _glu,
    Op.GET_ROWS: _get_rows,
    Op.SET_ROWS: _set_rows,
    Op.CPY: _copy,
    Op.CONT: _copy,
    Op.SOFT_MAX: _soft_max,
    Op.ROPE: _rope,
    Op.MUL_MAT: _mul_mat,
    Op.FLASH_ATTN_EXT: _flash_attn,
}
"""The rule of each operation; encode.ENCODERS has the same keys."""


def _gapless_rows(tensor: Tensor) -> bool:
    """Whether the elements of a row follow one another."""
    return tensor.nb[0] == tensor.type.block_bytes


def _rows_of_f32(*tensors: Tensor) -> bool:
    return all(t.type is TensorType.F32 and _gapless_rows(t) for t in tensors)
