"""Weights that kernels read where the file is mapped, on a device that shares host memory."""

from __future__ import annotations

import gc
import mmap
from contextlib import closing
from dataclasses import replace

import numpy as np
import pyopencl as cl
import pytest

from engine.backend.interface import Place, SplitGraph
from engine.backends.cpu.reg import create as cpu_family
from engine.backends.opencl.device import OpenClDevice
from engine.core import build
from engine.core.devices import BufferUsage
from engine.core.options import Options
from engine.core.plan import MemoryKind
from engine.core.tensor import Tensor, shape4
from engine.core.types import TensorType
from engine.errors import DeviceError
from engine.gguf.reader import open_gguf
from engine.model.loader import Resident, load_weights
from engine.model.planning import make_planner
from engine.session import Session
from tests.engine.backends.opencl.numbers import rand
from tests.engine.nano import nano

pytestmark = pytest.mark.gpu

NAME = "OpenCL0_Mapped"
PROMPT_TOKENS = (1, 72, 101, 108)


@pytest.fixture
def sharing(device):
    """The device, where it can read mapped files."""
    if not device.facts.caps.buffer_from_host_ptr:
        pytest.skip("a device with memory of its own: none shares the host's")
    return device


@pytest.fixture
def mapping(tmp_path):
    """Three pages of random bytes, mapped for reading."""
    path = tmp_path / "bytes"
    path.write_bytes(np.random.default_rng(3).bytes(3 * mmap.PAGESIZE))
    with path.open("rb") as stream:
        return mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)


def flat(mapping):
    return np.frombuffer(mapping, np.uint8)


def test_a_kernel_reads_the_file_at_any_multiple_of_32(sharing, backend, tmp_path):
    values = rand(40, 64)
    path = tmp_path / "values"
    path.write_bytes(bytes(32) + values.tobytes())
    with path.open("rb") as stream:
        mapping = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
    weights = sharing.buffer_from_host_ptr(flat(mapping), NAME)
    table, ids = Tensor(TensorType.F32, shape4(64, 40)), Tensor(TensorType.I32, shape4(3))
    rows = build.get_rows(table, ids)
    own = sharing.buffer_type().alloc_buffer(2048)
    own.set_tensor(0, np.array([7, 39, 0], np.int32).view(np.uint8))
    places = {table: Place(weights, 32), ids: Place(own, 0), rows: Place(own, 1024)}

    backend.graph_compute(SplitGraph((rows,), places))
    backend.synchronize()

    got = np.empty(3 * 64, np.float32)
    own.get_tensor(1024, got.view(np.uint8))
    np.testing.assert_array_equal(got.reshape(3, 64), values[[7, 39, 0]])
    own.release()
    weights.release()


def test_a_mapped_buffer_says_what_it_is_and_takes_no_memory(sharing, mapping):
    before = sharing.facts.memory_total - sharing._held_bytes
    buffer = sharing.buffer_from_host_ptr(flat(mapping), NAME)
    held = sharing.facts.memory_total - sharing._held_bytes
    buffer.release()

    assert (buffer.buft.name, buffer.size) == (NAME, 3 * mmap.PAGESIZE)
    assert buffer.usage is BufferUsage.WEIGHTS
    assert held == before == sharing.facts.memory_total - sharing._held_bytes


def test_the_bytes_are_the_files_own(sharing, mapping):
    memory = flat(mapping)
    buffer = sharing.buffer_from_host_ptr(memory, NAME)
    out = np.empty(100, np.uint8)

    buffer.get_tensor(5000, out)

    np.testing.assert_array_equal(out, memory[5000:5100])
    assert buffer.memory.get_info(cl.mem_info.FLAGS) & cl.mem_flags.USE_HOST_PTR
    buffer.release()


def test_the_mapping_lives_as_long_as_the_buffer(sharing, mapping):
    expected = bytes(mapping[:64])
    buffer = sharing.buffer_from_host_ptr(flat(mapping), NAME)
    with pytest.raises(BufferError):
        mapping.close()
    out = np.empty(64, np.uint8)

    buffer.get_tensor(0, out)
    buffer.release()
    del buffer
    gc.collect()
    mapping.close()

    assert out.tobytes() == expected


def test_nothing_writes_to_a_file(sharing, backend, mapping):
    data = np.zeros(8, np.uint8)
    buffer, other = (
        sharing.buffer_from_host_ptr(flat(mapping), NAME),
        sharing.buffer_type().alloc_buffer(64),
    )

    for write in (
        lambda: buffer.set_tensor(0, data),
        lambda: buffer.clear(0),
        lambda: buffer.cpy_tensor(0, Place(other, 0), 8),
        lambda: backend.set_tensor_async(Place(buffer, 0), data),
        lambda: backend.cpy_tensor_async(backend, Place(other, 0), Place(buffer, 0), 8),
    ):
        with pytest.raises(AssertionError, match="a mapped file would be written to"):
            write()
    other.release()
    buffer.release()


def test_a_buffer_larger_than_the_device_allows_is_refused(sharing, mapping):
    small = replace(sharing.buft_facts, max_bytes=4096)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sharing, "_facts", replace(sharing._facts, buft=small))
        with pytest.raises(DeviceError, match=r"allows buffers of up to 4,096 bytes, not 12,288"):
            sharing.buffer_from_host_ptr(flat(mapping), NAME)


def test_a_device_that_read_a_mapped_file_wrong_takes_none(sharing, opencl, found, mapping):
    wrong = replace(found, no_mapping="it read a mapped file wrong")
    device = OpenClDevice(opencl, "OpenCL7", wrong, sharing.context, offload_min_batch=32)

    assert not device.facts.caps.buffer_from_host_ptr
    assert device.buffer_from_host_ptr(flat(mapping), NAME) is None


@pytest.mark.parametrize("n_gpu_layers", [1, 2, 99])
def test_weights_lie_at_their_places_in_the_file_as_the_plan_says(sharing, n_gpu_layers):
    found = {d.facts.name: d for d in (sharing, cpu_family().devices()[0])}
    resident = Resident()
    with open_gguf(nano()) as file:
        facts = [d.facts for d in found.values()]
        planner = make_planner(file, facts, Options(n_gpu_layers=n_gpu_layers))
        load_weights(
            resident, file, planner.weights, found,
            on_progress=lambda progress: None, stop_asked=lambda: False,
        )  # fmt: skip

        assert set(resident.places) == set(planner.weights.tensors.values())
        for tensor, place in resident.places.items():
            assert place.buffer.buft == tensor.buffer.buft
            out = np.empty(tensor.n_bytes, np.uint8)
            place.buffer.get_tensor(place.offset, out)
            expected = file.tensor_bytes(file.tensor(tensor.name))
            np.testing.assert_array_equal(out, expected)
        assert NAME in {buffer.buft.name for buffer in resident.buffers}
        resident.release()


@pytest.mark.parametrize("n_gpu_layers", [2, 99])
def test_a_run_gives_the_same_logits_from_mapped_weights_as_from_copies(sharing, n_gpu_layers):
    del sharing
    logits, ledgers = [], []
    for mmapped in (True, False):
        options = Options(n_gpu_layers=n_gpu_layers, n_ctx=256, mmap=mmapped, devices=("opencl",))
        with closing(Session()) as session:
            session.open(nano())
            plans = session.plan(options)
            logits.append(np.stack(session.score("Hello world", PROMPT_TOKENS).logits))
        rows = plans.memory.rows
        ledgers.append({row.buft.name for row in rows if row.kind is MemoryKind.MODEL})

    np.testing.assert_array_equal(logits[0], logits[1])
    assert ledgers[0] == {NAME, "CPU_Mapped"}
    assert ledgers[1] == {"OpenCL0", "CPU"}
