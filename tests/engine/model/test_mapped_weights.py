"""Weights that a device reads where the file is mapped: which buffers, and how large they are."""

import mmap
from dataclasses import replace
from itertools import pairwise

import pytest

from engine.core.devices import MAPPED, TableRules, mapped
from engine.core.options import Options
from engine.core.plan import MemoryKind
from engine.model.planning import make_planner
from engine.model.weights import mapped_runs
from tests.engine.model.made import made_file, shapes
from tests.engine.paper import parse_virtual

CPU = parse_virtual("CPU:cpu:16384")
NAME = "GPU0"


def sharing(max_bytes=None):
    """A device that works in the host's memory."""
    facts = parse_virtual(f"{NAME}:gpu:8192")
    return replace(
        facts,
        caps=replace(facts.caps, buffer_from_host_ptr=True),
        rules=TableRules(bufts=frozenset({NAME, f"{NAME}{MAPPED}"})),
        buft=replace(facts.buft, max_bytes=max_bytes),
    )


def planned(file, max_bytes=None, **options):
    return make_planner(file, [sharing(max_bytes), CPU], Options(**options))


@pytest.fixture
def file(tmp_path):
    with made_file(tmp_path, tensors=shapes(tied=True)) as file:
        yield file


def buffer_of(planner, name):
    return next(b for b in planner.weights.buffers if b.buft.name == name)


def extents(planner, name=f"{NAME}{MAPPED}"):
    buffer = buffer_of(planner, name)
    return [(run.start, run.end) for run in mapped_runs(buffer.buft, buffer.weights)]


def test_all_weights_of_a_device_are_one_buffer_where_nothing_lies_between(file):
    planner = planned(file)

    assert extents(planner) == [(0, max(info.end for info in file.tensors))]
    assert {b.buft.name for b in planner.weights.buffers} == {"CPU_Mapped", "GPU0_Mapped"}


def test_what_lies_between_the_weights_of_a_device_is_left_out(file):
    """The tied output is the file's first tensor, and layer 0 stays with the CPU."""
    planner = planned(file, n_gpu_layers=2)

    embedding, rest = extents(planner)
    assert embedding == (0, file.tensor("token_embd.weight").end)
    assert rest[0] == file.tensor("blk.1.attn_norm.weight").offset
    assert buffer_of(planner, "GPU0_Mapped").n_bytes == sum(
        end - start for start, end in (embedding, rest)
    )


def test_host_memory_is_mapped_once_as_llama_cpp_maps_it(file):
    planner = planned(file, tensor_overrides=(("attn_q|token", "CPU"),))

    ((start, end),) = extents(planner, "CPU_Mapped")
    assert (start, end) == (0, file.tensor("blk.1.attn_q.weight").end)


def test_a_buffer_is_no_larger_than_the_device_allows(file):
    limit = 4 * mmap.PAGESIZE + 30_000
    planner = planned(file, limit)

    found = extents(planner)
    assert len(found) > 1
    assert all(end - start <= limit - mmap.PAGESIZE for start, end in found)
    assert all(end <= start for (_, end), (start, _) in pairwise(found))


def test_a_weight_that_is_too_large_for_any_buffer_has_one_of_its_own(file):
    (start, end), *_ = extents(planned(file, 2 * mmap.PAGESIZE))

    assert end - start == file.tensor("token_embd.weight").n_bytes > 2 * mmap.PAGESIZE


def test_without_mapping_the_device_gets_copies(file):
    planner = planned(file, mmap=False)

    assert [(b.buft.name, b.is_mapped) for b in planner.weights.buffers] == [
        ("CPU", False),
        ("GPU0", False),
    ]


def test_the_ledger_names_what_is_mapped_and_counts_it_as_the_devices(file):
    planner = planned(file, n_gpu_layers=1)

    (row,) = [
        row
        for row in planner.plan_set().memory.rows
        if row.device == NAME and row.kind is MemoryKind.MODEL
    ]
    assert (row.buft, row.n_bytes) == (
        mapped(sharing().buft),
        sum(end - start for start, end in extents(planner)),
    )


def test_a_plan_runs_the_same_operations_there_as_with_copies(file):
    def assignment(planner):
        return next(iter(planner.plan_set().plans.values())).trace.final

    assert assignment(planned(file)) == assignment(planned(file, mmap=False))
