"""Planning again after a change uses again what the change leaves as it was, and nothing else."""

from dataclasses import replace

import pytest

from engine.core.options import FlashAttn, Options
from engine.core.plan import Batch
from engine.gguf.reader import open_gguf
from engine.model.planning import make_planner
from tests.engine.model.smollm2 import DEVICES, MODEL
from tests.engine.paper import parse_virtual
from tests.oracle import golden
from tests.oracle.placement_text import render


@pytest.fixture(scope="module")
def header():
    with open_gguf(golden.header(MODEL)) as file:
        yield file


def replanned(header, before, **changes):
    devices = [parse_virtual(line) for line in DEVICES["cuda"]]
    options = replace(Options(n_ctx=512, n_gpu_layers=2), **changes)
    return make_planner(header, devices, options, before=before)


def lines(planner):
    """Everything that a set of plans says, but for its ids."""
    plans = planner.plan_set()
    texts = [line for plan in plans.plans.values() for line in render(plan)]
    return [*texts, *map(str, plans.memory.rows), plans.flash_attn, plans.options]


CHANGES = [
    {},
    {"op_offload": False},
    {"flash_attn": FlashAttn.OFF},
    {"n_gpu_layers": 3},
    {"n_ctx": 1024},
    {"n_ubatch": 64},
    {"offload_kqv": False},
    {"cache_type_k": "q8_0"},
    {"tensor_overrides": (("ffn", "CPU"),)},
    {"mmap": False},
    {"temperature": 0.5, "n_threads": 3},
]


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_planning_from_what_was_there_gives_what_planning_anew_gives(header, change):
    before = replanned(header, None)

    again = replanned(header, before, **change)

    assert lines(again) == lines(replanned(header, None, **change))


def test_other_devices_of_the_same_name_are_planned_anew(header):
    before = replanned(header, None)
    lacking = [parse_virtual("CUDA0:gpu:8192:preset=cuda,noops=MUL_MAT"), before.placement.cpu]

    again = make_planner(header, lacking, before.options, before=before)

    assert again.model is not before.model
    assert again.weights.tensors["blk.29.attn_q.weight"].buffer.buft.name == "CPU_Mapped"


@pytest.mark.parametrize(
    ("change", "kept"),
    [
        ({"op_offload": False}, {"model", "weights", "graph"}),
        ({"flash_attn": FlashAttn.ON}, {"weights"}),
        ({"temperature": 0.0}, {"model", "weights", "graph", "plan"}),
        ({"n_ubatch": 64}, {"weights"}),
        ({"n_gpu_layers": 3}, set()),
    ],
)
def test_only_what_an_option_changes_is_made_anew(header, change, kept):
    before = replanned(header, None)

    again = replanned(header, before, **change)

    old, new = (made.reserved[Batch.PROMPT] for made in (before, again))
    assert kept == {
        name
        for name, is_same in (
            ("model", again.model is before.model),
            ("weights", again.weights is before.weights),
            ("graph", new.plan.graph is old.plan.graph),
            ("plan", new.plan is old.plan),
        )
        if is_same
    }


def test_a_batch_that_nobody_offloads_is_not_planned_again_for_op_offload(header):
    before = replanned(header, None)

    again = replanned(header, before, op_offload=False)

    old, new = (made.reserved[Batch.TOKEN].plan for made in (before, again))
    assert new.trace is old.trace
    assert (new.op_offload, old.op_offload) == (False, True)
    assert new.plan_id != old.plan_id
