"""CPU backends joined as one device, and the same graph on one of them alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from engine.backend.interface import Place, SplitGraph
from engine.backends.cpu.reg import create
from engine.backends.meta.device import MetaDevice, join_devices
from engine.core.graph import GraphBuilder
from engine.core.tensor import Tensor, shape4
from engine.core.types import TensorType
from engine.model.meta_device import join

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from engine.backend.interface import Backend, Completion, Device
    from engine.core.shards import Shard

F32 = TensorType.F32
PAD = 256
FULL = 0xFF
"""What memory is filled with first: NaN, so that reading what nobody wrote shows."""


def cpu() -> Device:
    """A CPU of our own backend."""
    return create().devices()[0]


def joined_cpus(n_members: int, shards: Mapping[Tensor, Shard]) -> MetaDevice:
    """So many CPUs as one device."""
    members = [cpu() for _ in range(n_members)]
    return join_devices(join([member.facts for member in members]), members, shards)


@dataclass
class Values:
    """Tensors with values: weights, which stay, and inputs. All are random and f32."""

    seed: int = 1
    of: dict[Tensor, npt.NDArray[np.generic]] = field(default_factory=dict)
    weights: list[Tensor] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._random = np.random.default_rng(self.seed)

    def input(self, *ne: int, name: str = "x") -> Tensor:
        """A tensor that every member gets whole."""
        tensor = Tensor(F32, shape4(*ne), name=name)
        shape = tensor.ne[::-1]
        self.of[tensor] = self._random.normal(size=shape).astype(np.float32)
        return tensor

    def weight(self, *ne: int, name: str = "w") -> Tensor:
        """A tensor that members may share."""
        tensor = self.input(*ne, name=name)
        self.weights.append(tensor)
        return tensor

    def ints(self, *values: int, tensor_type: TensorType = TensorType.I32) -> Tensor:
        """A row of whole numbers."""
        tensor = Tensor(tensor_type, (len(values), 1, 1, 1), name="ids")
        numpy_type = np.int32 if tensor_type is TensorType.I32 else np.int64
        self.of[tensor] = np.array(values, numpy_type)
        return tensor

    def cache(self, *ne: int) -> Tensor:
        """A cache of f16 zeros, which stays."""
        tensor = Tensor(TensorType.F16, shape4(*ne), name="cache")
        self.of[tensor] = np.zeros(tensor.ne[::-1], np.float16)
        self.weights.append(tensor)
        return tensor


class Computed:
    """Nodes computed on a device, and what it says of it."""

    def __init__(
        self,
        device: Device,
        values: Values,
        nodes: Sequence[Tensor],
        outside: Sequence[Tensor] = (),
    ) -> None:
        self.places: dict[Tensor, Place] = {}
        self._place_weights(device, values)
        self._place_rest(device, list(values.of), nodes)
        for tensor, data in values.of.items():
            place = self.places[tensor]
            place.buffer.set_tensor(place.offset, data.reshape(-1).view(np.uint8)).synchronize()
        self.completions: list[Completion] = []
        self.graph = SplitGraph(tuple(nodes), self.places, outside=lambda: frozenset(outside))
        self.backend: Backend = device.init_backend()
        self.backend.graph_compute(self.graph).on_complete(self.completions.append)
        self.backend.synchronize()

    def _place_weights(self, device: Device, values: Values) -> None:
        places = device.buffer_type().alloc_tensors(values.weights)
        for i, tensor in enumerate(values.weights):
            if places is None:
                buffer = device.buffer_type().alloc_buffer(tensor.n_bytes)
                self.places[tensor] = Place(buffer, 0)
            else:
                self.places[tensor] = places[i]

    def _place_rest(self, device: Device, leafs: Sequence[Tensor], nodes: Sequence[Tensor]) -> None:
        rest = [t for t in (*leafs, *nodes) if t.view_src is None and t not in self.places]
        offsets = np.cumsum([0, *[-(-t.n_bytes // PAD) * PAD for t in rest]])
        buffer = device.buffer_type().alloc_buffer(int(offsets[-1]) + PAD)
        buffer.clear(FULL)
        for tensor, offset in zip(rest, offsets, strict=False):
            self.places[tensor] = Place(buffer, int(offset))

    def again(self) -> None:
        """Compute once more, as for the next token."""
        self.backend.graph_compute(self.graph)
        self.backend.synchronize()

    def read(self, tensor: Tensor) -> npt.NDArray[np.float32]:
        """The values of a gapless result."""
        place = self.graph.place_of(tensor)
        raw = np.empty(tensor.n_bytes, np.uint8)
        place.buffer.get_tensor(place.offset, raw).synchronize()
        numpy_type = np.float32 if tensor.type is F32 else np.float16
        return raw.view(numpy_type).reshape(tensor.ne[::-1]).astype(np.float32)

    def close(self) -> None:
        """End the stream and give the memory back."""
        self.backend.dispose()
        for buffer in dict.fromkeys(place.buffer for place in self.places.values()):
            buffer.release()


def ordered(*wanted: Tensor) -> list[Tensor]:
    """The nodes that it takes to compute these, in order."""

    builder = GraphBuilder()
    for tensor in wanted:
        builder.expand(tensor)
    return list(builder.build().nodes)
