"""Inputs: valid, always the same, and nowhere a number that two right kernels part at."""

import numpy as np
import pytest

from engine.core import build, build_recurrent
from engine.core.ops import ROPE_MROPE, Op, RopeParams, SoftMaxParams
from engine.core.quants import READABLE, dequantize
from engine.core.tensor import Tensor, shape4
from engine.core.types import TensorType
from engine.opcheck.built_in import built_in_cases
from engine.opcheck.cases import case_of
from engine.opcheck.expect import values_of
from engine.opcheck.inputs import FARTHEST, random_blocks, source_bytes

F32, F16, I32, I64 = TensorType.F32, TensorType.F16, TensorType.I32, TensorType.I64


def leaf(kind, *ne):
    return Tensor(kind, shape4(*ne))


def values(node, i_source):
    case = case_of(node)
    return values_of(case.sources[i_source], source_bytes(case)[i_source])


def test_the_same_case_has_the_same_bytes_and_another_has_others():
    one, other = (case_of(build.rms_norm(leaf(F32, 64, n), 1e-5)) for n in (3, 4))

    (first,), (again,) = source_bytes(one), source_bytes(one)
    (of_other,) = source_bytes(other)

    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first[:64], of_other[:64])


def test_sources_have_exactly_the_bytes_of_their_memory():
    for counted in built_in_cases():
        case = counted.case
        for source, raw in zip(case.sources, source_bytes(case), strict=True):
            assert raw.dtype == np.uint8
            assert raw.size == source.type.row_bytes(source.memory_elems)


BLOCKS = sorted(kind for kind in READABLE if kind.is_quantized)


@pytest.mark.parametrize("kind", BLOCKS, ids=lambda kind: kind.label)
def test_random_blocks_are_ordinary_numbers(kind):
    raw = random_blocks(kind, 2048, np.random.default_rng(1))

    floats = dequantize(kind, raw, 2048)

    assert np.isfinite(floats).all()
    assert 1e-3 < np.abs(floats).max() < 1e3
    assert len(np.unique(floats)) > 2


def test_rows_are_written_once_each():
    table, rows, ids = leaf(F16, 64, 24, 3), leaf(F32, 64, 9, 3), leaf(I64, 9, 3)

    chosen = values(build.set_rows(table, rows, ids), 1)

    for row in chosen.reshape(-1, 9):
        assert len(set(row)) == 9
        assert 0 <= row.min() <= row.max() < 24


def test_experts_repeat_over_tokens_never_in_one_and_some_are_not_used():
    weights, x, ids = leaf(F32, 64, 5, 8), leaf(F32, 64, 1, 40), leaf(I32, 3, 40)

    chosen = values(build.mul_mat_id(weights, x, ids), 2).reshape(40, 3)

    assert all(len(set(row)) == 3 for row in chosen)
    assert 3 < len(np.unique(chosen)) < 8
    assert chosen.max() == 7


def test_positions_are_four_for_each_token_in_modes_with_sections():
    params = RopeParams(64, ROPE_MROPE, sections=(11, 11, 10, 0))

    positions = values(build.rope(leaf(F32, 64, 2, 5), leaf(I32, 20), None, params), 1)

    assert positions.size == 20
    assert 0 <= positions.min() <= positions.max() < FARTHEST


def test_a_mask_hides_some_and_never_all():
    mask = values(build.soft_max(leaf(F32, 40, 9), leaf(F16, 40, 9), SoftMaxParams()), 1)

    assert np.isneginf(mask).any()
    assert np.isfinite(mask).any(axis=-1).all()
    assert not np.isnan(mask).any()


def test_rows_to_sort_can_be_sorted_in_one_way_only():
    rows = values(build.argsort(leaf(F32, 60, 7)), 0).reshape(7, 60)

    assert all(len(set(row)) == 60 for row in rows)


def test_numbers_that_are_divided_by_are_far_from_zero():
    divisors = values(build.binary(Op.DIV, leaf(F32, 64, 9), leaf(F32, 64, 9)), 1)

    assert np.abs(divisors).min() >= 0.5


def test_states_decay():
    state, x, dt, a = leaf(F32, 16, 1, 8, 2), leaf(F32, 1, 8, 3), leaf(F32, 8, 3), leaf(F32, 16, 8)
    b = leaf(F32, 16, 1, 3)
    node = build_recurrent.ssm_scan(state, x, dt, a, b, b, leaf(I32, 1))

    assert values(node, 3).max() < 0
    assert values(node, 6).max() < 2
