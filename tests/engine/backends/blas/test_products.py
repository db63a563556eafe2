"""Products against the same in float64: every type, several matrices, sizes that divide nothing."""

import numpy as np
import pytest

from engine.backends.blas import program
from engine.core import build
from engine.core.quants import READABLE
from engine.core.types import TensorType as T
from tests.engine.backends.cpu.cpu_split import nmse, random

F32_ROUNDING = 1e-12


def weights(split, kind, *ne):
    if kind.is_quantized:
        return split.random_blocks(kind, *ne)
    return split.leaf(random(tuple(reversed(ne)), 1), kind)


def expected(split, weight, x):
    """The product in float64 of what is stored; one matrix serves several neighbours of x."""
    w, columns = (split.read(tensor).astype(np.float64) for tensor in (weight, x))
    for axis in (0, 1):
        w = np.repeat(w, columns.shape[axis] // w.shape[axis], axis)
    return columns @ w.transpose(0, 1, 3, 2)


@pytest.mark.parametrize("kind", sorted(READABLE), ids=lambda kind: kind.label)
def test_a_product_of_any_type_is_that_of_its_values(backend, split, kind):
    weight, x = weights(split, kind, 768, 67), split.leaf(random((1, 1, 37, 768), 2))

    result = split.compute(backend, build.mul_mat(weight, x))

    assert nmse(result, expected(split, weight, x)) <= F32_ROUNDING


@pytest.mark.parametrize(("n", "t", "k"), [(33, 45, 35), (101, 32, 1023), (32, 131, 32)])
@pytest.mark.parametrize("kind", [T.F32, T.F16, T.BF16], ids=lambda kind: kind.label)
def test_sizes_may_be_odd(backend, split, kind, n, t, k):
    weight, x = weights(split, kind, k, n), split.leaf(random((1, 1, t, k), 2))

    result = split.compute(backend, build.mul_mat(weight, x))

    assert nmse(result, expected(split, weight, x)) <= F32_ROUNDING


@pytest.mark.parametrize(
    ("of_weight", "of_x"),
    [((1, 1), (1, 3)), ((1, 1), (2, 3)), ((1, 3), (1, 3)), ((1, 2), (1, 6)), ((2, 3), (4, 6))],
)
@pytest.mark.parametrize("kind", [T.F32, T.F16, T.Q8_0], ids=lambda kind: kind.label)
def test_one_matrix_of_the_weight_serves_several_of_x(backend, split, kind, of_weight, of_x):
    weight = weights(split, kind, 64, 35, *reversed(of_weight))
    x = split.leaf(random((*of_x, 33, 64), 2))

    result = split.compute(backend, build.mul_mat(weight, x))

    assert result.shape == (*of_x, 33, 35)
    assert nmse(result, expected(split, weight, x)) <= F32_ROUNDING


@pytest.mark.parametrize("block_elems", [1, 256 * 7, 256 * 66, 256 * 67])
@pytest.mark.parametrize("kind", [T.F16, T.Q4_K], ids=lambda kind: kind.label)
def test_weights_are_unpacked_in_blocks_of_any_size(backend, split, monkeypatch, kind, block_elems):
    monkeypatch.setattr(program, "BLOCK_ELEMS", block_elems)
    monkeypatch.setattr(program, "PIECE_ELEMS", 256 * 2)
    weight, x = weights(split, kind, 256, 67), split.leaf(random((1, 2, 37, 256), 2))

    result = split.compute(backend, build.mul_mat(weight, x))

    assert nmse(result, expected(split, weight, x)) <= F32_ROUNDING


def test_sources_may_be_views_at_an_offset(backend, split):
    whole, x = weights(split, T.F16, 64, 100), split.leaf(random((1, 1, 80, 64), 2))
    weight = build.view(whole, (64, 40), (128,), 128 * 50)
    columns = build.view(x, (64, 36), (256,), 256 * 7)

    result = split.compute(backend, weight, columns, build.mul_mat(weight, columns))

    assert nmse(result, expected(split, weight, columns)) <= F32_ROUNDING


def test_the_same_product_comes_out_the_same_on_every_call(backend, split):
    weight, x = weights(split, T.Q5_0, 512, 67), split.leaf(random((1, 1, 37, 512), 2))
    node = build.mul_mat(weight, x)

    first = split.compute(backend, node)

    np.testing.assert_array_equal(split.compute(backend, node), first)


@pytest.mark.parametrize("kind", [T.F32, T.F16], ids=lambda kind: kind.label)
def test_infinities_go_through_without_a_warning(backend, split, kind):
    values = random((40, 64), 1)
    values[3, 5] = np.inf
    weight, x = split.leaf(values, kind), split.leaf(random((1, 1, 33, 64), 2))

    result = split.compute(backend, build.mul_mat(weight, x))

    assert not np.isfinite(result[0, 0, :, 3]).any()
    assert np.isfinite(np.delete(result[0, 0], 3, axis=1)).all()
