"""granite: scales everywhere, also with experts, also without rotation."""

import pytest

from engine.core.ops import Op
from engine.errors import ModelError
from engine.model.blocks.graph_context import InputKey, InputKind
from tests.engine.model.made_arch import built, names, read

SCALES = {
    "logit_scale": 8.0,
    "residual_scale": 0.22,
    "embedding_scale": 12.0,
    "attention__scale": 0.0625,
}
EXPERTS = {"expert_count": 4, "expert_used_count": 2}


def scales_of(graph):
    return {n.name: n.params.scale for n in graph.graph.nodes if n.op is Op.SCALE}


def test_embeddings_residuals_and_logits_are_scaled(tmp_path):
    graph = built(tmp_path, "granite", **SCALES)

    scales = scales_of(graph)
    assert scales.pop("embd") == 12.0
    assert scales.pop("result_output") == 0.125
    assert list(scales.values()) == [pytest.approx(0.22)] * 4
    assert names(graph)[0] == "GET_ROWS:node_0"
    assert {node.params.scale for node, _ in graph.attentions} == {0.0625}


def test_without_scales_nothing_but_logits_is_scaled(tmp_path):
    graph = built(tmp_path, "granite", logit_scale=4.0)

    assert scales_of(graph) == {"result_output": 0.25}
    assert {node.params.scale for node, _ in graph.attentions} == {0.125}


def test_a_model_that_is_not_finetuned_has_no_positions(tmp_path):
    still = built(tmp_path, "granite", rope__scaling__finetuned=False, **SCALES)
    turning = built(tmp_path, "granite", rope__scaling__finetuned=True, **SCALES)

    assert InputKey(InputKind.POSITIONS) not in still.inputs
    assert InputKey(InputKind.POSITIONS) in turning.inputs
    assert not [node for node in still.graph.nodes if node.op is Op.ROPE]


def test_a_shared_expert_is_added_to_the_others(tmp_path):
    shared = {"expert_shared_feed_forward_length": 64}

    layer = names(built(tmp_path, "granitemoe", **SCALES, **EXPERTS, **shared), 0)

    assert layer[-7:-2] == [
        "MUL_MAT:ffn_gate-0", "MUL_MAT:ffn_up-0", "SWIGLU:ffn_swiglu-0",
        "MUL_MAT:ffn_shexp-0", "ADD:ffn_out-0",
    ]  # fmt: skip


def test_logits_that_would_be_divided_by_nothing_are_named(tmp_path):
    with pytest.raises(ModelError) as caught:
        read(tmp_path, "granite", logit_scale=0.0)

    assert caught.value.title == "The key granite.logit_scale cannot be used."


def test_parts_of_images_in_some_layers_are_named(tmp_path):
    read(tmp_path, "granite", deepstack_mapping=[-1, -1], **SCALES)

    with pytest.raises(ModelError) as caught:
        read(tmp_path, "granite", deepstack_mapping=[-1, 0], **SCALES)

    assert "deepstack_mapping" in caught.value.title
