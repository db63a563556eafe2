"""Pieces of LLVM code that operations and tiles are put together from.

Functions here write code: they take a builder and LLVM values and give back LLVM values. What
kernels call stands in simd.py and in the tiles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import llvmlite.binding as llvm
from llvmlite import ir
from numba.core import cgutils

from engine.backends.cpu.features import Variant, has_half_conversion, variant

VARIANT = variant()
LANES = 16 if VARIANT is Variant.AVX512_VNNI else 8

HAS_VNNI = VARIANT in (Variant.AVX512_VNNI, Variant.AVX_VNNI)
BYTE_BIAS = 128 if HAS_VNNI else 0
"""What `bias_bytes` adds to signed bytes before `dot_bytes`: VNNI wants them unsigned."""

Emit = Callable[[ir.IRBuilder, list[ir.Value]], ir.Value | None]

_CGUTILS = cast("Any", cgutils)  # its functions carry no types
_I16, _I32, _I64 = (ir.IntType(bits) for bits in (16, 32, 64))
_HALF, _FLOAT = ir.HalfType(), ir.FloatType()
MAGIC = 12582912.0
"""1.5 * 2^23; a float plus this is rounded to an integer that sits in its low bits."""


def pointer(builder: ir.IRBuilder, address: ir.Value, pointee: ir.Type) -> ir.Value:
    """`address`, an int64, as a pointer."""
    return builder.inttoptr(address, pointee.as_pointer())


def constant(vector: ir.VectorType, value: float) -> ir.Constant:
    """A vector with `value` in every lane."""
    return ir.Constant(vector, [ir.Constant(vector.element, value)] * vector.count)


def call_llvm(
    builder: ir.IRBuilder, name: str, result: ir.Type, args: list[ir.Value], *flags: str
) -> ir.Value:
    """The result of an LLVM intrinsic."""
    kind = ir.FunctionType(result, [arg.type for arg in args])
    function = _CGUTILS.get_or_insert_function(builder.module, kind, name)
    return builder.call(function, args, fastmath=flags)


def variable(builder: ir.IRBuilder, value: ir.Value) -> ir.Value:
    """A place for a value that changes in a loop; LLVM keeps it in a register."""
    return _CGUTILS.alloca_once_value(builder, value)


def broadcast(builder: ir.IRBuilder, value: ir.Value, n: int) -> ir.Value:
    """A vector with the scalar `value` in every lane."""
    vector = ir.VectorType(value.type, n)
    undefined = ir.Constant(vector, ir.Undefined)
    first = builder.insert_element(undefined, value, _I32(0))
    return builder.shuffle_vector(first, undefined, indices([0] * n))


def indices(lanes: list[int]) -> ir.Constant:
    """A shuffle mask."""
    return ir.Constant(ir.VectorType(_I32, len(lanes)), lanes)


def at(builder: ir.IRBuilder, address: ir.Value, n_bytes: int) -> ir.Value:
    """`address` moved by a constant."""
    return builder.add(address, _I64(n_bytes))


@contextmanager
def counting(b: ir.IRBuilder, count: ir.Value) -> Iterator[ir.Value]:
    """A loop; gives its index, 0 to `count`."""
    with cgutils.for_range(b, count, intp=_I64) as loop:
        yield loop.index


def strided(b: ir.IRBuilder, base: ir.Value, index: ir.Value, stride: ir.Value) -> ir.Value:
    """`base` moved by `index` strides."""
    return b.add(base, b.mul(index, stride))


def load(b: ir.IRBuilder, address: ir.Value, kind: ir.Type) -> ir.Value:
    """What stands at an address, aligned or not."""
    return b.load(pointer(b, address, kind), align=1)


def half_to_float(builder: ir.IRBuilder, bits: ir.Value) -> ir.Value:
    """Vector of i16 bits of f16 as f32, exactly."""
    n = bits.type.count
    floats, ints = ir.VectorType(_FLOAT, n), ir.VectorType(_I32, n)
    if has_half_conversion():
        return builder.fpext(builder.bitcast(bits, ir.VectorType(_HALF, n)), floats)
    wide = builder.zext(bits, ints)
    sign = builder.shl(builder.and_(wide, constant(ints, 0x8000)), constant(ints, 16))
    rest = builder.shl(builder.and_(wide, constant(ints, 0x7FFF)), constant(ints, 13))
    # Multiplying by 2^112 moves the exponent's bias and makes denormals right at once.
    scaled = builder.fmul(builder.bitcast(rest, floats), constant(floats, 2.0**112))
    exponent = builder.and_(wide, constant(ints, 0x7C00))
    is_special = builder.icmp_unsigned("==", exponent, constant(ints, 0x7C00))
    special = builder.or_(rest, constant(ints, 0x7F800000))
    magnitude = builder.select(is_special, special, builder.bitcast(scaled, ints))
    return builder.bitcast(builder.or_(magnitude, sign), floats)


def float_to_half(builder: ir.IRBuilder, value: ir.Value) -> ir.Value:
    """Vector of f32 as i16 bits of f16, rounded to nearest even."""
    n = value.type.count
    if has_half_conversion():
        half = builder.fptrunc(value, ir.VectorType(_HALF, n))
        return builder.bitcast(half, ir.VectorType(_I16, n))
    floats, ints = value.type, ir.VectorType(_I32, n)
    bits = builder.bitcast(value, ints)
    sign = builder.and_(bits, constant(ints, 0x80000000))
    magnitude = builder.xor(bits, sign)
    odd = builder.and_(builder.lshr(magnitude, constant(ints, 13)), constant(ints, 1))
    rebiased = builder.add(builder.add(magnitude, constant(ints, 0xC8000FFF)), odd)
    normal = builder.lshr(rebiased, constant(ints, 13))
    # Adding 0.5 lets the adder round a denormal: its last place is then 2^-24.
    shifted = builder.fadd(builder.bitcast(magnitude, floats), constant(floats, 0.5))
    denormal = builder.sub(builder.bitcast(shifted, ints), constant(ints, 0x3F000000))
    is_nan = builder.icmp_unsigned(">", magnitude, constant(ints, 0x7F800000))
    special = builder.select(is_nan, constant(ints, 0x7E00), constant(ints, 0x7C00))
    is_small = builder.icmp_unsigned("<", magnitude, constant(ints, 0x38800000))
    is_large = builder.icmp_unsigned(">=", magnitude, constant(ints, 0x477FF000))
    finite = builder.select(is_small, denormal, normal)
    half = builder.select(is_large, special, finite)
    signed = builder.or_(half, builder.lshr(sign, constant(ints, 16)))
    return builder.trunc(signed, ir.VectorType(_I16, n))


def multiply_add(b: ir.IRBuilder, a: list[ir.Value]) -> ir.Value:
    """a[0] * a[1] + a[2], rounded once where the processor can."""
    if VARIANT is Variant.GENERIC:
        # Without the instruction llvm.fma is a call per lane.
        return b.fadd(b.fmul(a[0], a[1]), a[2])
    return call_llvm(b, f"llvm.fma.v{a[0].type.count}f32", a[0].type, a)


def dot(b: ir.IRBuilder, total: ir.Value, weights: ir.Value, x: ir.Value) -> ir.Value:
    """Each i32 lane of `total` plus four products of bytes.

    `weights` are signed bytes plus BYTE_BIAS, `x` signed bytes within -127..127.
    """
    n = total.type.count
    if HAS_VNNI:
        return _dot_vnni(b, total, weights, x)
    if VARIANT is Variant.AVX2:
        return b.add(total, _dot_avx2(b, weights, x))
    ints = ir.VectorType(_I32, 4 * n)
    products = b.mul(b.sext(weights, ints), b.sext(x, ints))
    for width in (2 * n, n):
        even = b.shuffle_vector(products, products, indices(list(range(0, 2 * width, 2))))
        odd = b.shuffle_vector(products, products, indices(list(range(1, 2 * width, 2))))
        products = b.add(even, odd)
    return b.add(total, products)


def _dot_vnni(b: ir.IRBuilder, total: ir.Value, weights: ir.Value, x: ir.Value) -> ir.Value:
    name = f"llvm.x86.avx512.vpdpbusd.{32 * total.type.count}"
    if llvm.llvm_version_info < (22,):
        # Before LLVM 22 the bytes were passed as i32 lanes.
        weights, x = b.bitcast(weights, total.type), b.bitcast(x, total.type)
    return call_llvm(b, name, total.type, [total, weights, x])


def _dot_avx2(b: ir.IRBuilder, weights: ir.Value, x: ir.Value) -> ir.Value:
    # pmaddubsw multiplies unsigned by signed: take |w| and give x the sign of w.
    bytes32, words = weights.type, ir.VectorType(_I16, 16)
    negative = b.icmp_signed("<", weights, constant(bytes32, 0))
    magnitude = b.select(negative, b.neg(weights), weights)
    signed = call_llvm(b, "llvm.x86.avx2.psign.b", bytes32, [x, weights])
    pairs = call_llvm(b, "llvm.x86.avx2.pmadd.ub.sw", words, [magnitude, signed])
    ones = constant(words, 1)
    return call_llvm(b, "llvm.x86.avx2.pmadd.wd", ir.VectorType(_I32, 8), [pairs, ones])
