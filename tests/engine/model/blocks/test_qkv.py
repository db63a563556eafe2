"""Queries, keys and values: from one matrix or three, never from both."""

import pytest

from engine.errors import ModelError
from tests.engine.model.made_arch import built, made_header, planner_of

BOTH = ("attn_qkv.weight", "attn_qkv.bias")


def products(graph):
    return [n.name for n in graph.graph.nodes if n.op == "MUL_MAT" and n.name.endswith("-0")][:3]


@pytest.mark.parametrize("arch", ["llama", "qwen2", "qwen3", "phi3", "granite"])
def test_a_file_has_one_matrix_or_three(tmp_path, arch):
    scale = {"logit_scale": 8.0} if arch == "granite" else {}

    assert products(built(tmp_path, arch, **scale)) == ["Qcur-0", "Vcur-0", "Kcur-0"]
    assert products(built(tmp_path, arch, merged=BOTH, **scale))[0] == "wqkv-0"


def test_a_matrix_beside_the_one_that_stands_for_it_is_left_over(tmp_path):
    extra = {"blk.0.attn_q.weight": (256, 256)}

    with (
        made_header(tmp_path, "llama", merged=BOTH, extra=extra) as file,
        pytest.raises(ModelError) as caught,
    ):
        planner_of(file)

    assert "blk.0.attn_q.weight, which no layer uses" in caught.value.title


def test_one_of_three_that_is_missing_is_named(tmp_path):
    with pytest.raises(ModelError) as caught:
        built(tmp_path, "llama", absent=("blk.1.attn_k.weight",))

    assert caught.value.title == "The model has no tensor blk.1.attn_k.weight."


def test_two_biases_of_three_are_not_added_to_one_product(tmp_path):
    graph = built(tmp_path, "llama", merged=("attn_qkv.weight",), absent=("attn_v.bias",))

    assert not [node for node in graph.graph.nodes if node.name == "wqkv_b-0"]
