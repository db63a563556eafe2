"""What the CPU backend computes: true exactly where a kernel exists. Imports no compiler."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.core.ops import (
    EMPTY_OPS,
    MULTI_ROPES,
    ROPE_NEOX,
    ROPE_NORM,
    ConcatParams,
    FlashAttnParams,
    GluOp,
    GluParams,
    Op,
    RopeParams,
    SoftMaxParams,
    UnaryOp,
    UnaryParams,
)
from engine.core.repack import CPU_REPACK, reads_repacked, supports_repacked
from engine.core.types import TensorType

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.core.devices import BufferTypeFacts
    from engine.core.tensor import Tensor

_ACTIVATIONS = frozenset({TensorType.Q8_1, TensorType.Q8_K})
"""Block types that ggml makes of activations and keeps in no file."""

QUANTIZED = frozenset(kind for kind in TensorType if kind.is_quantized) - _ACTIVATIONS
"""Block types that kernels read, fast or by way of floats."""

WRITTEN = frozenset(
    {TensorType.F32, TensorType.F16, TensorType.BF16, TensorType.Q8_0}
    | {TensorType.Q4_0, TensorType.Q4_1, TensorType.Q5_0, TensorType.Q5_1}
)
"""Types that kernels write, which are those of a KV cache."""

_FLOATS = frozenset({TensorType.F32, TensorType.F16})
_PLAIN = _FLOATS | {TensorType.BF16}
_WEIGHTS = _PLAIN | QUANTIZED
_FOUR_BYTES = frozenset({TensorType.F32, TensorType.I32})
_ROPE_MODES = MULTI_ROPES | {ROPE_NORM, ROPE_NEOX}
_UNARY = frozenset({UnaryOp.SILU, UnaryOp.GELU, UnaryOp.TANH, UnaryOp.SIGMOID, UnaryOp.SOFTPLUS})
_GLU = frozenset({GluOp.SWIGLU, GluOp.GEGLU, GluOp.SWIGLU_OAI})


@dataclass(frozen=True, slots=True)
class CpuRules:
    """The CPU's predicates. `features` say which weights may lie interleaved in CPU_REPACK."""

    features: frozenset[str] = frozenset()

    def supports_op(self, tensor: Tensor) -> bool:
        """Whether a kernel exists for this operation with these types and layouts."""
        if tensor.op in EMPTY_OPS:
            return True
        if reads_repacked(tensor) and not supports_repacked(tensor, self.features):
            return False
        check = _CHECKS.get(tensor.op)
        return check is not None and check(tensor)

    def supports_buft(self, buft: BufferTypeFacts) -> bool:
        """Any memory that the host reads, and interleaved weights."""
        return buft.is_host or buft.name == CPU_REPACK.name

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
    params = tensor.params
    is_known = isinstance(params, UnaryParams) and params.kind in _UNARY
    return is_known and len(tensor.src) == 1 and _is_rowwise(tensor)


def _is_glu(tensor: Tensor) -> bool:
    params = tensor.params
    if not isinstance(params, GluParams) or params.kind not in _GLU:
        return False
    if len(tensor.src) == 2:
        return _is_rowwise(tensor)
    (both,) = tensor.src
    is_halved = both.ne == (2 * tensor.ne[0], *tensor.ne[1:])
    return is_halved and _is_f32(tensor, both) and _has_dense_rows(tensor, both)


def _is_fill(tensor: Tensor) -> bool:
    return _is_f32(tensor)


def _is_concat(tensor: Tensor) -> bool:
    a, b = tensor.src
    params = tensor.params
    if not isinstance(params, ConcatParams) or not a.type is b.type is tensor.type:
        return False
    ne = tuple(n + b.ne[i] if i == params.dim else n for i, n in enumerate(a.ne))
    fits = all(a.ne[i] == b.ne[i] for i in range(4) if i != params.dim)
    return fits and ne == tensor.ne and tensor.type in _FOUR_BYTES


def _is_repeat(tensor: Tensor) -> bool:
    (x,) = tensor.src
    return tensor.type in _FOUR_BYTES and x.type is tensor.type and _repeats_to(x, tensor)


def _is_sum_rows(tensor: Tensor) -> bool:
    x = tensor.src[0]
    is_sum = tensor.ne == (1, *x.ne[1:])
    return is_sum and _is_f32(tensor, x) and _has_dense_rows(tensor, x)


def _is_pad(tensor: Tensor) -> bool:
    return _is_f32(tensor, tensor.src[0])


def _is_argsort(tensor: Tensor) -> bool:
    x = tensor.src[0]
    is_typed = tensor.type is TensorType.I32 and _is_f32(x) and tensor.ne == x.ne
    return is_typed and _has_dense_rows(tensor, x)


def _is_add_id(tensor: Tensor) -> bool:
    a, b, ids = tensor.src
    is_typed = _is_f32(tensor, a, b) and ids.type is TensorType.I32
    fits = a.ne == tensor.ne and b.ne[0] == a.ne[0] and ids.ne[:2] == a.ne[1:3]
    return is_typed and fits and a.ne[3] == 1 and _has_dense_rows(tensor, a, b)


def _is_soft_max(tensor: Tensor) -> bool:
    x = tensor.src[0]
    is_typed = isinstance(tensor.params, SoftMaxParams) and _is_f32(tensor, x)
    if not (is_typed and _has_dense_rows(tensor, x)):
        return False
    if len(tensor.src) > 2 and not _are_sinks(tensor.src[2], n_heads=x.ne[2]):
        return False
    return len(tensor.src) == 1 or _is_mask(tensor.src[1], n_kv=x.ne[0], n_tokens=x.ne[1])


def _are_sinks(sinks: Tensor, *, n_heads: int) -> bool:
    return _is_f32(sinks) and sinks.ne[0] == n_heads and _has_dense_rows(sinks)


def _is_mask(mask: Tensor, *, n_kv: int, n_tokens: int) -> bool:
    is_float = mask.type in _FLOATS and _has_dense_rows(mask)
    return is_float and mask.ne[0] >= n_kv and mask.ne[1] >= n_tokens


def _is_rope(tensor: Tensor) -> bool:
    params = tensor.params
    if not isinstance(params, RopeParams) or params.mode not in _ROPE_MODES:
        return False
    x, positions = tensor.src[:2]
    n_positions = x.ne[2]
    if params.mode in MULTI_ROPES:
        if sum(params.sections) == 0:
            return False
        n_positions *= 4
    sound = params.n_dims % 2 == 0 and params.offset + params.n_dims <= x.ne[0]
    is_typed = _is_f32(tensor, x, *tensor.src[2:]) and positions.type is TensorType.I32
    return sound and is_typed and positions.ne[0] == n_positions


def _is_get_rows(tensor: Tensor) -> bool:
    table, ids = tensor.src
    if ids.type is not TensorType.I32 or not _has_dense_rows(tensor, table):
        return False
    if table.type is TensorType.I32:
        return tensor.type is TensorType.I32
    return table.type in _WEIGHTS and tensor.type is TensorType.F32


def _is_set_rows(tensor: Tensor) -> bool:
    rows, ids = tensor.src[:2]
    is_indexed = ids.type in (TensorType.I64, TensorType.I32)
    dense = _has_dense_rows(tensor, rows)
    return is_indexed and dense and rows.type is TensorType.F32 and tensor.type in WRITTEN


def _is_copy(tensor: Tensor) -> bool:
    x = tensor.src[0]
    if x.ne != tensor.ne and not x.is_contiguous and not tensor.is_contiguous:
        return False
    if x.type in _PLAIN and tensor.type in _PLAIN:
        return True
    if x.type is TensorType.I32 and tensor.type is TensorType.I32:
        return True
    return x.ne == tensor.ne and _has_dense_rows(x, tensor) and _is_block_copy(x.type, tensor.type)


def _is_block_copy(source: TensorType, target: TensorType) -> bool:
    """Whether whole blocks are read or written: as they are, from floats, or to f32."""
    if source is target:
        return source in _WEIGHTS
    if source in _PLAIN:
        return target in WRITTEN
    return source in _WEIGHTS and target is TensorType.F32


def _is_mul_mat(tensor: Tensor) -> bool:
    weight, x = tensor.src
    if not (_is_f32(tensor, x) and _has_dense_rows(tensor, weight, x)):
        return False
    return weight.type in _WEIGHTS


def _is_mul_mat_id(tensor: Tensor) -> bool:
    weight, x, ids = tensor.src
    is_typed = _is_f32(tensor, x) and ids.type is TensorType.I32 and weight.type in _WEIGHTS
    fits = ids.ne[0] % x.ne[1] == 0 and x.ne[2] == ids.ne[1]
    is_flat = weight.ne[3] == x.ne[3] == ids.ne[2] == ids.ne[3] == 1
    return is_typed and fits and is_flat and _has_dense_rows(tensor, weight, x)


def _is_flash_attn(tensor: Tensor) -> bool:
    params = tensor.params
    q, k, v = tensor.src[:3]
    is_typed = isinstance(params, FlashAttnParams) and _is_f32(tensor, q)
    are_caches = _is_cache(k) and _is_cache(v)
    if not (is_typed and are_caches and _has_dense_rows(tensor, *tensor.src)):
        return False
    if len(tensor.src) == 3:
        return True
    if len(tensor.src) > 4 and not _are_sinks(tensor.src[4], n_heads=q.ne[2]):
        return False
    mask = tensor.src[3]
    is_f16 = mask.type is TensorType.F16
    return is_f16 and _is_mask(mask, n_kv=k.ne[1], n_tokens=q.ne[1])


def _is_cache(tensor: Tensor) -> bool:
    """Whether rows are of a type that is written, in whole blocks."""
    return tensor.type in WRITTEN and tensor.ne[0] % tensor.type.block_elems == 0


def _is_ssm_conv(tensor: Tensor) -> bool:
    x, weight = tensor.src
    n_tokens = x.ne[0] - weight.ne[0] + 1
    fits = tensor.ne == (x.ne[1], n_tokens, x.ne[2], 1) and weight.ne[1] == x.ne[1]
    return fits and x.ne[3] == 1 and _is_f32(tensor, x, weight) and _has_dense_rows(*tensor.src)


def _is_ssm_scan(tensor: Tensor) -> bool:
    state, x, dt, rates, b, c, ids = tensor.src
    d_state, d, n_heads, n_seqs = state.ne[0], *x.ne[:2], x.ne[3]
    if not (_is_f32(tensor, *tensor.src[:6]) and ids.type is TensorType.I32):
        return False
    fits_state = state.ne[1:3] == (d, n_heads) and ids.ne[0] == n_seqs
    fits_rates = rates.ne[0] in (1, d_state) and rates.ne[1] == n_heads
    fits_steps = dt.ne == (*x.ne[1:], 1)
    fits_inputs = b.ne == c.ne == (d_state, b.ne[1], *x.ne[2:]) and n_heads % b.ne[1] == 0
    fits = fits_state and fits_rates and fits_steps and fits_inputs
    is_dense = state.nb[1] == 4 * d_state and tensor.is_contiguous
    return fits and is_dense and _has_dense_rows(*tensor.src)


def _is_gated_delta_net(tensor: Tensor) -> bool:
    q, k, v, gate, beta, state = tensor.src
    d, n_heads, n_tokens, n_seqs = v.ne
    fits_keys = all(each.ne == (d, each.ne[1], n_tokens, n_seqs) for each in (q, k))
    fits_gates = gate.ne == beta.ne == (1, n_heads, n_tokens, n_seqs)
    fits = fits_keys and fits_gates and state.ne == (d, d, n_heads, n_seqs)
    is_dense = state.nb[1] == 4 * d and tensor.is_contiguous and _has_dense_rows(q, k, v, state)
    return fits and is_dense and _is_f32(tensor, *tensor.src)


_CHECKS: dict[Op, Callable[[Tensor], bool]] = {
    Op.ADD: _is_binary,
    Op.SUB: _is_binary,
    Op.MUL: _is_binary,
    Op.DIV: _is_binary,
    Op.ADD_ID: _is_add_id,
    Op.SCALE: _is_rowwise,
    Op.CLAMP: _is_rowwise,
    Op.UNARY: _is_unary,
    Op.GLU: _is_glu,
    Op.NORM: _is_rowwise,
    Op.RMS_NORM: _is_rowwise,
    Op.FILL: _is_fill,
    Op.CONCAT: _is_concat,
    Op.REPEAT: _is_repeat,
    Op.SUM_ROWS: _is_sum_rows,
    Op.ARGSORT: _is_argsort,
    Op.SOFT_MAX: _is_soft_max,
    Op.ROPE: _is_rope,
    Op.GET_ROWS: _is_get_rows,
    Op.SET_ROWS: _is_set_rows,
    Op.CPY: _is_copy,
    Op.CONT: _is_copy,
    Op.PAD: _is_pad,
    Op.MUL_MAT: _is_mul_mat,
    Op.MUL_MAT_ID: _is_mul_mat_id,
    Op.FLASH_ATTN_EXT: _is_flash_attn,
    Op.SSM_CONV: _is_ssm_conv,
    Op.SSM_SCAN: _is_ssm_scan,
    Op.GATED_DELTA_NET: _is_gated_delta_net,
}
