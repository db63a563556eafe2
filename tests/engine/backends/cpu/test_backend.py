"""The stream: threads, stopping, times, errors, programs; and what the device says of itself."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import numpy as np
import pytest

from engine.backends.cpu.backend import CpuBackend
from engine.backends.cpu.kernels.catalog import warm_up
from engine.backends.cpu.reg import create
from engine.core import build
from engine.core.devices import BufferUsage, DeviceType
from engine.core.types import TensorType
from engine.errors import DeviceError, Stopped
from tests.engine.backends.cpu.cpu_split import CpuSplit, random

if TYPE_CHECKING:
    from engine.backend.interface import Completion, SplitGraph
    from engine.core.tensor import Tensor

SHAPE = (1, 1, 20, 64)


def new_backend(n_threads: int) -> CpuBackend:
    return CpuBackend(create().devices()[0], n_threads)


def chain(split: CpuSplit, n: int) -> list[Tensor]:
    """x + 1 + 1 ..., n additions."""
    one = split.leaf(np.ones((1, 1, 1, 1)))
    nodes = [build.add(split.leaf(np.zeros(SHAPE)), one)]
    while len(nodes) < n:
        nodes.append(build.add(nodes[-1], one))
    return nodes


def completion_of(backend: CpuBackend, graph: SplitGraph) -> Completion:
    seen: list[Completion] = []
    backend.graph_compute(graph).on_complete(seen.append)
    return seen[0]


def cpu_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("cpu-")]


def test_threads_start_with_the_first_split_and_end_with_dispose(split):
    backend = new_backend(3)
    assert cpu_threads() == []

    backend.graph_compute(split.graph(*chain(split, 3)))
    assert cpu_threads() == ["cpu-1", "cpu-2"]
    backend.dispose()

    assert cpu_threads() == []


def test_dispose_ends_threads_that_sleep(split):
    backend = new_backend(2)
    backend.graph_compute(split.graph(*chain(split, 3)))
    time.sleep(0.02)

    backend.dispose()

    assert cpu_threads() == []


def test_a_split_computes_the_same_after_its_threads_slept(backend, split):
    nodes = chain(split, 5)
    graph = split.graph(*nodes)

    for pause_s in (0.0, 0.0, 0.005, 0.0, 0.01):
        time.sleep(pause_s)
        backend.graph_compute(graph)
        assert (split.read(nodes[-1]) == 5.0).all()


def test_many_splits_in_a_row_lose_no_wake_up(backend, split):
    nodes = chain(split, 4)
    graph = split.graph(*nodes)

    for i in range(300):
        if i % 7 == 0:
            time.sleep(0.00015)
        backend.graph_compute(graph)

    assert (split.read(nodes[-1]) == 4.0).all()


def test_the_number_of_threads_can_change_between_splits(split):
    nodes = chain(split, 4)
    graph = split.graph(*nodes)
    backend = new_backend(1)
    set_n_threads = create().get_proc_address("ggml_backend_set_n_threads")
    assert set_n_threads is not None

    for n_threads in (2, 1, 3):
        set_n_threads(backend, n_threads)
        backend.graph_compute(graph)
        assert len(cpu_threads()) == n_threads - 1
        assert graph.program.n_threads == n_threads
    backend.dispose()


def test_a_program_is_built_once_and_again_when_it_is_dropped(backend, split):
    graph = split.graph(*chain(split, 2))

    backend.graph_compute(graph)
    first = graph.program
    backend.graph_compute(graph)
    assert graph.program is first
    graph.program = None
    backend.graph_compute(graph)

    assert graph.program is not first


def test_two_backends_compute_side_by_side():
    splits = [CpuSplit(), CpuSplit()]
    backends = [new_backend(2), new_backend(2)]
    nodes = [chain(split, 40) for split in splits]
    graphs = [split.graph(*own) for split, own in zip(splits, nodes, strict=True)]

    def compute(i: int) -> None:
        for _ in range(30):
            backends[i].graph_compute(graphs[i])

    callers = [threading.Thread(target=compute, args=(i,)) for i in range(2)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    for backend in backends:
        backend.dispose()

    for split, own in zip(splits, nodes, strict=True):
        assert (split.read(own[-1]) == 40.0).all()


def test_a_stop_word_that_is_set_keeps_everything_from_running(backend, split):
    word = np.ones(1, dtype=np.int64)
    backend.set_stop_word(word.ctypes.data)
    nodes = chain(split, 4)

    with pytest.raises(Stopped):
        backend.graph_compute(split.graph(*nodes))

    assert np.isnan(split.read(nodes[0])).all()


def test_a_stop_takes_effect_between_operations_and_leaves_the_backend_usable(backend, split):
    """A SET_ROWS node whose table is the stop word itself sets it in the middle of the split."""
    nodes = chain(split, 3)
    word_table = split.leaf(np.zeros((1, 1, 4, 2)), TensorType.F32)
    rows, ids = split.leaf(np.ones((1, 1, 1, 2))), split.leaf(np.array([1]), TensorType.I64)
    stop = build.set_rows(word_table, rows, ids)
    graph = split.graph(nodes[0], stop, *nodes[1:])
    place = graph.place_of(word_table)
    backend.set_stop_word(place.buffer.address + place.offset + 8)

    with pytest.raises(Stopped):
        backend.graph_compute(graph)
    assert (split.read(nodes[0]) == 1.0).all()
    assert np.isnan(split.read(nodes[1])).all()

    backend.set_stop_word(0)
    backend.graph_compute(graph)
    assert (split.read(nodes[-1]) == 3.0).all()


@pytest.mark.parametrize("n_before", range(4))
def test_a_stop_at_any_place_lets_nothing_behind_it_run(backend, split, n_before):
    nodes = chain(split, 4)
    table = split.leaf(np.zeros((1, 1, 4, 2)))
    rows, ids = split.leaf(np.ones((1, 1, 1, 2))), split.leaf(np.array([0]), TensorType.I64)
    stop = build.set_rows(table, rows, ids)
    graph = split.graph(*nodes[:n_before], stop, *nodes[n_before:])
    place = graph.place_of(table)
    backend.set_stop_word(place.buffer.address + place.offset)

    with pytest.raises(Stopped):
        backend.graph_compute(graph)

    ran = [not np.isnan(split.read(node)).any() for node in nodes]
    assert ran == [i < n_before for i in range(4)]


def test_a_stop_during_the_last_operation_comes_too_late(backend, split):
    nodes = chain(split, 2)
    table = split.leaf(np.zeros((1, 1, 4, 2)))
    rows, ids = split.leaf(np.ones((1, 1, 1, 2))), split.leaf(np.array([0]), TensorType.I64)
    graph = split.graph(*nodes, build.set_rows(table, rows, ids))
    place = graph.place_of(table)
    backend.set_stop_word(place.buffer.address + place.offset)

    backend.graph_compute(graph)

    assert (split.read(nodes[-1]) == 2.0).all()


def test_node_times_follow_one_another_inside_the_split(backend, split):
    x = split.leaf(random(SHAPE))
    weight = split.leaf(random((1, 1, 32, 64), 1), TensorType.Q8_0)
    product = build.mul_mat(weight, x)
    seen = build.reshape(product, 16, 2, 20)
    last = build.scale(seen, 2.0)

    done = completion_of(backend, split.graph(product, seen, last))

    assert done.nodes is not None
    start, end, error_ns = done.nodes.read()
    assert 0 <= error_ns < 1_000_000_000
    assert done.nodes.nodes.tolist() == [0, 2]
    assert done.start_ns <= start[0] < end[0] <= start[1] < end[1] <= done.end_ns
    assert not done.clock_converted


def test_times_are_those_of_the_monotonic_clock(backend, split):
    graph = split.graph(*chain(split, 2))

    before_ns = time.monotonic_ns()
    done = completion_of(backend, graph)
    after_ns = time.monotonic_ns()

    assert done.nodes is not None
    start_ns, end_ns, _ = done.nodes.read()
    assert before_ns <= start_ns.min()
    assert end_ns.max() <= after_ns


def test_a_split_of_views_alone_takes_no_thread(backend, split):
    view = build.reshape(split.leaf(random(SHAPE)), 32, 40)

    done = completion_of(backend, split.graph(view))

    assert done.nodes is None
    assert done.start_ns == done.end_ns


def test_nodes_without_elements_are_skipped(backend, split):
    x = split.leaf(random((1, 1, 3, 64)))
    empty = build.view(x, (64, 0))
    normed = build.rms_norm(empty, 1e-5)
    last = build.scale(x, 2.0)

    done = completion_of(backend, split.graph(empty, normed, last))

    assert done.nodes is not None
    assert done.nodes.nodes.tolist() == [2]
    np.testing.assert_array_equal(split.read(last), random((1, 1, 3, 64)) * 2)


@pytest.mark.parametrize("bad", [-1, 5, 1 << 30])
def test_an_index_outside_its_table_is_refused_by_name(backend, split, bad):
    ids = split.leaf(np.array([0, bad]), TensorType.I32)
    node = build.get_rows(split.leaf(random((1, 1, 5, 8))), ids)
    node.name = "embd"

    with pytest.raises(DeviceError) as caught:
        backend.graph_compute(split.graph(node, build.scale(node, 2.0)))

    assert caught.value.title == "The CPU cannot compute embd."


def test_set_rows_writes_nothing_outside_its_table(backend, split):
    table, rows = split.leaf(np.zeros((1, 1, 5, 8))), split.leaf(random((1, 1, 1, 8)))
    node = build.set_rows(table, rows, split.leaf(np.array([5]), TensorType.I64))

    with pytest.raises(DeviceError):
        backend.graph_compute(split.graph(node))

    assert not split.read(table).any()


def test_prepare_names_every_kernel_and_counts_up(backend):
    steps: list[tuple[int, int, str]] = []

    backend.prepare(lambda done, total, name: steps.append((done, total, name)))

    names = [name for _, _, name in steps]
    assert names == [*warm_up(), "interpreter", ""]
    assert [done for done, _, _ in steps] == list(range(len(names)))
    assert {total for _, total, _ in steps} == {len(names) - 1}


def test_the_device_tells_processor_memory_and_caps():
    facts = create().devices()[0].facts

    assert (facts.name, facts.type, facts.reg) == ("CPU", DeviceType.CPU, "CPU")
    assert facts.description
    assert 0 < facts.memory_free <= facts.memory_total
    assert facts.caps.buffer_from_host_ptr
    assert not facts.caps.events
    assert not facts.caps.asynchronous
    assert (facts.buft.name, facts.buft.alignment, facts.buft.is_host) == ("CPU", 32, True)


def test_features_are_named_as_ggml_names_them():
    get_features = create().get_proc_address("ggml_backend_get_features")
    assert get_features is not None

    assert set(get_features()) == create().devices()[0].facts.features
    assert set(get_features().values()) <= {"1"}


def test_unknown_functions_are_absent():
    assert create().get_proc_address("ggml_backend_set_sail") is None


def test_memory_that_exists_becomes_a_buffer_without_a_copy():
    memory = np.zeros(256, dtype=np.uint8)

    buffer = create().devices()[0].buffer_from_host_ptr(memory, "CPU_Mapped")
    assert buffer is not None
    memory[3] = 7

    assert (buffer.buft.name, buffer.buft.is_host, buffer.usage) == (
        "CPU_Mapped",
        True,
        BufferUsage.ANY,
    )
    assert buffer.host is not None
    assert buffer.host[3] == 7
    assert buffer.address == memory.ctypes.data


def test_buffers_are_aligned():
    buffer = create().devices()[0].buffer_type().alloc_buffer(100)

    assert buffer.address % 32 == 0
    assert buffer.size >= 100
