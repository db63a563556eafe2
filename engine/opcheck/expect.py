"""What the result of a case has to be, worked out in numpy from the bytes of its sources.

Of very large products and attentions only some rows and columns are worked out and compared:
always the first and the last, and others between.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from engine.core.ops import (
    ArgsortParams,
    ClampParams,
    ConcatParams,
    FillParams,
    FlashAttnParams,
    GluOp,
    GluParams,
    NormParams,
    Op,
    PadParams,
    RopeParams,
    ScaleParams,
    SoftMaxParams,
    UnaryParams,
)
from engine.core.quants import dequantize, quantize
from engine.opcheck import reference, reference_recurrent
from engine.opcheck.cases import Operand
from engine.opcheck.inputs import DTYPES, window

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from engine.core.types import TensorType
    from engine.opcheck.cases import Case

Array = npt.NDArray[Any]
Bytes = npt.NDArray[np.uint8]
T = TypeVar("T")
Picks = dict[int, npt.NDArray[np.int64]]
"""Which indices of an axis of a result (numpy's order) are looked at."""

MOST_ROWS, MOST_COLUMNS = 4096, 64
"""Rows of weights and columns of activations that are compared."""


@dataclass(frozen=True, slots=True, eq=False)
class Expected:
    """Values in numpy's order, of those parts of the result that `picks` name."""

    values: Array
    picks: Picks = field(default_factory=dict)

    def part_of(self, result: Array) -> Array:
        """The part of a whole result that is compared."""
        for axis, chosen in self.picks.items():
            result = np.take(result, chosen, axis=axis)
        return result


def expected_of(case: Case, memory: Sequence[Bytes]) -> Expected:
    """What the case has to give when its sources' memory holds these bytes."""
    special = _LARGE.get(case.op)
    if special is not None:
        return special(case, memory)
    sources = [values_of(each, raw) for each, raw in zip(case.sources, memory, strict=True)]
    return Expected(_PLAIN[case.op](case, sources))


def values_of(
    operand: Operand, memory: Bytes, rows: npt.NDArray[np.int64] | slice = slice(None)
) -> Array:
    """The window's values in numpy's order: numbers as they are, floats of any type as float32.

    `rows` (optional) chooses among ne[1].
    """
    blocks = np.ascontiguousarray(window(operand, memory)[:, :, rows])
    shape = (*blocks.shape[:3], operand.ne[0])
    if operand.type in DTYPES:
        return blocks.view(DTYPES[operand.type]).reshape(shape)
    return dequantize(operand.type, blocks.reshape(-1), math.prod(shape)).reshape(shape)


def stored(kind: TensorType, values: Array) -> Array:
    """Values as they are after they were written in a type."""
    if kind in DTYPES:
        return values.astype(DTYPES[kind])
    raw = quantize(kind, np.ascontiguousarray(values, np.float32))
    return dequantize(kind, raw, values.size).reshape(values.shape)


def _sample(n: int, most: int) -> npt.NDArray[np.int64]:
    """Indices below n: all, or the first and last quarter of `most` and others between."""
    if n <= most:
        return np.arange(n)
    edge = most // 4
    between = np.linspace(edge, n - edge - 1, most - 2 * edge).astype(np.int64)
    return np.unique(np.concatenate([np.arange(edge), between, np.arange(n - edge, n)]))


# Products, tables and attention, which may be large.


def _mul_mat(case: Case, memory: Sequence[Bytes]) -> Expected:
    weight, x = case.sources
    rows, columns = _sample(weight.ne[1], MOST_ROWS), _sample(x.ne[1], MOST_COLUMNS)
    weights = values_of(weight, memory[0], rows)
    values = reference.mul_mat(weights, values_of(x, memory[1], columns))
    return Expected(values, {2: columns, 3: rows})


def _mul_mat_id(case: Case, memory: Sequence[Bytes]) -> Expected:
    weights, x, ids = case.sources
    tokens = _sample(x.ne[2], MOST_COLUMNS)
    columns = values_of(x, memory[1])[0, tokens].astype(np.float64)
    chosen = values_of(ids, memory[2])[0, 0, tokens]
    columns = np.broadcast_to(columns, (*chosen.shape, columns.shape[2]))
    values = np.zeros((*chosen.shape, weights.ne[1]))
    for expert in np.unique(chosen):
        one = _expert(weights, int(expert))
        matrix = values_of(one, memory[0])[0, 0].astype(np.float64)
        at = chosen == expert
        values[at] = columns[at] @ matrix.T
    return Expected(values[None].astype(np.float32), {1: tokens})


def _expert(weights: Operand, i_expert: int) -> Operand:
    """The window of one expert's matrix."""
    ne0, ne1, _, _ = weights.ne
    offset = weights.offset + i_expert * weights.nb[2]
    return Operand(weights.type, (ne0, ne1, 1, 1), weights.nb, offset)


def _get_rows(case: Case, memory: Sequence[Bytes]) -> Expected:
    table, ids = case.sources
    numbers = values_of(ids, memory[1])
    used, renumbered = np.unique(numbers, return_inverse=True)
    rows = values_of(table, memory[0], used)
    return Expected(reference.get_rows(rows, renumbered.reshape(numbers.shape)))


def _flash_attn(case: Case, memory: Sequence[Bytes]) -> Expected:
    q, k, v, *others = case.sources
    p = _params(case, FlashAttnParams)
    tokens = _sample(q.ne[1], MOST_COLUMNS)
    # The mask may have more rows than there are tokens.
    mask = values_of(others[0], memory[3], tokens) if others else None
    sinks = values_of(others[1], memory[4]).reshape(-1) if len(others) > 1 else None
    values = reference.flash_attn(
        values_of(q, memory[0], tokens), values_of(k, memory[1]), values_of(v, memory[2]),
        mask, p.scale, p.softcap, p.max_bias, sinks,
    )  # fmt: skip
    return Expected(values, {1: tokens})


_LARGE: dict[Op, Callable[[Case, Sequence[Bytes]], Expected]] = {
    Op.MUL_MAT: _mul_mat,
    Op.MUL_MAT_ID: _mul_mat_id,
    Op.GET_ROWS: _get_rows,
    Op.FLASH_ATTN_EXT: _flash_attn,
}


# All others: (case, values of the sources) -> values.


def _params(case: Case, kind: type[T]) -> T:
    assert isinstance(case.params, kind), case.params
    return case.params


def _result_shape(case: Case) -> tuple[int, ...]:
    return case.result.ne[::-1]


def _copy(case: Case, s: Sequence[Array]) -> Array:
    values, kind = s[0].reshape(_result_shape(case)), case.result.type
    return values if kind is case.sources[0].type else stored(kind, values)


def _set_rows(case: Case, s: Sequence[Array]) -> Array:
    rows, ids, table = s
    return reference.set_rows(table, stored(case.result.type, rows), ids)


def _glu(case: Case, s: Sequence[Array]) -> Array:
    p = _params(case, GluParams)
    gate, up = s if len(s) == 2 else np.split(s[0], 2, axis=-1)
    if p.kind is GluOp.SWIGLU_OAI:
        return reference.swiglu_oai(gate, up, p.alpha, p.limit)
    return reference.glu(p.kind, gate, up)


def _scale(case: Case, s: Sequence[Array]) -> Array:
    p = _params(case, ScaleParams)
    return reference.scale(s[0], p.scale, p.bias)


def _clamp(case: Case, s: Sequence[Array]) -> Array:
    p = _params(case, ClampParams)
    return reference.clamp(s[0], p.low, p.high)


def _fill(case: Case, s: Sequence[Array]) -> Array:
    del s
    return reference.fill(_result_shape(case), _params(case, FillParams).value)


def _pad(case: Case, s: Sequence[Array]) -> Array:
    behind = _params(case, PadParams).n_after[::-1]
    return np.pad(s[0], [(0, n) for n in behind])


def _argsort(case: Case, s: Sequence[Array]) -> Array:
    keys = -s[0] if _params(case, ArgsortParams).descending else s[0]
    return np.argsort(keys, axis=-1, kind="stable").astype(np.int32)


def _soft_max(case: Case, s: Sequence[Array]) -> Array:
    p = _params(case, SoftMaxParams)
    mask = s[1] if len(s) > 1 else None
    sinks = s[2].reshape(-1) if len(s) > 2 else None
    return reference.soft_max(s[0], mask, p.scale, p.max_bias, sinks)


def _rope(case: Case, s: Sequence[Array]) -> Array:
    factors = s[2] if len(s) > 2 else None
    return reference.rope(s[0], s[1].reshape(-1), factors, _params(case, RopeParams))


def _ssm_scan(case: Case, s: Sequence[Array]) -> Array:
    state, x, dt, a, b, c, ids = s
    return reference_recurrent.ssm_scan(state, x, dt, a, b, c, ids).reshape(_result_shape(case))


def _gated_delta_net(case: Case, s: Sequence[Array]) -> Array:
    q, k, v, gate, beta, state = s
    values = reference_recurrent.gated_delta_net(q, k, v, gate, beta, state)
    return values.reshape(_result_shape(case))


_PLAIN: dict[Op, Callable[[Case, Sequence[Array]], Array]] = {
    Op.ADD: lambda case, s: reference.binary(case.op, s[0], s[1]),
    Op.SUB: lambda case, s: reference.binary(case.op, s[0], s[1]),
    Op.MUL: lambda case, s: reference.binary(case.op, s[0], s[1]),
    Op.DIV: lambda case, s: reference.binary(case.op, s[0], s[1]),
    Op.ADD_ID: lambda _, s: reference.add_id(s[0], s[1], s[2]),
    Op.SCALE: _scale,
    Op.CLAMP: _clamp,
    Op.FILL: _fill,
    Op.CONCAT: lambda case, s: reference.concat(s[0], s[1], _params(case, ConcatParams).dim),
    Op.REPEAT: lambda case, s: reference.repeat(s[0], _result_shape(case)),
    Op.CONT: _copy,
    Op.CPY: _copy,
    Op.PAD: _pad,
    Op.SET_ROWS: _set_rows,
    Op.NORM: lambda case, s: reference.norm(s[0], _params(case, NormParams).eps),
    Op.RMS_NORM: lambda case, s: reference.rms_norm(s[0], _params(case, NormParams).eps),
    Op.SOFT_MAX: _soft_max,
    Op.ROPE: _rope,
    Op.ARGSORT: _argsort,
    Op.SUM_ROWS: lambda _, s: reference.sum_rows(s[0]),
    Op.SSM_CONV: lambda _, s: reference_recurrent.ssm_conv(s[0], s[1]),
    Op.SSM_SCAN: _ssm_scan,
    Op.GATED_DELTA_NET: _gated_delta_net,
    Op.UNARY: lambda case, s: reference.unary(_params(case, UnaryParams).kind, s[0]),
    Op.GLU: _glu,
}
"""CPY's second source is what it writes into."""
