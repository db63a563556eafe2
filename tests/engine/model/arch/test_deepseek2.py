"""deepseek2: both forms of attention, the scale of a stretched context, groups of experts."""

import math

import pytest

from engine.core.ops import Op
from engine.errors import ModelError
from engine.model.blocks.graph_context import InputKey, InputKind
from engine.model.hparams_parts import Gating
from tests.engine.model.made_arch import built, made_header, names, planner_of, read

UNPACKED = {
    "expert_count": 4,
    "expert_used_count": 2,
    "expert_feed_forward_length": 128,
    "expert_shared_count": 2,
    "leading_dense_block_count": 1,
    "attention__head_count_kv": 4,
    "attention__q_lora_rank": 0,
    "attention__kv_lora_rank": 64,
    "rope__dimension_count": 32,
}
ABSORBED = {
    **UNPACKED,
    "attention__head_count_kv": 1,
    "attention__q_lora_rank": 48,
    "attention__key_length": 96,
    "attention__value_length": 64,
    "attention__key_length_mla": 64,
    "attention__value_length_mla": 48,
}
STRETCHED = {
    "rope__scaling__type": "yarn",
    "rope__scaling__factor": 4.0,
    "rope__scaling__yarn_log_multiplier": 0.0707,
}


def test_the_cache_holds_packed_rows_alone(tmp_path):
    with made_header(tmp_path, "deepseek2", **ABSORBED) as file:
        cache = planner_of(file).cache

    assert [cache.keys[il].ne[0] for il in (0, 1)] == [96, 96]
    assert not cache.values
    assert sum(len(buffer.tensors) for buffer in cache.buffers) == 2


def test_values_are_the_first_part_of_cached_rows(tmp_path):
    graph = built(tmp_path, "deepseek2", **ABSORBED)

    attention = graph.attentions[0][0]
    keys, values = attention.src[1].view_src, attention.src[2].view_src
    assert keys is values
    assert (attention.src[1].ne[0], attention.src[2].ne[0]) == (96, 64)
    assert attention.src[1].nb == attention.src[2].nb
    assert InputKey(InputKind.V_IDXS) not in graph.inputs


@pytest.mark.parametrize(("flash_attn", "name"), [("on", "fattn_mla-0"), ("off", "kqv_mla-0")])
def test_each_heads_answer_is_unpacked(tmp_path, flash_attn, name):
    graph = built(tmp_path, "deepseek2", options={"flash_attn": flash_attn}, **ABSORBED)

    unpacked = next(node for node in graph.graph.nodes if node.name == name)
    assert unpacked.src[0].ne[:3] == (64, 48, 4)
    assert unpacked.ne[:3] == (48, 3, 4)


def test_unpacked_heads_share_the_rotated_part_of_the_key(tmp_path):
    graph = built(tmp_path, "deepseek2", **UNPACKED)

    key = next(node for node in graph.graph.nodes if node.name == "Kcur-0")
    assert key.op is Op.CONCAT
    assert [source.op for source in key.src] == [Op.VIEW, Op.REPEAT]
    assert key.src[1].src[0].ne[:3] == (32, 1, 3)
    query = next(node for node in graph.graph.nodes if node.op is Op.ROPE)
    assert (query.name, query.params.offset, query.ne[0]) == ("Qcur-0", 32, 64)


def test_a_stretched_context_makes_attention_sharper(tmp_path):
    graph = built(tmp_path, "deepseek2", **ABSORBED, **STRETCHED)

    grown = 1.0 + 0.1 * 0.707 * math.log(4.0)
    assert graph.attentions[0][0].params.scale == pytest.approx(grown**2 / 8.0)
    rope = next(node for node in graph.graph.nodes if node.op is Op.ROPE)
    assert rope.params.attn_factor == pytest.approx(1.0 / (1.0 + 0.1 * math.log(4.0)))


def test_a_temperature_multiplies_queries(tmp_path):
    hot = {"attention__temperature_scale": 0.1, "attention__temperature_length": 8192}

    for numbers in (UNPACKED, ABSORBED):
        graph = built(tmp_path, "deepseek2", **numbers, **hot)
        assert "MUL:Qcur_attn_temp_scaled-0" in names(graph)
        assert graph.inputs[InputKey(InputKind.TEMPERATURE)].ne == (1, 1, 3, 1)


def test_experts_outside_of_the_best_groups_are_not_chosen(tmp_path):
    groups = {"expert_count": 8, "expert_group_count": 4, "expert_group_used_count": 2}

    graph = built(tmp_path, "deepseek2", **{**ABSORBED, **groups})

    nodes = {node.name: node for node in graph.graph.nodes}
    masked = nodes["ffn_moe_probs_masked-1"]
    assert nodes["ffn_moe_argsort-1"].src[0] is masked
    written = masked.src[0]
    assert (written.op, written.src[2].op) == (Op.SET_ROWS, Op.FILL)
    assert written.src[2].params.value == -math.inf
    assert nodes["ffn_moe_group_topk-1"].ne[:2] == (2, 1)


def test_gate_and_up_of_experts_may_be_one(tmp_path):
    graph = built(tmp_path, "deepseek2", merged=("ffn_gate_up_exps.weight",), **ABSORBED)

    nodes = {node.name: node for node in graph.graph.nodes}
    assert nodes["ffn_moe_gate_up-1"].ne[0] == 256
    assert (nodes["ffn_moe_gate-1"].view_offs, nodes["ffn_moe_up-1"].view_offs) == (0, 512)


def test_small_models_have_one_matrix_for_queries_and_no_key_that_says_so(tmp_path):
    lite = {**UNPACKED, "attention__q_lora_rank": None}

    assert read(tmp_path, "deepseek2", **lite, block_count=27).latent.n_lora_q == 0
    with pytest.raises(ModelError, match=r"attention\.q_lora_rank"):
        read(tmp_path, "deepseek2", **lite)


@pytest.mark.parametrize(("n_vocab", "n_lora_q"), [(128256, 0), (128000, 48)])
def test_a_model_of_48_layers_is_recognised_by_its_vocabulary(tmp_path, n_vocab, n_lora_q):
    numbers = {**ABSORBED, "block_count": 48, "vocab_size": n_vocab}

    assert read(tmp_path, "deepseek2", **numbers).latent.n_lora_q == n_lora_q


@pytest.mark.parametrize(
    ("n_layer", "n_vocab", "gating"),
    [
        (47, 154880, Gating.SIGMOID),
        (48, 154880, Gating.SIGMOID),
        (46, 154880, Gating.SOFTMAX),
        (47, 154881, Gating.SOFTMAX),
    ],
)
def test_one_model_gates_by_a_sigmoid_and_does_not_say_so(tmp_path, n_layer, n_vocab, gating):
    numbers = {**ABSORBED, "block_count": n_layer, "vocab_size": n_vocab}

    assert read(tmp_path, "deepseek2", **numbers).routing.gating is gating


@pytest.mark.parametrize(
    ("numbers", "key", "sentence"),
    [
        ({"attention__value_length_mla": None}, "attention.value_length_mla", "It is missing;"),
        ({"attention__head_count_kv": 4}, "attention.head_count_kv", "It is 4; it must be 1."),
        ({"attention__key_length": 128}, "attention.key_length", "It is 128; it must be 96."),
        ({"attention__value_length": 96}, "attention.value_length", "It is 96; it must be 64."),
        ({"attention__key_length_mla": 32}, "rope.dimension_count", "It is 32; it must be below"),
        ({"expert_feed_forward_length": None}, "expert_feed_forward_length", "It is missing;"),
    ],
)
def test_sizes_that_contradict_each_other_are_named(tmp_path, numbers, key, sentence):
    with pytest.raises(ModelError) as caught:
        read(tmp_path, "deepseek2", **{**ABSORBED, **numbers})

    assert caught.value.title == f"The key deepseek2.{key} cannot be used."
    assert caught.value.sentence.startswith(sentence)
