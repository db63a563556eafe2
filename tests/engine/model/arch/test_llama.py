"""llama: dense and with experts, biases, long contexts, layers that differ."""

import pytest

from engine.core.ops import Op
from tests.engine.model.made_arch import built, names

EXPERTS = {"expert_count": 4, "expert_used_count": 2}
BIASES = tuple(
    f"blk.{il}.{name}.bias"
    for il in range(2)
    for name in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_down", "ffn_up")
)
FREQS = ("rope_freqs.weight",)


def factors_of(graph):
    """Return the names of what divides the angles."""
    ropes = [node for node in graph.graph.nodes if node.op is Op.ROPE]
    return {node.src[2].name for node in ropes if len(node.src) > 2}


def test_the_second_half_of_a_dense_layer(tmp_path):
    graph = built(tmp_path, "llama", absent=BIASES + FREQS)

    assert names(graph, 0)[-8:] == [
        "ADD:ffn_inp-0", "RMS_NORM:norm-0", "MUL:ffn_norm-0", "MUL_MAT:ffn_gate-0",
        "MUL_MAT:ffn_up-0", "SWIGLU:ffn_swiglu-0", "MUL_MAT:ffn_out-0", "ADD:l_out-0",
    ]  # fmt: skip


def test_biases_are_added_where_a_file_has_them(tmp_path):
    added = [node for node in built(tmp_path, "llama").graph.nodes if node.op is Op.ADD]

    of_first = [(node.name, node.src[1].name) for node in added if node.src[1].name in BIASES[:7]]
    assert of_first == [
        ("Qcur-0", "blk.0.attn_q.bias"),
        ("Vcur-0", "blk.0.attn_v.bias"),
        ("Kcur-0", "blk.0.attn_k.bias"),
        ("attn_out-0", "blk.0.attn_output.bias"),
        ("ffn_gate_b-0", "blk.0.ffn_gate.bias"),
        ("ffn_up_b-0", "blk.0.ffn_up.bias"),
        ("ffn_out-0", "blk.0.ffn_down.bias"),
    ]


def test_experts_follow_the_norm(tmp_path):
    graph = built(tmp_path, "llama", absent=BIASES + FREQS, **EXPERTS)

    layer = names(graph, 0)
    assert layer[layer.index("MUL:ffn_norm-0") + 1 :] == [
        "MUL_MAT:ffn_moe_logits-0", "SOFT_MAX:ffn_moe_probs-0",
        "RESHAPE:ffn_moe_probs-0 (reshaped)", "ARGSORT:ffn_moe_argsort-0", "VIEW:ffn_moe_topk-0",
        "GET_ROWS:ffn_moe_weights-0", "RESHAPE:ffn_moe_weights-0 (reshaped)",
        "SUM_ROWS:ffn_moe_weights_sum-0", "CLAMP:ffn_moe_weights_sum_clamped-0",
        "DIV:ffn_moe_weights_norm-0", "RESHAPE:ffn_moe_weights_norm-0 (reshaped)",
        "RESHAPE:ffn_norm-0 (reshaped)", "MUL_MAT_ID:ffn_moe_gate-0", "MUL_MAT_ID:ffn_moe_up-0",
        "SWIGLU:ffn_moe_swiglu-0", "MUL_MAT_ID:ffn_moe_down-0", "MUL:ffn_moe_weighted-0",
        "VIEW:ffn_moe_weighted-0 (view)", "VIEW:ffn_moe_weighted-0 (view)", "ADD:ffn_moe_out-0",
        "ADD:l_out-0",
    ]  # fmt: skip


def test_without_factors_rotation_has_two_sources(tmp_path):
    assert factors_of(built(tmp_path, "llama", absent=FREQS)) == set()


def test_factors_are_shared_by_all_layers(tmp_path):
    assert factors_of(built(tmp_path, "llama")) == {"rope_freqs.weight"}


@pytest.mark.parametrize(("n_ctx", "chosen"), [(512, "short"), (513, "long"), (2048, "long")])
def test_a_context_that_is_stretched_takes_the_long_factors(tmp_path, n_ctx, chosen):
    numbers = {
        "rope__scaling__type": "longrope",
        "rope__scaling__original_context_length": 512,
    }

    graph = built(tmp_path, "llama", options={"n_ctx": n_ctx}, **numbers)

    assert factors_of(graph) == {f"rope_factors_{chosen}.weight"}


def test_layers_may_have_feed_forwards_of_different_widths(tmp_path):
    graph = built(tmp_path, "llama", feed_forward_length=[512, 96])

    widths = [node.ne[0] for node in graph.graph.nodes if node.name.startswith("ffn_swiglu")]
    assert widths == [512, 96]


def test_layers_may_have_different_numbers_of_heads(tmp_path):
    graph = built(
        tmp_path, "llama", attention__head_count=[4, 2], attention__head_count_kv=[2, 1],
        attention__key_length=64, attention__value_length=64,
    )  # fmt: skip

    ropes = [node for node in graph.graph.nodes if node.op is Op.ROPE]
    assert [node.ne[:3] for node in ropes] == [(64, 4, 3), (64, 2, 3), (64, 2, 3), (64, 1, 3)]
