"""Rows to f32 and back, one kernel a type and direction: (target, source, elements).

Plain types and blocks of 32. Source: ggml-quants.c, dequantize_row_* and quantize_row_*_ref; q8_0
is written as ggml's x86 code does, rounded to nearest even.
"""

from __future__ import annotations

import numpy as np

from engine.backends.cpu.codegen import LANES
from engine.backends.cpu.jit import helper, kernel
from engine.backends.cpu.kernels.quantize import largest_magnitude, step_inverse, store_block
from engine.backends.cpu.simd import (
    fifth_bits,
    fmul,
    join_bytes,
    load_bf16_part,
    load_bf16v,
    load_bytes_as_f32v,
    load_f16,
    load_f16_part,
    load_f16v,
    load_f32,
    load_f32_part,
    load_f32v,
    load_i8x16,
    load_u32,
    nibbles,
    splat,
    store_bf16_part,
    store_bf16v,
    store_f16,
    store_f16_part,
    store_f16v,
    store_f32_part,
    store_f32v,
    store_i8,
    store_i32,
    store_scaled,
)

_ZERO, _ONE, _HALF = np.float32(0.0), np.float32(1.0), np.float32(0.5)
_SMALLEST = np.finfo(np.float32).tiny


@helper
def copy_f32(y: int, x: int, n: int) -> None:
    """Write n words of 32 bits of x to y."""
    for i in range(0, n - LANES + 1, LANES):
        store_f32v(y + 4 * i, load_f32v(x + 4 * i))
    rest = n % LANES
    if rest:
        store_f32_part(y + 4 * (n - rest), load_f32_part(x + 4 * (n - rest), rest), rest)


@kernel
def f32_to_f32(y: int, x: int, n: int) -> int:
    """Copy words of 32 bits, whatever they mean."""
    copy_f32(y, x, n)
    return 0


@kernel
def f16_to_f32(y: int, x: int, n: int) -> int:
    """Widen f16."""
    for i in range(0, n - LANES + 1, LANES):
        store_f32v(y + 4 * i, load_f16v(x + 2 * i))
    rest = n % LANES
    if rest:
        store_f32_part(y + 4 * (n - rest), load_f16_part(x + 2 * (n - rest), rest), rest)
    return 0


@kernel
def bf16_to_f32(y: int, x: int, n: int) -> int:
    """Widen bf16."""
    for i in range(0, n - LANES + 1, LANES):
        store_f32v(y + 4 * i, load_bf16v(x + 2 * i))
    rest = n % LANES
    if rest:
        store_f32_part(y + 4 * (n - rest), load_bf16_part(x + 2 * (n - rest), rest), rest)
    return 0


@kernel
def f32_to_f16(y: int, x: int, n: int) -> int:
    """Narrow to f16, rounded to nearest even."""
    for i in range(0, n - LANES + 1, LANES):
        store_f16v(y + 2 * i, load_f32v(x + 4 * i))
    rest = n % LANES
    if rest:
        store_f16_part(y + 2 * (n - rest), load_f32_part(x + 4 * (n - rest), rest), rest)
    return 0


@kernel
def f32_to_bf16(y: int, x: int, n: int) -> int:
    """Narrow to bf16, rounded to nearest even."""
    for i in range(0, n - LANES + 1, LANES):
        store_bf16v(y + 2 * i, load_f32v(x + 4 * i))
    rest = n % LANES
    if rest:
        store_bf16_part(y + 2 * (n - rest), load_f32_part(x + 4 * (n - rest), rest), rest)
    return 0


@kernel
def q4_0_to_f32(y: int, x: int, n: int) -> int:
    """D * (q - 8)."""
    for block in range(n // 32):
        place = x + 18 * block
        d = load_f16(place)
        low = np.float32(-8.0) * d
        store_scaled(y + 128 * block, nibbles(load_i8x16(place + 2)), d, low, d, low)
    return 0


@kernel
def q4_1_to_f32(y: int, x: int, n: int) -> int:
    """D * q + m."""
    for block in range(n // 32):
        place = x + 20 * block
        d, m = load_f16(place), load_f16(place + 2)
        store_scaled(y + 128 * block, nibbles(load_i8x16(place + 4)), d, m, d, m)
    return 0


@kernel
def q5_0_to_f32(y: int, x: int, n: int) -> int:
    """D * (q - 16)."""
    for block in range(n // 32):
        place = x + 22 * block
        d = load_f16(place)
        low = np.float32(-16.0) * d
        q = join_bytes(nibbles(load_i8x16(place + 6)), fifth_bits(load_u32(place + 2)))
        store_scaled(y + 128 * block, q, d, low, d, low)
    return 0


@kernel
def q5_1_to_f32(y: int, x: int, n: int) -> int:
    """D * q + m."""
    for block in range(n // 32):
        place = x + 24 * block
        d, m = load_f16(place), load_f16(place + 2)
        q = join_bytes(nibbles(load_i8x16(place + 8)), fifth_bits(load_u32(place + 4)))
        store_scaled(y + 128 * block, q, d, m, d, m)
    return 0


@kernel
def q8_0_to_f32(y: int, x: int, n: int) -> int:
    """D * q."""
    for block in range(n // 32):
        place, target = x + 34 * block, y + 128 * block
        factor = splat(load_f16(place))
        for i in range(0, 32, LANES):
            store_f32v(target + 4 * i, fmul(load_bytes_as_f32v(place + 2 + i), factor))
    return 0


@kernel
def f32_to_q8_0(y: int, x: int, n: int) -> int:
    """Blocks of 127 steps to either side; NaN or infinity becomes the scale."""
    for block in range(n // 32):
        place, source = y + 34 * block, x + 128 * block
        largest = largest_magnitude(source, 32)
        store_f16(place, largest / np.float32(127.0))
        store_block(place + 2, source, step_inverse(largest))
    return 0


@helper
def _inverse(d: np.float32) -> np.float32:
    """1 / d; 0 for a step so small that f16 holds 0."""
    if abs(d) < _SMALLEST:
        return _ZERO
    return _ONE / d


@helper
def _signed_largest(x: int) -> np.float32:
    """The element of 32 that is farthest from zero, the first of several."""
    largest = _ZERO
    for i in range(32):
        value = load_f32(x + 4 * i)
        if abs(value) > abs(largest):
            largest = value
    return largest


@helper
def _range(x: int) -> tuple[np.float32, np.float32]:
    """Smallest and largest of 32 elements."""
    low, high = load_f32(x), load_f32(x)
    for i in range(1, 32):
        value = load_f32(x + 4 * i)
        if value < low:
            low = value
        if value > high:
            high = value
    return low, high


@helper
def _whole(value: np.float32, highest: int) -> int:
    """Cut to a whole number from 0 to `highest`; 0 for NaN."""
    if value >= np.float32(highest):
        return highest
    if value > _ZERO:
        return int(value)
    return 0


@helper
def _pack(y: int, x: int, m: np.float32, d: np.float32, shift: np.float32, highest: int) -> int:
    """Write 32 elements as (x - m) / d + shift, four bits each; give back their fifth bits."""
    inverse, fifth = _inverse(d), 0
    for j in range(16):
        low = _whole((load_f32(x + 4 * j) - m) * inverse + shift, highest)
        high = _whole((load_f32(x + 64 + 4 * j) - m) * inverse + shift, highest)
        store_i8(y + j, (low & 15) | (high & 15) << 4)
        fifth |= low >> 4 << j | high >> 4 << (j + 16)
    return fifth


@kernel
def f32_to_q4_0(y: int, x: int, n: int) -> int:
    """The element farthest from zero becomes -8 steps."""
    for block in range(n // 32):
        place, source = y + 18 * block, x + 128 * block
        d = _signed_largest(source) / np.float32(-8.0)
        store_f16(place, d)
        _pack(place + 2, source, _ZERO, d, np.float32(8.5), 15)
    return 0


@kernel
def f32_to_q4_1(y: int, x: int, n: int) -> int:
    """15 steps from the smallest element to the largest."""
    for block in range(n // 32):
        place, source = y + 20 * block, x + 128 * block
        low, high = _range(source)
        d = (high - low) / np.float32(15.0)
        store_f16(place, d)
        store_f16(place + 2, low)
        _pack(place + 4, source, low, d, _HALF, 15)
    return 0


@kernel
def f32_to_q5_0(y: int, x: int, n: int) -> int:
    """The element farthest from zero becomes -16 steps."""
    for block in range(n // 32):
        place, source = y + 22 * block, x + 128 * block
        d = _signed_largest(source) / np.float32(-16.0)
        store_f16(place, d)
        store_i32(place + 2, _pack(place + 6, source, _ZERO, d, np.float32(16.5), 31))
    return 0


@kernel
def f32_to_q5_1(y: int, x: int, n: int) -> int:
    """31 steps from the smallest element to the largest."""
    for block in range(n // 32):
        place, source = y + 24 * block, x + 128 * block
        low, high = _range(source)
        d = (high - low) / np.float32(31.0)
        store_f16(place, d)
        store_f16(place + 2, low)
        store_i32(place + 4, _pack(place + 8, source, low, d, _HALF, 31))
    return 0
