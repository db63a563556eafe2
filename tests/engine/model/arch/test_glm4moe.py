"""glm4moe: dense layers, experts, and layers that nobody loads."""

import pytest

from engine.core.ops import ROPE_MROPE, ROPE_NEOX, Op, Precision
from engine.errors import ModelError
from engine.model.blocks.graph_context import InputKey, InputKind
from tests.engine.model.made_arch import built, made_header, names, planner_of, read

SHARED = {
    "expert_count": 4,
    "expert_used_count": 2,
    "expert_feed_forward_length": 128,
    "expert_shared_count": 1,
    "leading_dense_block_count": 1,
}
BEHIND = {**SHARED, "block_count": 3, "nextn_predict_layers": 1}


@pytest.mark.parametrize(
    ("absent", "normed"),
    [
        ((), ["Qcur_normed", "Kcur_normed"]),
        (("attn_k_norm.weight",), ["Qcur_normed"]),
        (("attn_q_norm.weight",), ["Kcur_normed"]),
        (("attn_q_norm.weight", "attn_k_norm.weight"), []),
    ],
)
def test_heads_of_q_and_k_are_normalised_each_for_itself(tmp_path, absent, normed):
    graph = built(tmp_path, "glm4moe", absent=absent, **SHARED)

    nodes = {node.name: node for node in graph.graph.nodes}
    assert [f"{n}-0" for n in ("Qcur_normed", "Kcur_normed") if f"{n}-0" in nodes] == [
        f"{n}-0" for n in normed
    ]
    for name in normed:
        assert nodes[f"{name}-0"].src[1].name == f"blk.0.attn_{name[0].lower()}_norm.weight"
        assert nodes[f"{name[0]}cur-0"].src[0] is nodes[f"{name}-0"]


def test_leading_layers_are_dense(tmp_path):
    graph = built(tmp_path, "glm4moe", **SHARED)

    assert "MUL_MAT:ffn_out-0" in names(graph, 0)
    assert "SIGMOID:ffn_moe_probs-1" in names(graph, 1)


def test_experts_are_ranked_with_a_bias_and_weighed_without(tmp_path):
    nodes = {node.name: node for node in built(tmp_path, "glm4moe", **SHARED).graph.nodes}

    assert nodes["ffn_moe_argsort-1"].src[0].name == "ffn_moe_probs_biased-1"
    assert nodes["ffn_moe_weights-1"].src[0].src[0].name == "ffn_moe_probs-1"


def test_three_products_of_a_layer_ask_for_full_precision(tmp_path):
    graph = built(tmp_path, "glm4moe", options={"flash_attn": "on"}, **SHARED)

    exact = [
        node.src[0].name
        for node in graph.graph.nodes
        if node.op is Op.MUL_MAT and node.params.precision is Precision.F32
    ]
    assert exact == [
        "blk.0.attn_output.weight", "blk.0.ffn_down.weight",
        "blk.1.attn_output.weight", "blk.1.ffn_down_shexp.weight",
    ]  # fmt: skip


def test_layers_behind_the_last_are_placed_and_not_loaded(tmp_path):
    with made_header(tmp_path, "glm4moe", **BEHIND) as file:
        planner = planner_of(file)
        assert "blk.2.nextn.eh_proj.weight" in file
        assert "blk.2.attn_norm.weight" in file

    hp = planner.hparams
    assert (hp.n_layer, hp.n_layer_all) == (2, 3)
    assert len(planner.placement.layer_devices) == 4
    assert not [name for name in planner.weights.tensors if name.startswith("blk.2.")]
    assert sorted(planner.cache.keys) == [0, 1]
    assert len(planner.plan_set().layer_devices) == 4


def test_a_file_may_leave_layers_behind_the_last_out(tmp_path):
    with made_header(tmp_path, "glm4moe", **BEHIND) as file:
        behind = [info.name for info in file.tensors if info.name.startswith("blk.2.")]

    assert built(tmp_path, "glm4moe", absent=behind, **BEHIND).attentions


def test_sections_turn_heads_by_four_positions_a_token(tmp_path):
    plain = built(tmp_path, "glm4moe", **SHARED)
    multi = built(tmp_path, "glm4moe", rope__dimension_sections=[8, 4, 4, 0], **SHARED)

    def rope(graph):
        return next(node for node in graph.graph.nodes if node.op is Op.ROPE).params

    assert (rope(plain).mode, rope(multi).mode) == (ROPE_NEOX, ROPE_MROPE)
    assert rope(multi).sections == (8, 4, 4, 0)
    assert multi.inputs[InputKey(InputKind.POSITIONS)].ne[0] == 12


@pytest.mark.parametrize("sections", [8, [8, 4, 4], [8, 4, 4, -1]])
def test_sections_are_four_numbers(tmp_path, sections):
    with pytest.raises(ModelError) as caught:
        read(tmp_path, "glm4moe", rope__dimension_sections=sections, **SHARED)

    assert caught.value.title == "The key glm4moe.rope.dimension_sections cannot be used."
    assert caught.value.sentence.endswith("must be an array of 4 whole numbers from 0 on.")


@pytest.mark.parametrize(
    ("n_dense", "tensor", "found"),
    [(None, "blk.0.ffn_gate_inp.weight", "missing"), (99, "blk.1.ffn_gate.weight", "99")],
)
def test_the_key_that_asks_for_a_tensor_is_named_with_it(tmp_path, n_dense, tensor, found):
    with made_header(tmp_path, "glm4moe", **SHARED) as file:
        shapes = {info.name: info.ne for info in file.tensors}
    numbers = {**SHARED, "leading_dense_block_count": n_dense}
    with (
        made_header(tmp_path, "glm4moe", absent=[tensor], extra=shapes, **numbers) as file,
        pytest.raises(ModelError) as caught,
    ):
        planner_of(file)

    assert caught.value.title == f"The model has no tensor {tensor}."
    assert caught.value.sentence.endswith(f", as glm4moe.leading_dense_block_count is {found}.")


@pytest.mark.parametrize(
    ("numbers", "sentence"),
    [
        ({"expert_gating_func": 9}, "It is 9; it must be one of 1, 2, 3."),
        ({"expert_group_count": 3}, "It is 3; it must be a divisor of 4, the expert_count, and"),
        ({"expert_shared_count": 0}, "It is 0; it must be a whole number from 1 to"),
        ({"expert_used_count": 5}, "It is 5; it must be at most 4, the expert_count."),
        ({"expert_feed_forward_length": [128]}, "It is an array of 1; it must be one value, or 2"),
        ({"nextn_predict_layers": 2}, "It is 2; it must be a whole number from 0 to 1."),
    ],
)
def test_a_number_that_cannot_be_is_named(tmp_path, numbers, sentence):
    with pytest.raises(ModelError) as caught:
        read(tmp_path, "glm4moe", **{**SHARED, **numbers})

    (key,) = numbers
    assert caught.value.title == f"The key glm4moe.{key} cannot be used."
    assert caught.value.sentence.startswith(sentence)
