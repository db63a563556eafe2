"""Which operations have a kernel: types and layouts, one predicate an operation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.backends.opencl.encode import GLU_KERNELS, UNARY_KERNELS
from engine.backends.opencl.encode_attention import MAX_LONG_HEAD
from engine.backends.opencl.readers import CACHE_TYPES, READERS
from engine.core.devices import CUDA_MIN_BATCH, MAPPED, BufferTypeFacts, offload_batch
from engine.core.ops import (
    EMPTY_OPS,
    MULTI_ROPES,
    ROPE_NEOX,
    ROPE_NORM,
    GluParams,
    Op,
    RopeParams,
    UnaryParams,
)
from engine.core.rows import SPLIT, multiplies_rows, reads_split_memory
from engine.core.types import TensorType

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.core.tensor import Tensor

FLOAT_TYPES = (TensorType.F32, TensorType.F16)
MAX_ROPE_DIMS = 512
"""Channels that one item can rotate; MAX_PAIRS of rope.cl, twice."""
MAX_SORTED = 4096
"""Longest row of ARGSORT, whose work grows with the square of it; experts are far fewer."""
ROPE_MODES = MULTI_ROPES | {ROPE_NORM, ROPE_NEOX}


@dataclass(frozen=True, slots=True)
class OpenClRules:
    """What a device of this backend computes; `buft_name` is its name and that of its memory."""

    buft_name: str
    offload_min_batch: int = CUDA_MIN_BATCH

    def supports_op(self, tensor: Tensor) -> bool:
        """Whether a kernel exists for this operation with these types and layouts."""
        if tensor.op in EMPTY_OPS:
            return True
        if reads_split_memory(tensor) and not multiplies_rows(tensor, self.buft_name):
            return False
        rule = SUPPORTED.get(tensor.op)
        return rule is not None and rule(tensor)

    def supports_buft(self, buft: BufferTypeFacts) -> bool:
        """Whether it is the device's own memory, a file it has mapped, or its split memory."""
        return buft.name in tuple(f"{self.buft_name}{kind}" for kind in ("", MAPPED, SPLIT))

    def offload_op(self, tensor: Tensor) -> bool:
        """CUDA's batch rule with this device's threshold."""
        return offload_batch(tensor) >= self.offload_min_batch


def _binary(tensor: Tensor) -> bool:
    return len(tensor.src) == 2 and _rows_of_f32(tensor, *tensor.src)


def _add_id(tensor: Tensor) -> bool:
    a, b, ids = tensor.src
    return ids.type is TensorType.I32 and a.ne[3] == 1 and _rows_of_f32(tensor, a, b)


def _argsort(tensor: Tensor) -> bool:
    (x,) = tensor.src
    return x.ne[0] <= MAX_SORTED and _rows_of_f32(x) and _gapless_rows(tensor)


def _one_source(tensor: Tensor) -> bool:
    return len(tensor.src) == 1 and _rows_of_f32(tensor, *tensor.src)


def _unary(tensor: Tensor) -> bool:
    params = tensor.params
    known = isinstance(params, UnaryParams) and params.kind in UNARY_KERNELS
    return known and _one_source(tensor)


def _glu(tensor: Tensor) -> bool:
    params = tensor.params
    known = isinstance(params, GluParams) and params.kind in GLU_KERNELS
    return known and _rows_of_f32(tensor, *tensor.src)


def _get_rows(tensor: Tensor) -> bool:
    table, ids = tensor.src
    return (
        table.type in READERS
        and _gapless_rows(table)
        and ids.type is TensorType.I32
        and _rows_of_f32(tensor)
    )


def _set_rows(tensor: Tensor) -> bool:
    rows, ids = tensor.src[:2]
    return (
        _rows_of_f32(rows)
        and ids.type in (TensorType.I32, TensorType.I64)
        and tensor.type in CACHE_TYPES
        and _gapless_rows(tensor)
    )


def _copy(tensor: Tensor) -> bool:
    source = tensor.src[0]
    mappable = source.ne == tensor.ne or source.is_contiguous or tensor.is_contiguous
    return source.type in FLOAT_TYPES and tensor.type in FLOAT_TYPES and mappable


def _moved(tensor: Tensor) -> bool:
    return _f32(*tensor.src) and _rows_of_f32(tensor)


def _soft_max(tensor: Tensor) -> bool:
    masks_fit = all(m.type in FLOAT_TYPES and _gapless_rows(m) for m in tensor.src[1:2])
    sinks_fit = _rows_of_f32(*tensor.src[2:])
    return masks_fit and sinks_fit and _rows_of_f32(tensor, tensor.src[0])


def _rope(tensor: Tensor) -> bool:
    params = tensor.params
    if not isinstance(params, RopeParams) or params.mode not in ROPE_MODES:
        return False
    sections_fit = params.mode not in MULTI_ROPES or sum(params.sections) > 0
    inside = params.offset + params.n_dims <= tensor.ne[0]
    n_dims_fit = inside and params.n_dims <= MAX_ROPE_DIMS and params.n_dims % 2 == 0
    factors_fit = all(f.type is TensorType.F32 and f.nb[0] == 4 for f in tensor.src[2:])
    positions_fit = tensor.src[1].type is TensorType.I32
    numbers_fit = sections_fit and n_dims_fit and factors_fit and positions_fit
    return numbers_fit and _rows_of_f32(tensor, tensor.src[0])


def _mul_mat(tensor: Tensor) -> bool:
    weight, x = tensor.src
    return weight.type in READERS and _gapless_rows(weight) and _rows_of_f32(tensor, x)


def _mul_mat_id(tensor: Tensor) -> bool:
    weights, x, ids = tensor.src
    types_fit = weights.type in READERS and ids.type is TensorType.I32
    return types_fit and _gapless_rows(weights) and _rows_of_f32(tensor, x)


def _flash_attn(tensor: Tensor) -> bool:
    q, k, v = tensor.src[:3]
    heads_fit = all(width % 8 == 0 and width <= MAX_LONG_HEAD for width in (k.ne[0], v.ne[0]))
    caches_fit = k.type in CACHE_TYPES and v.type in CACHE_TYPES
    masks_fit = all(m.type is TensorType.F16 and _gapless_rows(m) for m in tensor.src[3:4])
    rows_fit = _rows_of_f32(tensor, q, *tensor.src[4:]) and _gapless_rows(k) and _gapless_rows(v)
    return heads_fit and caches_fit and masks_fit and rows_fit


SUPPORTED: dict[Op, Callable[[Tensor], bool]] = {
    Op.ADD: _binary,
    Op.ADD_ID: _add_id,
    Op.SUB: _binary,
    Op.MUL: _binary,
    Op.DIV: _binary,
    Op.SCALE: _one_source,
    Op.CLAMP: _one_source,
    Op.FILL: _one_source,
    Op.NORM: _one_source,
    Op.RMS_NORM: _one_source,
    Op.SUM_ROWS: _one_source,
    Op.ARGSORT: _argsort,
    Op.UNARY: _unary,
    Op.GLU: _glu,
    Op.GET_ROWS: _get_rows,
    Op.SET_ROWS: _set_rows,
    Op.CPY: _copy,
    Op.CONT: _copy,
    Op.CONCAT: _moved,
    Op.REPEAT: _moved,
    Op.PAD: _moved,
    Op.SOFT_MAX: _soft_max,
    Op.ROPE: _rope,
    Op.MUL_MAT: _mul_mat,
    Op.MUL_MAT_ID: _mul_mat_id,
    Op.FLASH_ATTN_EXT: _flash_attn,
}
"""The rule of each operation; encode.ENCODERS has the same keys."""


def _gapless_rows(tensor: Tensor) -> bool:
    """Whether the elements of a row follow one another, in whole blocks."""
    whole = tensor.ne[0] % tensor.type.block_elems == 0
    return whole and tensor.nb[0] == tensor.type.block_bytes


def _rows_of_f32(*tensors: Tensor) -> bool:
    return all(t.type is TensorType.F32 and _gapless_rows(t) for t in tensors)


def _f32(*tensors: Tensor) -> bool:
    return all(t.type is TensorType.F32 for t in tensors)
