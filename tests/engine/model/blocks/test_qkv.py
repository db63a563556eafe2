"""Queries, keys and values: from one matrix or three, never from both."""

import pytest

from engine.errors import ModelError
from tests.engine.model.made_arch import built, made_header, planner_of

BOTH = ("attn_qkv.weight", "attn_qkv.bias")
BIASES = ("attn_q.bias", "attn_k.bias", "attn_v.bias")


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


def test_three_biases_are_added_to_one_product(tmp_path):
    graph = built(tmp_path, "llama", merged=("attn_qkv.weight",))

    added = next(node for node in graph.graph.nodes if node.name == "wqkv_b-0")
    joined = added.src[1]
    assert [s.name for s in (*joined.src[0].src, joined.src[1])] == [
        "blk.0.attn_q.bias", "blk.0.attn_k.bias", "blk.0.attn_v.bias",
    ]  # fmt: skip


def left_over(tmp_path, **numbers):
    with made_header(tmp_path, "llama", **numbers) as file, pytest.raises(ModelError) as caught:
        planner_of(file)
    return caught.value.title


@pytest.mark.parametrize("absent", [("attn_v.bias",), ("attn_k.bias", "attn_v.bias")])
def test_some_biases_of_three_beside_one_product_are_left_over(tmp_path, absent):
    title = left_over(tmp_path, merged=("attn_qkv.weight",), absent=absent)

    assert title.startswith("The model has the tensor blk.0.attn_q.bias and ")


def test_the_bias_of_a_product_that_is_not_there_is_left_over(tmp_path):
    title = left_over(tmp_path, extra={"blk.0.attn_qkv.bias": (512,)}, absent=BIASES)

    assert title == "The model has the tensor blk.0.attn_qkv.bias, which no layer uses."


def test_a_product_of_three_takes_the_biases_that_are_there(tmp_path):
    graph = built(tmp_path, "llama", absent=("attn_k.bias",))

    read = {source.name for node in graph.graph.nodes for source in node.src}
    assert "blk.0.attn_q.bias" in read
    assert "blk.0.attn_k.bias" not in read
