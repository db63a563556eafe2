"""How far a result may be from the reference, and whether it is.

The measure is that of ggml's test-backend-ops: the normalised mean squared error, the sum of
(a - b)^2 over the sum of b^2. A NaN, or an infinity that the reference does not have, is wrong
whatever the rest is like.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from engine.core.ops import GluOp, GluParams, Op, UnaryOp, UnaryParams
from engine.core.types import TensorType
from engine.opcheck.inputs import INTEGERS

if TYPE_CHECKING:
    from engine.opcheck.cases import Case

Array = npt.NDArray[Any]

EXACT = 0.0
GENERAL = 1e-7
"""What test-backend-ops allows where nothing else is said: float32, summed in another order."""

_FLOAT_PRODUCTS = {TensorType.F32: 1e-6, TensorType.F16: 1e-4, TensorType.BF16: 1e-4}
"""Products with weights that are floats. ORACLE: 1e-6 in float32 graphs.

Kernels may round activations to the weights' type (8 bits of bf16: 2e-6), and sum in f16 (hundreds
of terms: 3e-5).
"""

_ROUNDED_PRODUCTS = 5e-4
"""test-backend-ops for MUL_MAT, MUL_MAT_ID and FLASH_ATTN_EXT: activations may become 8 bits, sums
of values f16."""

_BARS = {
    Op.FLASH_ATTN_EXT: _ROUNDED_PRODUCTS,
    Op.SOFT_MAX: 1e-6,
    # Sums over many tokens; test-backend-ops has 2e-7 where kernels keep parts in f16.
    Op.SSM_SCAN: 1e-6,
    Op.GATED_DELTA_NET: 1e-6,
}

_HALF_TABLE = 1e-6
"""ggml's CPU looks GELU up in a table: f16 to f16."""

_MOVES = frozenset({Op.CONCAT, Op.REPEAT, Op.PAD, Op.FILL, Op.ARGSORT})
_STEPS = {
    TensorType.Q8_0: 2**8, TensorType.Q5_0: 2**5, TensorType.Q5_1: 2**5, TensorType.Q4_0: 2**4,
    TensorType.Q4_1: 2**4,
}  # fmt: skip
"""Steps from the lowest to the highest number of a block."""

_ONE_IN = {TensorType.F16: 20, TensorType.BF16: 20}
"""Of so many numbers of a type one may fall on the other side of a rounding.

Those of few bits are often half-way, where ggml rounds to even on one processor and away from zero
on another.
"""

_ONE_IN_FLOATS = 500


def bar_of(case: Case) -> float:
    """The largest error that is allowed; EXACT means the same values."""
    if case.op in (Op.MUL_MAT, Op.MUL_MAT_ID):
        return _FLOAT_PRODUCTS.get(case.sources[0].type, _ROUNDED_PRODUCTS)
    if case.op in _BARS:
        return _BARS[case.op]
    if _is_gelu(case):
        return _HALF_TABLE
    if case.op in _MOVES or case.result.type in INTEGERS:
        return EXACT
    if case.op in (Op.CPY, Op.CONT, Op.SET_ROWS):
        return _bar_of_copy(case)
    if case.op is Op.GET_ROWS and not case.sources[0].type.is_quantized:
        return EXACT
    return GENERAL


def _is_gelu(case: Case) -> bool:
    p = case.params
    return (isinstance(p, UnaryParams) and p.kind is UnaryOp.GELU) or (
        isinstance(p, GluParams) and p.kind is GluOp.GEGLU
    )


def _bar_of_copy(case: Case) -> float:
    """Exact where nothing is rounded; else some numbers may be one step off."""
    kind = case.result.type
    if kind in (case.sources[0].type, TensorType.F32):
        return GENERAL if case.sources[0].type.is_quantized and kind is TensorType.F32 else EXACT
    if kind not in _STEPS:
        return GENERAL
    n_elems = math.prod(case.sources[0].ne)
    # Numbers are spread over -1..1, with a mean square of about 1/3.
    one_off = 4 * (2 / _STEPS[kind]) ** 2 / n_elems
    n_off = n_elems // _ONE_IN.get(case.sources[0].type, _ONE_IN_FLOATS)
    return GENERAL + max(1, n_off) * one_off


def compare(result: Array, expected: Array) -> tuple[float | None, str]:
    """The error, and what is wrong in words, "" where it can be measured.

    An error of None: it cannot.
    """
    assert result.shape == expected.shape, (result.shape, expected.shape)
    if not np.issubdtype(expected.dtype, np.floating):
        n_unlike = int((result != expected).sum())
        return (n_unlike / max(1, expected.size), "")
    return _compare_floats(result.astype(np.float64), expected.astype(np.float64))


def _compare_floats(result: Array, expected: Array) -> tuple[float | None, str]:
    finite = np.isfinite(expected)
    nan = np.isnan(result) & ~np.isnan(expected)
    if nan.any():
        return None, f"{_counted(nan)} NaN"
    unlike = ~_are_same(result, expected) & (~finite | ~np.isfinite(result))
    if unlike.any():
        at = np.argwhere(unlike)[0]
        found, right = result[tuple(at)], expected[tuple(at)]
        return None, f"{_counted(unlike)} {found:g} instead of {right:g}"
    distance = ((result[finite] - expected[finite]) ** 2).sum()
    size = (expected[finite] ** 2).sum()
    if not size:
        return (0.0 if not distance else math.inf), ""
    return float(distance / size), ""


def _are_same(result: Array, expected: Array) -> Array:
    same: Array = (result == expected) | (np.isnan(result) & np.isnan(expected))
    return same


def _counted(at: Array) -> str:
    """How many elements, and where the first is, in ggml's order."""
    first = [int(i) for i in np.argwhere(at)[0][::-1]]
    return f"{int(at.sum())} of {at.size} elements, the first at {first}, are"


def farthest(result: Array, expected: Array) -> str:
    """The element that is farthest off, in words; of those that are compared."""
    wide, right = result.astype(np.float64), expected.astype(np.float64)
    both = np.isfinite(wide) & np.isfinite(right)
    distance = np.abs(np.where(both, wide, 0.0) - np.where(both, right, 0.0))
    at = np.unravel_index(int(distance.argmax()), distance.shape)
    place = [int(i) for i in at[::-1]]
    return f"farthest off at {place}: {wide[at]:g} instead of {right[at]:g}"
