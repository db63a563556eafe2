"""gptneox: layer norms, and what stands beside or after attention."""

import pytest

from engine.core.ops import Op
from engine.errors import ModelError
from tests.engine.model.made_arch import built, names, read

NORMS = {"attention__layer_norm_rms_epsilon": None, "attention__layer_norm_epsilon": 1e-5}
BESIDE = {**NORMS, "use_parallel_residual": True}
AFTER = {**NORMS, "use_parallel_residual": False}


def test_a_layer_norm_has_a_weight_and_a_bias(tmp_path):
    graph = built(tmp_path, "gptneox", **BESIDE)

    assert names(graph, 0)[:3] == ["NORM:norm-0", "MUL:norm_w-0", "ADD:attn_norm-0"]
    assert names(graph)[-4:] == [
        "NORM:norm", "MUL:norm_w", "ADD:result_norm", "MUL_MAT:result_output",
    ]  # fmt: skip


def test_beside_attention_its_projection_comes_last(tmp_path):
    graph = built(tmp_path, "gptneox", **BESIDE)

    assert names(graph, 0)[-13:] == [
        "RESHAPE:kqv_out-0", "NORM:norm-0", "MUL:norm_w-0", "ADD:ffn_norm-0", "MUL_MAT:ffn_up-0",
        "ADD:ffn_up_b-0", "GELU:ffn_gelu-0", "MUL_MAT:ffn_down-0", "ADD:ffn_out-0",
        "ADD:ffn_out-0", "MUL_MAT:node_32", "ADD:node_33", "ADD:l_out-0",
    ]  # fmt: skip


def test_after_attention_the_sum_is_normalised(tmp_path):
    graph = built(tmp_path, "gptneox", **AFTER)

    joined = next(node for node in graph.graph.nodes if node.name == "ffn_inp-0")
    norms = [node for node in graph.graph.nodes if node.op is Op.NORM and node.src[0] is joined]
    assert len(norms) == 1


def test_part_of_each_head_is_rotated(tmp_path):
    graph = built(tmp_path, "gptneox", rope__dimension_count=16, **AFTER)

    assert {n.params.n_dims for n in graph.graph.nodes if n.op is Op.ROPE} == {16}


@pytest.mark.parametrize("missing", ["use_parallel_residual", "attention__layer_norm_epsilon"])
def test_a_missing_key_is_named(tmp_path, missing):
    with pytest.raises(ModelError) as caught:
        read(tmp_path, "gptneox", **{**BESIDE, missing: None})

    key = missing.replace("__", ".")
    assert caught.value.title == f"The key gptneox.{key} cannot be used."


def test_a_switch_that_is_a_number_is_named(tmp_path):
    with pytest.raises(ModelError) as caught:
        read(tmp_path, "gptneox", **{**BESIDE, "use_parallel_residual": 1})

    assert caught.value.sentence == "It is 1; it must be true or false."
