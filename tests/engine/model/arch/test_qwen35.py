"""qwen35 and qwen35moe: which layers are recurrent, the delta net, the gate of full attention."""

import pytest

from engine.core.ops import ROPE_IMROPE, Op, ScaleParams
from engine.errors import ModelError
from engine.model.blocks.graph_context import InputKey, InputKind
from tests.engine.model.made_arch import built, made_header, planner_of, read
from tests.engine.model.made_numbers import QWEN35

EXPERTS = {"expert_count": 4, "expert_used_count": 2, "expert_feed_forward_length": 128}


def node_called(graph, name):
    return next(node for node in graph.graph.nodes if node.name == name)


@pytest.mark.parametrize(
    ("numbers", "recurrent"),
    [
        ({"full_attention_interval": 2}, [True, False, True, False]),
        ({"full_attention_interval": None}, [True, True, True, False]),
        ({"attention__recurrent_layers": [False, True, True, True]}, [False, True, True, True]),
    ],
)
def test_layers_are_recurrent_by_an_interval_or_as_the_file_lists_them(
    tmp_path, numbers, recurrent
):
    hp = read(tmp_path, "qwen35", **{**QWEN35, "block_count": 4, **numbers})

    assert [layer.is_recurrent for layer in hp.layers] == recurrent
    assert [layer.attends for layer in hp.layers] == [not flag for flag in recurrent]


def test_only_full_layers_have_keys_and_only_the_others_a_state(tmp_path):
    with made_header(tmp_path, "qwen35", **QWEN35) as file:
        planner = planner_of(file)

    assert list(planner.cache.keys) == [1]
    assert list(planner.model.state.ssm) == [0]


def test_a_rotation_takes_four_positions_a_token(tmp_path):
    graph = built(tmp_path, "qwen35", n_tokens=3, **QWEN35)

    assert graph.inputs[InputKey(InputKind.POSITIONS)].ne[0] == 12
    turned = [node.params for node in graph.graph.nodes if node.op is Op.ROPE]
    assert {(p.mode, p.sections) for p in turned} == {(ROPE_IMROPE, (3, 3, 2, 0))}


def test_heads_of_the_delta_net_have_length_one(tmp_path):
    """x / sqrt(mean(x^2) + eps / d) / sqrt(d) is x / sqrt(sum(x^2) + eps)."""
    graph = built(tmp_path, "qwen35", **QWEN35)

    key = node_called(graph, "k_conv_predelta-0")
    assert key.params == ScaleParams(0.25)
    assert key.src[0].params.eps == pytest.approx(1e-5 / 16)


def test_states_stand_behind_the_outputs_and_are_stored(tmp_path):
    graph = built(tmp_path, "qwen35", n_tokens=3, **QWEN35)

    net = next(n for n in graph.graph.nodes if n.op is Op.GATED_DELTA_NET)
    assert net.ne == (4 * 16, 3 + 16, 1, 1)
    new = node_called(graph, "new_state-0")
    assert new.view_offs == 3 * net.nb[1]
    stored = next(n for n in graph.graph.nodes if n.op is Op.CPY and n.src[0] is new)
    assert stored.view_src.name == "cache_s_l0"


def test_full_attention_is_let_through_by_a_gate_between_the_queries(tmp_path):
    graph = built(tmp_path, "qwen35", **QWEN35)

    queries, gate = node_called(graph, "Qcur_reshaped-1"), node_called(graph, "gate_reshaped-1")
    assert queries.nb[1] == 2 * 64 * 4
    assert gate.src[0].view_offs == 64 * 4
    gated = node_called(graph, "attn_gated-1")
    assert [source.name for source in gated.src] == ["attn_pregate-1", "gate_sigmoid-1"]


def test_the_shared_expert_is_let_through_by_a_gate(tmp_path):
    numbers = {**QWEN35, **EXPERTS, "expert_shared_feed_forward_length": 64}
    graph = built(tmp_path, "qwen35moe", **numbers)

    gate = node_called(graph, "shared_expert_gate-0")
    assert gate.ne[:2] == (1, 3)
    fed = node_called(graph, "ffn_out-0")
    assert [source.name for source in fed.src] == ["ffn_moe_out-0", "ffn_shexp_gated-0"]


def test_the_shared_expert_is_as_wide_as_the_feed_forward_where_the_file_does_not_say(tmp_path):
    assert read(tmp_path, "qwen35moe", **QWEN35, **EXPERTS).n_ff_shared == 512


def test_gate_and_up_of_experts_may_be_one_tensor_in_any_layer(tmp_path):
    merged = ["blk.1.ffn_gate_up_exps.weight"]
    graph = built(tmp_path, "qwen35moe", merged=merged, **QWEN35, **EXPERTS)

    ops = {n.name: n.op for n in graph.graph.nodes if n.name.startswith("ffn_moe_gate-")}
    assert ops == {"ffn_moe_gate-0": Op.MUL_MAT_ID, "ffn_moe_gate-1": Op.VIEW}


def test_layers_that_guess_further_tokens_are_known_and_not_loaded(tmp_path):
    numbers = {**QWEN35, "block_count": 3, "nextn_predict_layers": 1}
    with made_header(tmp_path, "qwen35", **numbers) as file:
        planner = planner_of(file)
        loaded = {
            weight.info.name for buffer in planner.weights.buffers for weight in buffer.weights
        }

    assert "blk.2.nextn.eh_proj.weight" in file
    assert not any(name.startswith("blk.2.") for name in loaded)
    assert len(planner.hparams.layers) == 2


@pytest.mark.parametrize(
    ("numbers", "key", "found"),
    [
        ({"rope__dimension_sections": None}, "rope.dimension_sections", "missing"),
        ({"rope__dimension_sections": [3, 3, 2]}, "rope.dimension_sections", "array of 3"),
        ({"rope__dimension_sections": [0, 0, 0, 0]}, "rope.dimension_sections", "[0, 0, 0, 0]"),
        ({"rope__dimension_sections": [4, 4, 4, 4]}, "rope.dimension_sections", "[4, 4, 4, 4]"),
        ({"ssm__inner_size": 128}, "ssm.inner_size", "128"),
        ({"ssm__group_count": 3}, "ssm.group_count", "3"),
        ({"full_attention_interval": 0}, "full_attention_interval", "0"),
        ({"attention__recurrent_layers": [True]}, "attention.recurrent_layers", "array of 1"),
    ],
)
def test_a_key_that_cannot_be_used_is_named(tmp_path, numbers, key, found):
    with pytest.raises(ModelError) as caught:
        read(tmp_path, "qwen35", **{**QWEN35, **numbers})

    assert caught.value.title == f"The key qwen35.{key} cannot be used."
    assert found in caught.value.sentence


@pytest.mark.parametrize("absent", ["attn_qkv.weight", "ssm_a", "ssm_dt.bias"])
def test_a_missing_tensor_of_the_delta_net_is_named(tmp_path, absent):
    with pytest.raises(ModelError, match=f"has no tensor blk.0.{absent}"):
        built(tmp_path, "qwen35", absent=[f"blk.0.{absent}"], **QWEN35)
