"""falcon-h1: attention and mamba2 read one input, and their answers are added."""

import pytest

from engine.core.ops import Op
from engine.core.plan import Batch, MemoryKind
from engine.errors import ModelError
from tests.engine.model.made_arch import built, made_header, names, planner_of, read
from tests.engine.model.made_numbers import FALCON_H1


def test_every_layer_has_keys_and_a_state(tmp_path):
    with made_header(tmp_path, "falcon-h1", **FALCON_H1) as file:
        planner = planner_of(file)

    assert list(planner.cache.keys) == list(planner.model.state.ssm) == [0, 1]
    kinds = [row.kind for row in planner.plan_set().memory.rows]
    assert kinds[2:4] == [MemoryKind.KV, MemoryKind.STATE]


def test_attention_is_computed_before_the_state_is_read_and_projected_after(tmp_path):
    absent = ["attn_output.bias"]
    all_names = names(built(tmp_path, "falcon-h1", absent=absent, **FALCON_H1))

    order = ["RESHAPE:kqv_out-0", "RESHAPE:cache_r_l0 (reshaped)", "MUL_MAT:attn_out-0"]
    places = [all_names.index(name) for name in order]
    assert places == sorted(places)


def test_the_answers_of_both_are_added_then_the_input(tmp_path):
    graph = built(tmp_path, "falcon-h1", **FALCON_H1)

    joined = next(n for n in graph.graph.nodes if n.name == "ffn_inp-0")
    both = joined.src[0]
    assert [source.name for source in both.src] == ["attn_out-0", "ssm_out-0"]
    assert joined.src[1].name == "embd"


def test_groups_are_normalised_where_the_file_has_weights_for_it(tmp_path):
    def n_norms(**more):
        graph = built(tmp_path, "falcon-h1", **more, **FALCON_H1)
        return sum(n.op is Op.RMS_NORM for n in graph.graph.nodes)

    assert n_norms() - n_norms(absent=["ssm_norm.weight"]) == 2


@pytest.mark.parametrize(
    ("numbers", "key", "found"),
    [
        ({"ssm__time_step_rank": 7}, "ssm.time_step_rank", "7"),
        ({"ssm__group_count": 3}, "ssm.group_count", "3"),
        ({"ssm__group_count": None}, "ssm.group_count", "missing"),
        ({"ssm__group_count": 0}, "ssm.group_count", "0"),
        ({"attention__value_length": 16}, "attention.value_length", "16"),
    ],
)
def test_a_key_that_cannot_be_used_is_named(tmp_path, numbers, key, found):
    with pytest.raises(ModelError) as caught:
        read(tmp_path, "falcon-h1", **{**FALCON_H1, **numbers})

    assert caught.value.title == f"The key falcon-h1.{key} cannot be used."
    assert f"It is {found}" in caught.value.sentence


def test_states_follow_their_layer_or_stay_on_the_cpu(tmp_path):
    devices = ("G:gpu:8192", "CPU:cpu:16384")

    def homes(**options):
        with made_header(tmp_path, "falcon-h1", **FALCON_H1) as file:
            planner = planner_of(file, devices, n_gpu_layers=2, **options)
            return [t.buffer.buft.name for t in planner.model.state.ssm.values()]

    cpu, gpu = homes()
    assert (cpu, gpu == cpu) == ("CPU", False)
    assert homes(offload_kqv=False) == ["CPU", "CPU"]


def test_every_batch_gives_the_sizes_of_its_shape(tmp_path):
    with made_header(tmp_path, "falcon-h1", **FALCON_H1) as file:
        planner = planner_of(file)
        token = planner.plan(Batch.TOKEN, planner.run_shape(1, 9)).built

    scan = next(n for n in token.graph.nodes if n.op is Op.SSM_SCAN)
    assert scan.ne == (256 + 16 * 256, 1, 1, 1)
