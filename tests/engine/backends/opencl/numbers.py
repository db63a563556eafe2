"""What the kernel tests share: random values and blocks, distances, rounded activations, cases."""

from __future__ import annotations

import numpy as np
import pytest

from engine.core.codebooks import NONLINEAR
from engine.core.quants import dequantize, quantize
from engine.core.types import TensorType

F32, F16, BF16 = TensorType.F32, TensorType.F16, TensorType.BF16

WRITTEN_TYPES = frozenset(
    {F32, F16, BF16, TensorType.I32, TensorType.I64, TensorType.Q8_0, TensorType.Q4_0}
    | {TensorType.Q4_1, TensorType.Q5_0, TensorType.Q5_1}
)
"""Types whose tensors the tests make from values; others get random blocks."""

HALVES = {
    TensorType.Q2_K: (80, 82),
    TensorType.Q3_K: (108,),
    TensorType.Q4_K: (0, 2),
    TensorType.Q5_K: (0, 2),
    TensorType.Q6_K: (208,),
    TensorType.IQ4_NL: (0,),
}
"""Where a block has the half floats that scale it."""

# Kernels sum in float32 in another order than numpy; quantised weights are compared with their
# dequantised values and activations rounded as the kernels do, so one bound holds for every type.
NMSE = 1e-6


def rand(*shape, scale=1.0):
    return np.random.default_rng(sum(shape)).normal(0, scale, shape).astype(np.float32)


def nmse(got, want):
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    assert got.shape == want.shape
    return float(np.mean((got - want) ** 2) / max(np.mean(want**2), 1e-30))


def random_blocks(tensor_type, n_elems):
    """Blocks with any bits but for their scales, which are small and positive."""
    n_blocks = n_elems // tensor_type.block_elems
    rng = np.random.default_rng(n_blocks)
    blocks = rng.integers(0, 256, (n_blocks, tensor_type.block_bytes), np.uint8)
    for at in HALVES.get(tensor_type, ()):
        d = rng.uniform(1e-4, 2e-4, (n_blocks, 1)).astype(np.float16)
        blocks[:, at : at + 2] = d.view(np.uint8)
    if tensor_type is TensorType.MXFP4:
        blocks[:, 0] = rng.integers(118, 124, n_blocks)
    return blocks.reshape(-1)


def as_read(x, weight_type):
    """Activations as a matmul with these weights reads them: as such floats, or int8 blocks."""
    if not weight_type.is_quantized:
        raw = quantize(weight_type, np.ascontiguousarray(x))
        return dequantize(weight_type, raw, x.size).reshape(x.shape).astype(np.float64)
    blocks = x.reshape(-1, weight_type.block_elems)
    largest = np.abs(blocks).max(axis=1, keepdims=True)
    inverse = np.float32(127) / np.where(largest == 0, np.float32(1), largest)
    d = largest / np.float32(127)
    if weight_type.block_elems == 32:
        d = d.astype(np.float16)
    return (np.rint(blocks * inverse) * d.astype(np.float64)).reshape(x.shape)


def on_both_kinds(name, own_kind, as_a_gpu):
    """Cases of `name` for the device as it is driven, and for it driven as a GPU is."""
    cases = [("own kind", case) for case in own_kind] + [("as a GPU", case) for case in as_a_gpu]
    return pytest.mark.parametrize(("every_backend", name), cases, indirect=["every_backend"])


def iq4_nl_bytes(values):
    """Blocks of iq4_nl as quantize_row_iq4_nl_ref writes them: [n, 32] floats -> [n, 18] bytes."""
    x = values.reshape(-1, 32).astype(np.float64)
    levels = NONLINEAR.astype(np.float64)
    blocks = np.zeros((len(x), 18), np.uint8)
    for block, row in zip(blocks, x, strict=True):
        if not row.any():
            block[2:] = 0x88  # the level next to zero
            continue
        farthest = row[np.argmax(np.abs(row))]
        nearest = np.abs(row[:, None] / farthest * levels[0] - levels).argmin(axis=1)
        steps = levels[nearest]
        d = np.sum(row**2 * steps * row) / np.sum(row**2 * steps * steps)
        block[:2] = np.array([d], np.float16).view(np.uint8)
        block[2:] = nearest[:16] | nearest[16:] << 4
    return blocks


def slopes(n_heads, max_bias):
    """What alibi multiplies each head's mask with. Source: ggml's SOFT_MAX."""
    full = 2 ** int(np.log2(n_heads))
    first, second = 2 ** (-max_bias / full), 2 ** (-max_bias / 2 / full)
    heads = np.arange(n_heads)
    return np.where(heads < full, first ** (heads + 1), second ** (2 * (heads - full) + 1))
