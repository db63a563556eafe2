"""The weights of a model as tensors with a home."""

from __future__ import annotations

import enum
import mmap
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from engine.backend.alloc import padded_bytes
from engine.core.devices import BufferFacts, BufferTypeFacts, BufferUsage, DeviceFacts, mapped
from engine.core.tensor import Tensor, shape4
from engine.errors import ModelError
from engine.model.arch_keys import COPY_HINT
from engine.model.probe import choose_spot, first_spot

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from engine.core.ops import Op
    from engine.gguf.reader import GgufFile, TensorInfo
    from engine.model.hparams import Hparams
    from engine.model.placement import MemorySpot, ModelPlacement


class LayerClass(enum.Enum):
    """Which layer's device a weight follows."""

    INPUT = enum.auto()
    REPEATING = enum.auto()
    OUTPUT = enum.auto()


class WeightKind(NamedTuple):
    """A weight that an architecture asks for, in the order in which llama.cpp creates them.

    `il` is its layer, -1 outside of layers; a name that several layers share comes once for each.
    `ne` is the shape it must have, `op` the operation that uses it.
    """

    name: str
    il: int
    layer_class: LayerClass
    op: Op
    ne: tuple[int, ...]
    required: bool = True
    stand_in: str = ""
    """The tensor that serves when the file lacks this one, such as tied embeddings."""
    unless: str = ""
    """Not asked for where the file has the tensor of this name, which says the same otherwise."""
    given: tuple[str, ...] = ()
    """Not asked for unless the file has the tensors of these names, without which none uses it."""
    serves: str = ""
    """What graphs call it, where that is not its name."""
    asked_by: tuple[str, ...] = ()
    """Keys of the architecture that ask for it: the first one that a file has, else the last."""
    is_loaded: bool = True
    """Whether it is loaded; else it is known, and left where it is."""

    def is_asked_of(self, file: GgufFile) -> bool:
        """Whether it is asked of this file, by what else the file has."""
        return self.unless not in file and all(name in file for name in self.given)

    @property
    def role(self) -> str:
        """What graphs ask for; a tensor that layers share has a role in each."""
        if self.serves:
            return self.serves
        prefix = f"blk.{self.il}."
        return self.name if self.il < 0 or self.name.startswith(prefix) else prefix + self.name


@dataclass(frozen=True, slots=True, eq=False)
class Weight:
    """A weight that is planned: its tensor, its line in the file, and where it goes."""

    tensor: Tensor
    info: TensorInfo
    device: DeviceFacts
    buft: BufferTypeFacts


@dataclass(frozen=True, slots=True, eq=False)
class WeightBuffer:
    """All weights of one buffer type: bytes of the buffer, or of what is mapped of the file."""

    device: DeviceFacts
    buft: BufferTypeFacts
    is_mapped: bool
    weights: tuple[Weight, ...]
    n_bytes: int


class MappedRun(NamedTuple):
    """Weights that one mapped buffer holds, and where they lie in the file's data section."""

    weights: tuple[Weight, ...]
    start: int
    end: int


@dataclass(frozen=True, slots=True, eq=False)
class WeightSet:
    """The weights of a model; `tensors` maps what a graph asks for, such as `output.weight`."""

    tensors: Mapping[str, Tensor]
    buffers: tuple[WeightBuffer, ...]

    @property
    def n_tensors(self) -> int:
        """Tensors that are loaded; one that two kinds of memory hold counts twice."""
        return sum(len(buffer.weights) for buffer in self.buffers)


def plan_weights(
    file: GgufFile, kinds: Sequence[WeightKind], placement: ModelPlacement, hparams: Hparams
) -> WeightSet:
    """Give every weight a buffer type; `check_weights` has seen that they are all there.

    PlacementError names a weight whose operation no device runs.
    """
    planner = _WeightPlanner(file, placement, hparams)
    for kind in kinds:
        planner.add(kind)
    return planner.finish()


def check_weights(file: GgufFile, kinds: Sequence[WeightKind], hparams: Hparams) -> None:
    """ModelError unless every weight is there with the shape that the model's numbers ask for.

    Nor may a tensor be left over, as in llama.cpp: a result without it would be a wrong one.
    """
    known: set[str] = set()
    for kind in kinds:
        if not kind.is_asked_of(file):
            continue
        known.add(kind.name)
        if kind.name in file:
            _check_shape(file, kind, hparams)
        elif kind.required and kind.stand_in not in file:
            raise ModelError(
                f"The model has no tensor {kind.name}.",
                f"Its architecture needs one of shape {list(kind.ne)}"
                f"{_reason(file, kind, hparams)}.",
                COPY_HINT,
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
        COPY_HINT,
    )


def _reason(file: GgufFile, kind: WeightKind, hparams: Hparams) -> str:
    """Which key asks for a tensor, where that is not plain."""
    if not kind.asked_by:
        return ""
    full = [f"{hparams.arch}.{key}" for key in kind.asked_by]
    key = next((key for key in full if key in file.metadata), full[-1])
    value = file.metadata.get(key, "missing")
    is_array = hasattr(value, "__len__") and not isinstance(value, str)
    return f", as {key} is {'an array' if is_array else value}"


def _check_shape(file: GgufFile, kind: WeightKind, hparams: Hparams) -> None:
    info, ne = file.tensor(kind.name), shape4(*kind.ne)
    if info.ne != ne:
        raise ModelError(
            f"The tensor {info.name} does not fit the model's numbers.",
            f"Its shape is {list(info.ne)}; they ask for {list(ne)}."
            f"{_size_of_a_head(file, kind, hparams)}",
            COPY_HINT,
        )


def _size_of_a_head(file: GgufFile, kind: WeightKind, hparams: Hparams) -> str:
    """A sentence about heads whose size no key says, for tensors of attention."""
    key = f"{hparams.arch}.attention.key_length"
    if ".attn_" not in kind.name or key in file.metadata:
        return ""
    layer = hparams.every_layer[kind.il]
    if layer.n_embd_head_k * layer.n_head != hparams.n_embd:
        return ""
    return (
        f" A head has {layer.n_embd_head_k} elements, the share of one of {layer.n_head} in "
        f"{hparams.n_embd}: {key} is missing."
    )


class _WeightPlanner:
    def __init__(self, file: GgufFile, placement: ModelPlacement, hparams: Hparams) -> None:
        self._file = file
        self._placement = placement
        self._hparams = hparams
        self._weights: list[Weight] = []
        self._tensors: dict[str, Tensor] = {}
        self._created: dict[tuple[str, BufferTypeFacts], Tensor] = {}
        self._known_spots: dict[object, MemorySpot] = {}
        self._facts: dict[BufferTypeFacts, BufferFacts] = {}

    def add(self, kind: WeightKind) -> None:
        source = kind.name if kind.name in self._file else kind.stand_in
        if source not in self._file or not kind.is_loaded or not kind.is_asked_of(self._file):
            return
        info = self._file.tensor(source)
        spot = self._spot(kind, info)
        # A tensor with two roles is loaded once into each kind of memory it is wanted in.
        key = (source, spot.buft)
        tensor = self._created.get(key)
        if tensor is None:
            tensor = Tensor(info.type, info.ne, name=source, buffer=self._buffer_facts(spot))
            self._created[key] = tensor
            self._weights.append(Weight(tensor, info, spot.device, spot.buft))
        self._tensors[kind.role] = tensor

    def _spot(self, kind: WeightKind, info: TensorInfo) -> MemorySpot:
        """Where the weight goes; weights of one kind, type, shape and device go the same way."""
        placement = self._placement
        is_input = kind.layer_class is LayerClass.INPUT
        device = placement.cpu if is_input else placement.layer_devices[kind.il]
        override = placement.override_of(info.name)
        buft = "" if override is None else override.buft
        key = (kind.op, info.type, info.ne, device.name, buft)
        if key not in self._known_spots:
            weight = Tensor(info.type, info.ne, name=info.name)
            self._known_spots[key] = self._chosen(weight, kind.op, device, buft)
        return self._known_spots[key]

    def _chosen(self, weight: Tensor, op: Op, device: DeviceFacts, buft: str) -> MemorySpot:
        """`buft` is what an override says, or empty; the CPU's stands for all of its kinds."""
        placement = self._placement
        spot = None
        if buft == placement.cpu.buft.name:
            spot = first_spot(placement.cpu_spots, weight, op, self._hparams)
        elif buft:
            spot = placement.spot_named(buft)
        if spot is None:
            spots = placement.device_spots(device)
            spot = choose_spot(spots, weight, op, self._hparams)
        return placement.home_of(spot)

    def _is_mapped(self, spot: MemorySpot) -> bool:
        caps = spot.device.caps
        default = spot.buft == spot.device.buft
        return self._placement.use_mmap and caps.buffer_from_host_ptr and default

    def _home_type(self, spot: MemorySpot) -> BufferTypeFacts:
        return mapped(spot.buft) if self._is_mapped(spot) else spot.buft

    def _buffer_facts(self, spot: MemorySpot) -> BufferFacts:
        known = self._facts.get(spot.buft)
        if known is None:
            known = BufferFacts(self._home_type(spot), BufferUsage.WEIGHTS, "weights")
            self._facts[spot.buft] = known
        return known

    def finish(self) -> WeightSet:
        by_type: dict[BufferTypeFacts, list[Weight]] = {}
        for weight in self._weights:
            by_type.setdefault(weight.buft, []).append(weight)
        in_order = sorted(by_type.items(), key=lambda item: item[0].name)
        return WeightSet(self._tensors, tuple(_buffer_of(weights) for _, weights in in_order))


def _buffer_of(weights: list[Weight]) -> WeightBuffer:
    first = weights[0]
    assert first.tensor.buffer is not None
    buft = first.tensor.buffer.buft
    is_mapped = buft != first.buft
    if is_mapped:
        n_bytes = sum(run.end - run.start for run in mapped_runs(buft, weights))
    else:
        n_bytes = sum(padded_bytes(buft, weight.tensor) for weight in weights)
    return WeightBuffer(first.device, buft, is_mapped, tuple(weights), n_bytes)


def mapped_runs(buft: BufferTypeFacts, weights: Sequence[Weight]) -> tuple[MappedRun, ...]:
    """The buffers that map `weights`, in the file's order.

    Host memory is mapped once, from its first to its last weight, as in llama.cpp. A device's
    buffers leave out what lies between its weights, and each fits into `buft.max_bytes` with the
    page that it begins in; a weight that does not has one of its own.
    """
    ordered = sorted(weights, key=lambda weight: weight.info.offset)
    groups: list[list[Weight]] = []
    for weight in ordered:
        if not groups or not (buft.is_host or _continues(groups[-1], weight, buft.max_bytes)):
            groups.append([])
        groups[-1].append(weight)
    return tuple(
        MappedRun(tuple(group), group[0].info.offset, group[-1].info.end) for group in groups
    )


def _continues(group: Sequence[Weight], weight: Weight, max_bytes: int | None) -> bool:
    """Whether a weight lies behind those of `group`, and the buffer has room for it."""
    is_next = weight.info.offset - group[-1].info.end < mmap.PAGESIZE
    n_bytes = weight.info.end - group[0].info.offset + mmap.PAGESIZE
    return is_next and (max_bytes is None or n_bytes <= max_bytes)
