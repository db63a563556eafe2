"""Every operation in plain numpy: what the kernels must agree with. Tests read it, runs never do.

Arrays have numpy's order, so a tensor [ne0, ne1, ne2, ne3] is an array (ne3, ne2, ne1, ne0).
Floats are computed in float64 and given back as float32.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from engine.core.ops import MULTI_ROPES, ROPE_IMROPE, GluOp, Op, RopeParams, UnaryOp
from engine.core.quants import dequantize, quantize
from engine.core.types import TensorType

if TYPE_CHECKING:
    from collections.abc import Callable

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


def clamp(x: Array, low: float, high: float) -> Array:
    """Elements moved into [low, high]."""
    return _f32(np.maximum(np.minimum(x, np.float32(high)), np.float32(low)))


def unary(kind: UnaryOp, x: Array) -> Array:
    """A function; GELU by its tanh form from f16 to f16, exactly 0 or x outside -10..10."""
    wide = x.astype(np.float64)
    plain: dict[UnaryOp, Callable[[Array], Array]] = {
        UnaryOp.TANH: np.tanh,
        UnaryOp.SILU: lambda v: v / (1.0 + np.exp(-v)),
        UnaryOp.SIGMOID: lambda v: 1.0 / (1.0 + np.exp(-v)),
        UnaryOp.SOFTPLUS: lambda v: np.logaddexp(0.0, v),
    }
    if kind in plain:
        return _f32(plain[kind](wide))
    half = np.clip(x, -10.0, 10.0).astype(np.float16).astype(np.float64)
    inner = math.sqrt(2.0 / math.pi) * half * (1.0 + 0.044715 * half * half)
    inside = (0.5 * half * (1.0 + np.tanh(inner))).astype(np.float16)
    return _f32(np.where(x <= -10.0, 0.0, np.where(x >= 10.0, x, inside)))


def glu(kind: GluOp, gate: Array, up: Array) -> Array:
    """f(gate) * up."""
    function = {GluOp.SWIGLU: UnaryOp.SILU, GluOp.GEGLU: UnaryOp.GELU}[kind]
    return _f32(unary(function, gate).astype(np.float64) * up)


def swiglu_oai(gate: Array, up: Array, alpha: float, limit: float) -> Array:
    """Gate * sigmoid(alpha * gate) * (up + 1); gate at most `limit`, up within it."""
    x = np.minimum(gate.astype(np.float64), limit)
    return _f32(x / (1.0 + np.exp(-alpha * x)) * (np.clip(up, -limit, limit) + 1.0))


def add_id(a: Array, b: Array, ids: Array) -> Array:
    """Sum of a (1, t, n_used, n) and the rows of b (1, 1, n_expert, n) that ids pick."""
    return _f32(a.astype(np.float64) + b[0, 0][ids[0, 0]])


def sum_rows(x: Array) -> Array:
    """The sum of each row."""
    return _f32(x.astype(np.float64).sum(axis=-1, keepdims=True))


def rms_norm(x: Array, eps: float) -> Array:
    """Rows divided by their root mean square."""
    wide = x.astype(np.float64)
    return _f32(wide / np.sqrt((wide * wide).mean(axis=-1, keepdims=True) + eps))


def soft_max(
    x: Array,
    mask: Array | None,
    factor: float,
    max_bias: float = 0.0,
    sinks: Array | None = None,
) -> Array:
    """Softmax over rows of x * factor + slope * mask; the mask repeats and may be larger.

    `sinks` (n_heads,) are one more element of each row, which is not given back.
    """
    wide = x.astype(np.float64) * factor
    if mask is not None:
        rows = mask[:, :, : x.shape[2], : x.shape[3]].astype(np.float64)
        repeats = (x.shape[0] // mask.shape[0], x.shape[1] // mask.shape[1], 1, 1)
        wide = wide + np.tile(rows, repeats) * _slopes(max_bias, x.shape[1])
    if sinks is not None:
        last = np.broadcast_to(sinks[:, None, None], (*wide.shape[:3], 1))
        wide = np.concatenate([wide, last], axis=-1)
    powers = np.exp(wide - wide.max(axis=-1, keepdims=True))
    shares = powers / powers.sum(axis=-1, keepdims=True)
    return _f32(shares[..., : x.shape[3]])


def _slopes(max_bias: float, n_heads: int) -> Array:
    """ALiBi's factors (n_heads, 1, 1). Source: arXiv 2108.12409, for any number of heads."""
    slopes = np.ones((n_heads, 1, 1))
    if max_bias:
        n_below = 2 ** math.floor(math.log2(n_heads))
        for h in range(n_heads):
            step = (h + 1) if h < n_below else (h - n_below) + 0.5
            slopes[h] = 2.0 ** (-max_bias / n_below * step)
    return slopes


def rope(x: Array, positions: Array, factors: Array | None, params: RopeParams) -> Array:
    """Rotation of pairs, one pair at a time; positions (t,), or (4 * t,) in modes with sections.

    Angles are f32, each the one before times a constant: in far positions they are off by as much
    as ggml's. Source: ARCH.md 1.9.
    """
    result = x.astype(np.float64)
    half = params.n_dims // 2
    angles = positions.reshape(-1, x.shape[1]).astype(np.float32)
    scale = np.float32(params.freq_base ** float(np.float32(-2.0) / np.float32(params.n_dims)))
    for j in range(half):
        i, k = (2 * j, 2 * j + 1) if params.mode == 0 else (j, j + half)
        i, k = i + params.offset, k + params.offset
        own = angles[_section(params, j)]
        extrapolated = own if factors is None else own / factors.reshape(-1)[j]
        theta, magnitude = _yarn(params, j, extrapolated.astype(np.float64))
        angles = angles * scale
        cos = (np.cos(theta) * magnitude)[None, :, None]
        sin = (np.sin(theta) * magnitude)[None, :, None]
        u, v = x[..., i].astype(np.float64), x[..., k].astype(np.float64)
        result[..., i], result[..., k] = u * cos - v * sin, u * sin + v * cos
    return _f32(result)


def _section(params: RopeParams, j: int) -> int:
    """Which positions pair j takes."""
    if params.mode not in MULTI_ROPES:
        return 0
    sector = j % sum(params.sections)
    if params.mode == ROPE_IMROPE:
        kind = sector % 3
        return kind if sector < 3 * params.sections[kind] else 3
    ends = np.cumsum(params.sections)
    return int(np.searchsorted(ends, sector, side="right"))


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


def rounded(kind: TensorType, x: Array) -> Array:
    """Activations as they meet float weights of a type: rounded to it."""
    return dequantize(kind, quantize(kind, np.ascontiguousarray(x)), x.size).reshape(x.shape)


def mul_mat_quantized(
    kind: TensorType, raw: npt.NDArray[np.uint8], weight: Array, x: Array
) -> Array:
    """Multiply with activations rounded as they are for quantised weights.

    Rows of x become 127 steps a block of 32, the step rounded to f16; for the K-quants 127 steps a
    block of 256, the step in f32. The part m * sum(x) of q4_1 and q5_1 takes the sum of the exact
    steps, rounded to f16. `weight` is `raw`, dequantised.
    """
    if kind.block_elems == 256:
        q, step = _steps(x, 256)
        return mul_mat(weight, (q * step).reshape(x.shape))
    q, step = _steps(x, 32)
    rounded = (q * step.astype(np.float16)).reshape(x.shape)
    product = mul_mat(weight, rounded)
    if kind not in (TensorType.Q4_1, TensorType.Q5_1):
        return product
    blocks = raw.reshape(*weight.shape[:3], -1, kind.block_bytes)
    m = blocks[..., 2:4].copy().view(np.float16)[..., 0]
    sums = (q.sum(axis=-1, keepdims=True) * step).astype(np.float16).astype(np.float64)
    beside = sums[..., 0] - rounded.reshape(-1, 32).sum(axis=-1)
    return _f32(product + mul_mat(m, beside.reshape(*x.shape[:3], -1)))


def mul_mat_id(products: Array, ids: Array) -> Array:
    """Pick from products (n_expert, t, n_used, n) of every expert with every column."""
    slots = np.arange(ids.shape[3])
    rows = [products[ids[0, 0, t], t, slots] for t in range(ids.shape[2])]
    return np.stack(rows)[None]


def q8_0_bytes(x: Array) -> npt.NDArray[np.uint8]:
    """Rows of blocks as ggml's x86 code writes them: whole numbers rounded to even."""
    q, step = _steps(x, 32)
    halfs = step.astype(np.float16).view(np.uint8)
    return np.hstack([halfs, q.astype(np.int8).view(np.uint8)]).reshape(-1)


def _steps(x: Array, block: int) -> tuple[Array, Array]:
    """Blocks of so many elements: whole numbers as float64, and the exact step of each block."""
    blocks = x.reshape(-1, block).astype(np.float32)
    largest = np.abs(blocks).max(axis=-1, keepdims=True)
    inverse = np.divide(127, largest, out=np.zeros_like(largest), where=largest > 0)
    return np.rint(blocks * inverse).astype(np.float64), largest / np.float32(127)


def flash_attn(
    q: Array,
    k: Array,
    v: Array,
    mask: Array | None,
    factor: float,
    softcap: float,
    max_bias: float = 0.0,
    sinks: Array | None = None,
) -> Array:
    """Attend with q (1, h, t, d), k (1, hk, n_kv, d), v (1, hv, n_kv, dv) -> (1, t, h, dv)."""
    keys = np.repeat(k, q.shape[1] // k.shape[1], axis=1)
    values = np.repeat(v, q.shape[1] // v.shape[1], axis=1)
    scores = np.matmul(q.astype(np.float64), keys.astype(np.float64).swapaxes(-1, -2)) * factor
    if softcap:
        scores = softcap * np.tanh(scores / softcap)
    weights = soft_max(scores, mask, 1.0, max_bias, sinks)
    return _f32(np.matmul(weights.astype(np.float64), values.astype(np.float64)).swapaxes(1, 2))


def flash_attn_in_halfs(
    q: Array, k: Array, v: Array, mask: Array | None, factor: float, softcap: float
) -> Array:
    """The same as ggml's CPU computes it for short batches with f16: sums are rounded, key by key.

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
    return dequantize(tensor_type, raw, math.prod(shape)).reshape(shape)


def _f32(values: Array) -> Array:
    return np.asarray(values, dtype=np.float32)
