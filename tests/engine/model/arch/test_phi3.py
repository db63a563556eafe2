"""phi3: what one matrix gives, and factors for two lengths of context."""

import pytest

from engine.core.ops import Op
from tests.engine.model.made_arch import built, names

FUSED = ("attn_qkv.weight", "attn_qkv.bias")
STRETCHED = {"rope__scaling__original_context_length": 512}


def test_queries_keys_and_values_are_cut_out_of_one_product(tmp_path):
    graph = built(tmp_path, "phi3", merged=FUSED)

    cut = [node for node in graph.graph.nodes if node.src and node.src[0].name == "wqkv_b-0"]
    assert [(node.name, node.ne[:3], node.view_offs) for node in cut] == [
        ("Qcur-0", (64, 4, 3), 0),
        ("Vcur-0", (64, 2, 3), 4 * (256 + 128)),
        ("Kcur-0", (64, 2, 3), 4 * 256),
    ]
    assert {node.nb[1:3] for node in cut} == {(256, 2048)}


def test_values_that_have_gaps_are_copied_before_they_are_stored_transposed(tmp_path):
    graph = built(tmp_path, "phi3", merged=FUSED, options={"flash_attn": "off"})

    layer = names(graph, 0)
    assert "CONT:Vcur-0 (cont)" in layer
    assert "RESHAPE:Vcur-0 (cont) (reshaped)" in layer


def test_queries_are_scaled_instead_of_their_products(tmp_path):
    graph = built(tmp_path, "phi3", merged=FUSED)

    scaled = next(node for node in graph.graph.nodes if node.op is Op.SCALE)
    assert (scaled.name, scaled.params.scale) == ("Qcur-0", 64**-0.5)
    assert {node.params.scale for node, _ in graph.attentions} == {1.0}


def test_up_gives_the_gate_as_well(tmp_path):
    graph = built(tmp_path, "phi3", merged=FUSED)

    gated = next(node for node in graph.graph.nodes if node.op is Op.GLU)
    assert gated.name == "ffn_swiglu-0"
    assert [source.ne[0] for source in gated.src] == [1024]
    assert gated.ne[0] == 512


@pytest.mark.parametrize(("n_ctx", "chosen"), [(512, "short"), (768, "long")])
def test_a_stretched_context_takes_the_long_factors(tmp_path, n_ctx, chosen):
    graph = built(tmp_path, "phi3", merged=FUSED, options={"n_ctx": n_ctx}, **STRETCHED)

    ropes = [node for node in graph.graph.nodes if node.op is Op.ROPE]
    assert {node.src[2].name for node in ropes} == {f"rope_factors_{chosen}.weight"}


def test_its_window_is_read_by_nobody(tmp_path):
    graph = built(tmp_path, "phi3", merged=FUSED, attention__sliding_window=64)

    assert {key.part for key in graph.inputs} == {0}


def test_the_residual_comes_first_in_the_last_sum(tmp_path):
    graph = built(tmp_path, "phi3", merged=FUSED)

    out = next(node for node in graph.graph.nodes if node.name == "l_out-0")
    assert out.src[1].name == "ffn_out-0"
