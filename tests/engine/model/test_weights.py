"""Weights: which tensors, into which memory, how many bytes."""

import pytest

from engine.core.devices import BufferUsage
from engine.core.options import Options
from engine.errors import ModelError, PlacementError
from engine.model.planning import make_planner
from tests.engine.model.made import (
    BIAS_SHAPES,
    LAYER_SHAPES,
    N_EMBD,
    N_FF,
    N_VOCAB,
    ROPE_FREQS,
    made_file,
    shapes,
)
from tests.engine.paper import parse_virtual

CPU, GPU = "CPU:cpu:16384", "GPU0:gpu:8192"


def planned(tmp_path, *devices, tensors=None, **options):
    facts = [parse_virtual(line) for line in devices or (CPU,)]
    with made_file(tmp_path, tensors=tensors) as file:
        return make_planner(file, facts, Options(**options))


def refused(tmp_path, tensors):
    with pytest.raises(ModelError) as caught:
        planned(tmp_path, tensors=tensors)
    return caught.value


def homes(planner):
    """Name of each weight's memory, by the role a graph asks for."""
    return {role: t.buffer.buft.name for role, t in planner.weights.tensors.items()}


def test_every_tensor_of_the_file_is_a_weight_at_home(tmp_path):
    planner = planned(tmp_path)

    assert set(homes(planner)) == set(shapes())
    for tensor in planner.weights.tensors.values():
        assert tensor.buffer.usage is BufferUsage.WEIGHTS


def test_mapped_weights_are_one_span_of_the_file(tmp_path):
    (buffer,) = planned(tmp_path).weights.buffers

    assert (buffer.buft.name, buffer.is_mapped) == ("CPU_Mapped", True)
    assert buffer.n_bytes == max(w.info.end for w in buffer.weights)


def test_weights_on_a_device_are_padded_one_by_one(tmp_path):
    planner = planned(tmp_path, f"{GPU}:align=512", CPU, n_gpu_layers=1)

    on_gpu = next(b for b in planner.weights.buffers if b.buft.name == "GPU0")
    assert [w.info.name for w in on_gpu.weights] == ["output_norm.weight", "output.weight"]
    assert on_gpu.n_bytes == 512 + 4 * N_EMBD * N_VOCAB


def test_the_embedding_stays_with_the_cpu(tmp_path):
    found = homes(planned(tmp_path, GPU, CPU))

    assert found.pop("token_embd.weight") == "CPU_Mapped"
    assert set(found.values()) == {"GPU0"}


def test_layers_follow_their_device(tmp_path):
    found = homes(planned(tmp_path, GPU, CPU, n_gpu_layers=2))

    assert found["blk.0.attn_q.weight"] == "CPU_Mapped"
    assert found["blk.1.attn_q.weight"] == "GPU0"


def test_a_tied_output_in_other_memory_is_loaded_twice(tmp_path):
    planner = planned(tmp_path, GPU, CPU, tensors=shapes(tied=True))
    tensors = planner.weights.tensors

    assert tensors["output.weight"] is not tensors["token_embd.weight"]
    assert tensors["output.weight"].name == "token_embd.weight"
    assert [
        sum(w.info.name == "token_embd.weight" for w in b.weights) for b in planner.weights.buffers
    ] == [1, 1]


def test_a_tied_output_in_the_same_memory_is_the_same_tensor(tmp_path):
    tensors = planned(tmp_path, tensors=shapes(tied=True)).weights.tensors

    assert tensors["output.weight"] is tensors["token_embd.weight"]


def test_rotation_factors_are_loaded_once_into_each_memory(tmp_path):
    planner = planned(tmp_path, GPU, CPU, n_gpu_layers=2, tensors={**shapes(), **ROPE_FREQS})

    tensors = planner.weights.tensors
    assert tensors["blk.0.rope_freqs.weight"].buffer.buft.name == "CPU_Mapped"
    assert tensors["blk.1.rope_freqs.weight"].buffer.buft.name == "GPU0"


def test_rotation_factors_of_layers_in_one_memory_are_one_tensor(tmp_path):
    planner = planned(tmp_path, tensors={**shapes(), **ROPE_FREQS})

    tensors = planner.weights.tensors
    assert tensors["blk.0.rope_freqs.weight"] is tensors["blk.1.rope_freqs.weight"]
    (buffer,) = planner.weights.buffers
    assert sum(w.info.name == "rope_freqs.weight" for w in buffer.weights) == 1


def test_every_layer_rotates_by_its_own_factors(tmp_path):
    planner = planned(tmp_path, GPU, CPU, n_gpu_layers=2, tensors={**shapes(), **ROPE_FREQS})
    plan = next(iter(planner.plan_set().plans.values()))

    rotations = {n.name: n.src[2] for n in plan.graph.nodes if n.op.value == "ROPE"}

    tensors = planner.weights.tensors
    assert rotations["Qcur-0"] is rotations["Kcur-0"] is tensors["blk.0.rope_freqs.weight"]
    assert rotations["Qcur-1"] is tensors["blk.1.rope_freqs.weight"]


def test_biases_are_used_where_the_model_has_them(tmp_path):
    planner = planned(tmp_path, tensors=shapes(biases=True))
    plan = next(iter(planner.plan_set().plans.values()))

    read = {source.name for node in plan.graph.nodes for source in node.src}

    assert {f"blk.{il}.{name}" for il in range(2) for name in BIAS_SHAPES} <= read


@pytest.mark.parametrize(
    ("override", "name"),
    [(("attn_q", "GPU0"), "GPU0"), (("attn_q", "CPU"), "CPU_Mapped"), (("zzz", "GPU0"), "GPU0")],
)
def test_an_override_moves_the_weights_it_finds(tmp_path, override, name):
    found = homes(planned(tmp_path, GPU, CPU, tensor_overrides=(override,)))

    assert found["blk.1.attn_q.weight"] == name
    assert found["blk.1.attn_k.weight"] == "GPU0"


def test_an_override_to_a_device_is_taken_though_it_lacks_the_operation(tmp_path):
    lacking = f"{GPU}:noops=MUL_MAT"
    override = ("attn_q", "GPU0")

    found = homes(planned(tmp_path, lacking, CPU, tensor_overrides=(override,)))

    assert found["blk.1.attn_q.weight"] == "GPU0"
    assert found["blk.1.attn_k.weight"] == "CPU_Mapped"


def test_an_override_to_the_cpu_chooses_among_the_cpus_kinds_of_memory(tmp_path):
    pinned = "CUDA0:gpu:8192:preset=cuda"

    found = homes(planned(tmp_path, pinned, CPU, tensor_overrides=(("ffn", "CPU"),), mmap=False))

    assert found["blk.0.ffn_up.weight"] == "CUDA_Host"
    assert found["blk.0.attn_q.weight"] == "CUDA0"


def test_without_mapping_weights_of_the_cpu_are_copied(tmp_path):
    (buffer,) = planned(tmp_path, mmap=False).weights.buffers

    assert (buffer.buft.name, buffer.is_mapped) == ("CPU", False)


def test_a_weight_in_two_kinds_of_memory_counts_twice(tmp_path):
    tied = shapes(tied=True)

    assert planned(tmp_path, tensors=tied).weights.n_tensors == len(tied)
    assert planned(tmp_path, GPU, CPU, tensors=tied).weights.n_tensors == len(tied) + 1


def test_a_weight_that_no_device_can_use_is_named_before_anything_is_loaded(tmp_path):
    with pytest.raises(PlacementError, match=r"No device can hold output_norm\.weight"):
        planned(tmp_path, "CPU:cpu:1:noops=MUL")


@pytest.mark.parametrize(
    "name", ["output_norm.weight", *(f"blk.1.{name}" for name in LAYER_SHAPES)]
)
def test_a_missing_tensor_is_named(tmp_path, name):
    tensors = {key: ne for key, ne in shapes().items() if key != name}

    error = refused(tmp_path, tensors)
    assert error.title == f"The model has no tensor {name}."
    assert error.sentence.startswith(
        f"Its architecture needs one of shape {list(shapes(tied=False)[name])}"
    )


@pytest.mark.parametrize("name", ["blk.2.attn_q.weight", "blk.0.attn_q.scale", "stray"])
def test_a_tensor_that_no_layer_uses_is_named(tmp_path, name):
    error = refused(tmp_path, {**shapes(), name: (N_EMBD, N_EMBD)})

    assert error.title == f"The model has the tensor {name}, which no layer uses."
    assert "llama.block_count = 2" in error.sentence


def test_the_first_of_several_unused_tensors_is_named(tmp_path):
    error = refused(tmp_path, {**shapes(), "blk.2.a": (1,), "blk.2.b": (1,), "blk.2.c": (1,)})

    assert error.title == "The model has the tensor blk.2.a and 2 others, which no layer uses."


def test_a_tensor_of_another_shape_is_named_with_both(tmp_path):
    error = refused(tmp_path, {**shapes(), "blk.1.ffn_up.weight": (N_EMBD, N_FF + 32)})

    assert "blk.1.ffn_up.weight" in error.title
    assert f"[{N_EMBD}, {N_FF + 32}, 1, 1]" in error.sentence
    assert f"[{N_EMBD}, {N_FF}, 1, 1]" in error.sentence
    assert "attention.key_length" not in error.sentence


def test_where_a_size_of_heads_comes_from_is_told_with_a_tensor_of_another_one(tmp_path):
    error = refused(tmp_path, {**shapes(), "blk.1.attn_q.weight": (N_EMBD, 2 * N_EMBD)})

    assert error.sentence.endswith(
        "A head has 16 elements, the share of one of 4 in 64: llama.attention.key_length is "
        "missing."
    )
