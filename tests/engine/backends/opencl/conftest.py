"""A device for the gpu tests, and a way to run one graph on it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pytest

from engine.backend.interface import Backend, Buffer, Device, Event, Place, SplitGraph
from engine.backends.opencl.device import OpenClDevice
from engine.backends.opencl.platforms import find_devices
from engine.backends.opencl.reg import OpenClReg, create
from engine.core.quants import dequantize, quantize
from engine.core.tensor import Tensor, shape4
from engine.core.types import TensorType
from tests.engine.backends.opencl.numbers import WRITTEN_TYPES, random_blocks

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from engine.backends.opencl.discovery import FoundDevice

Array = npt.NDArray[np.generic]

NUMPY_TYPE = {
    TensorType.F32: np.float32,
    TensorType.F16: np.float16,
    TensorType.I32: np.int32,
    TensorType.I64: np.int64,
}
PAD = 128


@pytest.fixture(scope="session")
def opencl() -> OpenClReg:
    return create()


@pytest.fixture(scope="session")
def device(opencl: OpenClReg) -> OpenClDevice:
    if not opencl.devices():
        pytest.skip(f"OpenCL: {opencl.unavailable()[0].reason}")
    first = opencl.devices()[0]
    assert isinstance(first, OpenClDevice)
    return first


@pytest.fixture(scope="session")
def found(device: OpenClDevice) -> FoundDevice:
    """What the platform says of the device."""
    return next(f for f in find_devices()[0] if f.handle == device.handle)


@pytest.fixture(scope="session")
def backend(device: OpenClDevice) -> Iterator[Backend]:
    stream = device.init_backend()
    yield stream
    stream.dispose()


@dataclass
class Bench:
    """Lays tensors out in one buffer, runs nodes, reads results."""

    device: Device
    backend: Backend
    values: dict[Tensor, Array] = field(default_factory=dict)
    buffers: list[Buffer] = field(default_factory=list)

    def leaf(self, tensor_type: TensorType, values: Array) -> Tensor:
        """A tensor with these values; the numpy shape is the ggml shape backwards.

        A type that the reference does not write gets random blocks in place of the values.
        """
        tensor = Tensor(tensor_type, shape4(*reversed(values.shape)))
        if tensor_type not in WRITTEN_TYPES:
            self.values[tensor] = random_blocks(tensor_type, tensor.n_elems)
        elif tensor_type not in NUMPY_TYPE:
            self.values[tensor] = quantize(tensor_type, values.astype(np.float32))
        else:
            self.values[tensor] = np.ascontiguousarray(values, NUMPY_TYPE[tensor_type])
        return tensor

    def floats(self, leaf: Tensor) -> npt.NDArray[np.float32]:
        """What a leaf stands for, as float32, numpy shape."""
        raw = self.values[leaf].reshape(-1).view(np.uint8)
        return dequantize(leaf.type, raw, leaf.n_elems).reshape(leaf.ne[::-1])

    def run(self, *nodes: Tensor) -> Event:
        """Compute the nodes and wait."""
        graph = self.graph(*nodes)
        event = self.backend.graph_compute(graph)
        self.backend.synchronize()
        return event

    def graph(self, *nodes: Tensor) -> SplitGraph:
        """A split of these nodes; every tensor lies at a multiple of 128 in one buffer."""
        owners = _owners(nodes)
        offsets, size = {}, 0
        for owner in owners:
            offsets[owner] = size
            size += -(-owner.n_bytes // PAD) * PAD + PAD
        buffer = self.device.buffer_type().alloc_buffer(size)
        self.buffers.append(buffer)
        buffer.clear(0xFF)  # NaN, so that reading what nobody wrote shows
        for owner in owners:
            if owner in self.values:
                buffer.set_tensor(offsets[owner], self.values[owner].reshape(-1).view(np.uint8))
        places = {owner: Place(buffer, offset) for owner, offset in offsets.items()}
        self.split = SplitGraph(nodes, places)
        return self.split

    def read(self, tensor: Tensor) -> Array:
        """The values of a gapless result or a whole leaf, numpy shape; blocks as they are."""
        place = self.split.place_of(tensor)
        raw = np.empty(tensor.n_bytes, np.uint8)
        place.buffer.get_tensor(place.offset, raw)
        if tensor.type not in NUMPY_TYPE:
            return raw
        return raw.view(NUMPY_TYPE[tensor.type]).reshape(tensor.ne[::-1])

    def compute(self, *nodes: Tensor) -> Array:
        """The values of the last node."""
        self.run(*nodes)
        return self.read(nodes[-1])


@pytest.fixture
def bench(device: OpenClDevice, backend: Backend) -> Iterator[Bench]:
    made = Bench(device, backend)
    yield made
    for buffer in made.buffers:
        buffer.release()


@pytest.fixture(scope="session")
def as_a_gpu(opencl: OpenClReg, device: OpenClDevice, found: FoundDevice) -> OpenClDevice:
    """The device driven as a GPU is: other build options, groups and items."""
    if not device.facts.software:
        pytest.skip("a CPU device: this one is driven as a GPU anyway")
    return OpenClDevice(
        opencl, "OpenCL9", replace(found, is_cpu=False), device.context, offload_min_batch=32
    )


@pytest.fixture
def as_a_device_of_its_own(
    opencl: OpenClReg, device: OpenClDevice, found: FoundDevice
) -> OpenClDevice:
    """The device once more, with nothing built yet."""
    return OpenClDevice(opencl, "OpenCL8", found, device.context, offload_min_batch=32)


@pytest.fixture(scope="session", params=["own kind", "as a GPU"])
def every_backend(request: pytest.FixtureRequest, device: OpenClDevice) -> Iterator[Backend]:
    chosen = device if request.param == "own kind" else request.getfixturevalue("as_a_gpu")
    stream = chosen.init_backend()
    yield stream
    stream.dispose()


@pytest.fixture
def every_bench(every_backend: Backend) -> Iterator[Bench]:
    made = Bench(every_backend.device, every_backend)
    yield made
    for buffer in made.buffers:
        buffer.release()


def _owners(nodes: Sequence[Tensor]) -> list[Tensor]:
    """The tensors that own bytes, each once, sources before the nodes that read them."""
    owners: dict[Tensor, None] = {}
    for node in nodes:
        for tensor in (*node.src, node):
            owners[tensor.base] = None
    return list(owners)
