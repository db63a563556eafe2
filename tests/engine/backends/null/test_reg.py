"""Devices that compute nothing: sizes, zeros, a log, and a clock that only work moves."""

import numpy as np
import pytest

from engine.backend.interface import Place, SplitGraph
from engine.backends.null.clock import (
    BYTES_PER_NS,
    LAUNCH_NS,
    VirtualClock,
    copy_cost_ns,
    node_cost_ns,
)
from engine.backends.null.reg import NullReg
from engine.backends.null.virtual import parse_virtual
from engine.core import build
from engine.core.devices import BufferUsage
from engine.core.repack import CPU_REPACK
from engine.core.tensor import Tensor
from engine.core.types import TensorType


@pytest.fixture
def calls():
    return []


def family(calls, *lines):
    return NullReg([parse_virtual(line) for line in lines], calls.append)


def leaf(n):
    return Tensor(TensorType.F32, (n, 1, 1, 1))


def completion(event):
    seen = []
    event.synchronize()
    event.on_complete(seen.append)
    return seen[0]


def test_devices_are_those_that_were_asked_for(calls):
    reg = family(calls, "G:gpu:1:hostbuft=P", "CPU:cpu:1")

    gpu, cpu = reg.devices()

    assert (gpu.facts.name, cpu.facts.name) == ("G", "CPU")
    assert gpu.buffer_type() is gpu.buffer_type()
    assert gpu.host_buffer_type().facts.name == "P"
    assert cpu.host_buffer_type() is None
    assert reg.devices() == (gpu, cpu)


def test_a_cpu_has_memory_for_rearranged_weights(calls):
    (cpu,) = NullReg([parse_virtual("CPU:cpu:1")], calls.append).devices()

    assert [buft.facts for buft in cpu.extra_buffer_types()] == [CPU_REPACK]


def test_a_buffer_of_any_size_takes_no_memory(calls):
    buft = family(calls, "CPU:cpu:1").devices()[0].buffer_type()

    buffer = buft.alloc_buffer(2**50, BufferUsage.WEIGHTS)

    assert (buffer.size, buffer.usage) == (2**50, BufferUsage.WEIGHTS)
    assert buffer.host.size == 2**50
    assert calls == [f"alloc_buffer CPU {2**50}"]


def test_device_memory_is_not_seen_by_the_host(calls):
    assert family(calls, "G:gpu:1").devices()[0].buffer_type().alloc_buffer(8).host is None


def test_what_is_written_is_forgotten(calls):
    buffer = family(calls, "G:gpu:1").devices()[0].buffer_type().alloc_buffer(8)
    buffer.set_tensor(0, np.full(4, 7, np.uint8))
    buffer.clear(9)
    out = np.full(4, 7, np.uint8)

    buffer.get_tensor(0, out)

    assert out.tolist() == [0] * 4


def test_the_clock_moves_by_the_cost_of_work():
    clock = VirtualClock()

    assert clock.advance(10) == (0, 10)
    assert clock.advance(5) == (10, 15)


def test_a_node_costs_its_launch_and_every_byte_it_touches():
    node = build.add(leaf(1000), leaf(1000))

    assert node_cost_ns(node) == LAUNCH_NS + 3 * 4000 // BYTES_PER_NS
    assert copy_cost_ns(4000) == LAUNCH_NS + 4000 // BYTES_PER_NS


def test_a_split_takes_the_time_of_its_computed_nodes(calls):
    backend = family(calls, "G:gpu:1").devices()[0].init_backend()
    a = build.rms_norm(leaf(1000), 1e-5)
    a.name = "a"
    view = build.reshape(a, 10, 100)

    done = completion(backend.graph_compute(SplitGraph((a, view), {})))

    assert done.end_ns - done.start_ns == node_cost_ns(a)
    assert calls == ["graph_compute G n=2:a,a (reshaped)"]


def test_streams_of_one_family_share_its_clock(calls):
    reg = family(calls, "G:gpu:1", "H:gpu:1")
    first, second = (device.init_backend() for device in reg.devices())
    a = SplitGraph((build.rms_norm(leaf(8), 1e-5),), {})

    earlier, later = completion(first.graph_compute(a)), completion(second.graph_compute(a))

    assert earlier.end_ns == later.start_ns
    assert reg.clock.now_ns == later.end_ns


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("G:gpu:1:async=1", ["set_tensor_async G n=4", "get_tensor_async G n=4"]),
        ("G:gpu:1", ["synchronize G", "set_tensor G n=4", "synchronize G", "get_tensor G n=4"]),
    ],
    ids=["asynchronous", "blocking"],
)
def test_queued_transfers_need_an_asynchronous_device(calls, line, expected):
    device = family(calls, line).devices()[0]
    place = Place(device.buffer_type().alloc_buffer(8), 0)
    backend = device.init_backend()
    out = np.full(4, 7, np.uint8)
    calls.clear()

    backend.set_tensor_async(place, out)
    backend.get_tensor_async(place, out)

    assert calls == expected
    assert out.tolist() == [0] * 4


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("A:gpu:1:cpyasync=1", "B:gpu:1:cpyasync=1", ["cpy_tensor_async A->B ok"]),
        ("A:gpu:1", "B:gpu:1:cpyasync=1", ["cpy_tensor_async A->B refused"]),
        ("A:gpu:1:cpyasync=1", "B:gpu:1", []),
        ("A:cpu:1:cpyasync=1", "B:gpu:1:cpyasync=1", ["cpy_tensor_async A->B refused"]),
    ],
)
def test_a_queued_copy_needs_two_devices_that_do_so(calls, source, target, expected):
    first, second = (device.init_backend() for device in family(calls, source, target).devices())
    place = Place(first.device.buffer_type().alloc_buffer(8), 0)
    calls.clear()

    event = second.cpy_tensor_async(first, place, place, 8)

    assert calls == expected
    assert (event is not None) is any(call.endswith("ok") for call in calls)


def test_a_family_without_a_log_is_silent():
    backend = NullReg([parse_virtual("G:gpu:1")]).devices()[0].init_backend()

    backend.synchronize()

    assert backend.name == "G"
