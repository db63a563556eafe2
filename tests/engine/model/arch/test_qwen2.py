"""qwen2: what it does otherwise than llama."""

from engine.core.ops import ROPE_NEOX, Op
from tests.engine.model.made_arch import built


def test_rotation_pairs_halves_of_a_head(tmp_path):
    graph = built(tmp_path, "qwen2")

    assert {node.params.mode for node in graph.graph.nodes if node.op is Op.ROPE} == {ROPE_NEOX}


def test_the_output_projection_of_attention_has_no_name(tmp_path):
    graph = built(tmp_path, "qwen2")

    projections = [n for n in graph.graph.nodes if n.src[0].name.endswith("attn_output.weight")]
    assert all(node.name.startswith("node_") for node in projections)
    assert len(projections) == 2


def test_an_output_bias_is_added_to_the_logits(tmp_path):
    with_bias = built(tmp_path, "qwen2").logits
    without = built(tmp_path, "qwen2", absent=("output.bias",)).logits

    assert (with_bias.op, with_bias.src[1].name) == (Op.ADD, "output.bias")
    assert without.op is Op.MUL_MAT
