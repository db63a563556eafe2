"""qwen3: llama's layer with norms over heads, whose size is its own."""

import pytest

from engine.errors import ModelError
from tests.engine.model.made_arch import built, names, read

BIASES = tuple(f"attn_{letter}.bias" for letter in "qkv")


def test_heads_are_normalised_before_they_are_rotated(tmp_path):
    layer = names(built(tmp_path, "qwen3", absent=BIASES), 0)

    assert layer[2:8] == [
        "MUL_MAT:Qcur-0", "RESHAPE:Qcur-0", "RMS_NORM:norm-0", "MUL:Qcur_normed-0",
        "ROPE:Qcur-0", "MUL_MAT:Vcur-0",
    ]  # fmt: skip


def test_heads_may_be_longer_than_the_embeddings_share(tmp_path):
    sizes = {"attention__key_length": 128, "attention__value_length": 128}

    graph = built(tmp_path, "qwen3", **sizes)

    assert graph.attentions[0][0].src[0].ne[0] == 128
    output = next(n for n in graph.graph.nodes if n.src and "attn_output" in n.src[0].name)
    assert output.src[0].ne[:2] == (512, 256)


def test_one_matrix_may_give_queries_keys_and_values(tmp_path):
    graph = built(tmp_path, "qwen3", merged=("attn_qkv.weight", "attn_qkv.bias"))

    layer = names(graph, 0)
    assert layer[2:5] == ["MUL_MAT:wqkv-0", "ADD:wqkv_b-0", "VIEW:Qcur-0"]


def test_heads_of_an_odd_size_are_named(tmp_path):
    with pytest.raises(ModelError) as caught:
        read(tmp_path, "qwen3", attention__key_length=33, attention__value_length=33)

    assert caught.value.title == "The key qwen3.attention.key_length cannot be used."
    assert caught.value.sentence == "It is 33; it must be even."
