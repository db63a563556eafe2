"""Rows of super-blocks of 256 to f32, one kernel a type: (target, source, elements).

The K-quants and the ternary types. What the bytes mean is told in engine/core/quants_k.py.
"""

from __future__ import annotations

import numpy as np

from engine.backends.cpu.jit import helper, kernel
from engine.backends.cpu.simd import (
    I8X32,
    Vector,
    join_bytes,
    load_f16,
    load_i8,
    load_i8x32,
    load_u8,
    piece,
    raised,
    shifted,
    store_f32,
    store_scaled,
)


@piece(I8X32, 2)
def weights_q2_k(place: int, j: int) -> Vector:
    """Block j of eight of a super-block, as bytes."""
    return shifted(load_i8x32(place + 16 + 32 * (j // 4)), 2 * (j % 4), 3)


@piece(I8X32, 2)
def weights_q3_k(place: int, j: int) -> Vector:
    """The same, 4 too large."""
    low = shifted(load_i8x32(place + 32 + 32 * (j // 4)), 2 * (j % 4), 3)
    return join_bytes(low, raised(shifted(load_i8x32(place), j, 1), 2))


@piece(I8X32, 2)
def weights_q4_k(place: int, j: int) -> Vector:
    """The same."""
    return shifted(load_i8x32(place + 16 + 32 * (j // 2)), 4 * (j % 2), 15)


@piece(I8X32, 2)
def weights_q5_k(place: int, j: int) -> Vector:
    """The same."""
    low = shifted(load_i8x32(place + 48 + 32 * (j // 2)), 4 * (j % 2), 15)
    return join_bytes(low, raised(shifted(load_i8x32(place + 16), j, 1), 4))


@piece(I8X32, 2)
def weights_q6_k(place: int, j: int) -> Vector:
    """The same, 32 too large."""
    half, quarter = j // 4, j % 4
    low = shifted(load_i8x32(place + 64 * half + 32 * (quarter % 2)), 4 * (quarter // 2), 15)
    high = load_i8x32(place + 128 + 32 * half)
    return join_bytes(low, raised(shifted(high, 2 * quarter, 3), 4))


@kernel
def q2_k_to_f32(y: int, x: int, n: int) -> int:
    """D * scale * q - dmin * min."""
    for block in range(n // 256):
        place = x + 84 * block
        d, dmin = load_f16(place + 80), load_f16(place + 82)
        for j in range(8):
            first, second = load_u8(place + 2 * j), load_u8(place + 2 * j + 1)
            store_scaled(
                y + 1024 * block + 128 * j,
                weights_q2_k(place, j),
                d * np.float32(first & 15),
                -dmin * np.float32(first >> 4),
                d * np.float32(second & 15),
                -dmin * np.float32(second >> 4),
            )
    return 0


@helper
def scale_q3_k(place: int, j: int) -> int:
    """The j-th of 16 scales of 6 bits: four of them in nibbles, two in crumbs behind."""
    low = load_u8(place + j % 8) >> (4 * (j // 8)) & 15
    high = load_u8(place + 8 + j % 4) >> (2 * (j // 4)) & 3
    return (low | high << 4) - 32


@kernel
def q3_k_to_f32(y: int, x: int, n: int) -> int:
    """D * (scale - 32) * (q - 4)."""
    four = np.float32(-4.0)
    for block in range(n // 256):
        place = x + 110 * block
        d = load_f16(place + 108)
        for j in range(8):
            q = weights_q3_k(place, j)
            first = d * np.float32(scale_q3_k(place + 96, 2 * j))
            second = d * np.float32(scale_q3_k(place + 96, 2 * j + 1))
            target = y + 1024 * block + 128 * j
            store_scaled(target, q, first, four * first, second, four * second)
    return 0


@helper
def scale_and_min(place: int, j: int) -> tuple[int, int]:
    """The j-th of eight scales and minima of 6 bits of q4_K and q5_K, from their 12 bytes."""
    if j < 4:
        return load_u8(place + j) & 63, load_u8(place + 4 + j) & 63
    both, first, second = load_u8(place + 4 + j), load_u8(place + j - 4), load_u8(place + j)
    return both & 15 | first >> 6 << 4, both >> 4 | second >> 6 << 4


@kernel
def q4_k_to_f32(y: int, x: int, n: int) -> int:
    """D * scale * q - dmin * min."""
    for block in range(n // 256):
        place = x + 144 * block
        d, dmin = load_f16(place), load_f16(place + 2)
        for j in range(8):
            scale, least = scale_and_min(place + 4, j)
            step, low = d * np.float32(scale), -dmin * np.float32(least)
            q = weights_q4_k(place, j)
            store_scaled(y + 1024 * block + 128 * j, q, step, low, step, low)
    return 0


@kernel
def q5_k_to_f32(y: int, x: int, n: int) -> int:
    """D * scale * q - dmin * min."""
    for block in range(n // 256):
        place = x + 176 * block
        d, dmin = load_f16(place), load_f16(place + 2)
        for j in range(8):
            scale, least = scale_and_min(place + 4, j)
            step, low = d * np.float32(scale), -dmin * np.float32(least)
            q = weights_q5_k(place, j)
            store_scaled(y + 1024 * block + 128 * j, q, step, low, step, low)
    return 0


@kernel
def q6_k_to_f32(y: int, x: int, n: int) -> int:
    """D * scale * (q - 32)."""
    too_large = np.float32(-32.0)
    for block in range(n // 256):
        place = x + 210 * block
        d = load_f16(place + 208)
        for j in range(8):
            q = weights_q6_k(place, j)
            first = d * np.float32(load_i8(place + 192 + 2 * j))
            second = d * np.float32(load_i8(place + 193 + 2 * j))
            target = y + 1024 * block + 128 * j
            store_scaled(target, q, first, too_large * first, second, too_large * second)
    return 0


@kernel
def tq2_0_to_f32(y: int, x: int, n: int) -> int:
    """D * (q - 1)."""
    for block in range(n // 256):
        place = x + 66 * block
        d = load_f16(place + 64)
        for j in range(8):
            q = shifted(load_i8x32(place + 32 * (j // 4)), 2 * (j % 4), 3)
            store_scaled(y + 1024 * block + 128 * j, q, d, -d, d, -d)
    return 0


@helper
def _store_thirds(y: int, x: int, n_bytes: int, n_digits: int, d: np.float32) -> None:
    """Digits in base 3 of bytes, all first digits first, as d * (digit - 1)."""
    power = 1
    for i_digit in range(n_digits):
        for i in range(n_bytes):
            digit = (load_u8(x + i) * power & 255) * 3 >> 8
            store_f32(y + 4 * (i_digit * n_bytes + i), d * np.float32(digit - 1))
        power *= 3


@kernel
def tq1_0_to_f32(y: int, x: int, n: int) -> int:
    """D * (q - 1)."""
    for block in range(n // 256):
        place, target = x + 54 * block, y + 1024 * block
        d = load_f16(place + 52)
        _store_thirds(target, place, 32, 5, d)
        _store_thirds(target + 4 * 160, place + 32, 16, 5, d)
        _store_thirds(target + 4 * 240, place + 48, 4, 4, d)
    return 0
