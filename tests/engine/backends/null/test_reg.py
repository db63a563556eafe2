"""Devices that compute nothing: sizes, zeros, a log, and virtual time in which they overlap."""

import numpy as np
import pytest

from engine.backend.interface import Place, SplitGraph
from engine.backends.null.clock import CALL_NS, Interval
from engine.backends.null.costs import (
    DeviceSpeed,
    host_cost_ns,
    inside_cost_ns,
    link_cost_ns,
    node_cost_ns,
    usual_speed,
)
from engine.backends.null.reg import NullReg
from engine.core import build
from engine.core.devices import BufferUsage
from engine.core.repack import CPU_REPACK
from engine.core.tensor import Tensor
from engine.core.types import TensorType
from tests.engine.paper import parse_virtual


@pytest.fixture
def calls():
    return []


def family(calls, *lines):
    return NullReg([parse_virtual(line) for line in lines], calls.append)


def leaf(n):
    return Tensor(TensorType.F32, (n, 1, 1, 1))


def times(event):
    """The interval of an event, without waiting for it."""
    seen = []
    event.on_complete(seen.append)
    return Interval(*seen[0][:2])


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


def test_a_split_takes_the_time_of_its_computed_nodes(calls):
    backend = family(calls, "G:gpu:1").devices()[0].init_backend()
    a = build.rms_norm(leaf(1000), 1e-5)
    a.name = "a"
    view = build.reshape(a, 10, 100)

    done = times(backend.graph_compute(SplitGraph((a, view), {})))

    assert done.end_ns - done.start_ns == node_cost_ns(a, backend.device.speed)
    assert calls == ["graph_compute G n=2:a,a (reshaped)"]


PAIR = ("G:gpu:1:preset=cuda,cpyasync=1", "H:gpu:1:preset=cuda,cpyasync=1")


def streams(*lines):
    reg = family([], *lines)
    return reg.clock, *[device.init_backend() for device in reg.devices()]


def work(n=8):
    return SplitGraph((build.rms_norm(leaf(n), 1e-5),), {})


def place_on(backend):
    return Place(backend.device.buffer_type().alloc_buffer(1 << 20), 0)


def test_two_asynchronous_devices_work_at_the_same_time():
    clock, first, second = streams(*PAIR)

    one, other = times(first.graph_compute(work())), times(second.graph_compute(work()))

    assert other.start_ns == CALL_NS
    assert other.start_ns < one.end_ns
    assert clock.now_ns == 2 * CALL_NS


def test_the_host_waits_for_a_device_that_is_not_asynchronous():
    clock, first, second = streams("CPU:cpu:1", "G:gpu:1")

    one, other = times(first.graph_compute(work())), times(second.graph_compute(work()))

    assert other.start_ns == one.end_ns
    assert clock.now_ns == other.end_ns


@pytest.mark.parametrize("wait", ["backend", "queued", "recorded"])
def test_synchronizing_takes_the_host_to_the_end_of_what_was_queued(wait):
    clock, backend, _ = streams(*PAIR)
    event = backend.device.event_new()
    queued = backend.graph_compute(work(1_000_000))
    backend.event_record(event)

    {"backend": backend, "queued": queued, "recorded": event}[wait].synchronize()

    assert clock.now_ns == times(queued).end_ns == times(event).end_ns


def test_an_event_that_was_never_recorded_is_past():
    clock, backend, _ = streams(*PAIR)
    backend.graph_compute(work())

    backend.device.event_new().synchronize()

    assert clock.now_ns == CALL_NS


def test_a_stream_waits_for_an_event_and_the_host_does_not():
    clock, first, second = streams(*PAIR)
    event = first.device.event_new()
    awaited = times(first.graph_compute(work(1_000_000)))
    first.event_record(event)

    second.event_wait(event)

    assert clock.now_ns < awaited.end_ns
    assert times(second.graph_compute(work())).start_ns == awaited.end_ns


def test_a_copy_between_devices_runs_in_the_stream_of_its_source():
    _, first, second = streams(*PAIR)
    before = times(first.graph_compute(work(1_000_000)))
    n_bytes = 1_000

    copied = times(second.cpy_tensor_async(first, place_on(first), place_on(second), n_bytes))

    speed = first.device.speed
    assert copied == (before.end_ns, before.end_ns + link_cost_ns(n_bytes, speed, speed))
    assert times(first.graph_compute(work())).start_ns == copied.end_ns
    assert times(second.graph_compute(work())).start_ns == copied.end_ns


def test_a_copy_waits_for_what_its_target_was_made_to_wait_for_and_not_for_its_work():
    """Graph 5 copies over what graph 1 used, while graph 4 is still computing."""
    _, first, second = streams(*PAIR)
    event = second.device.event_new()
    used = times(second.graph_compute(work(1_000)))
    second.event_record(event)
    later = times(second.graph_compute(work(50_000_000)))

    second.event_wait(event)
    copied = times(second.cpy_tensor_async(first, place_on(first), place_on(second), 8))

    assert used.end_ns <= copied.start_ns < later.end_ns


@pytest.mark.parametrize("line", ["G:gpu:1:preset=cuda", "G:gpu:1"])
def test_the_host_waits_for_blocking_transfers_of_device_memory(line):
    clock, backend = streams(line)
    buffer, cost_ns = place_on(backend).buffer, link_cost_ns(4_000, backend.device.speed)

    written = times(buffer.set_tensor(0, np.zeros(4_000, np.uint8)))
    read = times(buffer.get_tensor(0, np.zeros(4_000, np.uint8)))

    assert (written, read) == ((0, cost_ns), (cost_ns, 2 * cost_ns))
    assert clock.now_ns == 2 * cost_ns


def test_memory_of_the_host_is_written_at_its_own_speed():
    clock, backend = streams("CPU:cpu:1")

    place_on(backend).buffer.set_tensor(0, np.zeros(4_000, np.uint8))

    assert clock.now_ns == host_cost_ns(4_000)


def test_a_copy_within_one_memory_costs_the_host_the_time_it_takes():
    clock, backend = streams("G:gpu:1")

    place_on(backend).buffer.cpy_tensor(0, place_on(backend), 4_000)

    assert clock.now_ns == inside_cost_ns(4_000, backend.device.speed)


def test_a_device_is_as_fast_as_is_said_else_as_its_kind():
    facts = [parse_virtual(line) for line in PAIR]
    slow = DeviceSpeed(1, 1, launch_ns=1, link_gbps=1, link_latency_ns=1)

    first, second = NullReg(facts, speeds={"H": slow}).devices()

    assert (first.speed, second.speed) == (usual_speed(facts[0]), slow)


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
