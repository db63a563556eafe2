"""Operations as the CPU's kernels round them, which is as ggml's do, in plain numpy.

Arrays are those of engine.opcheck.reference.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from engine.core.ops import GluOp, UnaryOp
from engine.core.quants import dequantize, quantize
from engine.core.types import TensorType
from engine.opcheck import reference
from engine.opcheck.reference import Array, mul_mat


def unary(kind: UnaryOp, x: Array) -> Array:
    """A function; GELU by its tanh form from f16 to f16, exactly 0 or x outside -10..10."""
    if kind is not UnaryOp.GELU:
        return reference.unary(kind, x)
    half = np.clip(x, -10.0, 10.0).astype(np.float16).astype(np.float64)
    inside = reference.unary(kind, half).astype(np.float16)
    return _f32(np.where(x <= -10.0, 0.0, np.where(x >= 10.0, x, inside)))


def glu(kind: GluOp, gate: Array, up: Array) -> Array:
    """f(gate) * up."""
    function = {GluOp.SWIGLU: UnaryOp.SILU, GluOp.GEGLU: UnaryOp.GELU}[kind]
    return _f32(unary(function, gate).astype(np.float64) * up)


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


def mul_mat_id(products: Array, ids: Array) -> Array:
    """Pick from products (n_expert, t, n_used, n) of every expert with every column."""
    slots = np.arange(ids.shape[3])
    rows = [products[ids[0, 0, t], t, slots] for t in range(ids.shape[2])]
    return np.stack(rows)[None]


def dequantized(
    tensor_type: TensorType, raw: npt.NDArray[np.uint8], shape: tuple[int, ...]
) -> Array:
    """A tensor of any type as float32, in numpy's order."""
    return dequantize(tensor_type, raw, math.prod(shape)).reshape(shape)


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


def _f32(values: Array) -> Array:
    return np.asarray(values, dtype=np.float32)
