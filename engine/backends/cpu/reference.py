"""Every operation in plain numpy: what the kernels must agree with. Tests read it, runs never do.

Arrays have numpy's order, so a tensor [ne0, ne1, ne2, ne3] is an array (ne3, ne2, ne1, ne0).
Floats are computed in float64 and given back as float32.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.core.ops import Op, RopeParams, UnaryOp
from engine.core.quants import dequantize
from engine.core.types import TensorType

Array = npt.NDArray[Any]


def binary(op: Op, a: Array, b: Array) -> Array:
    """ADD, SUB, MUL or DIV; b repeats to the shape of a."""
    repeats = [n // m for n, m in zip(a.shape, b.shape, strict=True)]
    repeated = np.tile(b, repeats)
    function = {Op.ADD: np.add, Op.SUB: np.subtract, Op.MUL: np.multiply, Op.DIV: np.divide}[op]
    return np.asarray(function(a, repeated), dtype=np.float32)


def scale(x: Array, factor: float, bias: float) -> Array:
    """X * factor + bias."""
    return _f32(x.astype(np.float64) * factor + bias)


def unary(kind: UnaryOp, x: Array) -> Array:
    """SILU, or GELU by its tanh form."""
    wide = x.astype(np.float64)
    if kind is UnaryOp.SILU:
        return _f32(wide / (1.0 + np.exp(-wide)))
    inner = math.sqrt(2.0 / math.pi) * wide * (1.0 + 0.044715 * wide * wide)
    return _f32(0.5 * wide * (1.0 + np.tanh(inner)))


def swiglu(gate: Array, up: Array) -> Array:
    """Silu(gate) * up."""
    return _f32(unary(UnaryOp.SILU, gate).astype(np.float64) * up)


def rms_norm(x: Array, eps: float) -> Array:
    """Rows divided by their root mean square."""
    wide = x.astype(np.float64)
    return _f32(wide / np.sqrt((wide * wide).mean(axis=-1, keepdims=True) + eps))


def soft_max(x: Array, mask: Array | None, factor: float) -> Array:
    """Softmax over rows of x * factor + mask; the mask repeats and may be larger."""
    wide = x.astype(np.float64) * factor
    if mask is not None:
        rows = mask[:, :, : x.shape[2], : x.shape[3]].astype(np.float64)
        repeats = (x.shape[0] // mask.shape[0], x.shape[1] // mask.shape[1], 1, 1)
        wide = wide + np.tile(rows, repeats)
    powers = np.exp(wide - wide.max(axis=-1, keepdims=True))
    return _f32(powers / powers.sum(axis=-1, keepdims=True))


def rope(x: Array, positions: Array, factors: Array | None, params: RopeParams) -> Array:
    """Rotation of pairs, one pair at a time. Source: ARCH.md 1.9."""
    result = x.astype(np.float64)
    half = params.n_dims // 2
    for j in range(half):
        i, k = (2 * j, 2 * j + 1) if params.mode == 0 else (j, j + half)
        extrapolated = positions.reshape(-1) * params.freq_base ** (-2.0 * j / params.n_dims)
        if factors is not None:
            extrapolated = extrapolated / factors.reshape(-1)[j]
        theta, magnitude = _yarn(params, j, extrapolated)
        cos = (np.cos(theta) * magnitude)[None, :, None]
        sin = (np.sin(theta) * magnitude)[None, :, None]
        u, v = x[..., i].astype(np.float64), x[..., k].astype(np.float64)
        result[..., i], result[..., k] = u * cos - v * sin, u * sin + v * cos
    return _f32(result)


def _yarn(params: RopeParams, j: int, extrapolated: Array) -> tuple[Array, float]:
    theta = params.freq_scale * extrapolated
    if params.ext_factor == 0.0:
        return theta, params.attn_factor

    def turn(beta: float) -> float:
        turns = params.n_ctx_orig / (2.0 * math.pi * beta)
        return params.n_dims * math.log(turns) / (2.0 * math.log(params.freq_base))

    low = max(0.0, math.floor(turn(params.beta_fast)))
    high = min(params.n_dims - 1.0, math.ceil(turn(params.beta_slow)))
    ramp = min(1.0, max(0.0, (j - low) / max(0.001, high - low)))
    mix = (1.0 - ramp) * params.ext_factor
    magnitude = params.attn_factor * (1.0 + 0.1 * math.log(1.0 / params.freq_scale))
    return theta * (1.0 - mix) + extrapolated * mix, magnitude


def get_rows(table: Array, ids: Array) -> Array:
    """Rows of table (b3, b2, rows, n) picked by ids (1, b3, b2, m)."""
    _, b3, b2, m = ids.shape
    result = np.zeros((b3, b2, m, table.shape[3]), dtype=table.dtype)
    for i3 in range(b3):
        for i2 in range(b2):
            rows = table[i3 % table.shape[0], i2 % table.shape[1]]
            result[i3, i2] = rows[ids[0, i3, i2]]
    return result


def set_rows(table: Array, rows: Array, ids: Array) -> Array:
    """The table after rows (b3, b2, m, n) were written at ids (1, .., .., m)."""
    result = table.copy()
    for i3 in range(rows.shape[0]):
        for i2 in range(rows.shape[1]):
            at = ids[0, i3 % ids.shape[1], i2 % ids.shape[2]]
            result[i3, i2, at] = rows[i3, i2].astype(table.dtype)
    return result


def mul_mat(weight: Array, x: Array) -> Array:
    """Multiply weight (.., n, k) and x (.., t, k) -> (.., t, n); a weight serves several slices."""
    repeat3, repeat2 = x.shape[0] // weight.shape[0], x.shape[1] // weight.shape[1]
    repeated = np.repeat(np.repeat(weight.astype(np.float64), repeat3, axis=0), repeat2, axis=1)
    return _f32(np.matmul(x.astype(np.float64), repeated.swapaxes(-1, -2)))


def mul_mat_quantized(
    kind: TensorType, raw: npt.NDArray[np.uint8], weight: Array, x: Array
) -> Array:
    """Multiply with activations rounded as they are for quantised weights.

    Rows of x become 127 steps a block of 32, the step rounded to f16; for q6_K 127 steps a block
    of 256, the step in f32. The part m * sum(x) of q4_1 takes the sum of the exact steps, rounded
    to f16. `weight` is `raw`, dequantised.
    """
    if kind is TensorType.Q6_K:
        q, step = _steps(x, 256)
        return mul_mat(weight, (q * step).reshape(x.shape))
    q, step = _steps(x, 32)
    rounded = (q * step.astype(np.float16)).reshape(x.shape)
    product = mul_mat(weight, rounded)
    if kind is not TensorType.Q4_1:
        return product
    m = raw.reshape(*weight.shape[:3], -1, 20)[..., 2:4].copy().view(np.float16)[..., 0]
    sums = (q.sum(axis=-1, keepdims=True) * step).astype(np.float16).astype(np.float64)
    beside = sums[..., 0] - rounded.reshape(-1, 32).sum(axis=-1)
    return _f32(product + mul_mat(m, beside.reshape(*x.shape[:3], -1)))


def _steps(x: Array, block: int) -> tuple[Array, Array]:
    """Blocks of so many elements: whole numbers as float64, and the exact step of each block."""
    blocks = x.reshape(-1, block).astype(np.float32)
    largest = np.abs(blocks).max(axis=-1, keepdims=True)
    inverse = np.divide(127, largest, out=np.zeros_like(largest), where=largest > 0)
    return np.rint(blocks * inverse).astype(np.float64), largest / np.float32(127)


def flash_attn(
    q: Array, k: Array, v: Array, mask: Array | None, factor: float, softcap: float
) -> Array:
    """Attend with q (1, h, t, d), k, v (1, hk, n_kv, d) -> (1, t, h, dv)."""
    group = q.shape[1] // k.shape[1]
    keys, values = np.repeat(k, group, axis=1), np.repeat(v, group, axis=1)
    scores = np.matmul(q.astype(np.float64), keys.astype(np.float64).swapaxes(-1, -2)) * factor
    if softcap:
        scores = softcap * np.tanh(scores / softcap)
    weights = soft_max(scores, mask, 1.0)
    return _f32(np.matmul(weights.astype(np.float64), values.astype(np.float64)).swapaxes(1, 2))


def flash_attn_in_halfs(
    q: Array, k: Array, v: Array, mask: Array | None, factor: float, softcap: float
) -> Array:
    """The same as ggml's CPU computes it for short batches: key by key, sums rounded to f16.

    Source: ggml_compute_forward_flash_attn_ext_f16_one_chunk.
    """
    _, n_heads, n_tokens, _ = q.shape
    group = n_heads // k.shape[1]
    result = np.zeros((1, n_tokens, n_heads, v.shape[3]), dtype=np.float32)
    for h in range(n_heads):
        for t in range(n_tokens):
            bias = np.zeros(k.shape[2]) if mask is None else mask[0, 0, t].astype(np.float64)
            query = q[0, h, t].astype(np.float16).astype(np.float64)
            scores = (k[0, h // group].astype(np.float64) @ query) * factor
            if softcap:
                scores = softcap * np.tanh(scores / softcap)
            result[0, t, h] = _attend_in_halfs(scores + bias, v[0, h // group])
    return result


def _attend_in_halfs(scores: Array, values: Array) -> Array:
    largest, total = -math.inf, 0.0
    summed = np.zeros(values.shape[1], dtype=np.float16)
    for score, value in zip(scores, values.astype(np.float32), strict=True):
        if score == -math.inf:
            continue
        weight = math.exp(min(0.0, score - largest))
        if score > largest:
            shrink = math.exp(largest - score)
            total *= shrink
            summed = (summed * np.float32(shrink)).astype(np.float16)
            largest = score
        total += weight
        summed = (summed + value * np.float32(weight)).astype(np.float16)
    return summed.astype(np.float32) / np.float32(total)


def dequantized(
    tensor_type: TensorType, raw: npt.NDArray[np.uint8], shape: tuple[int, ...]
) -> Array:
    """A tensor of any type as float32, in numpy's order."""
    if tensor_type is TensorType.Q6_K:
        return _q6_k(raw).reshape(shape)
    return dequantize(tensor_type, raw, math.prod(shape)).reshape(shape)


def _q6_k(raw: npt.NDArray[np.uint8]) -> Array:
    """Super-blocks of 256: low nibbles [128], two high bits [64], 16 scales i8, d f16.

    Quarter j of a half takes the nibble j // 2 of low bytes 32 (j % 2) on, and bits 2j of the high
    ones. Source: ggml-quants.c, dequantize_row_q6_K.
    """
    blocks = raw.reshape(-1, 210)
    scales = blocks[:, 192:208].view(np.int8).astype(np.float32)
    d = blocks[:, 208:210].copy().view(np.float16).astype(np.float32)
    values = np.zeros((len(blocks), 256), dtype=np.float32)
    for half in range(2):
        for j in range(4):
            start = 64 * half + 32 * (j % 2)
            low = (blocks[:, start : start + 32] >> (4 * (j // 2))) & 15
            high = (blocks[:, 128 + 32 * half : 160 + 32 * half] >> (2 * j)) & 3
            first = 128 * half + 32 * j
            values[:, first : first + 32] = (low | (high << 4)).astype(np.float32) - 32.0
    return values * np.repeat(scales, 16, axis=1) * d


def _f32(values: Array) -> Array:
    return np.asarray(values, dtype=np.float32)
