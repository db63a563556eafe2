"""What is expected: worked out whole where it is small, in part where it is large."""

import numpy as np
import pytest

from engine.core import build
from engine.core.ops import FlashAttnParams
from engine.core.tensor import Tensor, shape4
from engine.core.types import TensorType
from engine.opcheck import expect, reference
from engine.opcheck.cases import Operand, case_of
from engine.opcheck.expect import expected_of, values_of
from engine.opcheck.inputs import source_bytes
from tests.engine.backends.cpu import rounded_reference

F32, F16, I32 = TensorType.F32, TensorType.F16, TensorType.I32


def leaf(kind, *ne):
    return Tensor(kind, shape4(*ne))


def sources_of(case):
    raws = source_bytes(case)
    return raws, [values_of(each, raw) for each, raw in zip(case.sources, raws, strict=True)]


def test_values_of_a_window_are_those_between_its_gaps():
    memory = np.arange(24, dtype=np.float32)
    window = Operand(F32, (2, 3, 1, 1), (4, 32, 96, 96), offset=8)

    found = values_of(window, memory.view(np.uint8))

    np.testing.assert_array_equal(found[0, 0], [[2, 3], [10, 11], [18, 19]])


def test_blocks_of_a_window_are_read_block_by_block():
    raw = np.random.default_rng(1).integers(0, 60, 34 * 8, dtype=np.uint8)
    rows = Operand(TensorType.Q8_0, (32, 4, 1, 1), (34, 68, 272, 272), offset=34)

    found = values_of(rows, raw)

    blocks = rounded_reference.dequantized(TensorType.Q8_0, raw, (8, 32))
    np.testing.assert_array_equal(found[0, 0], blocks[1::2])


@pytest.fixture
def few_are_compared(monkeypatch):
    monkeypatch.setattr(expect, "MOST_ROWS", 8)
    monkeypatch.setattr(expect, "MOST_COLUMNS", 4)


@pytest.mark.usefixtures("few_are_compared")
def test_of_a_large_product_the_first_the_last_and_some_others_are_compared():
    case = case_of(build.mul_mat(leaf(TensorType.Q8_0, 64, 50), leaf(F32, 64, 30)))
    raws, (weight, x) = sources_of(case)

    found = expected_of(case, raws)

    whole = reference.mul_mat(weight, x)
    assert found.values.shape == (1, 1, 4, 8)
    assert {0, 1, 48, 49} <= set(found.picks[3])
    assert {0, 29} <= set(found.picks[2])
    np.testing.assert_allclose(found.part_of(whole), found.values, rtol=1e-6)


@pytest.mark.usefixtures("few_are_compared")
def test_attention_of_many_tokens_is_compared_in_part_with_their_own_masks():
    q, k = leaf(F32, 32, 30, 2), leaf(F16, 32, 40, 1)
    node = build.flash_attn_ext(q, k, k, leaf(F16, 40, 30), FlashAttnParams(0.2))
    case = case_of(node)
    raws, sources = sources_of(case)

    found = expected_of(case, raws)

    whole = reference.flash_attn(*sources, 0.2, 0.0)
    assert found.values.shape == (1, 4, 2, 32)
    np.testing.assert_allclose(found.part_of(whole), found.values, rtol=1e-5)


def test_a_product_with_experts_takes_each_tokens_own():
    case = case_of(build.mul_mat_id(leaf(F32, 32, 5, 6), leaf(F32, 32, 2, 7), leaf(I32, 2, 7)))
    raws, (weights, x, ids) = sources_of(case)

    found = expected_of(case, raws).values

    for t in range(7):
        for slot in range(2):
            expert = ids[0, 0, t, slot]
            np.testing.assert_allclose(
                found[0, t, slot], weights[0, expert] @ x[0, t, slot], rtol=1e-4, atol=1e-5
            )


def test_rows_of_a_large_table_are_those_that_were_asked_for():
    case = case_of(build.get_rows(leaf(F32, 16, 5000), leaf(I32, 3)))
    raws, (table, ids) = sources_of(case)

    found = expected_of(case, raws).values

    np.testing.assert_array_equal(found[0, 0], table[0, 0][ids[0, 0, 0]])


def test_a_copy_of_blocks_is_the_same_blocks():
    case = case_of(build.cpy(leaf(TensorType.Q4_K, 256, 3), leaf(TensorType.Q4_K, 256, 3)))
    raws, (blocks, _) = sources_of(case)

    np.testing.assert_array_equal(expected_of(case, raws).values, blocks)
