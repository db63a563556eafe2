"""What a backend gets for nothing: the members marked (optional)."""

import numpy as np
import pytest

from engine.backend.host_buffer import HostBufferType
from engine.backend.interface import (
    Backend,
    BackendReg,
    Buffer,
    Completion,
    Device,
    DoneEvent,
    Place,
    SplitGraph,
)
from engine.core import build
from engine.core.devices import BufferTypeFacts, BufferUsage, DeviceFacts, DeviceType, TableRules
from engine.core.tensor import Tensor
from engine.core.types import TensorType

HOST = BufferTypeFacts("CPU", alignment=32, is_host=True)
FAR = BufferTypeFacts("FAR")


class SmallestBuffer(Buffer):
    def set_tensor(self, offset, data):
        return DoneEvent(Completion(0, 1))

    def get_tensor(self, offset, out):
        return DoneEvent(Completion(0, 1))

    def clear(self, value):
        del value


class SmallestReg(BackendReg):
    name = "SMALL"

    def devices(self):
        return (SmallestDevice(),)


class SmallestDevice(Device):
    reg = SmallestReg()

    @property
    def facts(self):
        return DeviceFacts("S0", "", DeviceType.GPU, "SMALL", FAR, TableRules())

    def init_backend(self):
        return SmallestBackend()

    def buffer_type(self):
        return HostBufferType(HOST)


class SmallestBackend(Backend):
    name = "S0"

    def __init__(self):
        self.n_waits = 0

    def graph_compute(self, graph):
        return DoneEvent(Completion(0, len(graph.nodes)))

    def synchronize(self):
        self.n_waits += 1
        super().synchronize()


@pytest.fixture
def backend():
    return SmallestBackend()


@pytest.fixture
def place():
    return Place(HostBufferType(HOST).alloc_buffer(16), 4)


def test_a_queued_write_waits_and_writes(backend, place):
    backend.set_tensor_async(place, np.array([1, 2], np.uint8))

    assert place.buffer.host[4:6].tolist() == [1, 2]
    assert backend.n_waits == 1


def test_a_queued_read_waits_and_reads(backend, place):
    place.buffer.host[4:6] = [3, 4]
    out = np.empty(2, np.uint8)

    backend.get_tensor_async(place, out)

    assert out.tolist() == [3, 4]
    assert backend.n_waits == 1


def test_copies_between_backends_are_refused(backend, place):
    assert backend.cpy_tensor_async(backend, place, place, 1) is None
    assert SmallestBuffer(FAR, 8, BufferUsage.ANY).cpy_tensor(0, place, 1) is None


def test_memory_that_the_host_cannot_see_has_no_address():
    far = SmallestBuffer(FAR, 8, BufferUsage.ANY)

    far.release()

    assert (far.host, far.address) == (None, 0)


def test_events_of_a_backend_without_them_are_a_developers_mistake(backend):
    event = DoneEvent(Completion(0, 0))

    for use in (backend.event_record, backend.event_wait):
        with pytest.raises(AssertionError, match="S0 has no events"):
            use(event)


def test_a_device_has_no_extras(backend):
    device = SmallestDevice()

    backend.set_stop_word(0)
    backend.prepare()
    backend.dispose()

    assert device.host_buffer_type() is None
    assert device.buffer_from_host_ptr(np.zeros(1, np.uint8), "x") is None
    assert device.event_new() is None
    assert device.reg.unavailable() == ()
    assert device.reg.get_proc_address("ggml_backend_set_n_threads") is None


def test_a_split_knows_where_its_views_begin(place):
    base = Tensor(TensorType.F32, (4, 1, 1, 1))
    view = build.view(base, (2,), (), 8)
    split = SplitGraph((view,), {base: place})

    assert split.place_of(base) == place
    assert split.place_of(view) == Place(place.buffer, place.offset + 8)
