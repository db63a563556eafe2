"""gpt-oss: sinks, biases of experts, rows picked last."""

import pytest

from engine.core.ops import FlashAttnParams, GluOp, GluParams, Op
from engine.core.tensor import Flag
from engine.errors import ModelError
from tests.engine.model.made_arch import built, made_header, names, planner_of, read

NUMBERS = {
    "expert_count": 4,
    "expert_used_count": 2,
    "expert_feed_forward_length": 128,
    "attention__sliding_window": 8,
}


@pytest.mark.parametrize(("flash_attn", "place"), [("on", 4), ("off", 2)])
def test_sinks_take_part_in_attention(tmp_path, flash_attn, place):
    graph = built(tmp_path, "gpt-oss", options={"flash_attn": flash_attn}, **NUMBERS)

    op = Op.FLASH_ATTN_EXT if flash_attn == "on" else Op.SOFT_MAX
    attention = next(n for n in graph.graph.nodes if n.op is op and n.src[0].name != "node")
    assert attention.src[place].name == "blk.0.attn_sinks.weight"
    assert isinstance(attention.params, FlashAttnParams) == (flash_attn == "on")


def test_every_second_layer_slides_with_the_models_own_rotation(tmp_path):
    stretched = {"rope__scaling__factor": 4.0, "rope__freq_base": 150000.0}

    hp = read(tmp_path, "gpt-oss", **NUMBERS, **stretched)

    assert [layer.is_swa for layer in hp.layers] == [True, False]
    assert {layer.rope for layer in hp.layers} == {hp.layers[1].rope}
    assert hp.layers[0].rope.freq_scale == 0.25


def test_logits_of_the_router_become_weights_once_experts_are_chosen(tmp_path):
    layer = names(built(tmp_path, "gpt-oss", **NUMBERS), 0)

    start = layer.index("MUL_MAT:ffn_moe_logits-0")
    assert layer[start + 1 : start + 9] == [
        "ADD:ffn_moe_probs-0", "RESHAPE:ffn_moe_probs-0 (reshaped)", "ARGSORT:ffn_moe_argsort-0",
        "VIEW:ffn_moe_topk-0", "GET_ROWS:ffn_moe_weights-0", "RESHAPE:ffn_moe_weights-0 (reshaped)",
        layer[start + 7], "RESHAPE:ffn_moe_weights_softmax-0",
    ]  # fmt: skip
    assert layer[start + 7].startswith("SOFT_MAX:node_")


def test_experts_have_biases_and_a_limit(tmp_path):
    nodes = {node.name: node for node in built(tmp_path, "gpt-oss", **NUMBERS).graph.nodes}

    assert nodes["ffn_moe_gate_biased-0"].op is Op.ADD_ID
    assert nodes["ffn_moe_swiglu_oai-0"].params == GluParams(GluOp.SWIGLU_OAI, 1.702, 7.0)
    assert nodes["ffn_moe_down_biased-0"].src[1].ne[:2] == (256, 4)


def test_rows_are_picked_after_the_last_layer(tmp_path):
    graph = built(tmp_path, "gpt-oss", **NUMBERS)

    nodes = graph.graph.nodes
    picked = [i for i, node in enumerate(nodes) if "out_ids" in [s.name for s in node.src]]
    assert [node.name for node in nodes[picked[0] + 1 :]] == [
        "norm",
        "result_norm",
        "result_output",
    ]
    last = nodes[picked[0]].src[0]
    assert (last.name, last.ne[1]) == ("l_out-1", 3)
    assert last.flags & Flag.OUTPUT


def test_a_file_without_sinks_is_refused_by_name(tmp_path):
    with (
        made_header(tmp_path, "gpt-oss", absent=("attn_sinks.weight",), **NUMBERS) as file,
        pytest.raises(ModelError) as caught,
    ):
        planner_of(file)

    assert caught.value.title == "The model has no tensor blk.0.attn_sinks.weight."


def test_a_file_without_a_window_is_refused_by_name(tmp_path):
    with pytest.raises(ModelError) as caught:
        read(tmp_path, "gpt-oss", **{**NUMBERS, "attention__sliding_window": None})

    assert caught.value.title == "The key gpt-oss.attention.sliding_window cannot be used."
