"""What the host writes before a batch: a value for every input of the graph."""

import numpy as np
import pytest

from engine.core.plan import Batch, BatchShape
from engine.core.tensor import Tensor
from engine.core.types import TensorType
from engine.model.batch_inputs import PlacedBatch, hadamard
from engine.model.blocks.graph_context import InputKey, InputKind
from engine.model.cells import CacheCells
from engine.model.hparams_parts import Pooling, Temperature
from tests.engine.model.made_arch import made_header, planner_of
from tests.engine.model.made_numbers import ENCODER, FALCON_H1, GEMMA4, QWEN35

DTYPES = {
    TensorType.I32: np.int32,
    TensorType.I64: np.int64,
    TensorType.F16: np.float16,
    TensorType.F32: np.float32,
}
SLIDING = {"attention__sliding_window": 3, "block_count": 6}
N_EMBD_V = 128
EXPERTS = {"expert_count": 4, "expert_used_count": 2, "expert_feed_forward_length": 64}
STILL = {**EXPERTS, "interleave_moe_layer_step": 2, "block_count": 4}
SECTIONS = {
    **EXPERTS, "expert_shared_count": 1, "rope__dimension_sections": [16, 8, 8, 0],
}  # fmt: skip


@pytest.fixture
def inputs_after(tmp_path):
    """Return values and tensors of a batch of 2 tokens after 5 others."""

    def make(arch, numbers, **options):
        with made_header(tmp_path, arch, **numbers) as file:
            planner = planner_of(file, **options)
        parts = tuple(CacheCells(part) for part in planner.cache.parts)
        for part in parts:
            part.take(0, 5)
        taken = tuple(part.take(5, 2) for part in parts)
        placed = PlacedBatch([7, 8], 5, parts, taken, planner.hparams.temperature)
        tensors = planner.plan(Batch.PROMPT, BatchShape(2, 256, 1)).built.inputs
        return placed.values(tensors), tensors

    return make


ALL = [
    ("llama", {}, {"flash_attn": "on"}),
    ("llama", {}, {"flash_attn": "off"}),
    ("llama", {}, {"cache_type_k": "q8_0", "cache_type_v": "q8_0"}),
    ("llama4", STILL, {}),
    ("glm4moe", SECTIONS, {}),
    ("gemma3", SLIDING, {"flash_attn": "on"}),
    ("gemma3", SLIDING, {"flash_attn": "off", "cache_type_k": "q8_0"}),
    ("gemma4", {**GEMMA4, "embedding_length_per_layer_input": 16}, {}),
    ("falcon-h1", FALCON_H1, {}),
    ("qwen35", QWEN35, {}),
]


@pytest.mark.parametrize(("arch", "numbers", "options"), ALL)
def test_every_input_has_a_value_of_its_type_and_size(inputs_after, arch, numbers, options):
    values, tensors = inputs_after(arch, numbers, **options)

    assert set(tensors) - set(values) == {InputKey(InputKind.EMBEDDINGS)}
    for key, value in values.items():
        assert (value.dtype, value.nbytes) == (DTYPES[tensors[key].type], tensors[key].n_bytes)


@pytest.mark.parametrize("flash_attn", ["on", "off"])
def test_inputs_continue_where_the_last_batch_ended(inputs_after, flash_attn):
    values, _ = inputs_after("llama", {}, flash_attn=flash_attn)

    assert values[InputKey(InputKind.TOKENS)].tolist() == [7, 8]
    assert values[InputKey(InputKind.POSITIONS)].tolist() == [5, 6]
    assert values[InputKey(InputKind.K_IDXS)].tolist() == [5, 6]
    assert values[InputKey(InputKind.OUT_IDS)].tolist() == [1]


@pytest.mark.parametrize("flash_attn", ["on", "off"])
def test_a_mask_is_0_where_a_token_sees_and_else_minus_infinity(inputs_after, flash_attn):
    values, _ = inputs_after("llama", {}, flash_attn=flash_attn)

    mask = values[InputKey(InputKind.KQ_MASK)]
    assert mask.shape == (2, 256)
    assert [np.flatnonzero(row == 0).tolist() for row in mask] == [[*range(6)], [*range(7)]]
    assert np.isneginf(mask[mask != 0]).all()


def test_both_parts_of_a_cache_have_a_mask_of_their_own(inputs_after):
    values, tensors = inputs_after("gemma3", SLIDING)

    full, sliding = InputKey(InputKind.KQ_MASK, 0), InputKey(InputKind.KQ_MASK, 1)
    assert tensors[full].name == tensors[sliding].name == "attn_inp_kq_mask"
    assert [np.flatnonzero(row == 0).tolist() for row in values[full]] == [
        [*range(6)], [*range(7)],
    ]  # fmt: skip
    assert [np.flatnonzero(row == 0).tolist() for row in values[sliding]] == [
        [3, 4, 5], [4, 5, 6],
    ]  # fmt: skip


def test_values_go_where_keys_go(inputs_after):
    values, _ = inputs_after("llama", {}, flash_attn="on")

    assert values[InputKey(InputKind.V_IDXS)].tolist() == [5, 6]


def test_each_element_of_transposed_values_is_a_row_of_its_own(inputs_after):
    values, _ = inputs_after("llama", {}, flash_attn="off")

    expected = [column * 512 + cell for cell in (5, 6) for column in range(N_EMBD_V)]
    assert values[InputKey(InputKind.V_IDXS)].tolist() == expected


def test_elements_of_narrow_values_are_counted_up_to_the_widest(inputs_after):
    numbers = {"attention__head_count_kv": [2, 1]}

    values, _ = inputs_after("llama", numbers, flash_attn="off")

    assert values[InputKey(InputKind.V_IDXS)].size == 2 * N_EMBD_V


@pytest.mark.parametrize("size", [1, 2, 64, 256])
def test_a_rotation_is_its_own_inverse(size):
    matrix = hadamard(size)

    assert matrix.shape == (size, size)
    assert np.allclose(matrix @ matrix, np.eye(size), atol=1e-5)
    assert np.array_equal(matrix, matrix.T)
    assert np.unique(np.abs(matrix)).size == 1


def test_a_rotation_with_sections_takes_four_blocks_of_positions(inputs_after):
    values, _ = inputs_after("glm4moe", SECTIONS)

    assert values[InputKey(InputKind.POSITIONS)].tolist() == [5, 6, 5, 6, 5, 6, 0, 0]


def test_a_temperature_is_that_of_each_position():
    batch = PlacedBatch([0, 1, 2], 7, (), (), Temperature(8, 0.5, 0.0))
    tensor = Tensor(TensorType.F32, (1, 1, 3, 1))
    key = InputKey(InputKind.TEMPERATURE)

    (value,) = batch.values({key: tensor}).values()

    assert value == pytest.approx([1.0, 1.0 + 0.5 * np.log(2), 1.0 + 0.5 * np.log(2)])


def test_without_a_temperature_queries_stay_as_they_are(inputs_after):
    values, _ = inputs_after("llama4", {**STILL, "attention__sliding_window": 0})

    assert values[InputKey(InputKind.TEMPERATURE)].tolist() == [1.0, 1.0]


# Encoders, whose texts are whole.


@pytest.fixture
def inputs_of_text(tmp_path):
    """Return values and tensors of a text of 4 tokens."""

    def make(pooling, hides_later=False, **options):
        with made_header(tmp_path, "bert", **{**ENCODER, "pooling_type": pooling}) as file:
            planner = planner_of(file, **options)
        tensors = planner.plan(Batch.PROMPT, planner.run_shape(4, 0)).built.inputs
        placed = PlacedBatch(
            [5, 6, 7, 8], 0, (), (), pooling=Pooling(pooling), hides_later=hides_later
        )
        values = placed.values(tensors)
        return {key.kind: value for key, value in values.items()}, tensors

    return make


@pytest.mark.parametrize("flash_attn", ["on", "off"])
def test_every_input_of_a_text_has_a_value_of_its_type_and_size(inputs_of_text, flash_attn):
    for pooling in set(Pooling) - {Pooling.RANK}:
        values, tensors = inputs_of_text(pooling, flash_attn=flash_attn)
        for key, tensor in tensors.items():
            if key.kind is not InputKind.EMBEDDINGS:
                value = values[key.kind]
                assert (value.dtype, value.size) == (DTYPES[tensor.type], tensor.n_elems)


def test_every_row_of_a_text_is_wanted(inputs_of_text):
    values, _ = inputs_of_text(Pooling.MEAN)

    assert list(values[InputKind.OUT_IDS]) == [0, 1, 2, 3]
    assert list(values[InputKind.POSITIONS]) == [0, 1, 2, 3]


@pytest.mark.parametrize(("hides_later", "n_hidden"), [(False, 0), (True, 6)])
def test_a_text_sees_all_of_itself_but_in_models_that_hide_what_is_later(
    inputs_of_text, hides_later, n_hidden
):
    values, _ = inputs_of_text(Pooling.CLS, hides_later=hides_later)

    mask = values[InputKind.SELF_MASK]
    assert np.isinf(mask).sum() == n_hidden
    assert not np.tril(np.isinf(mask)).any()


@pytest.mark.parametrize(("pooling", "row"), [(Pooling.CLS, 0), (Pooling.LAST, 3)])
def test_one_token_stands_for_a_text(inputs_of_text, pooling, row):
    assert list(inputs_of_text(pooling)[0][InputKind.CLS]) == [row]


def test_every_token_counts_the_same_in_a_mean(inputs_of_text):
    assert inputs_of_text(Pooling.MEAN)[0][InputKind.MEAN].tolist() == [[0.25] * 4]
