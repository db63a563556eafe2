"""command-r: one norm for attention and feed-forward."""

import pytest

from engine.core.ops import Op
from engine.errors import ModelError
from tests.engine.model.made_arch import built, made_header, names, planner_of

NORMS = {"attention__layer_norm_rms_epsilon": None, "attention__layer_norm_epsilon": 1e-5}
BIASES = tuple(f"attn_{letter}.bias" for letter in "qkv")


def test_attention_and_feed_forward_read_one_norm(tmp_path):
    graph = built(tmp_path, "command-r", absent=BIASES, **NORMS)

    assert names(graph, 0)[-7:] == [
        "MUL_MAT:ffn_gate-0", "MUL_MAT:ffn_up-0", "SWIGLU:ffn_swiglu-0", "MUL_MAT:ffn_out-0",
        "ADD:node_27", "MUL_MAT:node_28", "ADD:l_out-0",
    ]  # fmt: skip
    normed = next(node for node in graph.graph.nodes if node.name == "attn_norm-0")
    readers = [n.name for n in graph.graph.nodes if normed in n.src]
    assert readers == ["Qcur-0", "Vcur-0", "Kcur-0", "ffn_gate-0", "ffn_up-0"]


def test_the_norms_rows_are_picked_before_the_projection(tmp_path):
    layer = names(built(tmp_path, "command-r", absent=BIASES, **NORMS), 1)

    picked = [i for i, name in enumerate(layer) if name.startswith("GET_ROWS")]
    projected = [i for i, name in enumerate(layer) if name.startswith("MUL_MAT:node")]
    assert len(picked) == 3
    assert picked[0] < projected[0] < picked[2]


@pytest.mark.parametrize(("scale", "ops"), [(0.0625, ["MUL_MAT", "SCALE"]), (0.0, ["MUL_MAT"])])
def test_logits_are_scaled_where_a_file_says_so(tmp_path, scale, ops):
    graph = built(tmp_path, "command-r", logit_scale=scale, **NORMS)

    assert [node.op_desc for node in graph.graph.nodes[-len(ops) :]] == ops


@pytest.mark.parametrize(("n_layer", "n_norms"), [(63, 1), (64, 3)])
def test_large_models_normalise_each_head_with_a_weight_of_its_own(tmp_path, n_layer, n_norms):
    graph = built(tmp_path, "command-r", block_count=n_layer, **NORMS)

    first = [node for node in graph.graph.nodes if node.op is Op.NORM and node.name == "norm-0"]
    assert len(first) == n_norms
    weights = {t.name: t.ne[:2] for n in graph.graph.nodes for t in n.src if "_norm.w" in t.name}
    assert weights.get("blk.0.attn_q_norm.weight", (64, 4)) == (64, 4)


def test_an_output_of_its_own_is_left_over(tmp_path):
    with made_header(tmp_path, "llama") as file:
        assert "output.weight" in file
    with (
        made_header(tmp_path, "command-r", extra={"output.weight": (256, 96)}, **NORMS) as file,
        pytest.raises(ModelError) as caught,
    ):
        planner_of(file)

    assert "output.weight, which no layer uses" in caught.value.title
