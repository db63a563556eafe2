"""The stream: events and their times, transfers, stopping, memory, errors."""

from __future__ import annotations

import itertools
import threading
import time
from types import SimpleNamespace

import numpy as np
import pyopencl as cl
import pytest

from engine.backend.interface import DoneEvent, Place, SplitGraph
from engine.backends.opencl.device import shares_finely
from engine.backends.opencl.events import CommandEvent
from engine.backends.opencl.programs import build_program
from engine.core import build
from engine.core.ops import FlashAttnParams
from engine.core.tensor import Tensor, shape4
from engine.core.types import TensorType
from engine.errors import DeviceError, Stopped

F32 = TensorType.F32
COARSE = cl.device_svm_capabilities.COARSE_GRAIN_BUFFER
FINE = cl.device_svm_capabilities.FINE_GRAIN_BUFFER

SLACK_NS = 1_000_000
"""What a converted clock may be off by when the machine is busy."""

pytestmark = pytest.mark.gpu


def random_bytes(n):
    return np.random.default_rng(n).integers(0, 256, n, dtype=np.uint8)


def a_split(bench, n=4096, n_nodes=3):
    """A chain of additions."""
    x = bench.leaf(F32, np.ones(n, np.float32))
    nodes = [build.add(x, x)]
    for _ in range(n_nodes - 1):
        nodes.append(build.add(nodes[-1], x))
    return bench.graph(*nodes)


def test_the_times_of_a_split_lie_in_order_on_the_hosts_clock(bench):
    graph = a_split(bench)
    bench.backend.graph_compute(graph)
    bench.backend.synchronize()
    told = []

    before_ns = time.monotonic_ns()
    bench.backend.graph_compute(graph).on_complete(told.append)
    bench.backend.synchronize()
    after_ns = time.monotonic_ns()

    (done,) = told
    slack_ns = SLACK_NS if done.clock_converted else 0
    assert before_ns - slack_ns <= done.start_ns <= done.end_ns <= after_ns + slack_ns


def test_splits_that_take_turns_keep_their_arguments(bench):
    x, y = bench.leaf(F32, np.ones(64, np.float32)), bench.leaf(F32, np.full(64, 10, np.float32))
    splits = []
    for leaf in (x, y):
        node = build.add(leaf, leaf)
        splits.append((bench.graph(node), node))

    got = []
    for _ in range(3):
        for graph, node in splits:
            bench.backend.graph_compute(graph)
            bench.backend.synchronize()
            bench.split = graph
            got.append(float(bench.read(node)[0, 0, 0, 0]))
            graph.place_of(node).buffer.set_tensor(
                graph.place_of(node).offset, np.zeros(4, np.uint8)
            )

    assert got == [2.0, 20.0] * 3


def test_successive_splits_follow_one_another(bench):
    graph = a_split(bench, n=1 << 18)
    told = []

    for _ in range(5):
        bench.backend.graph_compute(graph).on_complete(told.append)
    bench.backend.synchronize()

    slack_ns = SLACK_NS if told[0].clock_converted else 0
    assert len(told) == 5
    told.sort(key=lambda done: done.start_ns)
    for earlier, later in itertools.pairwise(told):
        assert earlier.end_ns <= later.start_ns + slack_ns


def test_the_driver_tells_completion_although_nobody_waits(bench):
    graph = a_split(bench)
    told = threading.Event()

    bench.backend.graph_compute(graph).on_complete(lambda done: told.set())

    assert told.wait(20)


def test_an_event_that_is_done_answers_at_once_and_once_only(bench):
    event = bench.backend.graph_compute(a_split(bench))
    first, second = [], []

    event.on_complete(first.append)
    event.synchronize()
    event.on_complete(second.append)
    bench.backend.synchronize()

    assert len(first) == len(second) == 1
    assert first[0].start_ns > 0


def test_a_split_of_views_is_done_when_it_is_queued(bench):
    x = bench.leaf(F32, np.zeros(8, np.float32))
    graph = bench.graph(build.reshape(x, 4, 2))

    event = bench.backend.graph_compute(graph)

    assert isinstance(event, DoneEvent)


def test_a_split_can_run_again_with_new_inputs(bench):
    x = bench.leaf(F32, np.ones(8, np.float32))
    node = build.add(x, x)
    graph = bench.graph(node)
    bench.backend.graph_compute(graph)
    bench.backend.synchronize()
    place = graph.place_of(x)

    place.buffer.set_tensor(place.offset, np.full(8, 5, np.float32).view(np.uint8))
    bench.backend.graph_compute(graph)
    bench.backend.synchronize()

    assert (bench.read(node) == 10).all()


def test_the_stop_word_is_read_before_a_split(device, bench):
    word = np.zeros(1, np.int64)
    stream = device.init_backend()
    stream.set_stop_word(word.ctypes.data)
    graph = a_split(bench)

    stream.graph_compute(graph)
    word[0] = 1

    with pytest.raises(Stopped):
        stream.graph_compute(graph)
    stream.dispose()


def test_bytes_come_back_as_they_were_written(device):
    buffer = device.buffer_type().alloc_buffer(4096)
    data, out = random_bytes(1001), np.empty(1001, np.uint8)

    written = buffer.set_tensor(77, data)
    buffer.get_tensor(77, out)

    told = []
    written.on_complete(told.append)
    assert np.array_equal(out, data)
    assert 0 < told[0].start_ns <= told[0].end_ns
    buffer.release()


def test_a_cpu_device_whose_memory_is_the_hosts_takes_data_without_a_queue(device):
    if not device.writes_in_place:
        pytest.skip("the device has memory of its own")
    buffer = device.buffer_type().alloc_buffer(64)

    written = buffer.set_tensor(3, random_bytes(5))

    assert isinstance(written, DoneEvent)
    assert buffer.host is None  # where a tensor lies is still the device's memory
    buffer.release()


def test_a_device_driven_as_a_gpu_takes_data_through_its_queue(as_a_gpu):
    buffer = as_a_gpu.buffer_type().alloc_buffer(64)

    written = buffer.set_tensor(3, random_bytes(5))

    assert isinstance(written, CommandEvent)
    buffer.release()


def test_memory_is_shared_only_from_opencl_2_on():
    old = SimpleNamespace(version="OpenCL 1.2 pocl")
    coarse = SimpleNamespace(version="OpenCL 3.0 PoCL", svm_capabilities=COARSE)
    fine = SimpleNamespace(version="OpenCL 2.0", svm_capabilities=COARSE | FINE)

    assert [shares_finely(handle) for handle in (old, coarse, fine)] == [False, False, True]


def test_a_read_only_source_can_be_written_from(device):
    buffer = device.buffer_type().alloc_buffer(256)
    data, out = random_bytes(256), np.empty(256, np.uint8)
    data.flags.writeable = False

    buffer.set_tensor(0, data)
    buffer.get_tensor(0, out)

    assert np.array_equal(out, data)
    buffer.release()


def test_clear_fills_every_byte(device):
    buffer = device.buffer_type().alloc_buffer(1003)
    out = np.empty(1003, np.uint8)

    buffer.clear(0xA5)
    buffer.get_tensor(0, out)

    assert (out == 0xA5).all()
    buffer.release()


def test_an_empty_buffer_can_be_made_and_cleared(device):
    buffer = device.buffer_type().alloc_buffer(0)

    buffer.clear(1)
    buffer.release()

    assert buffer.size == 0


def test_buffers_of_one_context_copy_without_the_host(device):
    source, target = (device.buffer_type().alloc_buffer(512) for _ in range(2))
    data, out = random_bytes(512), np.zeros(100, np.uint8)
    source.set_tensor(0, data)
    target.clear(0)

    event = target.cpy_tensor(40, Place(source, 200), 100)
    target.get_tensor(40, out)

    assert event is not None
    assert np.array_equal(out, data[200:300])
    source.release()
    target.release()


def test_queued_transfers_keep_their_order(device, backend):
    source, target = (device.buffer_type().alloc_buffer(512) for _ in range(2))
    data, out = random_bytes(512), np.zeros(512, np.uint8)
    told = []

    backend.set_tensor_async(Place(source, 0), data).on_complete(told.append)
    copied = backend.cpy_tensor_async(backend, Place(source, 0), Place(target, 0), 512)
    backend.get_tensor_async(Place(target, 0), out)
    backend.synchronize()

    assert copied is not None
    assert np.array_equal(out, data)
    assert len(told) == 1
    source.release()
    target.release()


def test_a_copy_between_streams_comes_after_the_work_of_the_source(device, backend, bench):
    graph = a_split(bench, n=1 << 20, n_nodes=8)
    other = device.init_backend()
    target = device.buffer_type().alloc_buffer(1 << 22)
    out = np.empty(1 << 20, np.float32)

    backend.graph_compute(graph)
    other.cpy_tensor_async(backend, graph.place_of(graph.nodes[-1]), Place(target, 0), 1 << 22)
    other.get_tensor_async(Place(target, 0), out.view(np.uint8))
    other.synchronize()

    assert (out == 9).all()
    backend.synchronize()
    other.dispose()
    target.release()


def test_a_stream_waits_for_the_event_of_another(device, backend, bench):
    graph = a_split(bench, n=1 << 20, n_nodes=8)
    other, event = device.init_backend(), device.event_new()
    out = np.empty(1 << 20, np.float32)

    backend.graph_compute(graph)
    backend.event_record(event)
    other.event_wait(event)
    other.get_tensor_async(graph.place_of(graph.nodes[-1]), out.view(np.uint8))
    other.synchronize()

    assert (out == 9).all()
    event.synchronize()
    other.dispose()


def test_an_event_that_stands_for_nothing_yet_holds_nobody(device, backend):
    event = device.event_new()
    told = []

    backend.event_wait(event)
    event.synchronize()
    event.on_complete(told.append)

    assert len(told) == 1


def test_free_memory_falls_and_rises_with_buffers(device):
    def held():
        return device._held_bytes

    held_before = held()
    buffer = device.buffer_type().alloc_buffer(1 << 20)

    assert held() == held_before + (1 << 20)
    assert device.facts.memory_free <= device.facts.memory_total - held()
    buffer.release()
    buffer.release()
    assert held() == held_before


def test_rounded_activations_count_as_memory_until_the_stream_goes(bench, device):
    stream = device.init_backend()
    weight = bench.leaf(TensorType.Q8_0, np.ones((8, 64), np.float32))
    x = bench.leaf(F32, np.ones((3, 64), np.float32))
    graph = bench.graph(build.mul_mat(weight, x))
    held_before = device._held_bytes

    stream.graph_compute(graph)
    held_during = device._held_bytes
    stream.dispose()

    assert held_during == held_before + 3 * 64 * 4
    assert device._held_bytes == held_before


def test_a_stream_whose_device_is_lost_still_gives_its_memory_back(device, monkeypatch):
    stream = device.init_backend()
    stream._scratch.place(64)
    held = device._held_bytes

    def refuse():
        raise DeviceError("The device is gone.")

    monkeypatch.setattr(stream, "synchronize", refuse)
    stream.dispose()

    assert device._held_bytes < held


def test_a_software_device_offers_no_more_than_the_system_has(device, monkeypatch):
    monkeypatch.setattr("engine.backends.opencl.device.memory_bytes", lambda: (1234, 9000))
    if device.facts.software:
        assert device.facts.memory_free == 1234

    monkeypatch.setattr("engine.backends.opencl.device.memory_bytes", lambda: (0, 0))
    assert device.facts.memory_free > 1234


def test_a_buffer_beyond_the_drivers_limit_is_refused_in_words(device):
    largest = device.facts.buft.max_bytes

    with pytest.raises(DeviceError) as refused:
        device.buffer_type().alloc_buffer(largest + 1)

    assert device.facts.name in refused.value.title


def test_a_kernel_that_does_not_build_shows_the_compilers_log(device):
    with pytest.raises(DeviceError) as refused:
        build_program(device.context, device.handle, "kernel void f() { nonsense; }", [], "a test")

    details = refused.value.details
    assert "nonsense" in details
    assert "kernels: a test" in details
    assert device.handle.name.strip() in details


def the_nodes_of_a_model():
    weight, x = a_leaf(TensorType.Q4_1, 64, 8), a_leaf(F32, 64)
    cache, mask = a_leaf(TensorType.F16, 64, 8, 1), a_leaf(TensorType.F16, 8, 2)
    attention = build.flash_attn_ext(a_leaf(F32, 64, 2, 1), cache, cache, mask, FlashAttnParams())
    unknown = build.mul_mat(a_leaf(TensorType.IQ1_S, 256, 8), a_leaf(F32, 256))
    return [build.mul_mat(weight, x), build.mul_mat(weight, x), attention, unknown]


def a_leaf(tensor_type, *ne):
    return Tensor(tensor_type, shape4(*ne))


def test_preparing_tells_each_step_by_name(backend):
    steps = []

    backend.prepare_for(
        the_nodes_of_a_model(), lambda done, total, name: steps.append((done, total, name))
    )

    assert steps == [(0, 2, "MUL_MAT q4_1"), (1, 2, "FLASH_ATTN_EXT f16 f16"), (2, 2, "")]


def test_preparing_builds_what_the_nodes_need_and_no_more(as_a_device_of_its_own):
    stream = as_a_device_of_its_own.init_backend()

    stream.prepare_for(the_nodes_of_a_model())

    built = as_a_device_of_its_own.programs.built()
    stream.dispose()
    assert built == {("mul_mat", "q4_1"), ("round_rows", ""), ("flash_attn", "f16 f16")}


def test_facts_say_that_a_cpu_device_is_software(device):
    facts = device.facts

    assert facts.type == "GPU"
    assert facts.name == facts.buft.name
    assert facts.buft.alignment >= 128
    assert not facts.buft.is_host
    assert bool(facts.software) is (device.handle.type == 2)


def test_finished_work_is_not_kept(bench):
    graph = a_split(bench)

    for _ in range(20):
        bench.backend.graph_compute(graph).synchronize()

    assert len(bench.backend._unfinished) <= 1


def test_nodes_without_elements_are_skipped(bench):
    x = bench.leaf(F32, np.zeros((0, 8), np.float32))
    graph = SplitGraph((build.scale(x, 2.0),), bench.graph(build.scale(x, 2.0)).places)

    assert isinstance(bench.backend.graph_compute(graph), DoneEvent)
