"""gemma4: two sizes of heads, shared keys, embeddings for each layer, experts beside."""

import pytest

from engine.core.ops import Op
from engine.core.plan import Batch
from engine.core.tensor import Flag
from engine.errors import ModelError
from engine.model.arch import find_architecture
from engine.model.blocks.graph_context import InputKey, InputKind
from engine.model.weights import LayerClass
from tests.engine.model.made_arch import built, made_header, names, planner_of, read
from tests.engine.model.made_numbers import GEMMA4

FOUR = {
    **GEMMA4,
    "block_count": 4,
    "attention__sliding_window_pattern": [True, False, True, False],
    "attention__head_count_kv": [2, 1, 2, 1],
    "attention__shared_kv_layers": 2,
}
EXPERTS = {"expert_count": 4, "expert_used_count": 2, "expert_feed_forward_length": 128}
PATTERN = "attention.sliding_window_pattern"
OF_TWO = "it must be an array of 2 values"
PER_LAYER = {**GEMMA4, "embedding_length_per_layer_input": 16}


def expert_tensors(il):
    """What a layer with experts has beside the rest."""
    return {
        f"blk.{il}.ffn_gate_inp.weight": (256, 4),
        f"blk.{il}.ffn_gate_inp.scale": (256,),
        f"blk.{il}.pre_ffw_norm_2.weight": (256,),
        f"blk.{il}.post_ffw_norm_1.weight": (256,),
        f"blk.{il}.post_ffw_norm_2.weight": (256,),
        f"blk.{il}.ffn_gate_up_exps.weight": (256, 256, 4),
        f"blk.{il}.ffn_down_exps.weight": (128, 256, 4),
        f"blk.{il}.ffn_down_exps.scale": (4,),
    }


def graph_with_experts(folder, **more):
    extra = {**expert_tensors(0), **more}
    with made_header(folder, "gemma4", extra=extra, **GEMMA4, **EXPERTS) as file:
        planner = planner_of(file)
        return planner.plan(Batch.PROMPT, planner.run_shape(3, 0)).built


def test_sliding_layers_have_heads_and_a_rotation_of_their_own(tmp_path):
    sliding, full = read(tmp_path, "gemma4", **GEMMA4).layers

    assert (sliding.n_embd_head_k, sliding.rope.n_dims) == (32, 32)
    assert (full.n_embd_head_k, full.rope.n_dims) == (64, 64)


def test_only_full_layers_have_factors_for_their_angles(tmp_path):
    graph = built(tmp_path, "gemma4", **GEMMA4)

    turned = [node for node in graph.graph.nodes if node.op is Op.ROPE]
    assert [(node.name, len(node.src)) for node in turned] == [
        ("Qcur_pos-0", 2), ("Kcur_pos-0", 2), ("Qcur_pos-1", 3), ("Kcur_pos-1", 3),
    ]  # fmt: skip


def test_layers_without_keys_read_those_of_the_last_layer_of_their_kind(tmp_path):
    graph = built(tmp_path, "gemma4", **FOUR)

    seen = [node.src[1].view_src.name for node, _ in graph.attentions]
    assert seen == ["cache_k_l0", "cache_k_l1", "cache_k_l0", "cache_k_l1"]
    written = [n.src[2].name for n in graph.graph.nodes if n.op is Op.SET_ROWS]
    assert written == ["cache_k_l0", "cache_v_l0", "cache_k_l1", "cache_v_l1"]


def test_layers_without_keys_need_no_tensors_for_them(tmp_path):
    unused = [f"blk.{il}.{name}.weight" for il in (2, 3) for name in ("attn_k", "attn_k_norm")]

    graph = built(tmp_path, "gemma4", absent=unused, **FOUR)

    assert len(graph.attentions) == 4


def test_keys_are_values_where_a_layer_has_none(tmp_path):
    layer = names(built(tmp_path, "gemma4", absent=["blk.1.attn_v.weight"], **GEMMA4), 1)

    assert "MUL_MAT:Vcur-1" in layer
    assert "MUL_MAT:Kcur-1" not in layer
    assert layer.count("RESHAPE:Vcur-1 (reshaped)") == 2


def test_values_are_normalised_without_a_weight_and_never_pinned(tmp_path):
    graph = built(tmp_path, "gemma4", **GEMMA4)

    values = [n for n in graph.graph.nodes if n.name.startswith("Vcur_normed") and not n.is_view_op]
    assert [node.op for node in values] == [Op.RMS_NORM, Op.RMS_NORM]
    assert not {node for node, _ in graph.layer_norms} & set(values)


def test_embeddings_of_layers_are_projected_once_where_the_first_layer_needs_them(tmp_path):
    order = names(built(tmp_path, "gemma4", **PER_LAYER))

    assert order[:4] == [
        "GET_ROWS:embd", "GET_ROWS:node_1", "RESHAPE: (reshaped)", "SCALE:inp_per_layer_selected",
    ]  # fmt: skip
    assert order.count("MUL:per_layer_proj") == 1
    assert (
        order.index("ADD:pe_in-0") < order.index("MUL:per_layer_proj") < order.index("MUL:l_out-0")
    )


def test_the_tokens_are_an_input_twice_and_the_second_has_no_name_of_its_own(tmp_path):
    graph = built(tmp_path, "gemma4", **PER_LAYER)

    again = graph.inputs[InputKey(InputKind.LAYER_TOKENS)]
    assert again.name.startswith("leaf_")
    assert again.ne == graph.inputs[InputKey(InputKind.TOKENS)].ne
    assert again.flags & Flag.INPUT


def test_the_table_of_layer_embeddings_is_the_cpus_and_its_projection_the_first_layers(tmp_path):
    kinds = {
        k.name: k
        for k in find_architecture("gemma4").weights(read(tmp_path, "gemma4", **PER_LAYER))
    }

    assert kinds["per_layer_token_embd.weight"].layer_class is LayerClass.INPUT
    projection = kinds["per_layer_model_proj.weight"]
    assert (projection.layer_class, projection.il) == (LayerClass.REPEATING, 0)


def test_what_others_may_read_of_the_last_norm_keeps_its_memory(tmp_path):
    nodes = built(tmp_path, "gemma4", **GEMMA4).graph.nodes

    kept = [node.name for node in nodes if node.flags & Flag.OUTPUT]
    assert kept == ["h_nextn", "result_norm", "result_output"]


def test_layers_have_experts_where_the_file_has_a_router(tmp_path):
    graph = graph_with_experts(tmp_path)

    logits = [n.name for n in graph.graph.nodes if n.name.startswith("ffn_moe_logits")]
    assert logits == ["ffn_moe_logits-0"]
    combined = next(n for n in graph.graph.nodes if n.name == "ffn_moe_combined-0")
    assert [source.name for source in combined.src] == ["ffn_mlp-0", "ffn_moe-0"]


def test_the_router_looks_at_what_attention_left(tmp_path):
    graph = graph_with_experts(tmp_path)

    logits = next(n for n in graph.graph.nodes if n.name == "ffn_moe_logits-0")
    scaled = logits.src[1]
    normed = scaled.src[0].src[0]
    assert [node.op for node in (scaled, scaled.src[0], normed)] == [Op.MUL, Op.SCALE, Op.RMS_NORM]
    assert normed.src[0].name == "attn_out-0"


def test_each_experts_answer_is_scaled(tmp_path):
    graph = graph_with_experts(tmp_path)

    scaled = next(n for n in graph.graph.nodes if n.name == "ffn_moe_down_scaled-0")
    answers, scales = scaled.src
    assert (answers.op, scales.op) == (Op.MUL_MAT_ID, Op.GET_ROWS)
    assert scales.src[0].op is Op.REPEAT


@pytest.mark.parametrize(
    ("numbers", "key", "found"),
    [
        ({"attention__sliding_window_pattern": None}, PATTERN, "missing"),
        ({"attention__sliding_window_pattern": 2}, PATTERN, f"2; {OF_TWO}"),
        ({"attention__sliding_window_pattern": [True]}, PATTERN, f"1; {OF_TWO}"),
        ({"attention__sliding_window": None}, "attention.sliding_window", "missing"),
        ({"attention__key_length_swa": None}, "attention.key_length_swa", "missing"),
        ({"attention__value_length_swa": 16}, "attention.value_length_swa", "16"),
        ({"rope__dimension_count_swa": 64}, "rope.dimension_count_swa", "64"),
        ({"rope__dimension_count_swa": 15}, "rope.dimension_count_swa", "15"),
        ({"embedding_length_per_layer_input": None}, "embedding_length_per_layer_input", "missing"),
        ({"attention__shared_kv_layers": 1}, "attention.shared_kv_layers", "1"),
        ({"attention__shared_kv_layers": 3}, "attention.shared_kv_layers", "3"),
        ({"attention__value_length": 32}, "attention.value_length", "32"),
    ],
)  # fmt: skip
def test_a_key_that_cannot_be_used_is_named(tmp_path, numbers, key, found):
    with pytest.raises(ModelError) as caught:
        read(tmp_path, "gemma4", **{**GEMMA4, **numbers})

    assert caught.value.title == f"The key gemma4.{key} cannot be used."
    assert found in caught.value.sentence


@pytest.mark.parametrize("name", ["attn_k", "attn_k_norm", "attn_q_norm"])
def test_a_layer_with_keys_needs_their_tensors(tmp_path, name):
    with pytest.raises(ModelError, match=rf"has no tensor blk\.0\.{name}\.weight"):
        built(tmp_path, "gemma4", absent=[f"blk.0.{name}.weight"], **FOUR)


def test_a_layer_with_a_router_needs_its_experts(tmp_path):
    extra = {"blk.1.ffn_gate_inp.weight": (256, 4)}
    with pytest.raises(ModelError, match=r"has no tensor blk\.1\."):
        graph_with_experts(tmp_path, **extra)
