"""Pinned memory and transfers from it, on a device that is taken for one with memory of its own."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pyopencl as cl
import pytest

from engine.backend.interface import Place
from engine.backends.cpu.reg import create as cpu_family
from engine.backends.opencl.device import OpenClDevice
from engine.backends.opencl.pinned import ALIGNMENT
from engine.core.options import Options
from engine.core.plan import MemoryKind
from engine.gguf.reader import open_gguf
from engine.model.context import ModelContext
from engine.model.planning import make_planner
from engine.model.upload import CHUNK_BYTES, sending
from engine.trace.recorder import Recorder
from engine.trace.records import StepKind
from tests.engine.nano import nano

pytestmark = pytest.mark.gpu

NAME = "OpenCL6"
PROMPT = (1, 72, 101, 108, 108, 111)


def device_like(opencl, device, found, *, shares_memory):
    alike = replace(found, shares_memory=shares_memory)
    return OpenClDevice(opencl, NAME, alike, device.context, offload_min_batch=32)


@pytest.fixture(scope="module")
def card(opencl, device, found):
    """The device, taken for a card with memory of its own."""
    return device_like(opencl, device, found, shares_memory=False)


@pytest.fixture
def stream(card):
    stream = card.init_backend()
    yield stream
    stream.dispose()


@contextmanager
def held_up(stream):
    """A stream whose queue stands still until the end of the block."""
    gate = cl.UserEvent(stream.device.context)
    cl.enqueue_barrier(stream._queue, wait_for=[gate])
    try:
        yield
    finally:
        gate.set_status(cl.command_execution_status.COMPLETE)


def bytes_of(n):
    return np.random.default_rng(n).integers(0, 256, n, dtype=np.uint8)


def test_a_device_with_memory_of_its_own_has_pinned_host_memory(card):
    facts = card.facts

    assert facts.caps.host_buffer
    assert not facts.caps.buffer_from_host_ptr
    assert (facts.host_buft.name, facts.host_buft.is_host) == ("OpenCL6_Host", True)
    assert card.host_buffer_type().facts == facts.host_buft
    assert not facts.rules.supports_buft(facts.host_buft)


def test_a_device_that_shares_host_memory_has_none(opencl, device, found):
    sharing = device_like(opencl, device, found, shares_memory=True)

    assert not sharing.facts.caps.host_buffer
    assert sharing.facts.host_buft is sharing.host_buffer_type() is None


@pytest.mark.parametrize("size", [0, 1, 1000, 1 << 20])
def test_pinned_memory_is_host_memory_like_any_other(card, size):
    held = card._held_bytes
    buffer = card.host_buffer_type().alloc_buffer(size)
    data, out = bytes_of(size), np.empty(size, np.uint8)

    buffer.clear(9)
    cleared = bool((buffer.host == 9).all())
    buffer.set_tensor(0, data)
    buffer.get_tensor(0, out)

    assert cleared
    assert buffer.size == size
    assert buffer.address % ALIGNMENT == 0
    assert np.array_equal(out, data)
    assert card._held_bytes == held


def test_what_somebody_still_looks_at_outlives_its_buffer(card):
    buffer = card.host_buffer_type().alloc_buffer(1 << 20)
    buffer.clear(5)
    view = buffer.host[1000:2000]

    buffer.release()
    del buffer

    assert (view == 5).all()


def test_more_than_the_driver_pins_is_ordinary_memory(card):
    size = card.facts.host_buft.max_bytes + 1

    buffer = card.host_buffer_type().alloc_buffer(size)

    assert (buffer.size, buffer.buft) == (size, card.facts.host_buft)
    assert isinstance(buffer.host.base, np.ndarray)


def test_a_write_and_a_read_wait_for_the_queue_and_not_the_host(card, stream):
    pinned = card.host_buffer_type()
    source, target = pinned.alloc_buffer(4096), pinned.alloc_buffer(4096)
    source.set_tensor(0, bytes_of(4096))
    target.clear(0)
    own = card.buffer_type().alloc_buffer(4096)
    told = []

    with held_up(stream):
        stream.set_tensor_async(Place(own, 0), source.host).on_complete(told.append)
        stream.get_tensor_async(Place(own, 0), target.host).on_complete(told.append)
        before = (len(told), bool(target.host.any()))
    stream.synchronize()

    assert before == (0, False)
    assert len(told) == 2
    assert np.array_equal(target.host, source.host)
    own.release()


@pytest.mark.parametrize("n_bytes", [1, CHUNK_BYTES, 2 * CHUNK_BYTES + 77])
def test_weights_go_through_pinned_chunks_and_come_out_whole(card, n_bytes):
    data, out = bytes_of(n_bytes), np.empty(n_bytes, np.uint8)
    own = card.buffer_type().alloc_buffer(n_bytes + 300)

    with sending(card, NAME) as send:
        send(Place(own, 100), data)
        send(Place(own, 0), data[:64])
        send(Place(own, n_bytes + 200), data[-1:])

    own.get_tensor(100, out)
    assert np.array_equal(out, data)
    own.get_tensor(0, out[:64])
    assert np.array_equal(out[:64], data[:64])
    own.get_tensor(n_bytes + 200, out[:1])
    assert out[0] == data[-1]
    own.release()


def test_a_chunk_is_filled_again_only_when_it_has_left(card, monkeypatch):
    """The upload's queue stands still until the third piece asks for the first chunk."""
    data = bytes_of(3 * CHUNK_BYTES)
    own = card.buffer_type().alloc_buffer(data.size)
    waits = []
    gate = cl.UserEvent(card.context)

    with sending(card, NAME) as send:
        upload = send.__self__
        cl.enqueue_barrier(upload._backend._queue, wait_for=[gate])
        first = upload._is_free[0]
        wait = first.synchronize

        def open_gate():
            waits.append(first.recorded is not None)
            if waits[-1]:
                gate.set_status(cl.command_execution_status.COMPLETE)
            wait()

        monkeypatch.setattr(first, "synchronize", open_gate)
        send(Place(own, 0), data)

    out = np.empty(data.size, np.uint8)
    own.get_tensor(0, out)
    assert waits == [False, True]
    assert np.array_equal(out, data)
    own.release()


class Loaded:
    """The nano model on a device and the CPU."""

    def __init__(self, device, **options):
        devices = {d.facts.name: d for d in (device, cpu_family().devices()[0])}
        self.stop_word = np.zeros(1, np.int64)
        self.file = open_gguf(nano())
        facts = [d.facts for d in devices.values()]
        self.planner = make_planner(self.file, facts, Options(n_ctx=256, **options))
        self.context = ModelContext(
            self.file, self.planner, devices, Recorder(),
            on_plan=lambda plan: None, stop_address=self.stop_word.ctypes.data,
            stop_asked=lambda: False,
        )  # fmt: skip

    def __enter__(self):
        self.context.load(lambda progress: None)
        return self

    def __exit__(self, *error):
        self.context.dispose()
        self.file.close()

    def logits(self):
        prompt = self.context.decode(PROMPT, StepKind.PROMPT).copy()
        return np.stack([prompt, self.context.decode([7], StepKind.TOKEN)])

    def memory(self, kind):
        rows = self.planner.plan_set().memory.rows
        return {row.buft.name: row.n_bytes for row in rows if row.kind is kind and row.n_bytes}


@pytest.mark.parametrize("options", [{}, {"n_gpu_layers": 2}, {"n_gpu_layers": 2, "mmap": False}])
def test_a_run_with_pinned_memory_gives_the_same_logits(opencl, device, found, card, options):
    sharing = device_like(opencl, device, found, shares_memory=True)
    with Loaded(sharing, **options) as plain, Loaded(card, **options) as pinned:
        assert np.array_equal(pinned.logits(), plain.logits())


def test_the_cpu_works_and_answers_in_pinned_memory_and_its_copied_weights_lie_there(card):
    with Loaded(card, n_gpu_layers=2, mmap=False, repack=False) as loaded:
        compute, model = loaded.memory(MemoryKind.COMPUTE), loaded.memory(MemoryKind.MODEL)
        output = loaded.memory(MemoryKind.OUTPUT)
        held = {b.buft.name: b.size for b in loaded.context._resident.buffers}

    assert set(compute) == {NAME, "OpenCL6_Host"}
    assert set(output) == {"OpenCL6_Host"}
    assert set(model) == {NAME, "OpenCL6_Host"}
    assert held["OpenCL6_Host"] == model["OpenCL6_Host"]
