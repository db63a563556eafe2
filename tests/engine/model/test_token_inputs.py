"""The inputs of one token against those that every batch has (batch_inputs.py)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.backend.host_buffer import HostBufferType
from engine.backend.interface import Place
from engine.backends.null.reg import NullReg
from engine.core.devices import CPU_BUFT
from engine.core.plan import Batch, BatchShape
from engine.core.tensor import Tensor
from engine.core.types import TensorType
from engine.model.batch_inputs import PlacedBatch
from engine.model.blocks.graph_context import InputKey, InputKind
from engine.model.cells import CacheCells
from engine.model.hparams import Window
from engine.model.kv_cache import CachePart
from engine.model.token_inputs import TokenInputs
from tests.engine.model.made_arch import made_header, planner_of
from tests.engine.paper import parse_virtual

N_CELLS = 256
SLIDING = {"attention__sliding_window": 3, "block_count": 6}
STILL = {
    "expert_count": 4, "expert_used_count": 2, "expert_feed_forward_length": 64,
    "interleave_moe_layer_step": 2, "block_count": 4,
}  # fmt: skip
ONE = {
    InputKind.TOKENS: TensorType.I32,
    InputKind.POSITIONS: TensorType.I32,
    InputKind.K_IDXS: TensorType.I64,
    InputKind.V_IDXS: TensorType.I64,
    InputKind.OUT_IDS: TensorType.I32,
}


@pytest.mark.parametrize(
    ("arch", "numbers", "can"),
    [("llama", {}, True), ("gemma3", SLIDING, True), ("llama4", STILL, False)],
)
def test_graphs_of_real_architectures_have_such_inputs(tmp_path, arch, numbers, can):
    with made_header(tmp_path, arch, **numbers) as file:
        planner = planner_of(file, flash_attn="on")
    inputs = planner.plan(Batch.TOKEN, BatchShape(1, 256, 1)).built.inputs
    parts = tuple(CacheCells(part) for part in planner.cache.parts)

    found = TokenInputs.of(inputs, places_of(inputs), parts)

    assert (found is not None) == can


def inputs_of(n_parts, mask_type=TensorType.F16):
    inputs = {InputKey(kind): Tensor(type_, (1, 1, 1, 1)) for kind, type_ in ONE.items()}
    for part in range(n_parts):
        for kind in (InputKind.K_IDXS, InputKind.V_IDXS):
            inputs[InputKey(kind, part)] = Tensor(TensorType.I64, (1, 1, 1, 1))
        inputs[InputKey(InputKind.KQ_MASK, part)] = Tensor(mask_type, (N_CELLS, 1, 1, 1))
    return inputs


def places_of(inputs):
    buft = HostBufferType(CPU_BUFT)
    return {
        key: Place(buft.alloc_buffer(tensor.n_bytes + 64), 64) for key, tensor in inputs.items()
    }


def written(inputs, places):
    """The bytes of every input, and then other ones in their place, as a graph leaves them."""
    found = {}
    for key, tensor in inputs.items():
        memory = places[key].buffer.host[64 : 64 + tensor.n_bytes]
        found[key] = memory.tobytes()
        memory[:] = 171
    return found


def check_token(writer, inputs, places, parts, first):
    cells = tuple(part.take(first, 1) for part in parts)

    writer.write(17, first, cells)

    values = PlacedBatch([17], first, parts, cells).values(inputs)
    assert written(inputs, places) == {key: value.tobytes() for key, value in values.items()}


@given(
    sizes=st.lists(st.integers(0, 40), min_size=1, max_size=25),
    n_swa=st.sampled_from([None, 1, 20]),
    mask_type=st.sampled_from([TensorType.F16, TensorType.F32]),
)
def test_a_token_finds_what_any_batch_would_find(sizes, n_swa, mask_type):
    window = None if n_swa is None else Window(n_swa)
    parts = (CacheCells(CachePart(0, N_CELLS, None)), CacheCells(CachePart(1, N_CELLS, window)))
    inputs = inputs_of(len(parts), mask_type)
    places = places_of(inputs)
    writer = TokenInputs.of(inputs, places, parts)
    first = 0
    for size in sizes:
        # 0 stands for a text that begins anew; other batches lie between the tokens.
        if size == 0 or first + size >= N_CELLS:
            first = 0
            for part in parts:
                part.clear()
        for part in parts if size > 1 else ():
            part.take(first, size - 1)
        first += max(0, size - 1)
        check_token(writer, inputs, places, parts, first)
        first += 1


def test_a_token_that_comes_again_hides_what_it_drops():
    parts = (CacheCells(CachePart(0, N_CELLS, None)),)
    inputs = inputs_of(1)
    places = places_of(inputs)
    writer = TokenInputs.of(inputs, places, parts)

    for first in (0, 1, 2, 3, 1, 2, 0):
        check_token(writer, inputs, places, parts, first)


@pytest.mark.parametrize(
    ("kind", "tensor"),
    [
        (InputKind.POSITIONS, Tensor(TensorType.I32, (4, 1, 1, 1))),
        (InputKind.V_IDXS, Tensor(TensorType.I64, (64, 1, 1, 1))),
        (InputKind.TEMPERATURE, Tensor(TensorType.F32, (1, 1, 1, 1))),
        (InputKind.K_ROTATION, Tensor(TensorType.F32, (64, 64, 1, 1))),
    ],
)
def test_inputs_of_more_than_numbers_are_left_to_others(kind, tensor):
    parts = (CacheCells(CachePart(0, N_CELLS, None)),)
    inputs = {**inputs_of(1), InputKey(kind): tensor}

    assert TokenInputs.of(inputs, places_of(inputs), parts) is None


def test_inputs_in_memory_of_a_device_are_left_to_others():
    inputs = inputs_of(0)
    (device,) = NullReg([parse_virtual("GPU0:gpu:1024:preset=cuda")]).devices()
    far = device.buffer_type().alloc_buffer(64)
    places = {**places_of(inputs), InputKey(InputKind.TOKENS): Place(far, 0)}

    assert TokenInputs.of(inputs, places, ()) is None
