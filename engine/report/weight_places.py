"""Why a weight is in the memory it is in: its layer's device, and the first memory that suits.

It can be told of any model that is placed, with a graph or without.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.core.devices import MAPPED
from engine.core.rows import RowRange, rows_of
from engine.core.tensor import Tensor
from engine.model.probe import first_spot
from engine.model.weights import LayerClass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine.core.devices import BufferFacts, DeviceFacts
    from engine.gguf.reader import TensorInfo
    from engine.model.placement import MemorySpot, ModelPlacement
    from engine.model.planned_model import PlannedModel
    from engine.model.weights import WeightKind


@dataclass(frozen=True, slots=True)
class TriedMemory:
    """A memory in the order in which they are tried; `suits`: its device runs `op` from there."""

    device: str
    buffer_type: str
    suits: bool


@dataclass(frozen=True, slots=True)
class WeightPlace:
    """Where a weight is for one of its roles, and why.

    `role` is what graphs call it. `layer` is in words, `device` that layer's. `override` is the
    option that decided in the layer's place, empty for none. `tried` ends with the memory that was
    taken. `buffer_type` is empty for what is not loaded. `rows` are there for split memory (-sm
    row): which device holds which.
    """

    name: str
    role: str
    type: str
    ne: tuple[int, ...]
    n_bytes: int
    op: str
    layer: str
    device: str
    override: str
    tried: tuple[TriedMemory, ...]
    buffer_type: str
    rows: tuple[RowRange, ...] = ()

    @property
    def sentence(self) -> str:
        """Where it is and why, for people."""
        if not self.buffer_type:
            return "Nowhere: it is not loaded, as nothing that is planned reads it."
        where = f"In {self.buffer_type} memory because"
        is_mapped = self.buffer_type.endswith(MAPPED)
        mapped = " The file is mapped: it is used in place." if is_mapped else ""
        if self.override:
            said = f"the override {self.override} says so; {self.layer} is on {self.device}"
            return f"{where} {said}.{mapped}"
        taken = self.tried[-1]
        first = "is the first that suits: " if len(self.tried) > 1 else "suits: "
        return (
            f"{where} {self.layer} is on {self.device}, and {taken.buffer_type} {first}"
            f"{taken.device} runs {self.op} with {self.type} weights from there.{mapped}"
            f"{self._rows_held}"
        )

    @property
    def _rows_held(self) -> str:
        """A sentence about split memory."""
        if not self.rows:
            return ""
        held = (f"{r.start} \u2013 {r.stop - 1} on {r.device}" for r in self.rows)
        return f" Its rows are divided: {', '.join(held)}."


def weight_places(model: PlannedModel, name: str) -> tuple[WeightPlace, ...]:
    """The places of a file's tensor, one for each role it has; empty for what is no weight."""
    file = model.facts.file
    if name not in file:
        return ()
    info = file.tensor(name)
    return tuple(
        _place(model, kind, info)
        for kind in model.facts.kinds
        if kind.is_asked_of(file) and name == (kind.name if kind.name in file else kind.stand_in)
    )


def _place(model: PlannedModel, kind: WeightKind, info: TensorInfo) -> WeightPlace:
    placement = model.placement
    is_input = kind.layer_class is LayerClass.INPUT
    device = placement.cpu if is_input else placement.layer_devices[kind.il]
    override = placement.override_of(info.name)
    tensor = model.weights.tensors.get(kind.role) if kind.is_loaded else None
    home = None if tensor is None else tensor.buffer
    spots = _spots(placement, device, "" if override is None else override.buft)
    return WeightPlace(
        name=info.name,
        role=kind.role,
        type=info.type.label,
        ne=info.ne,
        n_bytes=info.n_bytes,
        op=kind.op.value,
        layer=_layer_words(kind),
        device=device.name,
        override="" if override is None else str(override),
        tried=_tried(model, kind, info, spots),
        buffer_type="" if home is None else home.buft.name,
        rows=_rows(info, home),
    )


def _rows(info: TensorInfo, home: BufferFacts | None) -> tuple[RowRange, ...]:
    shares = None if home is None else home.buft.row_shares
    return () if shares is None else rows_of(info.ne[1], shares)


def _spots(placement: ModelPlacement, device: DeviceFacts, buft: str) -> Sequence[MemorySpot]:
    """The memories that are tried, in order; `buft` is what an override says, or empty."""
    if buft == placement.cpu.buft.name:
        return (*placement.cpu_spots, *placement.device_spots(device))
    return (placement.spot_named(buft),) if buft else placement.device_spots(device)


def _tried(
    model: PlannedModel, kind: WeightKind, info: TensorInfo, spots: Sequence[MemorySpot]
) -> tuple[TriedMemory, ...]:
    weight = Tensor(info.type, info.ne, name=info.name)
    tried = []
    for spot in spots:
        suits = first_spot((spot,), weight, kind.op, model.facts.hparams) is not None
        tried.append(TriedMemory(spot.device.name, spot.buft.name, suits))
        if suits:
            break
    return tuple(tried)


def _layer_words(kind: WeightKind) -> str:
    if kind.layer_class is LayerClass.INPUT:
        return "the input layer"
    return "the output layer" if kind.layer_class is LayerClass.OUTPUT else f"layer {kind.il}"
