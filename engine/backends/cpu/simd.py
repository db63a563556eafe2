"""A small vector layer for numba: vector types and the operations kernels are written with.

Three kinds of names: types (`F32V` is one register row of LANES floats, `I8X32` always 32 bytes),
memory (`load_*`, `store_*`; addresses are int64, unaligned), and arithmetic (`fadd`, `fma`, ...).
Everything here becomes one or a few instructions; nothing has a Python body.

LANES is 16 with AVX-512 and 8 everywhere else, where LLVM splits vectors as it needs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np
from llvmlite import ir
from numba import types
from numba.core.datamodel.models import PrimitiveModel
from numba.core.datamodel.registry import register_default
from numba.extending import intrinsic

from engine.backends.cpu import codegen
from engine.backends.cpu.codegen import (
    BIASED_E2M1,
    BIASED_NONLINEAR,
    BYTE_BIAS,
    LANES,
    MAGIC,
    VARIANT,
    Emit,
    at,
    brain_to_float,
    broadcast,
    call_llvm,
    constant,
    float_to_brain,
    float_to_half,
    half_to_float,
    indices,
    look_up,
    multiply_add,
    pointer,
)
from engine.backends.cpu.features import Variant

Vector = Any
"""A vector value inside a kernel."""
F = TypeVar("F", bound=Callable[..., Any])
Operation = Callable[..., Any]
Convert = Callable[[ir.IRBuilder, ir.Value], ir.Value]
IntOperation = Callable[..., int]
FloatOperation = Callable[..., np.float32]

_I8, _I16, _I32, _I64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))
_HALF, _FLOAT, _DOUBLE = ir.HalfType(), ir.FloatType(), ir.DoubleType()


class VectorType(types.Type):
    """`n` elements of one LLVM type, kept in registers."""

    def __init__(self, element: ir.Type, n: int) -> None:
        self.element, self.n = element, n
        super().__init__(name=f"vector<{n} x {element}>")

    @property
    def llvm(self) -> ir.VectorType:
        """The LLVM type."""
        return ir.VectorType(self.element, self.n)


@register_default(VectorType)
class _VectorModel(PrimitiveModel):
    def __init__(self, manager: Any, vector: VectorType) -> None:
        # numba's own classes carry no types here.
        super().__init__(manager, vector, vector.llvm)  # type: ignore[no-untyped-call]


F32V = VectorType(_FLOAT, LANES)
F64V = VectorType(_DOUBLE, LANES)
I32V = VectorType(_I32, LANES)
I8V = VectorType(_I8, 4 * LANES)
I8X32 = VectorType(_I8, 32)
I8X16 = VectorType(_I8, 16)


def define(emit: Emit, result: Any, *params: Any) -> Operation:
    """An operation of fixed types whose code `emit` writes; arguments are cast to `params`."""
    signature = result(*params)

    def generate(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        value = emit(builder, list(args))
        return context.get_dummy_value() if value is None else value

    return _of_arity(len(params), lambda *_: (signature, generate))


def define_like_first(n_params: int, emit: Emit) -> Operation:
    """An operation on vectors of one type, whichever it is."""

    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return emit(builder, list(args))

    def resolve(first: Any, *_: Any) -> Any:
        return (first(*[first] * n_params), generate) if isinstance(first, VectorType) else None

    return _of_arity(n_params, resolve)


def _of_arity(n_params: int, resolve: Callable[..., Any]) -> Operation:
    # numba reads the number of arguments from the signature, so each needs its own function; the
    # first one is the typing context.
    by_arity: dict[int, Callable[..., Any]] = {
        0: lambda _: resolve(),
        1: lambda _, a: resolve(a),
        2: lambda _, a, b: resolve(a, b),
        3: lambda _, a, b, c: resolve(a, b, c),
        4: lambda _, a, b, c, d: resolve(a, b, c, d),
        5: lambda _, a, b, c, d, e: resolve(a, b, c, d, e),
        6: lambda _, a, b, c, d, e, f: resolve(a, b, c, d, e, f),
        7: lambda _, a, b, c, d, e, f, g: resolve(a, b, c, d, e, f, g),
        8: lambda _, a, b, c, d, e, f, g, h: resolve(a, b, c, d, e, f, g, h),
        9: lambda _, a, b, c, d, e, f, g, h, i: resolve(a, b, c, d, e, f, g, h, i),
        10: lambda _, a, b, c, d, e, f, g, h, i, j: resolve(a, b, c, d, e, f, g, h, i, j),
        11: lambda _, a, b, c, d, e, f, g, h, i, j, k: resolve(a, b, c, d, e, f, g, h, i, j, k),
    }
    return cast("Operation", intrinsic(by_arity[n_params]))


def piece(result: Any, n_params: int) -> Callable[[F], F]:
    """Make a function of whole numbers an operation, which helpers may take as an argument.

    A jitted function as an argument would do too, but numba keeps no kernel on disk that has one.
    """
    params = [types.int64] * n_params

    def decorate(function: F) -> F:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return context.compile_internal(builder, function, signature, args)

        return cast("F", _of_arity(n_params, lambda *_: (result(*params), generate)))

    return decorate


# --- memory ------------------------------------------------------------------------------------


def _load_scalar(kind: ir.Type) -> Emit:
    return lambda b, a: b.load(pointer(b, a[0], kind), align=1)


def _store_scalar(b: ir.IRBuilder, a: list[ir.Value]) -> None:
    b.store(a[1], pointer(b, a[0], a[1].type), align=1)


def _store_narrow(kind: ir.Type) -> Emit:
    return lambda b, a: b.store(b.trunc(a[1], kind), pointer(b, a[0], kind), align=1) and None


def _load_signed(kind: ir.Type) -> Emit:
    return lambda b, a: b.sext(b.load(pointer(b, a[0], kind), align=1), _I64)


def _load_unsigned(kind: ir.Type) -> Emit:
    return lambda b, a: b.zext(b.load(pointer(b, a[0], kind), align=1), _I64)


def _load_short_scalar(widen: Convert) -> Emit:
    def emit(b: ir.IRBuilder, a: list[ir.Value]) -> ir.Value:
        bits = b.load(pointer(b, a[0], _I16), align=1)
        one = b.bitcast(bits, ir.VectorType(_I16, 1))
        return b.extract_element(widen(b, one), _I32(0))

    return emit


def _store_short_scalar(narrow: Convert) -> Emit:
    def emit(b: ir.IRBuilder, a: list[ir.Value]) -> None:
        one = b.bitcast(a[1], ir.VectorType(_FLOAT, 1))
        bits = b.bitcast(narrow(b, one), _I16)
        b.store(bits, pointer(b, a[0], _I16), align=1)

    return emit


def _as_half(b: ir.IRBuilder, a: list[ir.Value]) -> ir.Value:
    one = b.bitcast(a[0], ir.VectorType(_FLOAT, 1))
    return b.extract_element(half_to_float(b, float_to_half(b, one)), _I32(0))


def _load_vector(vector: ir.VectorType) -> Emit:
    return lambda b, a: b.load(pointer(b, a[0], vector), align=1)


def _load_short(widen: Convert) -> Emit:
    """LANES numbers of 16 bits as floats."""
    shorts = ir.VectorType(_I16, LANES)
    return lambda b, a: widen(b, b.load(pointer(b, a[0], shorts), align=1))


def _store_short(narrow: Convert) -> Emit:
    def emit(b: ir.IRBuilder, a: list[ir.Value]) -> None:
        bits = narrow(b, a[1])
        b.store(bits, pointer(b, a[0], bits.type), align=1)

    return emit


def _lane_address(b: ir.IRBuilder, a: list[ir.Value], lane: int, n_bytes: int) -> ir.Value:
    """Address of lane `lane`, or of the last valid one; a = (address, ..., count)."""
    last = b.sub(a[-1], _I64(1))
    inside = b.icmp_signed("<", _I64(lane), a[-1])
    index = b.select(inside, _I64(lane), last)
    return b.add(a[0], b.mul(index, _I64(n_bytes)))


def _load_part(kind: ir.Type, n_bytes: int, widen: Convert | None = None) -> Emit:
    """The first `count` elements; the lanes behind them are zero and memory there is not read."""

    def emit(b: ir.IRBuilder, a: list[ir.Value]) -> ir.Value:
        value = ir.Constant(ir.VectorType(kind, LANES), ir.Undefined)
        for lane in range(LANES):
            element = b.load(pointer(b, _lane_address(b, a, lane, n_bytes), kind), align=1)
            inside = b.icmp_signed("<", _I64(lane), a[1])
            zero = ir.Constant(kind, 0)
            value = b.insert_element(value, b.select(inside, element, zero), _I32(lane))
        return value if widen is None else widen(b, value)

    return emit


def _store_part(n_bytes: int, narrow: Convert | None = None) -> Emit:
    """Store the first `count` lanes.

    Lanes behind them go to the last valid element, in descending order, so that the right value
    is the one that stays.
    """

    def emit(b: ir.IRBuilder, a: list[ir.Value]) -> None:
        value = a[1] if narrow is None else narrow(b, a[1])
        for lane in reversed(range(LANES)):
            element = b.extract_element(value, _I32(lane))
            b.store(element, pointer(b, _lane_address(b, a, lane, n_bytes), element.type), align=1)

    return emit


load_i64: IntOperation = define(_load_scalar(_I64), types.int64, types.int64)
load_i32: IntOperation = define(_load_signed(_I32), types.int64, types.int64)
load_i8: IntOperation = define(_load_signed(_I8), types.int64, types.int64)
load_u8: IntOperation = define(_load_unsigned(_I8), types.int64, types.int64)
load_u16: IntOperation = define(_load_unsigned(_I16), types.int64, types.int64)
load_u32: IntOperation = define(_load_unsigned(_I32), types.int64, types.int64)
load_f64: Callable[..., float] = define(_load_scalar(_DOUBLE), types.float64, types.int64)
load_f32: FloatOperation = define(_load_scalar(_FLOAT), types.float32, types.int64)
load_f16: FloatOperation = define(_load_short_scalar(half_to_float), types.float32, types.int64)
load_bf16: FloatOperation = define(_load_short_scalar(brain_to_float), types.float32, types.int64)
store_i16 = define(_store_narrow(_I16), types.void, types.int64, types.int64)
store_i8 = define(_store_narrow(_I8), types.void, types.int64, types.int64)
store_i32 = define(_store_narrow(_I32), types.void, types.int64, types.int64)
store_i64 = define(_store_scalar, types.void, types.int64, types.int64)
store_f32 = define(_store_scalar, types.void, types.int64, types.float32)
store_f16 = define(_store_short_scalar(float_to_half), types.void, types.int64, types.float32)
store_bf16 = define(_store_short_scalar(float_to_brain), types.void, types.int64, types.float32)

load_f32v = define(_load_vector(F32V.llvm), F32V, types.int64)
load_f16v = define(_load_short(half_to_float), F32V, types.int64)
load_bf16v = define(_load_short(brain_to_float), F32V, types.int64)
load_i8x16 = define(_load_vector(I8X16.llvm), I8X16, types.int64)
load_i8x32 = define(_load_vector(I8X32.llvm), I8X32, types.int64)
store_f32v = define(_store_scalar, types.void, types.int64, F32V)
store_f16v = define(_store_short(float_to_half), types.void, types.int64, F32V)
store_bf16v = define(_store_short(float_to_brain), types.void, types.int64, F32V)
store_i8x32 = define(_store_scalar, types.void, types.int64, I8X32)

load_f32_part = define(_load_part(_FLOAT, 4), F32V, types.int64, types.int64)
load_f16_part = define(_load_part(_I16, 2, half_to_float), F32V, types.int64, types.int64)
load_bf16_part = define(_load_part(_I16, 2, brain_to_float), F32V, types.int64, types.int64)
store_f32_part = define(_store_part(4), types.void, types.int64, F32V, types.int64)
store_f16_part = define(_store_part(2, float_to_half), types.void, types.int64, F32V, types.int64)
store_bf16_part = define(_store_part(2, float_to_brain), types.void, types.int64, F32V, types.int64)


# --- calls -------------------------------------------------------------------------------------


def _call(b: ir.IRBuilder, a: list[ir.Value]) -> ir.Value:
    kind = ir.FunctionType(_I64, [_I64] * (len(a) - 1))
    return b.call(pointer(b, a[0], kind), a[1:])


call3: IntOperation = define(_call, types.int64, *[types.int64] * 4)
"""Call a compiled kernel by its address, with so many arguments."""
call6: IntOperation = define(_call, types.int64, *[types.int64] * 7)
call8: IntOperation = define(_call, types.int64, *[types.int64] * 9)
call10: IntOperation = define(_call, types.int64, *[types.int64] * 11)
call9: IntOperation = define(_call, types.int64, *[types.int64] * 10)


# --- arithmetic --------------------------------------------------------------------------------


def _larger(b: ir.IRBuilder, a: list[ir.Value]) -> ir.Value:
    """The larger of two; the second if the first is NaN."""
    return b.select(b.fcmp_ordered(">", a[0], a[1]), a[0], a[1])


def _larger_or_nan(b: ir.IRBuilder, a: list[ir.Value]) -> ir.Value:
    """The larger of two; NaN if one is NaN (a[1] is never NaN unless a NaN came before)."""
    keep = b.fcmp_ordered(">=", a[1], a[0])
    kept = b.or_(keep, b.fcmp_unordered("uno", a[1], a[1]))
    return b.select(kept, a[1], a[0])


def _sum(b: ir.IRBuilder, a: list[ir.Value]) -> ir.Value:
    n = a[0].type.count
    zero = ir.Constant(_FLOAT, -0.0)
    name = f"llvm.vector.reduce.fadd.v{n}f32"
    return call_llvm(b, name, _FLOAT, [zero, a[0]], "reassoc")


def _reduce(combine: Emit) -> Emit:
    """Halve the vector with `combine` until one element is left."""

    def emit(b: ir.IRBuilder, a: list[ir.Value]) -> ir.Value:
        value = a[0]
        n = value.type.count
        while n > 1:
            n //= 2
            low = b.shuffle_vector(value, value, indices(list(range(n))))
            high = b.shuffle_vector(value, value, indices(list(range(n, 2 * n))))
            combined = combine(b, [low, high])
            assert combined is not None
            value = combined
        return b.extract_element(value, _I32(0))

    return emit


def _sum_wide(b: ir.IRBuilder, a: list[ir.Value]) -> ir.Value:
    name = f"llvm.vector.reduce.fadd.v{a[0].type.count}f64"
    return call_llvm(b, name, _DOUBLE, [ir.Constant(_DOUBLE, -0.0), a[0]], "reassoc")


def _fma_scalar(b: ir.IRBuilder, a: list[ir.Value]) -> ir.Value:
    """a[0] * a[1] + a[2], rounded once."""
    if VARIANT is not Variant.GENERIC:
        return call_llvm(b, "llvm.fma.f32", _FLOAT, a)
    # Without the instruction it is a function that is not linked; f64 holds the product exactly.
    x, y, z = (b.fpext(value, _DOUBLE) for value in a)
    return b.fptrunc(b.fadd(b.fmul(x, y), z), _FLOAT)


fadd = define_like_first(2, lambda b, a: b.fadd(*a))
fsub = define_like_first(2, lambda b, a: b.fsub(*a))
fmul = define_like_first(2, lambda b, a: b.fmul(*a))
fdiv = define_like_first(2, lambda b, a: b.fdiv(*a))
fma = define_like_first(3, multiply_add)
"""a * b + c, rounded once where the processor can."""
round_to_half = define_like_first(1, lambda b, a: half_to_float(b, float_to_half(b, a[0])))
"""Lanes rounded to what f16 can hold."""
round_to_brain = define_like_first(1, lambda b, a: brain_to_float(b, float_to_brain(b, a[0])))
"""Lanes rounded to what bf16 can hold."""
as_half: FloatOperation = define(_as_half, types.float32, types.float32)
"""A float rounded to what f16 can hold."""
larger = define_like_first(2, _larger)
larger_or_nan = define_like_first(2, _larger_or_nan)
absolute = define_like_first(1, codegen.absolute)
exp = define_like_first(1, codegen.exponential)
exp_exact = define_like_first(1, codegen.exponential_exact)
tanh = define_like_first(1, codegen.hyperbolic_tangent)
smaller = define_like_first(2, lambda b, a: b.select(b.fcmp_ordered("<", *a), a[0], a[1]))
where_less = define_like_first(
    4, lambda b, a: b.select(b.fcmp_ordered("<", a[0], a[1]), a[2], a[3])
)
"""The third where the first is smaller than the second, else the fourth."""
splat = define(lambda b, a: broadcast(b, a[0], LANES), F32V, types.float32)
sum_lanes: FloatOperation = define(_sum, types.float32, F32V)
sum_lanes_wide: Callable[..., float] = define(_sum_wide, types.float64, F64V)
wide = define(lambda b, a: b.fpext(a[0], F64V.llvm), F64V, F32V)
"""Lanes as f64."""
fma_scalar: FloatOperation = define(_fma_scalar, types.float32, *[types.float32] * 3)
max_lanes: FloatOperation = define(_reduce(_larger), types.float32, F32V)
max_lanes_or_nan: FloatOperation = define(_reduce(_larger_or_nan), types.float32, F32V)


def _picked(b: ir.IRBuilder, a: list[ir.Value], lanes: list[int]) -> ir.Value:
    """Lanes of one vector or, counted on, of two."""
    return b.shuffle_vector(a[0], a[-1], indices(lanes))


def _turned_pairs(b: ir.IRBuilder, a: list[ir.Value]) -> ir.Value:
    swapped = _picked(b, a, [i ^ 1 for i in range(LANES)])
    signs = ir.Constant(
        ir.VectorType(_I32, LANES), [-(2**31) if i % 2 == 0 else 0 for i in range(LANES)]
    )
    return b.bitcast(b.xor(b.bitcast(swapped, signs.type), signs), swapped.type)


every_second = define_like_first(2, lambda b, a: _picked(b, a, [2 * i for i in range(LANES)]))
"""Lanes 0, 2, ... of two vectors, one behind the other."""
every_other_second = define_like_first(
    2, lambda b, a: _picked(b, a, [2 * i + 1 for i in range(LANES)])
)
"""Lanes 1, 3, ... of two vectors, one behind the other."""
first_of_pairs = define_like_first(1, lambda b, a: _picked(b, a, [i & -2 for i in range(LANES)]))
"""The first lane of each pair, twice."""
second_of_pairs = define_like_first(1, lambda b, a: _picked(b, a, [i | 1 for i in range(LANES)]))
"""The second lane of each pair, twice."""
turned_pairs = define_like_first(1, _turned_pairs)
"""Each pair (x, y) as (-y, x)."""


# --- bytes -------------------------------------------------------------------------------------


def _nibbles(b: ir.IRBuilder, a: list[ir.Value]) -> ir.Value:
    """32 bytes from 16: low halves, then high halves."""
    low = b.and_(a[0], constant(a[0].type, 15))
    high = b.lshr(a[0], constant(a[0].type, 4))
    return b.shuffle_vector(low, high, indices(list(range(32))))


def _store_rounded(b: ir.IRBuilder, a: list[ir.Value]) -> None:
    """Store lanes as signed bytes, rounded to nearest even; lanes must be within -127..127."""
    ints = ir.VectorType(_I32, a[1].type.count)
    shifted = b.fadd(a[1], constant(a[1].type, MAGIC))
    small = b.trunc(b.bitcast(shifted, ints), ir.VectorType(_I8, ints.count))
    b.store(small, pointer(b, a[0], small.type), align=1)


def _round_even(b: ir.IRBuilder, a: list[ir.Value]) -> ir.Value:
    magic = constant(a[0].type, MAGIC)
    return b.fsub(b.fadd(a[0], magic), magic)


def _bytes_to_floats(b: ir.IRBuilder, a: list[ir.Value]) -> ir.Value:
    """LANES signed bytes at an address as floats."""
    small = ir.VectorType(_I8, LANES)
    return b.sitofp(b.load(pointer(b, a[0], small), align=1), F32V.llvm)


def _fifth_bits(b: ir.IRBuilder, a: list[ir.Value]) -> ir.Value:
    """32 bytes, 16 where a bit of the low word is set."""
    mask = b.bitcast(b.trunc(a[0], _I32), ir.VectorType(ir.IntType(1), 32))
    return b.select(mask, constant(I8X32.llvm, 16), constant(I8X32.llvm, 0))


def _shifted(b: ir.IRBuilder, a: list[ir.Value]) -> ir.Value:
    """Bytes moved down by a[1] bits, those of them kept that a[2] has."""
    words = ir.VectorType(_I32, a[0].type.count // 4)
    # Four-byte lanes, since there is no shift of single bytes; the mask drops what came in.
    moved = b.lshr(b.bitcast(a[0], words), broadcast(b, b.trunc(a[1], _I32), words.count))
    mask = broadcast(b, b.trunc(a[2], _I8), a[0].type.count)
    return b.and_(b.bitcast(moved, a[0].type), mask)


def _raised(b: ir.IRBuilder, a: list[ir.Value]) -> ir.Value:
    """Bytes moved up by a[1] bits, which must leave them bytes."""
    words = ir.VectorType(_I32, a[0].type.count // 4)
    moved = b.shl(b.bitcast(a[0], words), broadcast(b, b.trunc(a[1], _I32), words.count))
    return b.bitcast(moved, a[0].type)


def _store_scaled(b: ir.IRBuilder, a: list[ir.Value]) -> None:
    """Write 32 unsigned bytes as floats scale * byte + offset, product and sum rounded.

    a = (address, bytes, scale and offset of the first 16, the same of the others).
    """
    floats = ir.VectorType(_FLOAT, 16)
    for first in range(0, 32, 16):
        scale, offset = a[2 + first // 8 : 4 + first // 8]
        part = b.shuffle_vector(a[1], a[1], indices(list(range(first, first + 16))))
        product = b.fmul(b.uitofp(part, floats), broadcast(b, scale, 16))
        value = b.fadd(product, broadcast(b, offset, 16))
        b.store(value, pointer(b, at(b, a[0], 4 * first), floats), align=1)


bias_bytes = define(
    lambda b, a: b.xor(a[0], constant(a[0].type, BYTE_BIAS)) if BYTE_BIAS else a[0], I8X32, I8X32
)
"""Signed bytes plus BYTE_BIAS."""
nibbles = define(_nibbles, I8X32, I8X16)
store_rounded = define(_store_rounded, types.void, types.int64, F32V)
round_even = define_like_first(1, _round_even)
load_bytes_as_f32v = define(_bytes_to_floats, F32V, types.int64)
join_bytes = define_like_first(2, lambda b, a: b.or_(*a))
fifth_bits = define(_fifth_bits, I8X32, types.int64)
e2m1_bytes = define(lambda b, a: look_up(b, BIASED_E2M1, a[0]), I8X32, I8X32)
"""Codes of fp4 as twice their value plus BYTE_BIAS."""
nonlinear_bytes = define(lambda b, a: look_up(b, BIASED_NONLINEAR, a[0]), I8X32, I8X32)
"""Codes of iq4_nl and iq4_xs as their number plus BYTE_BIAS."""
shifted = define(_shifted, I8X32, I8X32, types.int64, types.int64)
raised = define(_raised, I8X32, I8X32, types.int64)
store_scaled = define(_store_scaled, types.void, types.int64, I8X32, *[types.float32] * 4)
