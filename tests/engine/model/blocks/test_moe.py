"""Experts: routing, and the order in which their answers are added."""

import math

import pytest

from engine.core.ops import ArgsortParams, ClampParams, Op
from tests.engine.model.made_arch import built


@pytest.fixture
def first_layer(tmp_path):
    """Return the nodes of the first layer's experts by name, each name's in order."""

    def make(**numbers):
        graph = built(tmp_path, "qwen3moe", **{"expert_count": 8, **numbers})
        found = {}
        for node in graph.graph.nodes:
            if node.name.startswith("ffn_moe_") and node.name.split(" ")[0].endswith("-0"):
                found.setdefault(node.name, []).append(node)
        return found

    return make


@pytest.mark.parametrize("n_used", [1, 2, 8])
def test_each_token_uses_the_experts_with_the_highest_scores(first_layer, n_used):
    nodes = first_layer(expert_used_count=n_used)

    (order,), (best,) = nodes["ffn_moe_argsort-0"], nodes["ffn_moe_topk-0"]
    assert order.params == ArgsortParams(descending=True)
    assert (order.ne, best.ne) == ((8, 3, 1, 1), (n_used, 3, 1, 1))
    assert best.nb[1] == 8 * 4


def test_weights_are_divided_by_their_sum_which_is_never_0(first_layer):
    nodes = first_layer(expert_used_count=2)

    (clamped,) = nodes["ffn_moe_weights_sum_clamped-0"]
    assert clamped.params == ClampParams(2.0**-14, math.inf)
    (shares,) = nodes["ffn_moe_weights_norm-0"]
    assert (shares.op, shares.src[1]) == (Op.DIV, clamped)


def test_answers_are_added_one_expert_after_the_other(first_layer):
    nodes = first_layer(expert_used_count=3)

    views = nodes["ffn_moe_weighted-0 (view)"]
    assert [view.view_offs for view in views] == [0, 256 * 4, 2 * 256 * 4]
    (total,) = nodes["ffn_moe_out-0"]
    assert total.op is Op.ADD
    assert total.src[1] is views[2]
    assert total.src[0].src == (views[0], views[1])


def test_the_answer_of_one_expert_is_copied(first_layer):
    (total,) = first_layer(expert_used_count=1)["ffn_moe_out-0"]

    assert total.op is Op.CONT
    assert total.is_contiguous


def test_layers_may_use_different_numbers_of_experts(tmp_path):
    graph = built(tmp_path, "qwen3moe", expert_count=8, expert_used_count=[2, 4])

    chosen = [n.ne[0] for n in graph.graph.nodes if n.name.startswith("ffn_moe_topk")]
    assert chosen == [2, 4]
