"""Launches of a split, without a device: who rounds activations, and how often."""

from __future__ import annotations

import pytest

from engine.backend.host_buffer import HostBufferType
from engine.backend.interface import Place
from engine.backends.opencl.scratch import Scratch
from engine.backends.opencl.split import encode_split
from engine.backends.opencl.tuning import CPU_TUNING, GPU_TUNING
from engine.core import build
from engine.core.devices import BufferTypeFacts
from engine.core.tensor import Tensor, shape4
from engine.core.types import TensorType

F32, F16, BF16 = TensorType.F32, TensorType.F16, TensorType.BF16
Q4_0, Q4_1, Q6_K = TensorType.Q4_0, TensorType.Q4_1, TensorType.Q6_K
HOST = HostBufferType(BufferTypeFacts("host", is_host=True))
ANYWHERE = Place(HOST.alloc_buffer(64), 0)
SCRATCH = Place(HOST.alloc_buffer(64), 0)


def leaf(tensor_type, *ne):
    return Tensor(tensor_type, shape4(*ne))


def launches(*nodes, tuning=CPU_TUNING):
    """(names of the kernels, bytes of scratch asked for)."""
    asked = []

    def scratch(n_bytes):
        asked.append(n_bytes)
        return SCRATCH

    calls = list(encode_split(nodes, lambda tensor: ANYWHERE, tuning, scratch))
    return [call.kernel for call in calls], asked


def test_float32_weights_read_activations_as_they_are():
    x = leaf(F32, 64, 3)

    names, asked = launches(build.mul_mat(leaf(F32, 64, 8), x))

    assert names == ["mul_mat_tile"]
    assert asked == []


def test_half_float_weights_read_half_floats():
    x = leaf(F32, 13, 3)

    names, asked = launches(build.mul_mat(leaf(F16, 13, 8), x), build.mul_mat(leaf(BF16, 13, 8), x))

    assert names == ["round_rows_f16", "mul_mat_tile", "round_rows_bf16", "mul_mat_tile"]
    assert asked == [13 * 3 * 4]


def test_a_prompts_attention_weights_are_not_copied_to_be_rounded():
    values, weights = leaf(F16, 4096, 64, 4), leaf(F32, 4096, 512, 4)

    names, asked = launches(build.mul_mat(values, weights))

    assert names == ["mul_mat_tile"]
    assert asked == []


def test_matmuls_in_a_row_round_their_activations_once():
    x = leaf(F32, 64)
    nodes = [build.mul_mat(leaf(t, 64, 8), x) for t in (Q4_0, Q4_1, Q4_0)]

    names, asked = launches(*nodes)

    assert names == ["whole_rows_q8_0", *["mul_mat_vec"] * 3]
    assert asked == [64 * 4]


@pytest.mark.parametrize(
    ("tuning", "weight_type", "n_columns", "kernel"),
    [
        (CPU_TUNING, Q4_0, 1, "whole_rows_q8_0"),
        (CPU_TUNING, Q4_0, 2, "round_rows_q8_0"),
        (CPU_TUNING, Q6_K, 1, "whole_rows_q8_k"),
        (CPU_TUNING, TensorType.Q2_K, 1, "round_rows_q8_k"),
        (GPU_TUNING, Q4_0, 1, "round_rows_q8_0"),
    ],
)
def test_cpus_take_single_columns_as_whole_numbers_where_the_type_has_such_a_product(
    tuning, weight_type, n_columns, kernel
):
    node = build.mul_mat(leaf(weight_type, 256, 8), leaf(F32, 256, n_columns))

    names, _ = launches(node, tuning=tuning)

    assert names[0] == kernel


def test_experts_in_a_row_round_their_activations_once():
    x, ids = leaf(F32, 64, 1, 3), leaf(TensorType.I32, 2, 3)
    nodes = [build.mul_mat_id(leaf(t, 64, 8, 4), x, ids) for t in (Q4_0, Q4_1)]

    names, asked = launches(*nodes, tuning=CPU_TUNING)

    assert names == ["round_rows_q8_0", *["mul_mat_id_tile"] * 2]
    assert asked == [64 * 3 * 4]


@pytest.mark.parametrize(
    ("n_tokens", "kernel"), [(1, "mul_mat_id_vec"), (4, "mul_mat_id_vec"), (5, "mul_mat_id_tile")]
)
def test_experts_with_more_than_one_column_on_average_are_unpacked(n_tokens, kernel):
    x, ids = leaf(F32, 64, 1, n_tokens), leaf(TensorType.I32, 2, n_tokens)

    names, _ = launches(build.mul_mat_id(leaf(F32, 64, 8, 8), x, ids))

    assert names == [kernel]


def test_other_activations_in_between_take_the_place():
    x, y = leaf(F32, 64), leaf(F32, 64)
    weight = leaf(Q4_0, 64, 8)

    names, _ = launches(*[build.mul_mat(weight, columns) for columns in (x, y, x)])

    assert names == ["whole_rows_q8_0", "mul_mat_vec"] * 3


def test_weights_with_other_blocks_round_the_same_activations_again():
    x = leaf(F32, 256)

    names, _ = launches(build.mul_mat(leaf(Q4_0, 256, 8), x), build.mul_mat(leaf(Q6_K, 256, 8), x))

    assert names == ["whole_rows_q8_0", "mul_mat_vec", "whole_rows_q8_k", "mul_mat_vec"]


def test_a_write_through_a_view_of_the_activations_makes_them_new():
    x, weight = leaf(F32, 64), leaf(Q4_0, 64, 8)
    written = build.cpy(leaf(F32, 64), build.view(x, (64,), ()))

    names, _ = launches(build.mul_mat(weight, x), written, build.mul_mat(weight, x))

    assert names.count("whole_rows_q8_0") == 2


def test_room_is_asked_for_once_and_for_the_largest():
    small, large = leaf(F32, 64, 2), leaf(F32, 128, 5)
    nodes = [build.mul_mat(leaf(Q4_0, x.ne[0], 8), x) for x in (small, large, small)]

    _, asked = launches(*nodes)

    assert asked == [128 * 5 * 4]


@pytest.mark.parametrize("tuning", [CPU_TUNING, GPU_TUNING])
@pytest.mark.parametrize(("weight_type", "k"), [(Q4_0, 32), (Q4_0, 5504), (Q6_K, 2560)])
def test_items_cover_whole_blocks_of_every_row(tuning, weight_type, k):
    node = build.mul_mat(leaf(weight_type, k, 8), leaf(F32, k, 3, 2))

    first = next(encode_split([node], lambda tensor: ANYWHERE, tuning, lambda n_bytes: SCRATCH))

    elems_per_item = int(first.args[4])
    assert elems_per_item % weight_type.block_elems == 0
    assert (first.items[0] - 1) * elems_per_item < k <= first.items[0] * elems_per_item
    assert first.items[1:] == (6, 1)


def test_scratch_keeps_its_place_until_more_is_needed():
    scratch = Scratch(HOST)

    first, smaller, larger = scratch.place(1000), scratch.place(10), scratch.place(1001)

    assert smaller == first
    assert larger.buffer is not first.buffer
    assert larger.buffer.size == 2000
    assert scratch.place(2000) == larger
