"""Our reference formats against those of the gguf package, bit for bit."""

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from engine.core.quants import dequantize, quantize
from engine.core.types import TensorType

TYPES = [
    TensorType.F32, TensorType.F16, TensorType.BF16, TensorType.Q8_0, TensorType.Q4_0,
    TensorType.Q4_1, TensorType.Q5_0, TensorType.Q5_1,
]  # fmt: skip
BLOCK_TYPES = TYPES[3:]
IDS = [tensor_type.label for tensor_type in TYPES]

# Relative to the largest element of a block: half a step, or a whole one where the outermost step
# is missing (q4_0, q5_0), and the float16 rounding of the scale and the minimum.
HALF_ULP = 2**-11
WORST_ERROR = {
    TensorType.F32: 0.0, TensorType.F16: HALF_ULP, TensorType.BF16: 2**-8,
    TensorType.Q8_0: 1 / 254 + HALF_ULP,
    TensorType.Q4_0: 1 / 8 + HALF_ULP, TensorType.Q4_1: 1 / 15 + 3 * HALF_ULP,
    TensorType.Q5_0: 1 / 16 + HALF_ULP, TensorType.Q5_1: 1 / 31 + 3 * HALF_ULP,
}  # fmt: skip

# The package warns of overflow where the inverse of a scale is infinite, so nothing that small.
floats = st.floats(-100, 100, width=32).map(lambda x: x if abs(x) > 1e-20 else 0.0)


def theirs(tensor_type: TensorType) -> gguf.GGMLQuantizationType:
    return gguf.GGMLQuantizationType(int(tensor_type))


def some_values(n_elems: int = 32 * 200) -> np.ndarray:
    rng = np.random.default_rng(7)
    return (rng.standard_normal(n_elems) * rng.uniform(0.01, 10, n_elems)).astype(np.float32)


@pytest.mark.parametrize("tensor_type", TYPES, ids=IDS)
def test_bytes_are_those_of_the_gguf_package(tensor_type: TensorType):
    values = some_values()

    expected = gguf.quantize(values, theirs(tensor_type))

    assert quantize(tensor_type, values).tobytes() == expected.tobytes()


READ_ONLY = [
    TensorType.Q2_K, TensorType.Q3_K, TensorType.Q4_K, TensorType.Q5_K, TensorType.Q6_K,
    TensorType.IQ1_S, TensorType.IQ1_M, TensorType.IQ2_XXS, TensorType.IQ2_XS, TensorType.IQ2_S,
    TensorType.IQ3_XXS, TensorType.IQ3_S, TensorType.IQ4_NL, TensorType.IQ4_XS,
    TensorType.TQ1_0, TensorType.TQ2_0, TensorType.MXFP4, TensorType.NVFP4,
]  # fmt: skip


@pytest.mark.parametrize("tensor_type", TYPES + READ_ONLY, ids=lambda kind: kind.label)
def test_values_are_those_of_the_gguf_package_for_any_bytes(tensor_type: TensorType):
    raw = np.random.default_rng(3).integers(0, 256, tensor_type.block_bytes * 300, dtype=np.uint8)
    n_elems = 300 * tensor_type.block_elems

    with np.errstate(invalid="ignore", over="ignore"):
        ours = dequantize(tensor_type, raw, n_elems)
        expected = gguf.dequantize(raw, theirs(tensor_type)).reshape(-1)

    assert ours.dtype == np.float32
    np.testing.assert_array_equal(ours, expected)


@pytest.mark.parametrize("tensor_type", BLOCK_TYPES, ids=IDS[3:])
@given(hnp.arrays(np.float32, 64, elements=floats))
@settings(max_examples=50, deadline=None)
def test_bytes_of_awkward_values_are_those_of_the_gguf_package(
    tensor_type: TensorType, values: np.ndarray
):
    assert (
        quantize(tensor_type, values).tobytes()
        == gguf.quantize(values, theirs(tensor_type)).tobytes()
    )


@pytest.mark.parametrize("tensor_type", TYPES, ids=IDS)
def test_a_round_trip_stays_within_one_step(tensor_type: TensorType):
    values = some_values()

    back = dequantize(tensor_type, quantize(tensor_type, values), values.size)

    largest = np.abs(values.reshape(-1, 32)).max(axis=1, keepdims=True)
    error = np.abs(back - values).reshape(-1, 32) / largest
    assert error.max() <= WORST_ERROR[tensor_type]


@pytest.mark.parametrize("tensor_type", TYPES, ids=IDS)
def test_zeros_stay_zeros(tensor_type: TensorType):
    raw = quantize(tensor_type, np.zeros(64, np.float32))

    assert dequantize(tensor_type, raw, 64).tolist() == [0.0] * 64


@pytest.mark.parametrize("tensor_type", BLOCK_TYPES, ids=IDS[3:])
def test_values_whose_scale_has_no_inverse_become_zeros(tensor_type: TensorType):
    raw = quantize(tensor_type, np.linspace(-1e-40, 1e-40, 32, dtype=np.float32))

    assert dequantize(tensor_type, raw, 32).tolist() == [0.0] * 32


def test_bf16_rounds_to_even_and_keeps_special_values():
    values = np.array([1 + 2**-8, 1 + 3 * 2**-8, np.inf, -np.inf, 3.4e38], np.float32)

    back = dequantize(TensorType.BF16, quantize(TensorType.BF16, values), 5)

    assert back.tolist() == [1.0, 1 + 2**-6, np.inf, -np.inf, np.inf]


def test_a_bf16_nan_stays_one_even_where_its_upper_bits_are_empty():
    values = np.array([0x7F800001, 0xFF800001, 0x7FFFFFFF], np.uint32).view(np.float32)

    assert np.isnan(dequantize(TensorType.BF16, quantize(TensorType.BF16, values), 3)).all()


def test_f16_overflows_to_infinity():
    raw = quantize(TensorType.F16, np.array([1e6, -1e6], np.float32))

    assert dequantize(TensorType.F16, raw, 2).tolist() == [np.inf, -np.inf]


def test_a_read_only_unaligned_view_with_bytes_to_spare_is_read():
    raw = np.frombuffer(b"x" + np.arange(9, dtype="<f4").tobytes(), np.uint8)[1:]

    assert dequantize(TensorType.F32, raw, 8).tolist() == list(range(8))


def test_a_set_bit_of_q1_0_is_the_scale_and_others_its_negative():
    """The package cannot read this type."""
    rng = np.random.default_rng(1)
    bits, scales = rng.integers(0, 2, (3, 128)), np.array([0.5, 2.0, -1.5], np.float16)
    packed = np.packbits(bits.astype(np.uint8), axis=1, bitorder="little")
    raw = np.hstack([scales[:, np.newaxis].view(np.uint8), packed])

    values = dequantize(TensorType.Q1_0, raw, 384).reshape(3, 128)

    np.testing.assert_array_equal(values, np.where(bits, 1.0, -1.0) * scales[:, np.newaxis])


def test_every_type_of_a_model_file_is_read():
    made_for_itself = {TensorType.Q8_1, TensorType.Q8_K}
    for tensor_type in TensorType:
        if tensor_type.is_quantized and tensor_type not in made_for_itself:
            raw = np.zeros(tensor_type.block_bytes, np.uint8)
            assert dequantize(tensor_type, raw, tensor_type.block_elems).dtype == np.float32


def test_nothing_is_read_as_nothing():
    assert dequantize(TensorType.Q4_0, np.zeros(0, np.uint8), 0).size == 0


@pytest.mark.parametrize("tensor_type", [TensorType.Q8_K, TensorType.I32])
def test_a_type_without_a_reference_is_named(tensor_type: TensorType):
    with pytest.raises(TypeError, match=f"reads {tensor_type.label}; these are: f32, f16, bf16"):
        dequantize(tensor_type, np.zeros(0, np.uint8), 0)
    with pytest.raises(TypeError, match=f"writes {tensor_type.label}"):
        quantize(tensor_type, np.zeros(0, np.float32))


def test_partial_blocks_and_missing_bytes_are_developer_errors():
    with pytest.raises(AssertionError):
        dequantize(TensorType.Q8_0, np.zeros(34, np.uint8), 31)
    with pytest.raises(AssertionError):
        dequantize(TensorType.Q8_0, np.zeros(33, np.uint8), 32)
    with pytest.raises(AssertionError):
        quantize(TensorType.Q8_0, np.zeros(31, np.float32))
