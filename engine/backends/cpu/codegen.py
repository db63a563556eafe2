"""Pieces of LLVM code that operations and tiles are put together from.

Functions here write code: they take a builder and LLVM values and give back LLVM values. What
kernels call stands in simd.py and in the tiles.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import llvmlite.binding as llvm
import numba
from llvmlite import ir
from numba.core import cgutils

from engine.backends.cpu.features import Variant, has_half_conversion, variant
from engine.core import codebooks

VARIANT = variant()
LANES = 16 if VARIANT is Variant.AVX512_VNNI else 8

HAS_VNNI = VARIANT in (Variant.AVX512_VNNI, Variant.AVX_VNNI)
BYTE_BIAS = 128 if HAS_VNNI else 0
"""What `bias_bytes` adds to signed bytes before `dot_bytes`: VNNI wants them unsigned."""

HAS_FUSED_PAIRS = HAS_VNNI and llvm.llvm_version_info >= (20,)
"""Whether LLVM can be told to leave `add_pairs` one instruction; an older one would complain."""


def _keep_fused_pairs() -> None:
    """Tell LLVM that vpdpwssd is fast.

    Else it takes the instruction apart, into a product and a sum, wherever a chain of sums seems to
    wait for it. On a Xeon with AVX-512 rows of q4_K in the second cache, 1,024 of 1,536 elements,
    are then multiplied at 0.78 of the speed.
    """
    if HAS_FUSED_PAIRS:
        config = cast("Any", numba.config)
        told = config.CPU_FEATURES or llvm.get_host_cpu_features().flatten()
        config.CPU_FEATURES = f"{told},+fast-dpwssd"


# Must happen before any function is decorated, which is when numba asks; and so it does, since no
# operation is defined without this module.
_keep_fused_pairs()

BIASED_E2M1, BIASED_NONLINEAR = (
    [int(number) + BYTE_BIAS & 255 for number in numbers]
    for numbers in (codebooks.E2M1, codebooks.NONLINEAR)
)
"""Tables of sixteen numbers as `dot_bytes` wants them."""

Emit = Callable[[ir.IRBuilder, list[ir.Value]], ir.Value | None]

_CGUTILS = cast("Any", cgutils)  # its functions carry no types
_I8, _I16, _I32, _I64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))
_HALF, _FLOAT, _DOUBLE = ir.HalfType(), ir.FloatType(), ir.DoubleType()
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
    """The result of an LLVM intrinsic, or of a function of the system's C library."""
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


def text_of(builder: ir.IRBuilder, name: str, text: str) -> tuple[ir.Value, int]:
    """Place and number of bytes of a text that is part of the code."""
    data = text.encode()
    return _CGUTILS.global_constant(builder, name, _CGUTILS.make_bytearray(data)), len(data)


class Nearness(enum.IntEnum):
    """Which cache is asked for a line, as LLVM counts them."""

    FIRST_CACHE = 3
    SECOND_CACHE = 2


def prefetch(b: ir.IRBuilder, address: ir.Value, nearness: Nearness) -> None:
    """Ask for the cache line of an address that may be read soon; no address is too far."""
    place = pointer(b, address, ir.IntType(8))
    kinds = [place.type, _I32, _I32, _I32]
    function = _CGUTILS.get_or_insert_function(
        b.module, ir.FunctionType(ir.VoidType(), kinds), "llvm.prefetch.p0"
    )
    is_read, is_data = _I32(0), _I32(1)
    b.call(function, [place, is_read, _I32(nearness), is_data])


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


def brain_to_float(builder: ir.IRBuilder, bits: ir.Value) -> ir.Value:
    """Vector of i16 bits of bf16, the upper halves of f32, as f32."""
    ints = ir.VectorType(_I32, bits.type.count)
    wide = builder.shl(builder.zext(bits, ints), constant(ints, 16))
    return builder.bitcast(wide, ir.VectorType(_FLOAT, ints.count))


def float_to_brain(builder: ir.IRBuilder, value: ir.Value) -> ir.Value:
    """Vector of f32 as i16 bits of bf16, rounded to nearest even; a NaN becomes quiet."""
    ints = ir.VectorType(_I32, value.type.count)
    bits = builder.bitcast(value, ints)
    odd = builder.and_(builder.lshr(bits, constant(ints, 16)), constant(ints, 1))
    rounded = builder.add(bits, builder.add(odd, constant(ints, 0x7FFF)))
    is_nan = builder.fcmp_unordered("uno", value, value)
    chosen = builder.select(is_nan, builder.or_(bits, constant(ints, 0x400000)), rounded)
    upper = builder.lshr(chosen, constant(ints, 16))
    return builder.trunc(upper, ir.VectorType(_I16, ints.count))


def half_power_of_two(b: ir.IRBuilder, exponents: ir.Value) -> ir.Value:
    """Vector of i8 e as f32 2^(e - 128), the half of what e8m0 means, for doubled values."""
    ints = ir.VectorType(_I32, exponents.type.count)
    e = b.zext(exponents, ints)
    normal = b.shl(b.sub(e, constant(ints, 1)), constant(ints, 23))
    tiny = b.shl(constant(ints, 0x00200000), b.and_(e, constant(ints, 1)))
    bits = b.select(b.icmp_unsigned("<", e, constant(ints, 2)), tiny, normal)
    return b.bitcast(bits, ir.VectorType(_FLOAT, ints.count))


def multiply_add(b: ir.IRBuilder, a: list[ir.Value]) -> ir.Value:
    """a[0] * a[1] + a[2], rounded once where the processor can."""
    if VARIANT is Variant.GENERIC:
        # Without the instruction llvm.fma is a call per lane.
        return b.fadd(b.fmul(a[0], a[1]), a[2])
    return call_llvm(b, f"llvm.fma.v{a[0].type.count}f32", a[0].type, a)


def clamp(b: ir.IRBuilder, a: list[ir.Value]) -> ir.Value:
    """a[0] within [a[1], a[2]]; NaN stays NaN."""
    low = b.select(b.fcmp_ordered("<", a[0], a[1]), a[1], a[0])
    return b.select(b.fcmp_ordered(">", low, a[2]), a[2], low)


def absolute(b: ir.IRBuilder, a: list[ir.Value]) -> ir.Value:
    """Magnitudes."""
    return call_llvm(b, f"llvm.fabs.v{a[0].type.count}f32", a[0].type, a)


def exponential(b: ir.IRBuilder, a: list[ir.Value]) -> ir.Value:
    """e^x, two units in the last place: x = n ln2 + r, a polynomial in r, times 2^n.

    Source of the coefficients: Arm's optimized routines, expf of vectors, which ggml uses too.
    """
    floats = a[0].type
    ints = ir.VectorType(_I32, floats.count)

    def f(value: str | float) -> ir.Constant:
        return constant(floats, float.fromhex(value) if isinstance(value, str) else value)

    x = clamp(b, [a[0], f(-104.0), f(89.0)])
    magic = f(MAGIC)
    shifted = multiply_add(b, [x, f("0x1.715476p+0"), magic])
    n = b.fsub(shifted, magic)
    r = multiply_add(b, [n, f("-0x1.62e4p-1"), x])
    r = multiply_add(b, [n, f("-0x1.7f7d1cp-20"), r])
    square = b.fmul(r, r)
    high = multiply_add(b, [f("0x1.0e4020p-7"), r, f("0x1.573e2ep-5")])
    middle = multiply_add(b, [f("0x1.555e66p-3"), r, f("0x1.fffdb6p-2")])
    low = multiply_add(b, [f("0x1.ffffecp-1"), r, f(1.0)])
    y = multiply_add(b, [multiply_add(b, [high, square, middle]), square, low])
    # 2^n in two factors, so that neither overflows where the product does not.
    whole = b.sub(b.bitcast(shifted, ints), b.bitcast(magic, ints))
    half = b.ashr(whole, constant(ints, 1))
    for part in (half, b.sub(whole, half)):
        bits = b.shl(b.add(part, constant(ints, 127)), constant(ints, 23))
        y = b.fmul(y, b.bitcast(bits, floats))
    return y


def exponential_exact(b: ir.IRBuilder, a: list[ir.Value]) -> ir.Value:
    """e^x by way of f64, rounded right but for one in thousands, as C's expf is."""
    floats = a[0].type
    wide, ints = (ir.VectorType(kind, floats.count) for kind in (_DOUBLE, _I64))

    def f(value: float) -> ir.Constant:
        return constant(wide, value)

    def times_plus(x: ir.Value, y: ir.Value, z: ir.Value) -> ir.Value:
        return b.fadd(b.fmul(x, y), z)

    x = b.fpext(clamp(b, [a[0], constant(floats, -104.0), constant(floats, 89.0)]), wide)
    # 1.5 * 2^52: a double plus this is rounded to an integer that sits in its low bits.
    magic = f(1.5 * 2.0**52)
    shifted = times_plus(x, f(1.0 / math.log(2.0)), magic)
    n = b.fsub(shifted, magic)
    r = times_plus(n, f(-math.log(2.0)), x)
    y = f(1.0 / math.factorial(10))
    for k in reversed(range(10)):
        y = times_plus(y, r, f(1.0 / math.factorial(k)))
    whole = b.sub(b.bitcast(shifted, ints), b.bitcast(magic, ints))
    bits = b.shl(b.add(whole, constant(ints, 1023)), constant(ints, 52))
    return b.fptrunc(b.fmul(y, b.bitcast(bits, wide)), floats)


def hyperbolic_tangent(b: ir.IRBuilder, a: list[ir.Value]) -> ir.Value:
    """The hyperbolic tangent, 3e-7 relative: a polynomial near 0, 1 - 2 / (e^2x + 1) elsewhere.

    Source of the coefficients: Cephes, tanhf.
    """
    x, floats = a[0], a[0].type

    def f(value: float) -> ir.Constant:
        return constant(floats, value)

    square = b.fmul(x, x)
    y = f(-5.70498872745e-3)
    for coefficient in (2.06390887954e-2, -5.37397155531e-2, 1.33314422036e-1, -3.33332819422e-1):
        y = multiply_add(b, [y, square, f(coefficient)])
    near = multiply_add(b, [b.fmul(y, square), x, x])
    power = b.fadd(exponential(b, [b.fadd(x, x)]), f(1.0))
    far = b.fsub(f(1.0), b.fdiv(f(2.0), power))
    is_near = b.fcmp_ordered("<", absolute(b, a), f(0.625))
    return b.select(is_near, near, far)


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


def sum_pairs(b: ir.IRBuilder, left: ir.Value, right: ir.Value) -> ir.Value:
    """Products of vectors of i16, neighbours added up: i32 lanes, half as many."""
    n = left.type.count // 2
    ints = ir.VectorType(_I32, n)
    if VARIANT is not Variant.GENERIC:
        name = "llvm.x86.avx512.pmaddw.d.512" if n == 16 else "llvm.x86.avx2.pmadd.wd"
        return call_llvm(b, name, ints, [left, right])
    wide = ir.VectorType(_I32, 2 * n)
    products = b.mul(b.sext(left, wide), b.sext(right, wide))
    halves = [
        b.shuffle_vector(products, products, indices(list(range(first, 2 * n, 2))))
        for first in (0, 1)
    ]
    return b.add(*halves)


def add_pairs(b: ir.IRBuilder, total: ir.Value, left: ir.Value, right: ir.Value) -> ir.Value:
    """`total` plus what `sum_pairs` gives."""
    if not HAS_VNNI:
        return b.add(total, sum_pairs(b, left, right))
    name = f"llvm.x86.avx512.vpdpwssd.{32 * total.type.count}"
    if llvm.llvm_version_info < (22,):
        # As in `_dot_vnni`.
        left, right = b.bitcast(left, total.type), b.bitcast(right, total.type)
    return call_llvm(b, name, total.type, [total, left, right])


_LOOK_UPS = {
    64: "llvm.x86.avx512.pshuf.b.512",
    32: "llvm.x86.avx2.pshuf.b",
}


def look_up(b: ir.IRBuilder, table: Sequence[int], codes: ir.Value) -> ir.Value:
    """Vector of bytes 0..15 as the bytes of a table with that place; 32 or 64 of them."""
    size = codes.type
    entries = [ir.Constant(_I8, value) for value in table]
    if VARIANT is not Variant.GENERIC:
        repeated = ir.Constant(size, entries * (size.count // len(entries)))
        return call_llvm(b, _LOOK_UPS[size.count], size, [repeated, codes])
    value = constant(size, table[0])
    for code, entry in enumerate(table):
        is_code = b.icmp_unsigned("==", codes, constant(size, code))
        value = b.select(is_code, constant(size, entry), value)
    return value


def pick_in_sixteens(b: ir.IRBuilder, values: ir.Value, picks: Sequence[int | None]) -> ir.Value:
    """Bytes picked by their place within every sixteen of `values`, or 0 for None."""
    size = values.type
    if VARIANT is not Variant.GENERIC:
        order = [0x80 if pick is None else pick for pick in picks] * (size.count // 16)
        control = ir.Constant(size, order)
        return call_llvm(b, _LOOK_UPS[size.count], size, [values, control])
    firsts = range(0, size.count, 16)
    lanes = [size.count if pick is None else first + pick for first in firsts for pick in picks]
    return b.shuffle_vector(values, constant(size, 0), indices(lanes))
