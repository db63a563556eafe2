"""mamba: no attention, no cache; states that a batch picks, changes and stores."""

import pytest

from engine.core.ops import Op, ScaleParams
from engine.core.plan import Batch, MemoryKind
from engine.errors import ModelError
from engine.model.blocks.graph_context import InputKind
from tests.engine.model.made_arch import made_header, names, planner_of, read
from tests.engine.model.made_numbers import MAMBA


def planned(folder, n_tokens, n_past, **numbers):
    with made_header(folder, "mamba", **{**MAMBA, **numbers}) as file:
        planner = planner_of(file)
        batch = Batch.TOKEN if n_tokens == 1 else Batch.PROMPT
        return planner, planner.plan(batch, planner.run_shape(n_tokens, n_past)).built


def test_there_is_no_attention_and_no_cache_but_a_state(tmp_path):
    planner, graph = planned(tmp_path, 5, 0)

    assert (graph.attentions, graph.host_attentions) == ((), ())
    assert {key.kind for key in graph.inputs} == {
        InputKind.TOKENS, InputKind.EMBEDDINGS, InputKind.STATE_ROWS, InputKind.OUT_IDS,
    }  # fmt: skip
    kinds = [row.kind for row in planner.plan_set().memory.rows]
    assert MemoryKind.KV not in kinds
    assert kinds.count(MemoryKind.STATE) == 1


def test_states_are_as_large_as_the_numbers_say(tmp_path):
    planner, _ = planned(tmp_path, 5, 0)

    state = planner.model.state
    assert {t.name: t.ne[:2] for t in (*state.conv.values(), *state.ssm.values())} == {
        "cache_r_l0": (3 * 512, 1), "cache_r_l1": (3 * 512, 1),
        "cache_s_l0": (16 * 512, 1), "cache_s_l1": (16 * 512, 1),
    }  # fmt: skip


@pytest.mark.parametrize(("n_past", "cleared"), [(0, 16 * 512), (7, 0)])
def test_a_state_begins_at_zero_only_where_a_text_does(tmp_path, n_past, cleared):
    _, graph = planned(tmp_path, 5, n_past)

    zeroed = [
        n for n in graph.graph.nodes if n.op is Op.SCALE and n.src[0].name.startswith("cache_s")
    ]
    assert [node.ne[0] for node in zeroed] == [cleared, cleared]
    assert {node.params for node in zeroed} == {ScaleParams(0.0)}


def test_the_worst_case_clears_states(tmp_path):
    planner, _ = planned(tmp_path, 5, 0)

    assert planner.worst_shape(Batch.PROMPT).clears_state
    assert planner.worst_shape(Batch.TOKEN).clears_state


def test_states_are_scanned_before_they_are_stored(tmp_path):
    _, graph = planned(tmp_path, 5, 0)

    nodes = graph.graph.nodes
    scans = [i for i, node in enumerate(nodes) if node.op is Op.SSM_SCAN]
    stores = [
        i for i, n in enumerate(nodes)
        if n.op is Op.CPY and n.src[1].name == "cache_s_l0 (view)" and n.n_elems
    ]  # fmt: skip
    assert len(scans) == 2
    assert len(stores) == 1
    assert scans[0] < stores[0]
    assert nodes[stores[0]].src[0].src[0] is nodes[scans[0]]


def test_a_layer_looks_at_the_recent_inputs_before_its_norm(tmp_path):
    _, graph = planned(tmp_path, 5, 0)

    order = names(graph)
    assert order.index("RESHAPE:cache_r_l0 (reshaped)") < order.index("RMS_NORM:norm-0")


@pytest.mark.parametrize(("normalises", "n_norms"), [(False, 0), (True, 6)])
def test_some_models_normalise_time_steps_and_directions(tmp_path, normalises, n_norms):
    _, graph = planned(tmp_path, 5, 0, ssm__dt_b_c_rms=normalises)

    unnamed = [n for n in graph.graph.nodes if n.op is Op.RMS_NORM and n.name.startswith("node_")]
    assert len(unnamed) == n_norms


@pytest.mark.parametrize(
    ("numbers", "key", "found"),
    [
        ({"ssm__inner_size": 256}, "ssm.inner_size", "256"),
        ({"ssm__conv_kernel": 1}, "ssm.conv_kernel", "1"),
        ({"ssm__conv_kernel": None}, "ssm.conv_kernel", "missing"),
        ({"ssm__state_size": None}, "ssm.state_size", "missing"),
        ({"ssm__time_step_rank": 0}, "ssm.time_step_rank", "0"),
        ({"ssm__dt_b_c_rms": 3}, "ssm.dt_b_c_rms", "3"),
    ],
)
def test_a_key_that_cannot_be_used_is_named(tmp_path, numbers, key, found):
    with pytest.raises(ModelError) as caught:
        read(tmp_path, "mamba", **{**MAMBA, **numbers})

    assert caught.value.title == f"The key mamba.{key} cannot be used."
    assert f"It is {found}" in caught.value.sentence


def test_a_tensor_without_a_suffix_is_named_when_it_is_missing(tmp_path):
    with (
        pytest.raises(ModelError, match=r"has no tensor blk\.0\.ssm_a\."),
        made_header(tmp_path, "mamba", absent=["blk.0.ssm_a"], **MAMBA) as file,
    ):
        planner_of(file)
