"""A case in words: types, shapes in ggml's order, parameters, what is special about it."""

from __future__ import annotations

import dataclasses
import enum
from typing import TYPE_CHECKING

from engine.core.ops import Op
from engine.core.tensor import contiguous_strides

if TYPE_CHECKING:
    from engine.core.ops import OpParams
    from engine.opcheck.cases import Case, Operand


def case_words(case: Case) -> str:
    """Such as `q4_K [256, 16], f32 [256, 3]`; parameters and a note stand behind."""
    sources = ", ".join(operand_words(source) for source in case.sources)
    special = _parameters(case.params)
    if case.is_cast:
        special.insert(0, f"to {case.result.type.label}")
    if case.op is Op.REPEAT:
        special.append(f"to {operand_words(case.result)}")
    if case.note:
        special.append(case.note)
    return "; ".join([sources, ", ".join(special)]) if special else sources


def operand_words(operand: Operand) -> str:
    """Type and shape, ones at the end left out, and how its elements lie."""
    ne = list(operand.ne)
    while len(ne) > 1 and ne[-1] == 1:
        ne.pop()
    return f"{operand.type.label} {ne}{_lie(operand)}"


def _lie(operand: Operand) -> str:
    if operand.is_whole:
        return ""
    steps = [nb for nb, n in zip(operand.nb, operand.ne, strict=True) if n > 1]
    if steps != sorted(steps):
        return " transposed" if operand.nb[0] != operand.type.block_bytes else " permuted"
    is_gapless = operand.nb == contiguous_strides(operand.type, operand.ne)
    return " at an offset" if is_gapless else " with gaps"


def _parameters(params: OpParams) -> list[str]:
    """Those that are not at their default, by name; which function it is stands in the name."""
    if params is None:
        return []
    return [
        f"{field.name} {_value(getattr(params, field.name))}"
        for field in dataclasses.fields(params)
        if field.name != "kind" and getattr(params, field.name) != field.default
    ]


def _value(value: object) -> str:
    if isinstance(value, enum.Enum):
        return value.name
    return f"{value:g}" if isinstance(value, float) else str(value)
