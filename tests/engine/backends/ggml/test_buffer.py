"""Buffers of a real ggml library."""

import pickle

import numpy as np
import pytest

from engine.backend.host_buffer import HostBufferType, aligned_bytes
from engine.backend.interface import Place
from engine.backends.ggml.buffer import GgmlBufferTypeFacts
from engine.core import build
from engine.core.devices import CPU_BUFT, BufferTypeFacts, BufferUsage, mapped
from engine.core.tensor import Tensor
from engine.core.types import TensorType
from engine.errors import DeviceError

DATA = np.arange(256, dtype=np.uint8)


@pytest.fixture
def buffer(device):
    made = device.buffer_type().alloc_buffer(1024)
    yield made
    made.release()


@pytest.fixture
def interleaved(device):
    """Memory that stores weights its own way."""
    repack = next(b for b in device.extra_buffer_types() if "REPACK" in b.facts.name)
    made = repack.alloc_buffer(4096)
    yield made
    made.release()


def test_what_is_written_is_read(buffer):
    out = np.empty(256, np.uint8)

    buffer.set_tensor(512, DATA)
    buffer.get_tensor(512, out)

    np.testing.assert_array_equal(out, DATA)


def test_memory_of_the_host_is_seen_without_a_copy(buffer):
    buffer.set_tensor(0, DATA)

    np.testing.assert_array_equal(buffer.host[:256], DATA)
    assert buffer.host.ctypes.data == buffer.address


def test_windows_write_what_the_library_reads(buffer):
    api = buffer.base.api
    out = np.empty(256, np.uint8)

    for context, at, part in buffer.windows(256, DATA):
        api.ggml_backend_tensor_set(at, part.ctypes.data, 0, part.size)
        context.free()
    for context, at, part in buffer.windows(256, out):
        api.ggml_backend_tensor_get(at, part.ctypes.data, 0, part.size)
        context.free()

    np.testing.assert_array_equal(buffer.host[256:512], DATA)
    np.testing.assert_array_equal(out, DATA)


def test_every_byte_is_cleared(buffer):
    buffer.clear(7)

    assert (buffer.host == 7).all()
    assert len(buffer.host) == 1024


def test_a_copy_within_the_library_needs_no_host(buffer, device):
    other = device.buffer_type().alloc_buffer(512)
    buffer.set_tensor(128, DATA)

    event = other.cpy_tensor(64, Place(buffer, 128), 256)

    assert event is not None
    np.testing.assert_array_equal(other.host[64:320], DATA)
    other.release()


def test_a_copy_from_memory_of_others_is_left_to_the_host(buffer):
    elsewhere = HostBufferType(CPU_BUFT).alloc_buffer(256)

    assert buffer.cpy_tensor(0, Place(elsewhere, 0), 256) is None


def test_an_empty_buffer_has_an_address(device):
    buffer = device.buffer_type().alloc_buffer(0)

    assert buffer.start
    assert buffer.size == 0
    buffer.release()


def test_memory_that_is_not_there_is_an_error_for_people(device):
    with pytest.raises(DeviceError, match="no 1,152,921,504,606,846,976 bytes") as raised:
        device.buffer_type().alloc_buffer(1 << 60)

    assert "failed to allocate" in raised.value.details


def test_interleaved_weights_cannot_be_read_back(interleaved):
    with pytest.raises(DeviceError, match="cannot be read back"):
        interleaved.get_tensor(0, np.empty(64, np.uint8))
    assert interleaved.host is None
    assert interleaved.address == 0


def test_interleaved_weights_are_copied_by_nobody(interleaved, buffer):
    assert buffer.cpy_tensor(0, Place(interleaved, 0), 64) is None
    assert interleaved.cpy_tensor(0, Place(buffer, 0), 64) is None


def test_a_mapped_file_is_a_buffer_as_it_is(device):
    memory = aligned_bytes(4096, 4096)
    memory[:256] = DATA

    buffer = device.buffer_from_host_ptr(memory, "ggml-CPU_Mapped")

    np.testing.assert_array_equal(buffer.host[:256], DATA)
    assert buffer.address == memory.ctypes.data


def test_a_mapped_file_that_begins_at_an_odd_address_is_refused(device):
    assert device.buffer_from_host_ptr(aligned_bytes(4096, 4096)[4:], "ggml-CPU_Mapped") is None


def test_usage_is_told_to_the_library(device):
    tensor = Tensor(TensorType.F32, (8, 1, 1, 1))
    buffer = device.buffer_type().alloc_buffer(256, BufferUsage.WEIGHTS)

    buffer.init_tensor(0, tensor)

    assert buffer.usage is BufferUsage.WEIGHTS
    buffer.release()


def test_memory_of_the_host_takes_what_the_elements_take(device):
    facts = device.buffer_type().facts
    weight = Tensor(TensorType.Q4_K, (256, 16, 1, 1))

    assert facts.alloc_bytes(weight) == weight.n_bytes
    assert facts.alloc_bytes(build.cont(weight)) == weight.n_bytes


def test_other_memory_is_measured_by_the_library_where_it_may_differ():
    asked = []

    def measure(tensor):
        asked.append(tensor)
        return 1000

    facts = GgmlBufferTypeFacts("CUDA0", measure=measure)
    quantised = Tensor(TensorType.Q4_0, (32, 1, 1, 1))
    plain = Tensor(TensorType.F32, (8, 1, 1, 1))

    assert facts.alloc_bytes(quantised) == 1000
    assert facts.alloc_bytes(build.scale(plain, 2.0)) == 32
    assert mapped(facts).alloc_bytes(quantised) == 1000
    assert asked == [quantised, quantised]


def test_interleaved_memory_is_measured_by_the_library(interleaved):
    weight = Tensor(TensorType.Q4_0, (64, 16, 1, 1))

    assert interleaved.buft.alloc_bytes(weight) == weight.n_bytes


def test_facts_of_a_library_reach_another_process_as_plain_ones(device):
    facts = [device.facts.buft, *device.facts.extra_bufts]

    arrived = pickle.loads(pickle.dumps(facts))

    assert {type(each) for each in arrived} == {BufferTypeFacts}
    assert [(a.name, a.alignment, a.max_bytes, a.is_host) for a in arrived] == [
        (f.name, f.alignment, f.max_bytes, f.is_host) for f in facts
    ]
