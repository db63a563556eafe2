"""Split memory: rows on their devices, and whole matrices for those who write and read them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyopencl as cl
import pytest

from engine.backends.cpu.reg import create as cpu_family
from engine.backends.opencl.device import OpenClDevice
from engine.backends.opencl.reg import OpenClReg
from engine.core.devices import BufferUsage
from engine.core.options import Options
from engine.core.types import TensorType
from engine.errors import DeviceError
from engine.gguf.reader import open_gguf
from engine.model.loader import Resident, load_weights
from engine.model.planning import make_planner
from tests.engine.backends.opencl.pair import matrix, split_type, two_devices
from tests.engine.nano import nano

pytestmark = pytest.mark.gpu

F32, Q8_0 = TensorType.F32, TensorType.Q8_0


@pytest.fixture(scope="module")
def two(opencl, found):
    return two_devices(opencl, found)


def held(devices):
    return [device._held_bytes for device in devices]


def random_bytes(n_bytes):
    return np.random.default_rng(n_bytes).integers(0, 256, n_bytes, np.uint8)


def read(place, n_bytes, skip=0):
    out = np.empty(n_bytes, np.uint8)
    place.buffer.get_tensor(place.offset + skip, out).synchronize()
    return out


@pytest.mark.parametrize("shares", [(1, 1), (3, 1), (1, 0), (0, 1)])
def test_what_was_written_comes_back_whole_and_in_parts(two, shares):
    buft = split_type(*two, shares=shares)
    tensors = [matrix(buft, Q8_0, 64, 96), matrix(buft, F32, 5, 33)]
    places = buft.alloc_tensors(tensors)
    values = [random_bytes(tensor.n_bytes) for tensor in tensors]

    for place, data in zip(places, values, strict=True):
        place.buffer.set_tensor(place.offset, data)

    for place, data in zip(places, values, strict=True):
        np.testing.assert_array_equal(read(place, data.size), data)
        for skip, n_bytes in ((0, 7), (300, data.size - 301), (data.size - 1, 1)):
            np.testing.assert_array_equal(read(place, n_bytes, skip), data[skip : skip + n_bytes])
    places[0].buffer.release()


def test_a_matrix_may_be_written_in_chunks(two):
    buft = split_type(*two, shares=(1, 1))
    (place,) = buft.alloc_tensors([matrix(buft, F32, 32, 64)])
    data = random_bytes(32 * 64 * 4)

    for first in range(0, data.size, 999):
        place.buffer.set_tensor(place.offset + first, data[first : first + 999])

    np.testing.assert_array_equal(read(place, data.size), data)
    place.buffer.release()


def test_each_device_holds_its_rows_and_no_others(two):
    buft = split_type(*two, shares=(3, 1))
    (place,) = buft.alloc_tensors([matrix(buft, F32, 4, 64)])
    data = np.repeat(np.arange(64, dtype=np.float32), 4).view(np.uint8)

    place.buffer.set_tensor(place.offset, data)

    first, second = place.buffer.rows_at(place.offset)
    assert [(rows.device, rows.start, rows.stop) for rows in (first, second)] == [
        (two[0], 0, 48),
        (two[1], 48, 64),
    ]
    on_second = read(second.place, 16 * 4 * 4).view(np.float32)
    assert on_second[::4].tolist() == list(range(48, 64))
    place.buffer.release()


def test_memory_is_counted_where_the_rows_are_and_given_back(two):
    before = held(two)
    buft = split_type(*two, shares=(3, 1))

    (place,) = buft.alloc_tensors([matrix(buft, F32, 1024, 64)])

    grown = [now - old for now, old in zip(held(two), before, strict=True)]
    assert grown == [48 * 4096, 16 * 4096]
    place.buffer.release()
    assert held(two) == before


def test_every_part_is_cleared(two):
    buft = split_type(*two, shares=(1, 1))
    (place,) = buft.alloc_tensors([matrix(buft, F32, 4, 64)])
    place.buffer.set_tensor(place.offset, random_bytes(1024))

    place.buffer.clear(7)

    assert set(read(place, 1024)) == {7}
    place.buffer.release()


class SmallDevice(OpenClDevice):
    """A device whose driver gives it so many bytes for weights, and no more."""

    def __init__(self, opencl, found, context, *, limit):
        super().__init__(opencl, "OpenCL7", found, context, offload_min_batch=32)
        self._facts = replace(self._facts, memory_total=limit)
        self._buffer_type._allocate = self._refuse_beyond(self._buffer_type._allocate)

    def _refuse_beyond(self, allocate):
        def checked(size, usage):
            is_weights = usage is BufferUsage.WEIGHTS
            if is_weights and self._held_bytes + size > self._facts.memory_total:
                raise cl.MemoryError("clCreateBuffer failed: OUT_OF_RESOURCES")
            return allocate(size, usage)

        return checked


@pytest.fixture
def small(opencl, found, device):
    return SmallDevice(opencl, found, device.context, limit=10_000)


@pytest.mark.parametrize("order", ["first", "last"])
def test_without_memory_on_one_device_nothing_stays_on_the_others(device, small, order):
    devices = (small, device) if order == "first" else (device, small)
    before = held(devices)
    buft = split_type(*devices, shares=(1, 1))
    tensors = [matrix(buft, F32, 32, 64, "blk.0.attn_q"), matrix(buft, F32, 32, 128, "blk.0.ffn")]

    with pytest.raises(DeviceError) as refused:
        buft.alloc_tensors(tensors, BufferUsage.WEIGHTS)

    assert held(devices) == before
    error = refused.value
    assert error.title == "OpenCL7 has no memory for its rows of matrices."
    assert error.sentence.startswith(
        "It has 10,000 bytes free, and 12,288 bytes were asked for; blk.0.ffn (8,192 bytes) is the "
        "first that does not fit."
    )
    assert error.hint.startswith("Give it a smaller share (-ts)")
    assert "OUT_OF_RESOURCES" in error.details


def test_a_model_without_memory_on_one_device_leaves_nothing_on_any(device, small, monkeypatch):
    family = OpenClReg()
    family._devices = (device, small)
    for member in family._devices:
        monkeypatch.setattr(member, "reg", family)
    live = {d.facts.name: d for d in (*cpu_family().devices(), *family._devices)}
    names = tuple(d.name for d in family._devices)
    options = Options(split_mode="row", tensor_split=(1, 1), devices=names, mmap=False)
    before, resident = held(family._devices), Resident()

    with open_gguf(nano()) as file:
        weights = make_planner(file, [d.facts for d in live.values()], options).weights
        with pytest.raises(DeviceError, match=r"^OpenCL7 has no memory for its rows of matrices"):
            load_weights(
                resident, file, weights, live,
                on_progress=lambda progress: None, stop_asked=lambda: False,
            )  # fmt: skip
    grown = sum(held(family._devices)) - sum(before)
    resident.release()

    assert grown > 0
    assert held(family._devices) == before


def test_more_than_a_buffer_may_have_lies_in_several(opencl, found, device):
    limited = OpenClDevice(opencl, "OpenCL7", found, device.context, offload_min_batch=32)
    limited._facts = replace(limited._facts, buft=replace(limited.buft_facts, max_bytes=5000))
    buft = split_type(limited, device, shares=(1, 1))
    tensors = [matrix(buft, F32, 32, 64) for _ in range(3)]

    places = buft.alloc_tensors(tensors)

    rows = [place.buffer.rows_at(place.offset) for place in places]
    assert len({own.place.buffer for own, _ in rows}) == 3
    assert len({other.place.buffer for _, other in rows}) == 1
    places[0].buffer.release()


def test_devices_of_two_platforms_hold_no_rows_for_each_other(opencl, found, device):
    other = OpenClDevice(opencl, "OpenCL7", found, cl.Context([found.handle]), offload_min_batch=32)
    buft = split_type(device, other, shares=(1, 1))

    with pytest.raises(DeviceError, match=r"OpenCL7 cannot hold the rows of one matrix"):
        buft.alloc_tensors([matrix(buft, F32, 32, 64)])


def test_the_family_gives_split_memory_by_the_name_that_ggml_has_for_it(opencl, device):
    facts = split_type(device, shares=(1,)).facts

    made = opencl.get_proc_address("ggml_backend_split_buffer_type")(device, facts)

    assert made.facts is facts
    assert opencl.get_proc_address("ggml_backend_set_n_threads") is None
    assert device.facts.splits_rows
