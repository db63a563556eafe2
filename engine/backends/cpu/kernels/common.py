"""What every kernel needs: its arguments, its share of the rows, addresses of rows.

Most of it is written as LLVM code rather than as helpers: numba compiles a helper once for every
combination of constants that it is called with, and these would be compiled some 70 times.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from llvmlite import ir
from numba import types

from engine.backends.cpu.codegen import Emit, at, pointer
from engine.backends.cpu.jit import helper
from engine.backends.cpu.layout import OWN, OWN_BYTES, PARAMS
from engine.backends.cpu.simd import FloatOperation, IntOperation, define

if TYPE_CHECKING:
    from collections.abc import Callable

_I64, _FLOAT, _DOUBLE = ir.IntType(64), ir.FloatType(), ir.DoubleType()
_NE_AT, _NB_AT = 8, 40
"""Where ne and nb of a tensor stand, from its address word on."""


def _word(b: ir.IRBuilder, address: ir.Value, kind: ir.Type = _I64) -> ir.Value:
    return b.load(pointer(b, address, kind), align=8)


def _word_of(b: ir.IRBuilder, p: ir.Value, index: ir.Value, offset: int) -> ir.Value:
    """Address of word `index` from `offset` on."""
    return at(b, b.add(p, b.mul(index, _I64(8))), offset)


def _dimension(offset: int) -> Emit:
    """Arguments: row, tensor, dimension."""
    return lambda b, a: _word(b, _word_of(b, b.add(a[0], a[1]), a[2], offset))


def _address(b: ir.IRBuilder, a: list[ir.Value]) -> ir.Value:
    return _word(b, b.add(a[0], a[1]))


def _param(b: ir.IRBuilder, a: list[ir.Value]) -> ir.Value:
    return _word(b, _word_of(b, a[0], a[1], PARAMS))


def _param_double(b: ir.IRBuilder, a: list[ir.Value]) -> ir.Value:
    return _word(b, _word_of(b, a[0], a[1], PARAMS), _DOUBLE)


def _param_float(b: ir.IRBuilder, a: list[ir.Value]) -> ir.Value:
    return b.fptrunc(_param_double(b, a), _FLOAT)


def _own_scratch(b: ir.IRBuilder, a: list[ir.Value]) -> ir.Value:
    start, step = (_word(b, at(b, a[0], offset)) for offset in (OWN, OWN_BYTES))
    return b.add(start, b.mul(step, a[1]))


def _n_rows(b: ir.IRBuilder, a: list[ir.Value]) -> ir.Value:
    n1, n2, n3 = (_dimension(_NE_AT)(b, [*a, _I64(i)]) for i in (1, 2, 3))
    return b.mul(b.mul(n1, n2), n3)


def _row_at(b: ir.IRBuilder, a: list[ir.Value]) -> ir.Value:
    place = _address(b, a)
    for i_dim, index in enumerate(a[2:], start=1):
        stride = _dimension(_NB_AT)(b, [*a[:2], _I64(i_dim)])
        place = b.add(place, b.mul(index, stride))
    return place


def _of_integers(emit: Emit, n_params: int) -> IntOperation:
    return define(emit, types.int64, *[types.int64] * n_params)


# Arguments: (row, tensor, ...); a tensor is named by its offset in the row, see layout.py.
ne = _of_integers(_dimension(_NE_AT), 3)
"""(row, tensor, i_dim): elements of a dimension."""
nb = _of_integers(_dimension(_NB_AT), 3)
"""(row, tensor, i_dim): stride of a dimension in bytes."""
address = _of_integers(_address, 2)
"""(row, tensor): address of its first byte; 0 for a source that is absent."""
n_rows = _of_integers(_n_rows, 2)
"""(row, tensor): ne1 * ne2 * ne3."""
row_at = _of_integers(_row_at, 5)
"""(row, tensor, i1, i2, i3): address of a row."""
param = _of_integers(_param, 2)
"""(row, i_param): an integer parameter."""
param_float = cast("FloatOperation", define(_param_float, types.float32, types.int64, types.int64))
"""(row, i_param): a float parameter as float32."""
param_double = cast(
    "Callable[..., float]", define(_param_double, types.float64, types.int64, types.int64)
)
"""(row, i_param): a float parameter as float64."""
own_scratch = _of_integers(_own_scratch, 2)
"""(row, ith): address of this thread's scratch memory."""


@helper
def row_repeated(p: int, tensor: int, i1: int, i2: int, i3: int) -> int:
    """Address of a row of a tensor that repeats along dimensions 1 to 3."""
    i1 = i1 % ne(p, tensor, 1)
    i2 = i2 % ne(p, tensor, 2)
    return row_at(p, tensor, i1, i2, i3 % ne(p, tensor, 3))


@helper
def share(count: int, ith: int, nth: int) -> tuple[int, int]:
    """First and end of thread `ith`'s part of `count` things."""
    return count * ith // nth, count * (ith + 1) // nth
