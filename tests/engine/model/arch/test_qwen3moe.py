"""qwen3moe: heads of Q and K are normalised, and every layer has experts."""

from engine.core.ops import Op
from tests.engine.model.made_arch import built, names

EXPERTS = {"expert_count": 4, "expert_used_count": 2, "expert_feed_forward_length": 96}


def test_heads_are_normalised_before_they_are_rotated(tmp_path):
    absent = [f"blk.0.attn_{letter}.bias" for letter in "qkv"]
    graph = built(tmp_path, "qwen3moe", absent=absent, **EXPERTS)

    assert names(graph, 0)[2:15] == [
        "MUL_MAT:Qcur-0", "RESHAPE:Qcur-0", "RMS_NORM:norm-0", "MUL:Qcur_normed-0",
        "ROPE:Qcur-0", "MUL_MAT:Vcur-0", "RESHAPE:Vcur-0", "MUL_MAT:Kcur-0", "RESHAPE:Kcur-0",
        "RMS_NORM:norm-0", "MUL:Kcur_normed-0", "ROPE:Kcur-0", "VIEW:Kcur-0 (view)",
    ]  # fmt: skip


def test_experts_have_the_width_of_their_own_key(tmp_path):
    graph = built(tmp_path, "qwen3moe", **EXPERTS)

    products = [node for node in graph.graph.nodes if node.op is Op.MUL_MAT_ID]
    assert [node.ne[:3] for node in products[:3]] == [(96, 2, 3), (96, 2, 3), (256, 2, 3)]


def test_layers_may_have_experts_of_different_widths(tmp_path):
    numbers = {**EXPERTS, "expert_feed_forward_length": [96, 32]}

    graph = built(tmp_path, "qwen3moe", **numbers)

    widths = [n.ne[0] for n in graph.graph.nodes if n.name.startswith("ffn_moe_swiglu")]
    assert widths == [96, 32]
