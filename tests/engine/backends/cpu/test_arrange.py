"""NORM, CONCAT, REPEAT and FILL against their numpy references."""

from __future__ import annotations

import numpy as np
import pytest

from engine.core import build
from engine.core.types import TensorType
from engine.opcheck import reference
from tests.engine.backends.cpu.cpu_split import nmse, random

F32_ROUNDING = 1e-11


@pytest.mark.parametrize("eps", [1e-5, 1e-12])
@pytest.mark.parametrize("shape", [(2, 3, 5, 7), (1, 1, 40, 576), (1, 1, 3, 64)])
def test_norm_takes_the_mean_off_and_divides_by_the_deviation(backend, split, shape, eps):
    values = random(shape) * np.float32(3.0) + np.float32(2.0)

    result = split.compute(backend, build.norm(split.leaf(values), eps))

    assert nmse(result, reference.norm(values, eps)) <= F32_ROUNDING


def test_norm_of_equal_elements_is_zero(backend, split):
    result = split.compute(backend, build.norm(split.leaf(np.full((1, 1, 2, 37), 5.0)), 1e-5))

    assert not result.any()


@pytest.mark.parametrize("dim", [0, 1, 2, 3])
@pytest.mark.parametrize("shape", [(2, 3, 5, 7), (1, 4, 6, 64)])
def test_concat_puts_the_second_behind_the_first(backend, split, shape, dim):
    longer = tuple(n + 2 if 3 - i == dim else n for i, n in enumerate(shape))
    a, b = random(shape, 1), random(longer, 2)

    result = split.compute(backend, build.concat(split.leaf(a), split.leaf(b), dim))

    np.testing.assert_array_equal(result, reference.concat(a, b, dim))


def test_concat_reads_a_transposed_source(backend, split):
    """The convolution states [3, c] before the channels [t, c] of a batch [c, t]."""
    states, batch = random((1, 1, 40, 3), 1), random((1, 1, 11, 40), 2)
    turned = build.transpose(split.leaf(batch))

    result = split.compute(backend, turned, build.concat(split.leaf(states), turned, 0))

    expected = reference.concat(states, batch.swapaxes(-1, -2), 0)
    np.testing.assert_array_equal(result, expected)


def test_concat_keeps_integers(backend, split):
    a, b = np.array([[-1, 2**31 - 1]]), np.array([[7]])
    leafs = split.leaf(a, TensorType.I32), split.leaf(b, TensorType.I32)

    result = split.compute(backend, build.concat(*leafs, 0))

    assert result[0, 0].tolist() == [[-1, 2**31 - 1, 7]]


@pytest.mark.parametrize(
    ("small", "shape"),
    [
        ((1, 1, 1, 1), (2, 3, 5, 7)),
        ((1, 3, 1, 16), (1, 3, 8, 16)),
        ((2, 1, 5, 3), (4, 2, 5, 12)),
        ((1, 1, 4, 64), (1, 1, 4, 64)),
    ],
)
def test_repeat_puts_copies_beside_one_another(backend, split, small, shape):
    values = random(small)

    result = split.compute(backend, build.repeat(split.leaf(values), *reversed(shape)))

    np.testing.assert_array_equal(result, reference.repeat(values, shape))


def test_repeat_reads_permuted_rows(backend, split):
    values = random((1, 6, 3, 8))
    turned = build.permute(split.leaf(values), (0, 2, 1, 3))

    result = split.compute(backend, turned, build.repeat(turned, 16, 6, 3))

    expected = reference.repeat(values.swapaxes(1, 2), (1, 3, 6, 16))
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("value", [0.0, -np.inf, 2.5])
@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (2, 3, 5, 7), (1, 1, 40, 576)])
def test_fill_gives_one_value_everywhere(backend, split, shape, value):
    result = split.compute(backend, build.fill(split.leaf(random(shape)), value))

    np.testing.assert_array_equal(result, reference.fill(shape, value))
