"""What the CPU backend computes: true exactly where a kernel exists. Imports no compiler."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.core.ops import EMPTY_OPS, FlashAttnParams, Op, RopeParams, SoftMaxParams
from engine.core.types import TensorType

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.core.devices import BufferTypeFacts
    from engine.core.tensor import Tensor

QUANTIZED = frozenset({TensorType.Q4_0, TensorType.Q4_1, TensorType.Q8_0, TensorType.Q6_K})
"""Block types that kernels read."""

_FLOATS = frozenset({TensorType.F32, TensorType.F16})
_ROPE_MODES = (0, 2)


@dataclass(frozen=True, slots=True)
class CpuRules:
    """The CPU's predicates."""

    def supports_op(self, tensor: Tensor) -> bool:
        """Whether a kernel exists for this operation with these types and layouts."""
        if tensor.op in EMPTY_OPS:
            return True
        check = _CHECKS.get(tensor.op)
        return check is not None and check(tensor)

    def supports_buft(self, buft: BufferTypeFacts) -> bool:
        """Any memory that the host reads."""
        return buft.is_host

    def offload_op(self, tensor: Tensor) -> bool:
        """Never: weights in host memory are where the CPU wants them."""
        del tensor
        return False


def _is_f32(*tensors: Tensor) -> bool:
    return all(tensor.type is TensorType.F32 for tensor in tensors)


def _has_dense_rows(*tensors: Tensor) -> bool:
    """Whether elements of a row follow one another."""
    return all(tensor.nb[0] == tensor.type.block_bytes for tensor in tensors)


def _repeats_to(small: Tensor, large: Tensor) -> bool:
    return (
        all(n != 0 and total % n == 0 for n, total in zip(small.ne, large.ne, strict=True))
        or large.n_elems == 0
    )


def _is_binary(tensor: Tensor) -> bool:
    a, b = tensor.src
    return _is_f32(tensor, a, b) and a.ne == tensor.ne and _repeats_to(b, tensor)


def _is_rowwise(tensor: Tensor) -> bool:
    """One result element an input element, f32, rows without gaps."""
    same_shape = all(source.ne == tensor.ne for source in tensor.src)
    return same_shape and _is_f32(tensor, *tensor.src) and _has_dense_rows(tensor, *tensor.src)


def _is_unary(tensor: Tensor) -> bool:
    return len(tensor.src) == 1 and _is_rowwise(tensor)


def _is_glu(tensor: Tensor) -> bool:
    return len(tensor.src) == 2 and _is_rowwise(tensor)


def _is_soft_max(tensor: Tensor) -> bool:
    params = tensor.params
    if not isinstance(params, SoftMaxParams) or params.max_bias != 0.0 or len(tensor.src) > 2:
        return False
    x = tensor.src[0]
    if not (_is_f32(tensor, x) and _has_dense_rows(tensor, x)):
        return False
    return len(tensor.src) == 1 or _is_mask(tensor.src[1], n_kv=x.ne[0], n_tokens=x.ne[1])


def _is_mask(mask: Tensor, *, n_kv: int, n_tokens: int) -> bool:
    is_float = mask.type in _FLOATS and _has_dense_rows(mask)
    return is_float and mask.ne[0] >= n_kv and mask.ne[1] >= n_tokens


def _is_rope(tensor: Tensor) -> bool:
    params = tensor.params
    if not isinstance(params, RopeParams) or params.mode not in _ROPE_MODES:
        return False
    x, positions = tensor.src[:2]
    sound = params.n_dims % 2 == 0 and params.n_dims <= x.ne[0] and positions.ne[0] == x.ne[2]
    is_typed = _is_f32(tensor, x, *tensor.src[2:]) and positions.type is TensorType.I32
    return sound and is_typed


def _is_get_rows(tensor: Tensor) -> bool:
    table, ids = tensor.src
    if ids.type is not TensorType.I32 or not _has_dense_rows(tensor, table):
        return False
    if table.type is TensorType.I32:
        return tensor.type is TensorType.I32
    readable = table.type in _FLOATS or table.type in QUANTIZED
    return readable and tensor.type is TensorType.F32


def _is_set_rows(tensor: Tensor) -> bool:
    rows, ids = tensor.src[:2]
    is_indexed = ids.type in (TensorType.I64, TensorType.I32)
    dense = _has_dense_rows(tensor, rows)
    return is_indexed and dense and rows.type is TensorType.F32 and tensor.type in _FLOATS


def _is_copy(tensor: Tensor) -> bool:
    x = tensor.src[0]
    if x.ne != tensor.ne and not x.is_contiguous and not tensor.is_contiguous:
        return False
    if x.type in _FLOATS and tensor.type in _FLOATS:
        return True
    return x.type is TensorType.I32 and tensor.type is TensorType.I32


def _is_mul_mat(tensor: Tensor) -> bool:
    weight, x = tensor.src
    if not (_is_f32(tensor, x) and _has_dense_rows(tensor, weight, x)):
        return False
    return weight.type in _FLOATS or weight.type in QUANTIZED


def _is_flash_attn(tensor: Tensor) -> bool:
    params = tensor.params
    if not isinstance(params, FlashAttnParams) or params.max_bias != 0.0:
        return False
    q, k, v = tensor.src[:3]
    is_typed = _is_f32(tensor, q) and k.type is TensorType.F16 and v.type is TensorType.F16
    if not (is_typed and _has_dense_rows(tensor, *tensor.src) and len(tensor.src) <= 4):
        return False
    if len(tensor.src) == 3:
        return True
    mask = tensor.src[3]
    is_f16 = mask.type is TensorType.F16
    return is_f16 and _is_mask(mask, n_kv=k.ne[1], n_tokens=q.ne[1])


_CHECKS: dict[Op, Callable[[Tensor], bool]] = {
    Op.ADD: _is_binary,
    Op.SUB: _is_binary,
    Op.MUL: _is_binary,
    Op.DIV: _is_binary,
    Op.SCALE: _is_rowwise,
    Op.UNARY: _is_unary,
    Op.GLU: _is_glu,
    Op.RMS_NORM: _is_rowwise,
    Op.SOFT_MAX: _is_soft_max,
    Op.ROPE: _is_rope,
    Op.GET_ROWS: _is_get_rows,
    Op.SET_ROWS: _is_set_rows,
    Op.CPY: _is_copy,
    Op.CONT: _is_copy,
    Op.MUL_MAT: _is_mul_mat,
    Op.FLASH_ATTN_EXT: _is_flash_attn,
}
