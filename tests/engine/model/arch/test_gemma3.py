"""gemma3: the sliding window, the norms around, the scales, the cap."""

import pytest

from engine.core.ops import Op, ScaleParams
from engine.model.blocks.graph_context import InputKey, InputKind
from tests.engine.model.made_arch import built, names

SLIDING = {"attention__sliding_window": 8, "attention__sliding_window_pattern": 2}


def test_embeddings_are_scaled_by_the_root_of_their_length(tmp_path):
    first, second = built(tmp_path, "gemma3").graph.nodes[:2]

    assert (first.name, second.name) == ("embd", "inp_scaled")
    assert second.params == ScaleParams(16.0)


def test_queries_are_scaled_instead_of_their_products(tmp_path):
    graph = built(tmp_path, "gemma3", options={"flash_attn": "off"})

    queries = [n for n in graph.graph.nodes if n.op is Op.SCALE and n.src[0].name == "Qcur-0"]
    assert [node.params.scale for node in queries] == [64**-0.5]
    weights = [n for n in graph.graph.nodes if n.op is Op.SOFT_MAX]
    assert {node.params.scale for node in weights} == {1.0}


def test_with_a_window_keys_come_before_values(tmp_path):
    def order(graph):
        wanted = ("MUL_MAT:Qcur-0", "MUL_MAT:Kcur-0", "MUL_MAT:Vcur-0")
        return [name[8] for name in names(graph) if name in wanted]

    biases = [f"blk.{il}.attn_{letter}.bias" for il in range(2) for letter in "qkv"]

    assert order(built(tmp_path, "gemma3", absent=biases, **SLIDING)) == ["Q", "K", "V"]
    assert order(built(tmp_path, "gemma3", absent=biases)) == ["Q", "V", "K"]


def test_a_window_brings_a_second_mask_of_the_same_name(tmp_path):
    with_window = built(tmp_path, "gemma3", **SLIDING)
    without = built(tmp_path, "gemma3")

    def masks(graph):
        return {key.part: t for key, t in graph.inputs.items() if key.kind is InputKind.KQ_MASK}

    assert masks(with_window).keys() == {0, 1}
    assert masks(without).keys() == {0}
    assert {mask.name for mask in masks(with_window).values()} == {"attn_inp_kq_mask"}


def test_each_layer_looks_at_its_part_of_the_cache(tmp_path):
    options = {"n_ctx": 1024, "n_ubatch": 128}
    graph = built(tmp_path, "gemma3", options=options, **SLIDING)

    masks = [node.src[3] for node, _ in graph.attentions]
    assert masks == [
        graph.inputs[InputKey(InputKind.KQ_MASK, 1)],
        graph.inputs[InputKey(InputKind.KQ_MASK, 0)],
    ]
    caches = [node.src[1].view_src for node, _ in graph.attentions]
    assert [cache.ne[1] for cache in caches] == [256, 1024]


def test_the_norm_after_the_feed_forward_is_not_a_layers(tmp_path):
    graph = built(tmp_path, "gemma3")

    after = [n for n in graph.graph.nodes if n.name.startswith("ffn_post_norm")]
    assert [node.src[0].name for node in after] == ["norm", "norm"]
    assert not {node.src[0] for node in after} & {node for node, _ in graph.layer_norms}


def test_rows_are_picked_before_the_norm_after_attention(tmp_path):
    layer = names(built(tmp_path, "gemma3"), 1)

    picked = layer.index("MUL:attn_post_norm-1")
    assert [name.partition(":")[0] for name in layer[picked - 3 : picked]] == [
        "MUL_MAT", "GET_ROWS", "RMS_NORM",
    ]  # fmt: skip


@pytest.mark.parametrize(("cap", "ops"), [(0.0, ["MUL_MAT"]), (30.0, ["SCALE", "TANH", "SCALE"])])
def test_logits_are_bent_to_stay_within_a_cap(tmp_path, cap, ops):
    graph = built(tmp_path, "gemma3", final_logit_softcapping=cap)

    assert [node.op_desc for node in graph.graph.nodes[-len(ops) :]] == ops
    assert graph.logits.name == "result_output"
