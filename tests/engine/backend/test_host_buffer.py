"""Host memory as a buffer, and blocking copies between places."""

import numpy as np
import pytest

from engine.backend import host_buffer
from engine.backend.host_buffer import CACHE_LINE, HostBuffer, HostBufferType, aligned_bytes
from engine.backend.interface import Place
from engine.backend.transfer import copy_bytes
from engine.backends.null.reg import NullReg
from engine.core.devices import BufferTypeFacts, BufferUsage
from engine.errors import DeviceError
from tests.engine.paper import parse_virtual

HOST = BufferTypeFacts("CPU", alignment=32, is_host=True)


def bytes_of(*values):
    return np.array(values, np.uint8)


@pytest.fixture
def buffer():
    return HostBufferType(HOST).alloc_buffer(16)


def read(buffer, offset, n):
    out = np.empty(n, np.uint8)
    buffer.get_tensor(offset, out)
    return out.tolist()


@pytest.mark.parametrize("alignment", [1, 32, 64, 4096])
def test_memory_begins_at_a_multiple_of_its_alignment_and_of_a_cache_line(alignment):
    memory = aligned_bytes(100, alignment)

    assert memory.size == 100
    assert memory.ctypes.data % max(alignment, CACHE_LINE) == 0


def test_what_is_written_is_read_where_it_was_written(buffer):
    buffer.set_tensor(4, bytes_of(1, 2, 3))

    assert read(buffer, 3, 5) == [0, 1, 2, 3, 0]


def test_clearing_sets_every_byte(buffer):
    buffer.clear(7)

    assert read(buffer, 0, 16) == [7] * 16


def test_the_host_sees_the_bytes_themselves(buffer):
    buffer.host[5] = 9

    assert read(buffer, 5, 1) == [9]
    assert buffer.address == buffer.host.ctypes.data


def test_a_buffer_over_memory_that_exists_shares_it():
    memory = bytes_of(1, 2, 3, 4)
    mapped = HostBuffer(HOST, memory, BufferUsage.WEIGHTS)

    memory[0] = 8

    assert read(mapped, 0, 4) == [8, 2, 3, 4]
    assert (mapped.size, mapped.usage) == (4, BufferUsage.WEIGHTS)


def test_every_transfer_says_when_it_was(buffer):
    seen = []

    for event in (buffer.set_tensor(0, bytes_of(1)), buffer.get_tensor(0, np.empty(1, np.uint8))):
        event.synchronize()
        event.on_complete(seen.append)

    assert all(done.start_ns <= done.end_ns for done in seen)
    assert len(seen) == 2


def test_too_little_memory_is_told_with_what_to_do(monkeypatch):
    def full(*_args, **_kwargs):
        raise MemoryError

    monkeypatch.setattr(host_buffer.np, "zeros", full)

    with pytest.raises(DeviceError, match=r"no 1,024 bytes of memory left.*smaller context"):
        aligned_bytes(1024, 32)


# Copies. A device on paper tells which way was taken.


@pytest.fixture
def paper():
    """(buffers of GPU0 and GPU1, calls)"""
    calls = []
    facts = [parse_virtual("GPU0:gpu:1"), parse_virtual("GPU1:gpu:1")]
    devices = NullReg(facts, calls.append).devices()
    buffers = [device.buffer_type().alloc_buffer(16) for device in devices]
    calls.clear()
    return buffers, calls


def test_from_host_to_host(buffer):
    other = HostBufferType(HOST).alloc_buffer(16)
    buffer.set_tensor(0, bytes_of(1, 2, 3, 4))

    copy_bytes(Place(buffer, 1), Place(other, 8), 2)

    assert read(other, 7, 4) == [0, 2, 3, 0]


def test_a_host_source_is_written(buffer, paper):
    (gpu, _), calls = paper

    copy_bytes(Place(buffer, 0), Place(gpu, 0), 8)

    assert calls == ["set_tensor GPU0 n=8"]


def test_a_host_target_is_read_into(buffer, paper):
    (gpu, _), calls = paper
    buffer.clear(7)

    copy_bytes(Place(gpu, 0), Place(buffer, 4), 8)

    assert calls == ["get_tensor GPU0 n=8"]
    assert read(buffer, 3, 10) == [7, *[0] * 8, 7]


def test_one_kind_of_memory_copies_by_itself(paper):
    (gpu, _), calls = paper

    copy_bytes(Place(gpu, 0), Place(gpu, 8), 8)

    assert calls == ["cpy_tensor GPU0 ok"]


def test_two_kinds_bounce_through_the_host(paper):
    (gpu, other), calls = paper

    copy_bytes(Place(gpu, 0), Place(other, 0), 8)

    assert calls == ["cpy_tensor GPU1 refused", "get_tensor GPU0 n=8", "set_tensor GPU1 n=8"]
