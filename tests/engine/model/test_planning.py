"""Plans of whole models: shapes, pins, flash attention, memory, and what is refused."""

import itertools

import pytest

from engine.core.options import FlashAttn, Options
from engine.core.placement import CauseKind
from engine.core.plan import Batch, BatchShape, MemoryKind
from engine.errors import PlacementError
from engine.gguf.reader import open_gguf
from engine.model.arch import find_architecture
from engine.model.planning import make_planner, max_nodes
from tests.engine.model.made import made_file
from tests.engine.model.smollm2 import DEVICES, MODEL, planner, tables
from tests.engine.paper import parse_virtual
from tests.oracle import golden


def refused(tmp_path, error, **keys):
    cpu = [parse_virtual("CPU:cpu:1024")]
    names = {f"llama.{k}" if "." not in k else k: v for k, v in keys.items()}
    with made_file(tmp_path, keys=names) as file, pytest.raises(error) as caught:
        make_planner(file, cpu, Options())
    return caught.value


# What is refused.


def test_a_known_architecture_is_found():
    assert find_architecture("llama").name == "llama"


def test_planning_twice_from_the_same_facts_gives_the_same_ids(tmp_path):
    cpu = [parse_virtual("CPU:cpu:1024")]
    with made_file(tmp_path) as file:
        first, second = (make_planner(file, cpu, Options()).plan_set() for _ in range(2))

    ids = [[plan.plan_id for plan in plans.plans.values()] for plans in (first, second)]
    assert ids[0] == ids[1]


def test_planners_that_share_their_ids_never_give_one_twice(tmp_path):
    cpu, plan_ids = [parse_virtual("CPU:cpu:1024")], itertools.count(1)
    with made_file(tmp_path) as file:
        sets = [make_planner(file, cpu, Options(), plan_ids=plan_ids).plan_set() for _ in range(2)]

    ids = [plan.plan_id for plans in sets for plan in plans.plans.values()]
    assert len(set(ids)) == len(ids) == 4


# Sizes.


@pytest.mark.parametrize(
    ("n_ctx", "n_batch", "n_ubatch", "expected"),
    [
        (0, 2048, 512, (8192, 2048, 512)),
        (512, 2048, 512, (512, 512, 512)),
        (300, 2048, 512, (512, 512, 512)),
        (4096, 100, 512, (4096, 100, 100)),
    ],
)
def test_batches_fit_into_the_context_and_ubatches_into_batches(n_ctx, n_batch, n_ubatch, expected):
    made = planner("cpu", n_ctx=n_ctx, n_batch=n_batch, n_ubatch=n_ubatch)

    assert (made.n_ctx, made.n_batch, made.n_ubatch) == expected


def test_the_worst_case_has_a_full_context_and_an_output_a_row():
    made = planner("cpu", n_ctx=1024)

    assert made.worst_shape(Batch.PROMPT) == BatchShape(512, 1024, 512)
    assert made.worst_shape(Batch.TOKEN) == BatchShape(1, 1024, 1)


def test_planning_the_same_shape_twice_gives_the_same_plan():
    made = planner("cuda", n_gpu_layers=2)
    shape = BatchShape(40, 256, 1)

    first, second = (made.plan(Batch.PROMPT, shape).plan for _ in range(2))

    assert first.trace.final == second.trace.final
    assert [n.name for n in first.graph.nodes] == [n.name for n in second.graph.nodes]
    assert first.plan_id != second.plan_id


# Pins: norms stick to their layer's device.


def pinned(made, n_tokens):
    plan = made.plan(Batch.PROMPT, BatchShape(n_tokens, 256, 1)).plan
    first = len(plan.graph.leafs)
    causes = plan.trace.final.causes[first:]
    return {
        node.name: plan.backends[plan.trace.final.backend_ids[first + i]].name
        for i, (node, cause) in enumerate(zip(plan.graph.nodes, causes, strict=True))
        if cause.kind is CauseKind.USER
    }


def test_norms_are_pinned_below_32_tokens():
    """T18"""
    found = pinned(planner("cuda", n_gpu_layers=2), 31)

    assert found["norm-0"] == "CPU"
    assert found["norm-29"] == "CUDA0"
    assert set(found) == {f"norm-{il}" for il in range(30)}


def test_norms_are_free_from_32_tokens_on():
    assert pinned(planner("cuda", n_gpu_layers=2), 32) == {}


def test_norms_are_pinned_at_any_size_when_all_is_offloaded():
    assert set(pinned(planner("cuda"), 512).values()) == {"CUDA0"}


def test_a_norm_is_not_pinned_to_a_device_that_cannot_run_it():
    assert "norm-29" not in pinned(planner("no-rms-norm", n_gpu_layers=2), 1)


# Flash attention.


@pytest.mark.parametrize(
    ("devices", "wanted", "flash"),
    [
        ("cuda", FlashAttn.AUTO, True),
        ("no-attention", FlashAttn.AUTO, False),
        ("no-attention", FlashAttn.ON, True),
        ("cuda", FlashAttn.OFF, False),
    ],
)
def test_attention_is_one_operation_where_its_layers_device_can(devices, wanted, flash):
    made = planner(devices, flash_attn=wanted)

    assert made.flash_attn is flash
    ops = {node.op.value for node in made.reserved[Batch.TOKEN].plan.graph.nodes}
    assert ("FLASH_ATTN_EXT" in ops) is flash
    assert ("SOFT_MAX" in ops) is not flash


def test_auto_looks_at_offloaded_layers_only_where_there_are_some():
    assert planner("no-attention", n_gpu_layers=1).flash_attn


@pytest.mark.parametrize(
    ("cache_type", "wanted", "flash"),
    [("q8_0", FlashAttn.AUTO, True), ("f16", FlashAttn.AUTO, False), ("f16", FlashAttn.ON, True)],
)
def test_values_in_blocks_turn_auto_into_on(cache_type, wanted, flash):
    made = planner("no-attention", flash_attn=wanted, cache_type_v=cache_type)

    assert made.flash_attn is flash


def test_attention_that_no_device_can_run_is_named(tmp_path):
    lacking = [parse_virtual("CPU:cpu:1024:noops=FLASH_ATTN_EXT")]

    with made_file(tmp_path) as file, pytest.raises(PlacementError) as caught:
        make_planner(file, lacking, Options(flash_attn=FlashAttn.ON))

    assert "No device can run FLASH_ATTN_EXT" in caught.value.title


# The cache on the CPU.


def test_plain_attention_is_pinned_to_the_cpu_where_the_cache_is():
    made = planner("cuda", offload_kqv=False, flash_attn=FlashAttn.OFF)

    found = pinned(made, 64)

    assert {name for name, device in found.items() if device == "CPU"} == {
        f"kqv_out-{il}" for il in range(30)
    }


@pytest.mark.parametrize("options", [{"flash_attn": FlashAttn.OFF}, {"offload_kqv": False}])
def test_nothing_else_pins_attention(options):
    assert not any("kqv" in name for name in pinned(planner("cuda", **options), 64))


# Pipelines.


def test_a_pipeline_has_four_copies_of_what_splits_read():
    made = planner("two")

    plan = made.plan(Batch.PROMPT, BatchShape(40, 256, 1), copy_slot=2).plan

    assert (made.model.n_copies, plan.n_copies, plan.copy_slot) == (4, 4, 2)
    assert {len(copy.tensors) for copy in plan.trace.cut.copies} == {4}


def test_an_accelerator_may_be_named_and_is_then_there_twice():
    """llama.cpp gives a stream to every named device and to every accelerator."""
    facts = [parse_virtual(line) for line in DEVICES["blas"]]
    with open_gguf(golden.header(MODEL)) as file:
        made = make_planner(file, facts, Options(n_ctx=512, devices=("BLAS",)))

    assert [view.name for view in made.backends] == ["BLAS", "BLAS", "CPU"]
    assert made.flash_attn is False


# Sizes of the scheduler.


@pytest.mark.parametrize(
    ("arch", "n_tensors", "n_tokens", "expected"),
    [
        ("llama", 10, 512, 1024),
        ("llama", 273, 512, 2184),
        ("qwen35", 10, 512, 20480),
        ("qwen35", 700, 512, 22400),
    ],
)
def test_room_for_nodes_follows_weights_and_for_some_tokens(arch, n_tensors, n_tokens, expected):
    assert max_nodes(arch, n_tensors, n_tokens) == expected


# Switches.


def test_op_offload_can_be_flipped_without_a_new_planner():
    made = planner("cuda", n_gpu_layers=2)
    shape = BatchShape(64, 256, 1)
    try:
        with_offload = made.plan(Batch.PROMPT, shape).plan
        made.op_offload = False
        without = made.plan(Batch.PROMPT, shape).plan
    finally:
        made.op_offload = True

    assert len(with_offload.trace.cut.splits) > 100
    assert len(without.trace.cut.splits) == 2


# Memory.


def by_kind(devices, **options):
    memory = tables(devices, **options).memory
    return {(row.device, row.kind): row for row in memory.rows}


def test_every_kind_of_memory_is_in_the_ledger():
    rows = by_kind("cuda", n_gpu_layers=2)

    assert {kind for _, kind in rows} == set(MemoryKind) - {MemoryKind.STATE}
    assert rows["CPU", MemoryKind.OUTPUT].n_bytes == 49152 * 4


def test_logits_lie_in_pinned_memory_of_the_outputs_device():
    row = by_kind("cuda", n_gpu_layers=2)["CPU", MemoryKind.OUTPUT]

    assert row.buft.name == "CUDA_Host"
    assert by_kind("plain")["CPU", MemoryKind.OUTPUT].buft.name == "CPU"


def test_pinned_memory_is_the_computers_not_the_cards():
    rows = tables("cuda", n_gpu_layers=2, mmap=False).memory.rows

    pinned = [row for row in rows if row.buft.name == "CUDA_Host"]
    assert MemoryKind.MODEL in {row.kind for row in pinned}
    assert {row.device for row in pinned} == {"CPU"}


def test_memory_that_an_accelerator_works_in_is_the_computers():
    rows = tables("blas", n_gpu_layers=0).memory.rows

    assert {row.device for row in rows if row.buft.name == "CPU"} == {"CPU"}


def test_compute_buffers_hold_the_larger_of_both_plans():
    row = by_kind("cpu")["CPU", MemoryKind.COMPUTE]
    longer = by_kind("cpu", n_ubatch=256)["CPU", MemoryKind.COMPUTE]

    assert row.n_bytes > longer.n_bytes > 0


def test_backends_that_share_memory_are_counted_once():
    rows = tables("blas", n_gpu_layers=0).memory.rows

    compute = [row for row in rows if row.kind is MemoryKind.COMPUTE]
    assert [row.buft.name for row in compute] == ["GPU0", "CPU"]


@pytest.mark.parametrize(("devices", "ngl"), list(itertools.product(DEVICES, (0, 2, -1))), ids=str)
def test_every_device_holds_what_its_layers_need(devices, ngl):
    plans = tables(devices, n_gpu_layers=ngl)
    for name in set(plans.layer_devices[1:-1]):
        assert plans.memory.total(name) > 0
    assert len(plans.layer_devices) == plans.n_layers + 2
