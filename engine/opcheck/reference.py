"""Every operation in plain numpy: what the kernels of all backends must agree with.

It shares no code with them, but for the meaning of stored numbers (engine.core.quants), by which
expect.py turns sources into the arrays here.

Arrays have numpy's order, so a tensor [ne0, ne1, ne2, ne3] is an array (ne3, ne2, ne1, ne0).
Floats are computed in float64 and given back as float32. What carries a state from token to token
is in reference_recurrent.py.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from engine.core.ops import MULTI_ROPES, ROPE_IMROPE, GluOp, Op, RopeParams, UnaryOp

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
    """A function of each element; GELU by its tanh form."""
    functions: dict[UnaryOp, Callable[[Array], Array]] = {
        UnaryOp.TANH: np.tanh,
        UnaryOp.SILU: lambda v: v * _sigmoid(v),
        UnaryOp.SIGMOID: _sigmoid,
        UnaryOp.SOFTPLUS: lambda v: np.logaddexp(0.0, v),
        UnaryOp.GELU: _gelu,
    }
    return _f32(functions[kind](x.astype(np.float64)))


def _sigmoid(x: Array) -> Array:
    result: Array = 0.5 * (1.0 + np.tanh(0.5 * x))
    return result


def _gelu(x: Array) -> Array:
    inner = math.sqrt(2.0 / math.pi) * x * (1.0 + 0.044715 * x * x)
    result: Array = 0.5 * x * (1.0 + np.tanh(inner))
    return result


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


def _f32(values: Array) -> Array:
    return np.asarray(values, dtype=np.float32)


def norm(x: Array, eps: float) -> Array:
    """Rows less their mean, divided by their standard deviation."""
    wide = x.astype(np.float64)
    wide = wide - wide.mean(-1, keepdims=True)
    deviation = np.sqrt((wide * wide).mean(-1, keepdims=True) + eps)
    return np.asarray(wide / deviation, np.float32)


def concat(a: Array, b: Array, dim: int) -> Array:
    """A, then b behind it along ggml's dimension `dim`."""
    return np.concatenate([a, b], axis=a.ndim - 1 - dim)


def repeat(x: Array, shape: tuple[int, ...]) -> Array:
    """X over and over, until it has `shape`."""
    return np.tile(x, [n // small for n, small in zip(shape, x.shape, strict=True)])


def fill(shape: tuple[int, ...], value: float) -> Array:
    """All elements alike."""
    return np.full(shape, value, np.float32)
