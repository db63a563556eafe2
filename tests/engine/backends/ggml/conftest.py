"""The CPU of real ggml libraries, and a way to compute single operations on it."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest

from engine.backend.interface import Backend, Buffer, Device, Place, SplitGraph
from engine.backends.ggml.kind import GgmlKind
from engine.core.tensor import Tensor, shape4
from engine.core.types import TensorType
from tests.engine.backends.ggml.libraries import cpu_library

NUMPY_TYPES = {
    TensorType.F32: np.float32,
    TensorType.F16: np.float16,
    TensorType.I32: np.int32,
    TensorType.I64: np.int64,
}
ALIGNMENT = 64


@pytest.fixture(scope="session")
def library():
    """Path of a CPU library that runs here."""
    return cpu_library()


@pytest.fixture(scope="session")
def reg(library):
    return GgmlKind().open(library)


@pytest.fixture(scope="session")
def device(reg):
    return reg.devices()[0]


@pytest.fixture
def backend(device):
    stream = device.init_backend()
    yield stream
    stream.dispose()


@dataclass
class Bench:
    """Lays tensors out in one buffer, computes nodes, reads results."""

    device: Device
    backend: Backend
    values: dict[Tensor, np.ndarray] = field(default_factory=dict)
    buffers: list[Buffer] = field(default_factory=list)

    def leaf(self, values, tensor_type=TensorType.F32):
        """A tensor with these values; the numpy shape is the ggml shape backwards."""
        tensor = Tensor(tensor_type, shape4(*reversed(values.shape)))
        self.values[tensor] = np.ascontiguousarray(values, NUMPY_TYPES[tensor_type])
        return tensor

    def split(self, *nodes, outside=None, buft=None):
        """A split of these nodes, every tensor in one buffer, what nobody wrote as NaN."""
        owners = {}
        for node in nodes:
            for tensor in (*node.src, node):
                owners[tensor.view_src or tensor] = None
        size, offsets = 0, {}
        for owner in owners:
            offsets[owner] = size
            size += -(-owner.n_bytes // ALIGNMENT) * ALIGNMENT + ALIGNMENT
        buffer = (buft or self.device.buffer_type()).alloc_buffer(size)
        buffer.clear(0xFF)
        self.buffers.append(buffer)
        for owner, values in self.values.items():
            if owner in offsets:
                buffer.set_tensor(offsets[owner], values.reshape(-1).view(np.uint8))
        places = {owner: Place(buffer, offset) for owner, offset in offsets.items()}
        return SplitGraph(nodes, places, outside=outside)

    def read(self, split, tensor):
        """The values of a gapless tensor, numpy shape."""
        place = split.place_of(tensor)
        raw = np.empty(tensor.n_bytes, np.uint8)
        place.buffer.get_tensor(place.offset, raw)
        return raw.view(NUMPY_TYPES[tensor.type]).reshape(tensor.ne[::-1])

    def compute(self, *nodes):
        """The values of the last node."""
        split = self.split(*nodes)
        self.backend.graph_compute(split)
        self.backend.synchronize()
        return self.read(split, nodes[-1])


@pytest.fixture
def bench(device, backend):
    made = Bench(device, backend)
    yield made
    for buffer in made.buffers:
        buffer.release()
