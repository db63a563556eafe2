"""Super-blocks of 256 elements, from bytes to float32: the K-quants, iq4_xs, and the ternary ones.

A super-block has a float16 scale, and each 16 or 32 elements a scale of a few bits that multiplies
it. Source: ggml-quants.c, dequantize_row_*.
"""

from __future__ import annotations

import numpy as np

from engine.core.block_parts import Bytes, Floats, fields, half, low_bits, spread, words
from engine.core.codebooks import NONLINEAR


def q2_k_values(blocks: Bytes) -> Floats:
    """D * scale * q - dmin * min, both of 4 bits for 16 elements; q in 0..3."""
    scales, packed = blocks[:, :16], blocks[:, 16:80]
    step = half(blocks, 80) * (scales & 0x0F)
    low = half(blocks, 82) * (scales >> 4)
    return spread(step, 16) * fields(packed, 2, 32) - spread(low, 16)


def q3_k_values(blocks: Bytes) -> Floats:
    """D * (scale - 32) * q, a scale of 6 bits for 16 elements; q in -4..3, its top bit apart."""
    top = fields(blocks[:, :32], 1, 32)
    q = (fields(blocks[:, 32:96], 2, 32) | top << 2).astype(np.int8) - 4
    packed = blocks[:, 96:108]
    low = fields(packed[:, :8], 4, 8)
    high = fields(packed[:, 8:], 2, 4)
    scales = (low | high << 4).astype(np.int8) - 32
    return spread(half(blocks, 108) * scales, 16) * q


def q4_k_values(blocks: Bytes) -> Floats:
    """D * scale * q - dmin * min, both of 6 bits for 32 elements; q in 0..15."""
    return _with_mins(blocks, fields(blocks[:, 16:], 4, 32))


def q5_k_values(blocks: Bytes) -> Floats:
    """The same with q in 0..31; bit j of 32 bytes is the fifth one of the j-th 32 elements."""
    fifth = fields(blocks[:, 16:48], 1, 32)
    return _with_mins(blocks, fields(blocks[:, 48:], 4, 32) | fifth << np.uint8(4))


def _with_mins(blocks: Bytes, q: Bytes) -> Floats:
    scales, mins = _six_bits(blocks[:, 4:16])
    step, low = half(blocks, 0) * scales, half(blocks, 2) * mins
    return spread(step, 32) * q - spread(low, 32)


def _six_bits(packed: Bytes) -> tuple[Bytes, Bytes]:
    """Eight scales and eight minima of 6 bits from 12 bytes.

    The first four of each are the low bits of bytes 0.. and 4..; of the others four bits share
    bytes 8.., two are the high ones of the first bytes.
    """
    first, second, last = packed[:, :4], packed[:, 4:8], packed[:, 8:]
    scales = np.hstack([first & 63, (last & 15) | (first >> 6) << 4])
    mins = np.hstack([second & 63, (last >> 4) | (second >> 6) << 4])
    return scales, mins


def q6_k_values(blocks: Bytes) -> Floats:
    """D * scale * (q - 32), a signed scale for 16 elements; q in 0..63, two bits apart."""
    q = fields(blocks[:, :128], 4, 64) | fields(blocks[:, 128:192], 2, 32) << 4
    step = half(blocks, 208) * blocks[:, 192:208].view(np.int8)
    return spread(step, 16) * (q.astype(np.int8) - 32)


def iq4_xs_values(blocks: Bytes) -> Floats:
    """D * (scale - 32) * number, a scale of 6 bits for 32 elements; numbers of iq4_nl."""
    high = words(blocks, 2, 1, np.dtype("<u2")) >> np.arange(0, 16, 2)
    low = np.stack([blocks[:, 4:8] & 15, blocks[:, 4:8] >> 4], axis=2).reshape(-1, 8)
    scales = (low | (high & 3) << 4).astype(np.int8) - 32
    numbers = NONLINEAR[low_bits(blocks[:, 8:].reshape(-1, 16))].reshape(-1, 256)
    return spread(half(blocks, 0) * scales, 32) * numbers


def tq2_0_values(blocks: Bytes) -> Floats:
    """D * (q - 1), q of 2 bits."""
    return half(blocks, 64) * (fields(blocks[:, :64], 2, 32).astype(np.int8) - 1)


def tq1_0_values(blocks: Bytes) -> Floats:
    """D * (q - 1), q in 0..2; a byte is five of them as a fraction of 3^5 in 256 steps."""
    parts = (blocks[:, :32], blocks[:, 32:48], blocks[:, 48:52])
    q = np.hstack([_thirds(part, 5 if i < 2 else 4) for i, part in enumerate(parts)])
    return half(blocks, 52) * (q.astype(np.int8) - 1)


def _thirds(packed: Bytes, n: int) -> Bytes:
    """The first n digits in base 3 of each byte, all first digits first."""
    powers = (3 ** np.arange(n)).astype(np.uint8)[:, np.newaxis]
    rest = packed[:, np.newaxis] * powers
    return (rest.astype(np.uint16) * 3 >> 8).astype(np.uint8).reshape(len(packed), -1)
