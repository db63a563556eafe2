"""Two parts of one CPU as two devices: copies between their streams, and what they wait for."""

import numpy as np
import pyopencl as cl
import pytest

from engine.backend.interface import Place
from engine.backends.opencl.device import make_devices
from engine.backends.opencl.platforms import parts_of
from engine.backends.opencl.reg import create

pytestmark = pytest.mark.gpu

N_BYTES = 8 << 20


@pytest.fixture(scope="module")
def pair(opencl, found):
    devices, refused = make_devices(opencl, (found,), 32, n_parts=2)
    assert not refused
    return devices


@pytest.fixture
def streams(pair):
    made = [device.init_backend() for device in pair]
    yield made
    for stream in made:
        stream.dispose()


@pytest.fixture
def places(pair):
    made = [Place(device.buffer_type().alloc_buffer(N_BYTES), 0) for device in pair]
    yield made
    for place in made:
        place.buffer.release()


def pattern(value):
    return np.full(N_BYTES, value, np.uint8)


def held_by(place):
    out = np.empty(N_BYTES, np.uint8)
    place.buffer.get_tensor(0, out).synchronize()
    return out


def test_a_cpu_is_taken_as_as_many_devices_as_asked_for_and_as_it_has_cores(found):
    n_cores = found.handle.max_compute_units

    parts = parts_of(found, 2)

    assert [part.handle.max_compute_units for part in parts] == [n_cores // 2] * 2
    assert parts[0].description.endswith(f"part 1 of 2 ({n_cores // 2} of {n_cores} cores)")
    assert len(parts_of(found, 10 * n_cores)) == n_cores
    assert parts_of(found, 1) == (found,)


def test_more_parts_than_cores_are_said(opencl, found):
    n_cores = found.handle.max_compute_units

    devices, (fewer,) = make_devices(opencl, (found,), 32, n_parts=10 * n_cores)

    assert len(devices) == n_cores
    assert fewer.name == f"{10 * n_cores} parts of {found.description}"
    assert fewer.reason == f"a part has one core at least, and there are {n_cores}"
    assert fewer.hint == f"It is taken as {n_cores}."


@pytest.mark.parametrize(
    ("variable", "text"),
    [("SPLITSCOPE_OPENCL_PARTS", "1.5"), ("GGML_OP_OFFLOAD_MIN_BATCH", "many")],
)
def test_a_variable_that_cannot_be_read_is_among_what_is_not_available(monkeypatch, variable, text):
    monkeypatch.setenv(variable, text)

    reg = create()

    assert reg.devices()
    assert f"{variable}={text}" in [item.name for item in reg.unavailable()]


def test_the_parts_are_devices_with_a_context_in_common(pair):
    assert [device.name for device in pair] == ["OpenCL0", "OpenCL1"]
    assert pair[0].context == pair[1].context


def test_a_copy_takes_what_was_queued_before_it_and_not_what_is_queued_after(streams, places):
    first, second = streams
    for value in range(8):
        first.set_tensor_async(places[0], pattern(value))
        event = second.cpy_tensor_async(first, places[0], places[1], N_BYTES)
        first.set_tensor_async(places[0], pattern(200))
        second.synchronize()

        assert event is not None
        assert np.array_equal(held_by(places[1]), pattern(value))
    first.synchronize()


def test_work_after_a_copy_sees_its_bytes_without_the_host_waiting(streams, places):
    first, second = streams
    out = np.zeros(N_BYTES, np.uint8)
    first.set_tensor_async(places[0], pattern(7))
    second.cpy_tensor_async(first, places[0], places[1], N_BYTES)
    second.get_tensor_async(places[1], out)

    second.synchronize()

    assert np.array_equal(out, pattern(7))


def test_a_copy_waits_for_the_event_that_guards_its_target(pair, streams, places):
    first, second = streams
    gate = cl.UserEvent(pair[1].context)
    out = np.zeros(N_BYTES, np.uint8)
    places[1].buffer.set_tensor(0, pattern(1)).synchronize()
    first.set_tensor_async(places[0], pattern(2))
    second.wait_for([gate])
    second.get_tensor_async(places[1], out)
    guard = pair[1].event_new()
    second.event_record(guard)

    second.event_wait(guard)
    copied = second.cpy_tensor_async(first, places[0], places[1], N_BYTES)
    assert not copied.is_done
    gate.set_status(cl.command_execution_status.COMPLETE)
    second.synchronize()

    assert np.array_equal(out, pattern(1))
    assert np.array_equal(held_by(places[1]), pattern(2))
