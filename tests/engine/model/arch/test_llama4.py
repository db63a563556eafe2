"""llama4: chunks, layers without rotation, a temperature, weighed input of experts."""

import pytest

from engine.core.ops import Op
from engine.errors import ModelError
from engine.model.hparams import Window, WindowKind
from engine.model.hparams_parts import Temperature
from tests.engine.model.made_arch import built, names, read

NUMBERS = {
    "block_count": 4,
    "expert_count": 4,
    "expert_used_count": 2,
    "expert_feed_forward_length": 128,
    "interleave_moe_layer_step": 2,
}


def test_three_of_four_layers_see_chunks_and_rotate(tmp_path):
    hp = read(tmp_path, "llama4", **NUMBERS)

    assert hp.window == Window(8192, WindowKind.CHUNKED)
    assert hp.temperature == Temperature(8192, 0.1, 1.0)
    assert [layer.is_swa for layer in hp.layers] == [True, True, True, False]
    assert [layer.rotates for layer in hp.layers] == [True, True, True, False]
    assert {layer.rope.freq_base for layer in hp.layers} == {10000.0}


def test_chunks_rotate_as_the_whole_does_unless_the_file_says_otherwise(tmp_path):
    stretched = {"rope__freq_base": 5e5, "rope__scaling__factor": 4.0}

    same = read(tmp_path, "llama4", **NUMBERS, **stretched)
    other = read(tmp_path, "llama4", **NUMBERS, **stretched, rope__freq_base_swa=2e4)

    assert [(layer.rope.freq_base, layer.rope.freq_scale) for layer in same.layers] == [
        (5e5, 0.25)
    ] * 4
    assert [layer.rope.freq_base for layer in other.layers] == [2e4, 2e4, 2e4, 5e5]


def test_a_file_may_turn_the_window_off(tmp_path):
    hp = read(tmp_path, "llama4", attention__sliding_window=0, **NUMBERS)

    assert (hp.window, hp.temperature) == (None, None)
    assert [layer.rotates for layer in hp.layers] == [True, True, True, False]


def test_queries_of_still_layers_grow_sharper_with_their_position(tmp_path):
    graph = built(tmp_path, "llama4", **NUMBERS)

    still = [node for node in graph.graph.nodes if "inp_attn_scale" in [s.name for s in node.src]]
    assert [(node.op, node.name) for node in still] == [(Op.MUL, "Qcur-3")]


@pytest.mark.parametrize(("n_expert", "is_normed"), [(4, True), (128, False)])
def test_rotated_heads_are_normalised_without_a_weight(tmp_path, n_expert, is_normed):
    graph = built(tmp_path, "llama4", **{**NUMBERS, "expert_count": n_expert})

    assert ("RMS_NORM:Qcur_normed-0" in names(graph)) == is_normed


def test_experts_are_given_weighed_input(tmp_path):
    nodes = {n.name: n for n in built(tmp_path, "llama4", **NUMBERS).graph.nodes}

    assert nodes["ffn_moe_argsort-1"].src[0].name == "ffn_moe_logits-1"
    weighed = nodes["ffn_moe_weighted-1"]
    assert weighed.src[0].op is Op.REPEAT
    assert nodes["ffn_moe_gate-1"].src[1] is weighed
    assert nodes["ffn_moe_out-1"].src[0].src[0] is nodes["ffn_moe_down-1"]


def test_attention_has_the_name_of_a_norm_before_experts(tmp_path):
    nodes = {n.name: n for n in built(tmp_path, "llama4", **NUMBERS).graph.nodes}

    assert nodes["ffn_norm-1"].op is Op.MUL_MAT
    assert nodes["ffn_norm-0"].op is Op.MUL
    assert "attn_out-1" not in nodes


@pytest.mark.parametrize(("step", "sparse"), [(0, []), (1, [0, 1, 2, 3]), (2, [1, 3])])
def test_every_so_many_layers_have_experts(tmp_path, step, sparse):
    hp = read(tmp_path, "llama4", **{**NUMBERS, "interleave_moe_layer_step": step})

    assert [il for il, layer in enumerate(hp.layers) if layer.n_expert_used] == sparse


@pytest.mark.parametrize("key", ["interleave_moe_layer_step", "expert_feed_forward_length"])
def test_a_missing_key_is_named(tmp_path, key):
    with pytest.raises(ModelError) as caught:
        read(tmp_path, "llama4", **{**NUMBERS, key: None})

    assert caught.value.title == f"The key llama4.{key} cannot be used."


def test_steps_of_the_temperature(tmp_path):
    import numpy as np

    factors = read(tmp_path, "llama4", **NUMBERS).temperature.factors(
        np.array([0, 8190, 8191, 16383])
    )

    assert factors == pytest.approx([1.0, 1.0, 1.0 + 0.1 * np.log(2), 1.0 + 0.1 * np.log(3)])
    assert factors.dtype == np.float32
