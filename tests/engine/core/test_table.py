"""The columns of a table say what the plan says."""

import numpy as np
import pytest

from engine.core import build
from engine.core.devices import BufferUsage
from engine.core.placement import SplitReason
from engine.core.plan import Batch, BatchShape, MemoryKind, NodeKey
from engine.core.table import pack_strings, table_of
from engine.core.tensor import Flag
from engine.sched.planner import plan_graph
from tests.engine.model.smollm2 import planner, tables
from tests.engine.sched.drawn import N, constant, cpu, graph_of
from tests.engine.sched.expert_run import N_EXPERTS, expert_run

CONFIGS = [("cuda", 2), ("two", -1), ("blas", 2), ("cpu", 0)]


@pytest.fixture(params=CONFIGS, ids=lambda config: f"{config[0]} -ngl {config[1]}")
def pair(request):
    """A plan and its table."""
    devices, ngl = request.param
    plan = planner(devices, n_gpu_layers=ngl).reserved[Batch.PROMPT].plan
    return plan, tables(devices, n_gpu_layers=ngl).prompt


@pytest.fixture
def table():
    return tables("cuda", n_gpu_layers=2).prompt


def tensors_of(plan):
    return (*plan.graph.leafs, *plan.graph.nodes)


def test_facts_of_tensors_equal_the_plan(pair):
    plan, table = pair

    for slot, tensor in enumerate(tensors_of(plan)):
        assert table.name[slot] == tensor.name
        assert table.op[slot] == tensor.op_desc
        assert table.type_label(slot) == tensor.type.label
        assert tuple(table.ne[slot]) == tensor.ne
        assert table.n_bytes[slot] == tensor.n_bytes
        assert table.is_input[slot] == bool(tensor.flags & Flag.INPUT)
        assert table.is_view_op[slot] == tensor.is_view_op
        is_weight = tensor.buffer is not None and tensor.buffer.usage is BufferUsage.WEIGHTS
        assert table.is_weight[slot] == is_weight
        home = -1 if tensor.home is None else table.bufts.index(tensor.home.buft.name)
        assert table.home[slot] == home


def test_sources_and_view_sources_are_slots(pair):
    plan, table = pair
    slot_of = {tensor: slot for slot, tensor in enumerate(tensors_of(plan))}

    for slot, tensor in enumerate(tensors_of(plan)):
        assert table.sources(slot) == [slot_of[source] for source in tensor.src]
        base = -1 if tensor.view_src is None else slot_of[tensor.view_src]
        assert table.view_src[slot] == base


def test_readers_are_the_nodes_whose_sources_it_is(table):
    for slot in range(0, table.n_leafs + table.n_nodes, 37):
        readers = [i for i in range(table.n_nodes) if slot in table.sources(table.slot(i))]
        assert table.readers(slot) == readers


def test_assignments_and_causes_equal_the_plan(pair):
    plan, table = pair
    final = plan.trace.final

    for slot in range(table.n_leafs + table.n_nodes):
        assert table.backend[slot] == final.backend_ids[slot]
        assert table.cause(slot) == final.causes[slot]
        assert table.tag(slot) == final.causes[slot].tag


def test_every_step_of_the_passes_is_a_row(pair):
    plan, table = pair

    assert table.step_names == tuple(name for name, _ in plan.trace.steps)
    for row, (_, state) in zip(table.step_backend, plan.trace.steps, strict=True):
        assert row.tolist() == list(state.backend_ids[: len(row)])


def test_predicates_are_the_devices_own_answers(pair):
    plan, table = pair

    for b, view in enumerate(plan.backends):
        for slot, tensor in enumerate(tensors_of(plan)):
            assert table.supports_op[b, slot] == view.rules.supports_op(tensor)
            assert table.offload_op[b, slot] == view.rules.offload_op(tensor)
    assert table.supports_buft.shape == (len(plan.backends), len(table.bufts))


def test_splits_and_copies_equal_the_cut(pair):
    plan, table = pair
    cut = plan.trace.cut

    for row, split in zip(table.splits, cut.splits, strict=True):
        assert (row["backend"], row["start"], row["stop"]) == (
            split.backend_id, split.start, split.stop,
        )  # fmt: skip
        copies = table.copies[row["first_copy"] : row["first_copy"] + row["n_copies"]]
        assert copies["slot"].tolist() == [copy.slot for copy in split.inputs]
        assert row["bytes"] == copies["bytes"].sum()
        assert set(table.split[split.start : split.stop]) == {split.id}
    for row, copy in zip(table.copies, cut.copies, strict=True):
        assert (row["split"], row["source"], row["target"], row["bytes"]) == (
            copy.split_id, copy.source_backend_id, copy.backend_id, copy.n_bytes,
        )  # fmt: skip
    assert table.copied_bytes == sum(copy.n_bytes for copy in cut.copies)


def test_only_copies_of_used_experts_say_how_many_experts_there_are(pair):
    table, _ = expert_run([1, 2])
    _, dense = pair

    assert [table.copy_name(i) for i in np.flatnonzero(table.copies["n_experts"])] == ["up", "down"]
    assert table.copies["n_experts"].max() == N_EXPERTS
    assert not dense.copies["n_experts"].any()


def test_layers_equal_the_plan(pair):
    plan, table = pair

    assert table.layer.tolist() == [plan.layers[i] for i in range(table.n_nodes)]


def test_counts_add_up(pair):
    plan, table = pair

    assert sum(table.nodes_per_device()) == table.n_nodes
    assert table.n_computed == sum(not node.is_view_op for node in plan.graph.nodes)


def test_no_column_can_be_written(pair):
    _, table = pair

    for value in (getattr(table, name) for name in table.__slots__):
        if isinstance(value, np.ndarray):
            assert not value.flags.writeable


def test_repeated_names_are_told_apart_by_occurrence(table):
    keys = [table.key(i) for i in range(table.n_nodes)]

    assert len(set(keys)) == table.n_nodes
    assert table.node_ids()[NodeKey("norm-0", 1)] > table.node_ids()[NodeKey("norm-0", 0)]


def test_a_key_is_written_with_its_occurrence_only_where_it_repeats():
    assert str(NodeKey("norm-0", 1)) == "norm-0@1"
    assert str(NodeKey("embd", 0)) == "embd"


def test_a_split_is_called_after_its_first_operation():
    table = tables("cuda", n_gpu_layers=2, op_offload=False).prompt
    first = table.splits[0]
    views = table.is_view_op[table.slot(first["start"]) : table.slot(first["stop"])]

    assert table.split_name(0) == f"embd +{int((~views).sum()) - 1}"


def test_a_split_without_operations_says_so():
    view = build.reshape(constant("k"), N * N)
    plan = plan_graph(
        graph_of(view), (cpu(),), plan_id=1, batch=Batch.TOKEN, shape=BatchShape(1, 256, 1)
    )

    assert table_of(plan).split_name(0) == "views only"


def test_a_split_of_one_operation_is_called_after_it(table):
    alone = next(i for i, row in enumerate(table.splits) if row["stop"] - row["start"] == 1)

    assert table.split_name(alone) == table.name[table.slot(int(table.splits[alone]["start"]))]


def test_reasons_and_copies_have_names(table):
    assert table.split_reason(0) is SplitReason.FIRST
    assert table.copy_name(0) == table.name[int(table.copies[0]["slot"])]


def test_a_set_has_both_plans_and_the_memory():
    plans = planner("cuda", n_gpu_layers=2).plan_set()
    table = tables("cuda", n_gpu_layers=2)

    assert table.plan(Batch.PROMPT) is table.prompt
    assert table.plan(Batch.TOKEN) is table.token
    assert (table.prompt.shape.n_tokens, table.token.shape.n_tokens) == (512, 1)
    assert table.memory.rows == plans.memory.rows
    assert table.layer_devices == ("CPU", *["CPU"] * 29, "CUDA0", "CUDA0")


def test_the_ledger_adds_up_what_is_on_a_device():
    memory = tables("cuda", n_gpu_layers=2).memory

    assert memory.total("CUDA0") == sum(r.n_bytes for r in memory.rows if r.device == "CUDA0")
    assert {row.kind for row in memory.rows} == set(MemoryKind) - {MemoryKind.STATE}


@pytest.mark.parametrize("texts", [[], ["a"], ["", "norm-0", "", "größe"]])
def test_packed_strings_are_read_one_by_one(texts):
    packed = pack_strings(texts)

    assert list(packed) == texts
    assert len(packed) == len(texts)


def test_the_same_plan_gives_the_same_table():
    plan = planner("cuda", n_gpu_layers=2).reserved[Batch.TOKEN].plan

    first, second = table_of(plan), table_of(plan)

    assert np.array_equal(first.backend, second.backend)
    assert first.name.blob == second.name.blob
