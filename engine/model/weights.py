"""The weights of a model as tensors with a home."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.backend.alloc import aligned
from engine.core.devices import BufferFacts, BufferTypeFacts, BufferUsage, DeviceFacts, DeviceType
from engine.core.tensor import Shape, Tensor, shape4
from engine.errors import ModelError
from engine.model.placement import MemorySpot, ModelPlacement, choose_spot, mapped

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from engine.core.ops import Op
    from engine.gguf.reader import GgufFile, TensorInfo
    from engine.model.hparams import Hparams

TIED_OUTPUT = "output.weight"
TOKEN_EMBEDDING = "token_embd.weight"


class LayerClass(enum.Enum):
    """Which layer's device a weight follows."""

    INPUT = enum.auto()
    REPEATING = enum.auto()
    OUTPUT = enum.auto()


@dataclass(frozen=True, slots=True)
class WeightKind:
    """One kind of weight: the pattern of its name, its layer class, the operation that uses it.

    `ne` names the numbers of Hparams that its shape is made of.
    """

    pattern: str
    layer_class: LayerClass
    op: Op
    ne: tuple[str, ...]
    required: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class Weight:
    """A weight that is planned: its tensor, its line in the file, and where it goes."""

    tensor: Tensor
    info: TensorInfo
    device: DeviceFacts
    buft: BufferTypeFacts


@dataclass(frozen=True, slots=True, eq=False)
class WeightBuffer:
    """All weights of one buffer type: bytes of the buffer, or the mapped span of the file."""

    device: DeviceFacts
    buft: BufferTypeFacts
    is_mapped: bool
    weights: tuple[Weight, ...]
    n_bytes: int


@dataclass(frozen=True, slots=True, eq=False)
class WeightSet:
    """The weights of a model; `tensors` maps what a graph asks for, such as `output.weight`."""

    tensors: Mapping[str, Tensor]
    buffers: tuple[WeightBuffer, ...]


def plan_weights(
    file: GgufFile, kinds: Sequence[WeightKind], placement: ModelPlacement, *, n_layer: int
) -> WeightSet:
    """Give every weight a buffer type; `check_weights` has seen that they are all there."""
    planner = _WeightPlanner(file, placement)
    for kind in kinds:
        if kind.layer_class is not LayerClass.REPEATING:
            planner.add(kind, -1)
    for il in range(n_layer):
        for kind in kinds:
            if kind.layer_class is LayerClass.REPEATING:
                planner.add(kind, il)
    return planner.finish()


def check_weights(file: GgufFile, kinds: Sequence[WeightKind], hparams: Hparams) -> None:
    """ModelError unless every weight is there with the shape that the model's numbers ask for.

    Nor may a tensor be left over, as in llama.cpp: a result without it would be a wrong one.
    """
    known: set[str] = set()
    for kind in kinds:
        ne = shape4(*(getattr(hparams, name) for name in kind.ne))
        n_layer = hparams.n_layer if "{il}" in kind.pattern else 1
        for il in range(n_layer):
            name = kind.pattern.format(il=il)
            known.add(name)
            if name in file:
                _check_shape(file.tensor(name), ne)
            elif kind.required and not _is_tied(name, file):
                raise ModelError(
                    f"The model has no tensor {name}.",
                    "Its architecture needs one.",
                    "Convert the model again, or download another copy.",
                )
    _check_none_left(file, known, hparams)


def _check_none_left(file: GgufFile, known: set[str], hparams: Hparams) -> None:
    left = [info.name for info in file.tensors if info.name not in known]
    if not left:
        return
    n_others = len(left) - 1
    others = f" and {n_others} other{'s' * (n_others > 1)}" if n_others else ""
    verb = "are" if n_others else "is"
    raise ModelError(
        f"The model has the tensor {left[0]}{others}, which no layer uses.",
        f"With {hparams.arch}.block_count = {hparams.n_layer}, {len(known)} names are known, and "
        f"{len(left)} of the file's {len(file.tensors)} tensors {verb} not among them.",
        "Convert the model again, or download another copy.",
    )


def _is_tied(name: str, file: GgufFile) -> bool:
    """Whether the token embedding serves as the output too."""
    return name == TIED_OUTPUT and TOKEN_EMBEDDING in file


def _check_shape(info: TensorInfo, ne: Shape) -> None:
    if info.ne != ne:
        raise ModelError(
            f"The tensor {info.name} does not fit the model's numbers.",
            f"Its shape is {list(info.ne)}; they ask for {list(ne)}.",
            "Convert the model again, or download another copy.",
        )


class _WeightPlanner:
    def __init__(self, file: GgufFile, placement: ModelPlacement) -> None:
        self._file = file
        self._placement = placement
        self._weights: list[Weight] = []
        self._tensors: dict[str, Tensor] = {}
        self._created: dict[tuple[str, BufferTypeFacts], Tensor] = {}
        self._known_spots: dict[object, MemorySpot] = {}
        self._facts: dict[BufferTypeFacts, BufferFacts] = {}

    def add(self, kind: WeightKind, il: int) -> None:
        name = kind.pattern.format(il=il)
        source = self._name_in_file(name)
        if source is None:
            return
        info = self._file.tensor(source)
        spot = self._spot(kind, info, il)
        # A tensor with two roles is loaded once into each kind of memory it is wanted in.
        key = (source, self._home_type(spot))
        tensor = self._created.get(key)
        if tensor is None:
            tensor = Tensor(info.type, info.ne, name=source, buffer=self._buffer_facts(spot))
            self._created[key] = tensor
            self._weights.append(Weight(tensor, info, spot.device, spot.buft))
        self._tensors[_role(kind, name, il)] = tensor

    def _name_in_file(self, name: str) -> str | None:
        """The tensor to load; the output may be tied to the embeddings, an optional one absent."""
        if name in self._file:
            return name
        return TOKEN_EMBEDDING if _is_tied(name, self._file) else None

    def _spot(self, kind: WeightKind, info: TensorInfo, il: int) -> MemorySpot:
        placement = self._placement
        if kind.layer_class is LayerClass.INPUT:
            device, spots = placement.cpu, placement.cpu_spots
        else:
            device = placement.layer_devices[il]
            spots = _spots_of(placement, device)
        key = (kind.op, info.type, info.ne, kind.layer_class, device.name)
        if key not in self._known_spots:
            tensor = Tensor(info.type, info.ne, name=info.name)
            self._known_spots[key] = choose_spot(spots(), tensor, kind.op, placement)
        return self._known_spots[key]

    def _is_mapped(self, spot: MemorySpot) -> bool:
        caps = spot.device.caps
        default = spot.buft == spot.device.buft
        return self._placement.use_mmap and caps.buffer_from_host_ptr and default

    def _home_type(self, spot: MemorySpot) -> BufferTypeFacts:
        is_cpu = spot.device.type is DeviceType.CPU
        return mapped(spot.buft) if is_cpu and self._is_mapped(spot) else spot.buft

    def _buffer_facts(self, spot: MemorySpot) -> BufferFacts:
        buft = self._home_type(spot)
        return self._facts.setdefault(buft, BufferFacts(buft, BufferUsage.WEIGHTS, "weights"))

    def finish(self) -> WeightSet:
        by_type: dict[BufferTypeFacts, list[Weight]] = {}
        for weight in self._weights:
            assert weight.tensor.buffer is not None
            by_type.setdefault(weight.tensor.buffer.buft, []).append(weight)
        buffers = [
            _buffer_of(buft, weights)
            for buft, weights in sorted(by_type.items(), key=lambda item: item[0].name)
        ]
        return WeightSet(self._tensors, tuple(buffers))


def _role(kind: WeightKind, name: str, il: int) -> str:
    """What graphs ask for; a tensor that all layers share has a role in each."""
    shared = kind.layer_class is LayerClass.REPEATING and kind.pattern == name
    return f"blk.{il}.{name}" if shared else name


def _spots_of(placement: ModelPlacement, device: DeviceFacts) -> Callable[[], list[MemorySpot]]:
    return lambda: placement.device_spots(device)


def _buffer_of(buft: BufferTypeFacts, weights: list[Weight]) -> WeightBuffer:
    first = weights[0]
    is_mapped = buft != first.buft
    if is_mapped:
        start = min(weight.info.offset for weight in weights)
        n_bytes = max(weight.info.end for weight in weights) - start
    else:
        n_bytes = sum(aligned(buft.alloc_bytes(w.tensor), buft.alignment) for w in weights)
    return WeightBuffer(first.device, buft, is_mapped, tuple(weights), n_bytes)
