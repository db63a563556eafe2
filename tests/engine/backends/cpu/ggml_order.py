"""Products with quantised weights as ggml's x86 code adds them up, to the last bit, in numpy.

Sums of four products are whole numbers; eight lanes of them become floats and are added to eight
sums, block after block, in f32. Source: ggml-cpu/arch/x86/quants.c.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.backends.cpu.codegen import VARIANT
from engine.backends.cpu.features import Variant
from engine.core.quants import dequantize
from engine.core.types import TensorType as T

Array = np.ndarray[Any, Any]

_D_AT = {T.Q2_K: 80, T.Q3_K: 108, T.Q6_K: 208}
"""Where the scale of a block is; at 0 if nothing is said."""
_LOW_AT = {T.Q2_K: 82, T.Q4_K: 2, T.Q5_K: 2, T.Q4_1: 2, T.Q5_1: 2}
"""Where the factor of minima is."""


def fma(a: Array, b: Array, c: Array) -> Array:
    """a * b + c in f32, rounded once where the kernels' processor does."""
    if VARIANT is Variant.GENERIC:
        return a * b + c
    return (a.astype(np.float64) * b.astype(np.float64) + c.astype(np.float64)).astype(np.float32)


def product(kind: T, raw: Array, x: Array) -> Array:
    """Rows of raw blocks times one column (k,), f32 (rows,)."""
    size = kind.block_elems
    blocks = raw.reshape(-1, x.size // size, kind.block_bytes)
    q, d_x, sums = _quantized(kind, x)
    d = _scales(kind, blocks)
    lanes = (_whole_numbers(kind, blocks, (1.0, 0.0)) * q).reshape(*d.shape, -1, 8, 4)
    lanes = lanes.sum(axis=(-3, -1))
    if kind is T.Q6_K:
        lanes = lanes + _exchanged(blocks, q)
    lanes = lanes.astype(np.float32)
    if size == 256:
        lows = (-_whole_numbers(kind, blocks, (0.0, 1.0)) * q).reshape(*d.shape, 8, 32).sum(axis=-1)
        return _super_blocks(kind, lanes, d * d_x, lows, _numbers(blocks, _LOW_AT.get(kind)) * -d_x)
    total = _blocks(kind, lanes, d * d_x)
    if kind in _LOW_AT:
        low = np.zeros(len(blocks), np.float32)
        for m, s in zip(_numbers(blocks, _LOW_AT[kind]).T, sums, strict=True):
            low = low + m * s
        return total + low
    return total


def _quantized(kind: T, x: Array) -> tuple[Array, Array, Array]:
    """Whole numbers, the scale of each block, and its sum as q8_1 has it."""
    blocks = x.reshape(-1, kind.block_elems)
    largest = np.abs(blocks).max(axis=-1, keepdims=True)
    inverse = np.float32(127.0) / largest
    q = np.rint(blocks * inverse)
    if kind.block_elems == 256:
        return q.astype(np.int64), (np.float32(1.0) / inverse)[:, 0], q
    step = (largest / np.float32(127.0))[:, 0]
    sums = (q.sum(axis=-1) * step).astype(np.float16).astype(np.float32)
    return q.astype(np.int64), step.astype(np.float16).astype(np.float32), sums


def _numbers(blocks: Array, at: int | None) -> Array:
    """The f16 at an offset of each block; zeros for none."""
    if at is None:
        return np.zeros(blocks.shape[:2], np.float32)
    return blocks[..., at : at + 2].copy().view(np.float16)[..., 0].astype(np.float32)


def _scales(kind: T, blocks: Array) -> Array:
    if kind is T.MXFP4:
        return np.exp2(blocks[..., 0].astype(np.float32) - 128)
    return _numbers(blocks, _D_AT.get(kind, 0))


def _whole_numbers(kind: T, blocks: Array, factors: tuple[float, float]) -> Array:
    """Weights as they are with these factors in place of the scale and of that of minima."""
    changed = blocks.copy()
    for at, factor in zip((_D_AT.get(kind, 0), _LOW_AT.get(kind)), factors, strict=True):
        if kind is T.MXFP4:
            changed[..., 0] = 128
        elif at is not None:
            changed[..., at : at + 2] = np.array([factor], np.float16).view(np.uint8)
    values = dequantize(kind, changed.reshape(-1), blocks[..., 0].size * kind.block_elems)
    return values.reshape(*blocks.shape[:2], -1).astype(np.int64)


def _exchanged(blocks: Array, q: Array) -> Array:
    """What lanes of q6_K have more: weights are 32 too large there, taken off by sums of 16.

    Lane i sees elements 4i to 4i + 3 of each 32, and loses the sums of 16 number 2i and 2i + 1.
    """
    scales = blocks[..., 192:208].view(np.int8).astype(np.int64)
    fours = q.reshape(len(q), 8, 8, 4).sum(axis=-1)
    seen = (np.repeat(scales.reshape(*scales.shape[:2], 8, 2), 4, axis=-1) * fours).sum(axis=-2)
    lost = (scales * q.reshape(len(q), 16, 16).sum(axis=-1)).reshape(*scales.shape[:2], 8, 2)
    exchanged: Array = 32 * (seen - lost.sum(axis=-1))
    return exchanged


def _blocks(kind: T, lanes: Array, factors: Array) -> Array:
    """Sums over blocks of 32; types with tables have one for even and one for odd blocks."""
    n_sets = 2 if kind in (T.MXFP4, T.IQ4_NL) else 1
    n_rows, n_blocks = factors.shape
    sums = np.zeros((n_sets, n_rows, 8), np.float32)
    for i in range(n_blocks // n_sets * n_sets):
        sums[i % n_sets] = fma(lanes[:, i], factors[:, i, None], sums[i % n_sets])
    total = _sum_of_lanes(sums.sum(axis=0))
    if n_blocks % n_sets:
        total = fma(lanes[:, -1].sum(axis=-1), factors[:, -1], total)
    return total


def _super_blocks(kind: T, lanes: Array, factors: Array, lows: Array, low_factors: Array) -> Array:
    """Sums over super-blocks, with those of minima where ggml has them."""
    n_rows, n_blocks = factors.shape
    sums, others = np.zeros((n_rows, 8), np.float32), np.zeros((n_rows, 8), np.float32)
    n_lows = {T.Q2_K: 8, T.Q4_K: 4, T.Q5_K: 1}.get(kind, 1)
    for i in range(n_blocks):
        low = lows[:, i].reshape(n_rows, n_lows, -1).sum(axis=-1).astype(np.float32)
        if kind is T.Q2_K:
            sums = fma(low, low_factors[:, i, None], sums)
        else:
            others[:, :n_lows] = fma(low, low_factors[:, i, None], others[:, :n_lows])
        sums = fma(lanes[:, i], factors[:, i, None], sums)
    total = _sum_of_lanes(sums)
    return total + _sum_of_lanes(others) if kind in (T.Q4_K, T.Q5_K) else total


def _sum_of_lanes(values: Array) -> Array:
    """The last axis added up, one half to the other."""
    while values.shape[-1] > 1:
        half = values.shape[-1] // 2
        values = values[..., half:] + values[..., :half]
    return values[..., 0]
