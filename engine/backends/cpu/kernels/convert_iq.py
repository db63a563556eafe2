"""Rows of formats with tables and codebooks to f32, one kernel a type: (target, source, elements).

What the bytes mean is told in engine/core/quants_iq.py and quants.py.
"""

from __future__ import annotations

import math

import numpy as np

from engine.backends.cpu.jit import helper, kernel
from engine.backends.cpu.simd import (
    fifth_bits,
    load_f16,
    load_u8,
    load_u16,
    load_u32,
    store_f32,
    store_scaled,
)
from engine.core import codebooks

_IQ2_XXS = codebooks.iq2_xxs().reshape(-1)
_IQ2_XS = codebooks.iq2_xs().reshape(-1)
_IQ2_S = codebooks.iq2_s().reshape(-1)
_IQ3_XXS = codebooks.iq3_xxs().reshape(-1)
_IQ3_S = codebooks.iq3_s().reshape(-1)
_IQ1 = codebooks.iq1().reshape(-1)
_NONLINEAR, _E2M1, _SIGNS = codebooks.NONLINEAR, codebooks.E2M1, codebooks.signs()
_HALF = np.float32(0.5)
_QUARTER = np.float32(0.25)
_EIGHTH = np.float32(0.125)


@helper
def _store_point(y: int, value: float, scale: np.float32, signs: int, i: int) -> None:
    """Element i of a point, negative where a bit of `signs` is set."""
    if signs >> i & 1:
        value = -value
    store_f32(y + 4 * i, scale * np.float32(value))


@kernel
def iq2_xxs_to_f32(y: int, x: int, n: int) -> int:
    """Four indices, four times seven bits of signs and a scale for each 32."""
    for group in range(n // 32):
        place = x + 66 * (group // 8) + 2 + 8 * (group % 8)
        rest = load_u32(place + 4)
        scale = load_f16(x + 66 * (group // 8)) * (_HALF + np.float32(rest >> 28)) * _QUARTER
        for j in range(4):
            point, signs = 8 * load_u8(place + j), _SIGNS[np.uint64(rest >> (7 * j) & 127)]
            for i in range(8):
                value = _IQ2_XXS[np.uint64(point + i)]
                _store_point(y + 128 * group + 32 * j, value, scale, signs, i)
    return 0


@kernel
def iq2_xs_to_f32(y: int, x: int, n: int) -> int:
    """A word of index and signs for each 8, a scale for each 16."""
    for group in range(n // 16):
        block, j = x + 74 * (group // 16), group % 16
        nibble = load_u8(block + 66 + j // 2) >> (4 * (j % 2)) & 15
        scale = load_f16(block) * (_HALF + np.float32(nibble)) * _QUARTER
        for k in range(2):
            packed = load_u16(block + 2 + 4 * j + 2 * k)
            point, signs = 8 * (packed & 511), _SIGNS[np.uint64(packed >> 9)]
            for i in range(8):
                value = _IQ2_XS[np.uint64(point + i)]
                _store_point(y + 64 * group + 32 * k, value, scale, signs, i)
    return 0


@kernel
def iq2_s_to_f32(y: int, x: int, n: int) -> int:
    """An index of ten bits and a byte of signs for each 8, a scale for each 16."""
    for group in range(n // 16):
        block, j = x + 82 * (group // 16), group % 16
        nibble = load_u8(block + 74 + j // 2) >> (4 * (j % 2)) & 15
        scale = load_f16(block) * (_HALF + np.float32(nibble)) * _QUARTER
        for k in range(2 * j, 2 * j + 2):
            high = load_u8(block + 66 + k // 4) >> (2 * (k % 4)) & 3
            point = 8 * (load_u8(block + 2 + k) | high << 8)
            signs = load_u8(block + 34 + k)
            for i in range(8):
                value = _IQ2_S[np.uint64(point + i)]
                _store_point(y + 1024 * (group // 16) + 32 * k, value, scale, signs, i)
    return 0


@kernel
def iq3_xxs_to_f32(y: int, x: int, n: int) -> int:
    """Eight indices, four times seven bits of signs and a scale for each 32."""
    for group in range(n // 32):
        block, j = x + 98 * (group // 8), group % 8
        rest = load_u32(block + 66 + 4 * j)
        scale = load_f16(block) * (_HALF + np.float32(rest >> 28)) * _HALF
        for k in range(8):
            point = 4 * load_u8(block + 2 + 8 * j + k)
            signs = _SIGNS[np.uint64(rest >> (7 * (k // 2)) & 127)] >> (4 * (k % 2))
            for i in range(4):
                value = _IQ3_XXS[np.uint64(point + i)]
                _store_point(y + 128 * group + 16 * k, value, scale, signs, i)
    return 0


@kernel
def iq3_s_to_f32(y: int, x: int, n: int) -> int:
    """An index of nine bits for each 4, a byte of signs for each 8, a scale for each 32."""
    for group in range(n // 32):
        block, j = x + 110 * (group // 8), group % 8
        nibble = load_u8(block + 106 + j // 2) >> (4 * (j % 2)) & 15
        scale = load_f16(block) * np.float32(1 + 2 * nibble)
        for k in range(8):
            high = load_u8(block + 66 + j) >> k & 1
            point = 4 * (load_u8(block + 2 + 8 * j + k) | high << 8)
            signs = load_u8(block + 74 + 4 * j + k // 2) >> (4 * (k % 2))
            for i in range(4):
                value = _IQ3_S[np.uint64(point + i)]
                _store_point(y + 128 * group + 16 * k, value, scale, signs, i)
    return 0


@helper
def _store_iq1(y: int, point: int, scale: np.float32, shift: np.float32) -> None:
    for i in range(8):
        value = np.float32(_IQ1[np.uint64(8 * point + i)])
        store_f32(y + 4 * i, scale * (value + shift))


@kernel
def iq1_s_to_f32(y: int, x: int, n: int) -> int:
    """An index of eleven bits for each 8; scale and shift for each 32."""
    for group in range(n // 32):
        block, j = x + 50 * (group // 8), group % 8
        packed = load_u16(block + 34 + 2 * j)
        scale = load_f16(block) * np.float32(2 * (packed >> 12 & 7) + 1)
        shift = _EIGHTH
        if packed & 0x8000:
            shift = -_EIGHTH
        for k in range(4):
            point = load_u8(block + 2 + 4 * j + k) | (packed >> (3 * k) & 7) << 8
            _store_iq1(y + 128 * group + 32 * k, point, scale, shift)
    return 0


@helper
def _half_of_bits(bits: int) -> np.float32:
    """The f16 with these bits."""
    exponent, mantissa = bits >> 10 & 31, bits & 1023
    if exponent == 31:
        magnitude = math.inf
        if mantissa:
            magnitude = math.nan
    elif exponent == 0:
        magnitude = math.ldexp(float(mantissa), -24)
    else:
        magnitude = math.ldexp(float(mantissa + 1024), exponent - 25)
    if bits & 0x8000:
        magnitude = -magnitude
    return np.float32(magnitude)


@kernel
def iq1_m_to_f32(y: int, x: int, n: int) -> int:
    """An index of eleven bits and a shift for each 8, a scale for each 16."""
    for block in range(n // 256):
        place, bits = x + 56 * block, 0
        for j in range(4):
            bits |= load_u16(place + 48 + 2 * j) >> 12 << (4 * j)
        d = _half_of_bits(bits)
        for k in range(32):
            nibble = load_u8(place + 32 + k // 2) >> (4 * (k % 2)) & 15
            small = load_u16(place + 48 + 2 * (k // 8)) >> (3 * (k // 2 % 4)) & 7
            shift = _EIGHTH
            if nibble & 8:
                shift = -_EIGHTH
            point = load_u8(place + k) | (nibble & 7) << 8
            _store_iq1(y + 1024 * block + 32 * k, point, d * np.float32(2 * small + 1), shift)
    return 0


@helper
def _store_nonlinear(y: int, x: int, d: np.float32) -> None:
    """32 numbers of 4 bits, low halves first."""
    for i in range(16):
        packed = load_u8(x + i)
        store_f32(y + 4 * i, d * np.float32(_NONLINEAR[np.uint64(packed & 15)]))
        store_f32(y + 64 + 4 * i, d * np.float32(_NONLINEAR[np.uint64(packed >> 4)]))


@kernel
def iq4_nl_to_f32(y: int, x: int, n: int) -> int:
    """D * number."""
    for block in range(n // 32):
        _store_nonlinear(y + 128 * block, x + 18 * block + 2, load_f16(x + 18 * block))
    return 0


@helper
def scale_iq4_xs(block: int, j: int) -> int:
    """The j-th of eight scales of 6 bits."""
    low = load_u8(block + 4 + j // 2) >> (4 * (j % 2)) & 15
    high = load_u16(block + 2) >> (2 * j) & 3
    return (low | high << 4) - 32


@kernel
def iq4_xs_to_f32(y: int, x: int, n: int) -> int:
    """D * (scale - 32) * number."""
    for group in range(n // 32):
        block, j = x + 136 * (group // 8), group % 8
        step = load_f16(block) * np.float32(scale_iq4_xs(block, j))
        _store_nonlinear(y + 128 * group, block + 8 + 16 * j, step)
    return 0


@helper
def _store_e2m1(y: int, x: int, n_bytes: int, d: np.float32) -> None:
    """Numbers of 4 bits, low halves first."""
    for i in range(n_bytes):
        packed = load_u8(x + i)
        store_f32(y + 4 * i, d * np.float32(_E2M1[np.uint64(packed & 15)]))
        store_f32(y + 4 * (n_bytes + i), d * np.float32(_E2M1[np.uint64(packed >> 4)]))


@kernel
def mxfp4_to_f32(y: int, x: int, n: int) -> int:
    """2^(e - 128) * doubled number."""
    for block in range(n // 32):
        place = x + 17 * block
        step = np.float32(math.ldexp(1.0, load_u8(place) - 128))
        _store_e2m1(y + 128 * block, place + 1, 16, step)
    return 0


@helper
def _small_float(code: int) -> np.float32:
    """Half of what an unsigned 8-bit float means; 0 for the code of NaN."""
    exponent, mantissa = code >> 3 & 15, code & 7
    if code == 0x7F:
        return np.float32(0.0)
    if exponent == 0:
        return np.float32(math.ldexp(float(mantissa), -10))
    return np.float32(math.ldexp(float(mantissa + 8), exponent - 11))


@kernel
def nvfp4_to_f32(y: int, x: int, n: int) -> int:
    """Small float * doubled number, 16 elements each."""
    for group in range(n // 16):
        block, j = x + 36 * (group // 4), group % 4
        _store_e2m1(y + 64 * group, block + 4 + 8 * j, 8, _small_float(load_u8(block + j)))
    return 0


@kernel
def q1_0_to_f32(y: int, x: int, n: int) -> int:
    """D or -d."""
    for group in range(n // 32):
        block = x + 18 * (group // 4)
        d = load_f16(block)
        # A set bit counts 16, so the step is 2 d / 16.
        step = d * _EIGHTH
        bits = fifth_bits(load_u32(block + 2 + 4 * (group % 4)))
        store_scaled(y + 128 * group, bits, step, -d, step, -d)
    return 0
