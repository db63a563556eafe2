"""Formats whose elements are points of a codebook, from bytes to float32. Blocks of 256 elements.

iq1 and iq2 indices name eight elements, iq3 indices four. Source: ggml-quants.c, dequantize_row_*.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from engine.core import codebooks
from engine.core.block_parts import Bytes, Floats, bits, half, spread, words

if TYPE_CHECKING:
    import numpy.typing as npt

_U16, _U32 = np.dtype("<u2"), np.dtype("<u4")
_SEVEN_BITS = np.arange(0, 28, 7, dtype=np.uint32)
_IQ1_SHIFT = np.float32(0.125)
"""How far iq1's levels are moved, up or down."""


def iq2_xxs_values(blocks: Bytes) -> Floats:
    """For each 32 elements four indices, four times seven bits of signs, and a scale of 4 bits."""
    pairs = words(blocks, 2, 16, _U32).reshape(-1, 8, 2)
    indices = np.ascontiguousarray(pairs[..., 0]).view(np.uint8)
    scales = _halved(half(blocks, 0), pairs[..., 1] >> np.uint32(28)) * np.float32(0.25)
    return spread(scales, 32) * _points(codebooks.iq2_xxs(), indices) * _seven_signs(pairs[..., 1])


def iq2_xs_values(blocks: Bytes) -> Floats:
    """A word an index: nine bits of it, seven of signs; a scale of 4 bits for 16 elements."""
    packed = words(blocks, 2, 32, _U16)
    scales = _halved(half(blocks, 0), _nibbles(blocks[:, 66:])) * np.float32(0.25)
    signs = _signs(codebooks.signs()[packed >> 9])
    return spread(scales, 16) * _points(codebooks.iq2_xs(), packed & 511) * signs


def iq2_s_values(blocks: Bytes) -> Floats:
    """Indices of ten bits, two of them apart; a byte of signs each; scales as iq2_xs."""
    high = blocks[:, 66:74, np.newaxis] >> np.arange(0, 8, 2, dtype=np.uint8) & 3
    indices = _joined(blocks[:, 2:34], high)
    scales = _halved(half(blocks, 0), _nibbles(blocks[:, 74:])) * np.float32(0.25)
    return spread(scales, 16) * _points(codebooks.iq2_s(), indices) * _signs(blocks[:, 34:66])


def iq3_xxs_values(blocks: Bytes) -> Floats:
    """For each 32 elements eight indices; then signs and scales as iq2_xxs."""
    packed = words(blocks, 66, 8, _U32)
    scales = _halved(half(blocks, 0), packed >> np.uint32(28)) * np.float32(0.5)
    points = _points(codebooks.iq3_xxs(), blocks[:, 2:66])
    return spread(scales, 32) * points * _seven_signs(packed)


def iq3_s_values(blocks: Bytes) -> Floats:
    """Indices of nine bits, one of them apart; a byte of signs; a scale of 4 bits for 32."""
    indices = _joined(blocks[:, 2:66], bits(blocks[:, 66:74]))
    scales = half(blocks, 0) * (1 + 2 * _nibbles(blocks[:, 106:]))
    return spread(scales, 32) * _points(codebooks.iq3_s(), indices) * _signs(blocks[:, 74:106])


def iq1_s_values(blocks: Bytes) -> Floats:
    """Indices of eleven bits; a word for each 32 elements: four times three bits, scale, shift."""
    packed = words(blocks, 34, 8, _U16)
    high = packed[..., np.newaxis] >> np.arange(0, 12, 3, dtype=np.uint16) & 7
    scales = half(blocks, 0) * (2 * (packed >> 12 & 7) + 1)
    shift = np.where(packed & 0x8000, -_IQ1_SHIFT, _IQ1_SHIFT)
    points = _points(codebooks.iq1(), _joined(blocks[:, 2:34], high))
    return spread(scales, 32) * (points + spread(shift, 32))


def iq1_m_values(blocks: Bytes) -> Floats:
    """Indices of eleven bits with a shift each, in nibbles apart; a scale of 3 bits for 16.

    The float16 scale is spread over the top nibbles of four words of scales.
    """
    packed = words(blocks, 48, 4, _U16)
    nibbles = _nibbles(blocks[:, 32:48])
    tops = (packed >> 12).astype(np.uint16) << np.arange(0, 16, 4, dtype=np.uint16)
    d = tops.sum(axis=1, dtype=np.uint16)[:, np.newaxis].view(np.float16).astype(np.float32)
    small = packed[..., np.newaxis] >> np.arange(0, 12, 3, dtype=np.uint16) & 7
    scales = d * (2 * small.reshape(len(blocks), -1) + 1)
    shift = np.where(nibbles & 8, -_IQ1_SHIFT, _IQ1_SHIFT)
    points = _points(codebooks.iq1(), _joined(blocks[:, :32], nibbles & 7))
    return spread(scales, 16) * (points + spread(shift, 8))


def _points(book: codebooks.Levels, indices: npt.NDArray[np.generic]) -> Floats:
    points: Floats = book[indices].astype(np.float32)
    return points.reshape(len(indices), -1)


def _joined(low: Bytes, high: npt.NDArray[np.generic]) -> npt.NDArray[np.uint16]:
    """Indices: eight low bits, and what stands above them."""
    return low.astype(np.uint16) | high.astype(np.uint16).reshape(low.shape) << np.uint16(8)


def _halved(d: Floats, scales: npt.NDArray[np.generic]) -> Floats:
    halved: Floats = d * (np.float32(0.5) + scales.astype(np.float32))
    return halved


def _nibbles(packed: Bytes) -> Bytes:
    """[n, m] bytes -> [n, 2 m]: the low and the high half of each byte in turn."""
    return np.stack([packed & 15, packed >> 4], axis=2).reshape(len(packed), -1)


def _signs(packed: Bytes) -> Floats:
    """[n, m] bytes -> [n, 8 m] factors 1 or -1; a set bit is negative."""
    return np.float32(1) - np.float32(2) * bits(np.ascontiguousarray(packed))


def _seven_signs(packed: npt.NDArray[np.generic]) -> Floats:
    """[n, 8] words of four times seven bits -> [n, 256] factors."""
    numbers = packed.astype(np.uint32)[..., np.newaxis] >> _SEVEN_BITS & np.uint32(127)
    return _signs(codebooks.signs()[numbers].reshape(len(packed), -1))
