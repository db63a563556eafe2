"""Tensor types have the sizes that the gguf package knows."""

import gguf
import pytest
from gguf.constants import GGML_QUANT_SIZES

from engine.core.types import TYPE_BY_LABEL, TensorType

# The package still has q8_1 with two float32 scales; ggml-common.h asserts two float16 ones.
OUTDATED = {"Q8_1"}
SHARED = [
    t for t in gguf.GGMLQuantizationType if t.value in set(TensorType) and t.name not in OUTDATED
]


@pytest.mark.parametrize("theirs", SHARED, ids=lambda t: t.name)
def test_block_sizes_equal_those_of_the_gguf_package(theirs):
    ours = TensorType(theirs.value)

    assert ours.name == theirs.name
    assert (ours.block_elems, ours.block_bytes) == GGML_QUANT_SIZES[theirs]


def test_the_gguf_package_knows_nearly_every_type():
    assert len(SHARED) >= len(TensorType) - 3


def test_q8_1_has_two_half_scales_as_in_ggml():
    assert (TensorType.Q8_1.block_elems, TensorType.Q8_1.block_bytes) == (32, 2 * 2 + 32)


@pytest.mark.parametrize(
    ("tensor_type", "label"),
    [(TensorType.F32, "f32"), (TensorType.Q4_0, "q4_0"), (TensorType.Q4_K, "q4_K"),
     (TensorType.IQ2_XXS, "iq2_xxs"), (TensorType.BF16, "bf16")],
)  # fmt: skip
def test_labels_are_those_that_ggml_prints(tensor_type, label):
    assert tensor_type.label == label
    assert TYPE_BY_LABEL[label] is tensor_type


@pytest.mark.parametrize(
    ("tensor_type", "quantized"), [(TensorType.F16, False), (TensorType.I32, False),
                                   (TensorType.Q8_0, True), (TensorType.Q6_K, True)],
)  # fmt: skip
def test_types_in_blocks_are_quantized(tensor_type, quantized):
    assert tensor_type.is_quantized is quantized


def test_a_row_is_a_whole_number_of_blocks():
    assert TensorType.Q4_1.row_bytes(576) == 576 // 32 * 20
    assert TensorType.F16.row_bytes(5) == 10
