"""olmoe: norms over whole rows, experts whose weights stay as they are."""

import pytest

from engine.errors import ModelError
from tests.engine.model.made_arch import built, names, read

EXPERTS = {"expert_count": 4, "expert_used_count": 2}
BIASES = tuple(f"attn_{letter}.bias" for letter in "qkv")


def test_rows_are_normalised_before_they_are_cut_into_heads(tmp_path):
    graph = built(tmp_path, "olmoe", absent=BIASES, **EXPERTS)

    assert names(graph, 0)[2:9] == [
        "MUL_MAT:Qcur-0", "RMS_NORM:norm-0", "MUL:Qcur_normed-0",
        "RESHAPE:Qcur_normed-0 (reshaped)", "ROPE:Qcur-0", "MUL_MAT:Vcur-0", "RESHAPE:Vcur-0",
    ]  # fmt: skip


def test_rows_of_one_product_are_copied_out_of_it(tmp_path):
    graph = built(tmp_path, "olmoe", merged=("attn_qkv.weight", "attn_qkv.bias"), **EXPERTS)

    assert names(graph, 0)[2:6] == [
        "MUL_MAT:wqkv-0", "ADD:wqkv_b-0", "VIEW:wqkv_b-0 (view)", "CONT:Qcur-0",
    ]  # fmt: skip


def test_weights_of_experts_do_not_add_up_to_one(tmp_path):
    layer = names(built(tmp_path, "olmoe", **EXPERTS), 0)

    assert "GET_ROWS:ffn_moe_weights-0" in layer
    assert not [name for name in layer if "weights_sum" in name or "weights_norm" in name]


def test_a_model_without_experts_is_named(tmp_path):
    with pytest.raises(ModelError) as caught:
        read(tmp_path, "olmoe")

    assert caught.value.title == "The key olmoe.expert_count cannot be used."
