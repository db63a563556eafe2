"""The judge: how far a result is off, and how far it may be."""

import math

import numpy as np
import pytest

from engine.core import build
from engine.core.ops import FlashAttnParams, SoftMaxParams, UnaryOp
from engine.core.tensor import Tensor, shape4
from engine.core.types import TensorType as T
from engine.opcheck.cases import case_of
from engine.opcheck.judge import bar_of, compare, farthest


def leaf(kind, *ne):
    return Tensor(kind, shape4(*ne))


def floats(*values):
    return np.array(values, np.float32).reshape(1, 1, 1, -1)


@pytest.mark.parametrize(
    ("result", "expected", "error"),
    [
        (floats(1, 2, 2), floats(1, 2, 2), 0.0),
        (floats(1, 2, 3), floats(1, 2, 2), 1 / 9),
        (floats(0, 0), floats(0, 0), 0.0),
        (floats(0, 1), floats(0, 0), math.inf),
        (floats(-np.inf, 3), floats(-np.inf, 3), 0.0),
        (floats(np.nan, 3), floats(np.nan, 3), 0.0),
    ],
)
def test_the_error_is_the_squared_distance_over_the_square(result, expected, error):
    assert compare(result, expected) == (pytest.approx(error), "")


@pytest.mark.parametrize(
    ("result", "expected", "words"),
    [
        (floats(1, np.nan), floats(1, 2), "NaN"),
        (floats(1, np.inf), floats(1, 2), "inf instead of 2"),
        (floats(1, 2), floats(1, np.inf), "2 instead of inf"),
        (floats(1, np.inf), floats(1, -np.inf), "inf instead of -inf"),
    ],
)
def test_nan_and_infinity_are_wrong_whatever_the_rest_is_like(result, expected, words):
    told = f"1 of 2 elements, the first at [1, 0, 0, 0], are {words}"

    assert compare(result, expected) == (None, told)


def test_whole_numbers_are_counted():
    right = np.arange(8, dtype=np.int32)

    assert compare(right, right) == (0.0, "")
    assert compare(right[::-1], right) == (1.0, "")


def test_the_element_that_is_farthest_off_is_told_in_ggmls_order():
    right = np.zeros((1, 2, 3, 4), np.float32)
    result = right.copy()
    result[0, 1, 2, 3] = -5

    assert farthest(result, right) == "farthest off at [3, 2, 1, 0]: -5 instead of 0"


ATTENTION = FlashAttnParams(0.125)
HEAD = leaf(T.F32, 32, 4)


@pytest.mark.parametrize(
    ("node", "bar"),
    [
        (build.rms_norm(leaf(T.F32, 8), 1e-5), 1e-7),
        (build.unary(leaf(T.F32, 8), UnaryOp.GELU), 1e-6),
        (build.unary(leaf(T.F32, 8), UnaryOp.SILU), 1e-7),
        (build.soft_max(leaf(T.F32, 8), None, SoftMaxParams()), 1e-6),
        (build.mul_mat(leaf(T.F32, 32, 4), leaf(T.F32, 32, 2)), 1e-6),
        (build.mul_mat(leaf(T.F16, 32, 4), leaf(T.F32, 32, 2)), 1e-4),
        (build.mul_mat(leaf(T.Q4_0, 32, 4), leaf(T.F32, 32, 2)), 5e-4),
        (build.flash_attn_ext(HEAD, HEAD, HEAD, None, ATTENTION), 5e-4),
        (build.cont(build.transpose(leaf(T.F16, 8, 4))), 0.0),
        (build.cast(leaf(T.F32, 8), T.F16), 1e-7),
        (build.cast(leaf(T.F16, 8), T.F32), 0.0),
        (build.cast(leaf(T.Q4_K, 256), T.F32), 1e-7),
        (build.get_rows(leaf(T.BF16, 8, 4), leaf(T.I32, 2)), 0.0),
        (build.get_rows(leaf(T.Q8_0, 32, 4), leaf(T.I32, 2)), 1e-7),
        (build.set_rows(leaf(T.F32, 8, 4), leaf(T.F32, 8, 2), leaf(T.I64, 2)), 0.0),
        (build.argsort(leaf(T.F32, 8)), 0.0),
        (build.repeat(leaf(T.F32, 8), 8, 2), 0.0),
    ],
    ids=lambda value: value.op_desc if isinstance(value, Tensor) else "",
)
def test_what_is_allowed_depends_on_operation_and_type(node, bar):
    assert bar_of(case_of(node)) == bar


@pytest.mark.parametrize("kind", [T.Q8_0, T.Q5_1, T.Q4_0])
def test_of_numbers_that_are_rounded_to_steps_one_may_be_a_step_off(kind):
    rows = np.random.default_rng(1).uniform(-1, 1, 64 * 5)
    one_off = rows.copy()
    one_off[7] += 2 / {T.Q8_0: 256, T.Q5_1: 32, T.Q4_0: 16}[kind]
    far_off = rows.copy()
    far_off[7:27] = 0.0
    case = case_of(build.cast(leaf(T.F32, 64, 5), kind))

    error, _ = compare(one_off, rows)
    wrong, _ = compare(far_off, rows)

    assert error <= bar_of(case) < wrong
