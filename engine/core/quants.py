"""Reference for stored number formats in numpy: from bytes to float32 and back.

    values = dequantize(TensorType.Q4_0, raw, n_elems)
    raw = quantize(TensorType.Q4_0, values)

Every type is read; the plain types and the simple blocks are written too. Speed is not the aim;
kernels are checked against this. A block of 32 elements holds a scale d in float16 first; 4-bit
elements j and j + 16 share byte j, low half first; the fifth bits of a block are one 32-bit word,
bit j for element j. Source: ggml-quants.c, the *_ref functions. Super-blocks are in quants_k.py,
codebooks in quants_iq.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from engine.core import quants_iq, quants_k
from engine.core.block_parts import Bytes, Floats, bits, half, low_bits
from engine.core.codebooks import E2M1, NONLINEAR
from engine.core.types import TensorType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_QK = 32
"""Elements of a block that is written here."""


def dequantize(tensor_type: TensorType, raw: Bytes, n_elems: int) -> Floats:
    """The first `n_elems` of `raw` as a new flat float32 array; whole blocks only.

    Raises:
        TypeError: there is no reference for the type.
    """
    if tensor_type not in _DEQUANTIZE:
        raise TypeError(
            f"no reference reads {tensor_type.label}; these are: {_labels(_DEQUANTIZE)}"
        )
    assert n_elems % tensor_type.block_elems == 0, (tensor_type, n_elems)
    n_bytes = tensor_type.row_bytes(n_elems)
    assert raw.dtype == np.uint8, raw.dtype
    assert raw.size >= n_bytes, (tensor_type, n_elems, raw.size)
    blocks = raw.reshape(-1)[:n_bytes].reshape(-1, tensor_type.block_bytes)
    return _DEQUANTIZE[tensor_type](blocks).reshape(-1)


def quantize(tensor_type: TensorType, values: Floats) -> Bytes:
    """`values`, flattened in memory order, as the bytes of `tensor_type`; whole blocks only.

    Raises:
        TypeError: there is no reference for the type.
    """
    if tensor_type not in _QUANTIZE:
        raise TypeError(f"no reference writes {tensor_type.label}; these are: {_labels(_QUANTIZE)}")
    assert values.dtype == np.float32, values.dtype
    assert values.size % tensor_type.block_elems == 0, (tensor_type, values.shape)
    blocks = values.reshape(-1, tensor_type.block_elems)
    return _QUANTIZE[tensor_type](blocks).reshape(-1)


# --- plain types: blocks are [n, 1] values, [n, itemsize] bytes ------------------------------


def _f32_values(blocks: Bytes) -> Floats:
    return blocks.view("<f4").astype(np.float32)


def _f32_bytes(values: Floats) -> Bytes:
    return _bytes_of(values.astype("<f4"))


def _f16_values(blocks: Bytes) -> Floats:
    return blocks.view("<f2").astype(np.float32)


def _f16_bytes(values: Floats) -> Bytes:
    """Rounded to even; what is too large becomes infinite, as in ggml."""
    with np.errstate(over="ignore"):
        return _bytes_of(values.astype("<f2"))


def _bf16_values(blocks: Bytes) -> Floats:
    """bf16 is the upper half of a float32."""
    bits = blocks.view("<u2").astype(np.uint32) << 16
    return bits.view(np.float32)


def _bf16_bytes(values: Floats) -> Bytes:
    """Rounded to even; a NaN keeps its sign and upper bits and becomes quiet."""
    bits = np.ascontiguousarray(values).view(np.uint32).astype(np.uint64)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return _bytes_of(np.where(np.isnan(values), (bits >> 16) | 64, rounded).astype("<u2"))


# --- blocks of 32: blocks are [n, 32] values, [n, block_bytes] bytes -------------------------


def _q8_0_values(blocks: Bytes) -> Floats:
    """D * q, q in -127..127."""
    return half(blocks, 0) * blocks[:, 2:].view(np.int8)


def _q8_0_bytes(values: Floats) -> Bytes:
    d = np.abs(values).max(axis=1, keepdims=True) / np.float32(127)
    scaled = values * _inverse(d)
    # C's roundf: halves go away from zero, where numpy's own rounding takes them to even.
    whole = np.trunc(scaled)
    q = (whole + np.trunc(2 * (scaled - whole))).astype(np.int8)
    return np.hstack([_half_bytes(d), q.view(np.uint8)])


def _q4_0_values(blocks: Bytes) -> Floats:
    """D * (q - 8), q in 0..15."""
    return half(blocks, 0) * (low_bits(blocks[:, 2:]).astype(np.int8) - 8)


def _q4_0_bytes(values: Floats) -> Bytes:
    d = _signed_largest(values) / np.float32(-8)
    q = _rounded(values, _inverse(d), 8.5, highest=15)
    return np.hstack([_half_bytes(d), _packed_low_bits(q)])


def _q4_1_values(blocks: Bytes) -> Floats:
    """D * q + m, q in 0..15."""
    return half(blocks, 0) * low_bits(blocks[:, 4:]) + half(blocks, 2)


def _q4_1_bytes(values: Floats) -> Bytes:
    d, m = _range(values, 15)
    q = _rounded(values - m, _inverse(d), 0.5, highest=15)
    return np.hstack([_half_bytes(d), _half_bytes(m), _packed_low_bits(q)])


def _q5_0_values(blocks: Bytes) -> Floats:
    """D * (q - 16), q in 0..31."""
    q = low_bits(blocks[:, 6:]) | _fifth_bits(blocks[:, 2:6])
    return half(blocks, 0) * (q.astype(np.int8) - 16)


def _q5_0_bytes(values: Floats) -> Bytes:
    d = _signed_largest(values) / np.float32(-16)
    q = _rounded(values, _inverse(d), 16.5, highest=31)
    return np.hstack([_half_bytes(d), _packed_fifth_bits(q), _packed_low_bits(q)])


def _q5_1_values(blocks: Bytes) -> Floats:
    """D * q + m, q in 0..31."""
    q = low_bits(blocks[:, 8:]) | _fifth_bits(blocks[:, 4:8])
    return half(blocks, 0) * q + half(blocks, 2)


def _q5_1_bytes(values: Floats) -> Bytes:
    d, m = _range(values, 31)
    q = _rounded(values - m, _inverse(d), 0.5, highest=31)
    return np.hstack([_half_bytes(d), _half_bytes(m), _packed_fifth_bits(q), _packed_low_bits(q)])


def _iq4_nl_values(blocks: Bytes) -> Floats:
    """D times what a number of 4 bits stands for."""
    return half(blocks, 0) * NONLINEAR[low_bits(blocks[:, 2:])]


def _mxfp4_values(blocks: Bytes) -> Floats:
    """2^(e - 127) times a number of 4 bits, a sign, two bits of exponent and one of mantissa."""
    return _powers(blocks[:, :1]) * E2M1[low_bits(blocks[:, 1:])]


def _powers(exponents: Bytes) -> Floats:
    """2^(e - 128): half of what the exponents mean, since numbers are stored doubled."""
    return np.ldexp(np.float32(1), exponents.astype(np.int32) - 128)


def _nvfp4_values(blocks: Bytes) -> Floats:
    """64 elements: four scales of 8 bits (4 exponent, 3 mantissa), numbers as in mxfp4."""
    numbers = E2M1[low_bits(blocks[:, 4:].reshape(-1, 8))]
    return (_small_floats(blocks[:, :4]).reshape(-1, 1) * numbers).reshape(-1, 64)


def _small_floats(codes: Bytes) -> Floats:
    """Half of what unsigned 8-bit floats mean; the code of NaN means 0."""
    exponent, mantissa = (codes >> 3 & 15).astype(np.int32), (codes & 7).astype(np.float32)
    normal = np.ldexp(np.float32(1) + mantissa / np.float32(8), exponent - 8)
    values = np.where(exponent == 0, np.ldexp(mantissa, -10), normal)
    return np.where(codes == 0x7F, np.float32(0), values)


def _q1_0_values(blocks: Bytes) -> Floats:
    """128 elements: d where a bit is set, -d elsewhere."""
    d = half(blocks, 0)
    return np.where(bits(blocks[:, 2:]) == 1, d, -d)


# --- parts of a block -----------------------------------------------------------------------


def _half_bytes(column: Floats) -> Bytes:
    with np.errstate(over="ignore"):
        return _bytes_of(column.astype("<f2"))


def _packed_low_bits(q: Bytes) -> Bytes:
    low, high = q[:, : _QK // 2], q[:, _QK // 2 :]
    return (low & np.uint8(0x0F)) | (high << np.uint8(4))


def _fifth_bits(packed: Bytes) -> Bytes:
    """[n, 4] bytes -> [n, 32] numbers that are 0 or 16."""
    return bits(packed) * np.uint8(16)


def _packed_fifth_bits(q: Bytes) -> Bytes:
    packed: Bytes = np.packbits(q >> np.uint8(4), axis=1, bitorder="little")
    return packed


def _signed_largest(values: Floats) -> Floats:
    """The element of each block that is farthest from zero, with its sign, as a column."""
    place = np.abs(values).argmax(axis=1)[:, np.newaxis]
    return np.take_along_axis(values, place, axis=1)


def _range(values: Floats, n_steps: int) -> tuple[Floats, Floats]:
    """Step and smallest element of each block, as columns."""
    m = values.min(axis=1, keepdims=True)
    return (values.max(axis=1, keepdims=True) - m) / np.float32(n_steps), m


def _inverse(d: Floats) -> Floats:
    """1 / d, and 0 where d is 0 or so small that 1 / d overflows (as float16 it is 0 as well)."""
    smallest = np.finfo(np.float32).tiny
    return np.divide(np.float32(1), d, out=np.zeros_like(d), where=np.abs(d) >= smallest)


def _rounded(values: Floats, inverse: Floats, shift: float, *, highest: int) -> Bytes:
    """`values` scaled, shifted and cut to whole numbers from 0 to `highest`.

    Product and sum are rounded one after the other; a C compiler that fuses them may give the
    neighbouring number where a value lies half-way.
    """
    scaled = values * inverse + np.float32(shift)
    numbers: Bytes = np.clip(scaled, 0, highest).astype(np.uint8)
    return numbers


def _bytes_of(values: npt.NDArray[np.generic]) -> Bytes:
    """The bytes of each row."""
    raw: Bytes = np.ascontiguousarray(values).view(np.uint8)
    return raw


def _labels(types: Iterable[TensorType]) -> str:
    return ", ".join(tensor_type.label for tensor_type in types)


_DEQUANTIZE: dict[TensorType, Callable[[Bytes], Floats]] = {
    TensorType.F32: _f32_values,
    TensorType.F16: _f16_values,
    TensorType.BF16: _bf16_values,
    TensorType.Q8_0: _q8_0_values,
    TensorType.Q4_0: _q4_0_values,
    TensorType.Q4_1: _q4_1_values,
    TensorType.Q5_0: _q5_0_values,
    TensorType.Q5_1: _q5_1_values,
    TensorType.Q2_K: quants_k.q2_k_values,
    TensorType.Q3_K: quants_k.q3_k_values,
    TensorType.Q4_K: quants_k.q4_k_values,
    TensorType.Q5_K: quants_k.q5_k_values,
    TensorType.Q6_K: quants_k.q6_k_values,
    TensorType.IQ1_S: quants_iq.iq1_s_values,
    TensorType.IQ1_M: quants_iq.iq1_m_values,
    TensorType.IQ2_XXS: quants_iq.iq2_xxs_values,
    TensorType.IQ2_XS: quants_iq.iq2_xs_values,
    TensorType.IQ2_S: quants_iq.iq2_s_values,
    TensorType.IQ3_XXS: quants_iq.iq3_xxs_values,
    TensorType.IQ3_S: quants_iq.iq3_s_values,
    TensorType.IQ4_NL: _iq4_nl_values,
    TensorType.IQ4_XS: quants_k.iq4_xs_values,
    TensorType.TQ1_0: quants_k.tq1_0_values,
    TensorType.TQ2_0: quants_k.tq2_0_values,
    TensorType.MXFP4: _mxfp4_values,
    TensorType.NVFP4: _nvfp4_values,
    TensorType.Q1_0: _q1_0_values,
}

READABLE = frozenset(_DEQUANTIZE)
"""The types that `dequantize` reads."""

_QUANTIZE: dict[TensorType, Callable[[Floats], Bytes]] = {
    TensorType.F32: _f32_bytes,
    TensorType.F16: _f16_bytes,
    TensorType.BF16: _bf16_bytes,
    TensorType.Q8_0: _q8_0_bytes,
    TensorType.Q4_0: _q4_0_bytes,
    TensorType.Q4_1: _q4_1_bytes,
    TensorType.Q5_0: _q5_0_bytes,
    TensorType.Q5_1: _q5_1_bytes,
}

WRITABLE = frozenset(_QUANTIZE)
"""The types that `quantize` writes."""
