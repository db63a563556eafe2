"""starcoder2: biases everywhere, a feed-forward without a gate."""

import pytest

from engine.errors import ModelError
from tests.engine.model.made_arch import built, names

NORMS = {"attention__layer_norm_rms_epsilon": None, "attention__layer_norm_epsilon": 1e-5}


def test_the_second_half_of_a_layer(tmp_path):
    graph = built(tmp_path, "starcoder2", **NORMS)

    assert names(graph, 0)[-11:] == [
        "ADD:node_28", "ADD:ffn_inp-0", "NORM:norm-0", "MUL:norm_w-0", "ADD:ffn_norm-0",
        "MUL_MAT:ffn_up-0", "ADD:ffn_up_b-0", "GELU:ffn_gelu-0", "MUL_MAT:ffn_down-0",
        "ADD:ffn_out-0", "ADD:l_out-0",
    ]  # fmt: skip


def test_three_biases_may_be_joined_for_one_matrix(tmp_path):
    graph = built(tmp_path, "starcoder2", merged=("attn_qkv.weight",), **NORMS)

    added = next(node for node in graph.graph.nodes if node.name == "wqkv_b-0")
    assert names(graph, 0)[3:6] == ["MUL_MAT:wqkv-0", "CONCAT:node_5", "CONCAT:node_6"]
    assert added.src[1].ne[0] == 512


def test_a_missing_bias_is_named(tmp_path):
    with pytest.raises(ModelError) as caught:
        built(tmp_path, "starcoder2", absent=("blk.1.ffn_down.bias",), **NORMS)

    assert caught.value.title == "The model has no tensor blk.1.ffn_down.bias."
