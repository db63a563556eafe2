"""Where weights and caches go: devices, layers, buffer types. Source: SCHED.md 6, 7, 8."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from engine.core.devices import BackendView, BufferTypeFacts, DeviceFacts, DeviceType
from engine.core.options import LayerRule, SplitMode, TensorOverride
from engine.errors import PlacementError
from engine.model.device_choice import choose_devices, uses_of
from engine.model.meta_device import check_members, join
from engine.model.split_memory import split_memories

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from engine.core.options import Options
    from engine.core.plan import DeviceUse
    from engine.model.device_choice import DeviceChoice

EXPERTS = r"\.ffn_(up|down|gate|gate_up)_(ch|)exps"
"""The weights that --cpu-moe is about (common/common.h)."""


@dataclass(frozen=True, slots=True)
class MemorySpot:
    """A buffer type, and the device that would run a weight's operation from there."""

    device: DeviceFacts
    buft: BufferTypeFacts


@dataclass(frozen=True)
class ModelPlacement:
    """What is decided before a weight is looked at.

    `devices` are the model's own, in order; `layer_devices[il]` the device of layer il, the last
    entry that of the output layer. `n_gpu_layers` is never negative. `known` are all devices,
    whether the model uses them or not, but for those that an option leaves out.
    """

    known: tuple[DeviceFacts, ...]
    devices: tuple[DeviceFacts, ...]
    cpu: DeviceFacts
    n_gpu_layers: int
    layer_devices: tuple[DeviceFacts, ...]
    use_mmap: bool
    split_mode: SplitMode = SplitMode.LAYER
    use_extra_bufts: bool = True
    use_host_buffer: bool = True
    overrides: tuple[TensorOverride, ...] = ()
    uses: tuple[DeviceUse, ...] = ()
    """What becomes of each device that was found."""
    split_memories: Mapping[str, BufferTypeFacts] = field(default_factory=dict, hash=False)
    """With -sm row, by device, the memory in which products of its layers are shared out."""

    @property
    def accels(self) -> tuple[DeviceFacts, ...]:
        """The accelerators, each with a backend of its own whatever the model's devices are."""
        return tuple(d for d in self.known if d.type is DeviceType.ACCEL)

    @property
    def joined(self) -> DeviceFacts | None:
        """The device that joins the model's devices (-sm tensor); None where none does."""
        return next((device for device in self.devices if device.members), None)

    @property
    def is_fully_offloaded(self) -> bool:
        """Whether every layer and the output were asked onto devices."""
        return self.n_gpu_layers >= len(self.layer_devices)

    @functools.cached_property
    def cpu_spots(self) -> tuple[MemorySpot, ...]:
        """Where a weight of the CPU may go, best first."""
        spots = [
            MemorySpot(accel, accel.buft) for accel in self.accels if accel.buft != self.cpu.buft
        ]
        if self.use_host_buffer:
            spots += [MemorySpot(d, d.host_buft) for d in self.devices if d.host_buft][:1]
        if self.use_extra_bufts:
            spots += [MemorySpot(self.cpu, buft) for buft in self.cpu.extra_bufts]
        return (*spots, MemorySpot(self.cpu, self.cpu.buft))

    def device_spots(self, device: DeviceFacts) -> tuple[MemorySpot, ...]:
        """Where a weight of a device's layer may go, best first."""
        if device.type is DeviceType.CPU:
            return self.cpu_spots
        kinds = (device.buft, *device.extra_bufts)
        if device.extra_bufts_first and self.use_extra_bufts:
            kinds = (*device.extra_bufts, device.buft)
        if device.name in self.split_memories:
            kinds = (self.split_memories[device.name], *kinds)
        return (*(MemorySpot(device, buft) for buft in kinds), *self.cpu_spots)

    def override_of(self, name: str) -> TensorOverride | None:
        """The override that decides on a weight: the first whose pattern is found in its name."""
        return next((o for o in self.overrides if re.search(o.pattern, name)), None)

    def spot_named(self, buft: str) -> MemorySpot:
        """The device whose ordinary memory has this name."""
        return next(MemorySpot(d, d.buft) for d in self.known if d.buft.name == buft)

    def home_of(self, spot: MemorySpot) -> MemorySpot:
        """Where a weight is loaded when `spot` was chosen.

        Memory of the CPU is the CPU's, whichever device runs from it. With a mapped file pinned
        memory makes no sense: the plain CPU type takes its place.
        """
        is_pinned = spot.device.type is not DeviceType.CPU and spot.buft == spot.device.host_buft
        if spot.buft == self.cpu.buft or (is_pinned and self.use_mmap):
            return MemorySpot(self.cpu, self.cpu.buft)
        return spot


def place_model(
    devices: Sequence[DeviceFacts], options: Options, *, n_layer: int
) -> ModelPlacement:
    """Choose devices and give every layer one. PlacementError when an option asks for no device."""
    _refuse_unused(devices, options)
    found, devices = devices, [d for d in (d.in_use(options.blas) for d in devices) if d]
    devices = _with_layers_for(devices, options.devices or ())
    cpu = next((d for d in devices if d.type is DeviceType.CPU), None)
    if cpu is None:
        raise PlacementError(
            "There is no CPU device.",
            "The scheduler puts what nothing else can run on the CPU.",
            "Let --backends name cpu, or add one on paper, such as --virtual CPU:cpu:16384.",
        )
    choice = choose_devices(devices, options, cpu)
    chosen = _model_devices(choice, options)
    n_gpu_layers = n_layer + 1 if options.n_gpu_layers < 0 else options.n_gpu_layers
    return ModelPlacement(
        known=tuple(devices),
        devices=chosen,
        cpu=cpu,
        n_gpu_layers=n_gpu_layers,
        layer_devices=layers_to_devices(
            chosen, cpu, n_layer=n_layer, n_gpu_layers=n_gpu_layers,
            shares=options.tensor_split, rule=options.layer_rule,
        ),
        use_mmap=options.mmap and all(d.caps.mmap_support for d in chosen),
        split_mode=options.split_mode,
        use_extra_bufts=options.repack,
        use_host_buffer=options.host_buffer,
        overrides=_overrides(options, devices, cpu),
        uses=uses_of(found, devices, choice, cpu),
        split_memories=(
            split_memories(chosen, device_weights(chosen, cpu, options.tensor_split).tolist())
            if options.split_mode is SplitMode.ROW
            else {}
        ),
    )  # fmt: skip


def _with_layers_for(devices: Sequence[DeviceFacts], names: Sequence[str]) -> list[DeviceFacts]:
    """The devices, those that -dev names as ones that take layers."""
    wanted = {name.lower() for name in names}
    return [d.taking_layers() if {d.name.lower(), d.reg.lower()} & wanted else d for d in devices]


def _refuse_unused(devices: Sequence[DeviceFacts], options: Options) -> None:
    """PlacementError when -dev names a device that another option leaves out."""
    wanted = [name.lower() for name in options.devices or ()]
    for device in devices:
        if device.in_use(options.blas) is None and device.name.lower() in wanted:
            raise PlacementError(
                f"{device.name} is off.",
                "-dev names it, and it is used by choice only.",
                "Add --blas auto or --blas all.",
            )


def _model_devices(choice: DeviceChoice, options: Options) -> tuple[DeviceFacts, ...]:
    """The devices a model uses in its split mode, in order: with -sm tensor one joins them all."""
    if options.split_mode is not SplitMode.TENSOR:
        return choice.devices
    check_members(choice.devices)
    return (join(choice.devices),)


def _overrides(
    options: Options, devices: Sequence[DeviceFacts], cpu: DeviceFacts
) -> tuple[TensorOverride, ...]:
    """What -ot says, then what the shortcuts for experts stand for."""
    known = [device.buft.name for device in devices]
    for override in options.tensor_overrides:
        if override.buft not in known:
            raise PlacementError(
                f"There is no memory called {override.buft}.",
                f"These devices have {', '.join(dict.fromkeys(known))}.",
                f"Change the override {override} (-ot).",
            )
    experts = [EXPERTS] if options.cpu_moe else []
    if options.n_cpu_moe:
        # llama.cpp makes a pattern a layer; one for all of them finds the same weights.
        layers = "|".join(map(str, range(options.n_cpu_moe)))
        experts.append(rf"blk\.({layers}){EXPERTS}")
    shortcuts = (TensorOverride(pattern, cpu.buft.name) for pattern in experts)
    return (*options.tensor_overrides, *shortcuts)


def layers_to_devices(
    devices: Sequence[DeviceFacts],
    cpu: DeviceFacts,
    *,
    n_layer: int,
    n_gpu_layers: int,
    shares: Sequence[float] = (),
    rule: LayerRule = LayerRule.OUTPUT_FIRST,
) -> tuple[DeviceFacts, ...]:
    """The device of every layer and of the output layer, in float32 as llama.cpp computes it.

    `shares` are those of -ts; without any that counts, the free memory of each device.
    """
    n_all = n_layer + 1 if rule is LayerRule.OUTPUT_FIRST else n_layer
    first = max(n_all - n_gpu_layers, 0)
    n_active = min(n_gpu_layers, n_layer + 1) if devices else 0
    split_points = _split_points(devices, cpu, shares)
    placed: list[DeviceFacts] = []
    for il in range(n_layer + 1):
        if il < first or il - first >= n_active:
            placed.append(cpu)
            continue
        share = np.float32(il - first) / np.float32(n_active)
        placed.append(devices[int(np.searchsorted(split_points, share, side="right"))])
    return tuple(placed)


def _split_points(
    devices: Sequence[DeviceFacts], cpu: DeviceFacts, shares: Sequence[float]
) -> np.ndarray:
    cumulative = np.cumsum(device_weights(devices, cpu, shares), dtype=np.float32)
    return cumulative / cumulative[-1] if devices else cumulative


def device_weights(
    devices: Sequence[DeviceFacts], cpu: DeviceFacts, shares: Sequence[float]
) -> np.ndarray:
    """What each device is to take of a model, in any unit: its share (-ts), or its free memory."""
    weights = np.array([*shares, *[0.0] * len(devices)][: len(devices)], np.float32)
    if weights.any():
        return weights
    free = [d.memory_free if d.memory_free or d.memory_total else cpu.memory_free for d in devices]
    # Nobody knows how much is free, or all is taken: share equally.
    return np.array(free if any(free) else [1.0] * len(devices), np.float32)


def backend_views(placement: ModelPlacement) -> tuple[BackendView, ...]:
    """The backends in priority order, and each one's compute buffer type (SCHED.md 8.6, 9.1)."""
    devices = (*placement.devices, *placement.accels)
    cpu_buft = placement.cpu.buft
    if placement.devices and placement.devices[0].host_buft is not None:
        cpu_buft = placement.devices[0].host_buft
    return (
        *(BackendView(d.stream_name, d, d.buft) for d in devices),
        BackendView(placement.cpu.stream_name, placement.cpu, cpu_buft),
    )


def pipeline_copies(placement: ModelPlacement, options: Options) -> int:
    """Slots of the pipeline: as many as asked for when every condition holds (SCHED.md 9.2)."""
    return 1 if pipeline_obstacle(placement, options) else options.n_copies


def pipeline_obstacle(placement: ModelPlacement, options: Options) -> str:
    """Why devices do not work as a pipeline, as a clause; empty when they do."""
    if placement.split_mode is SplitMode.TENSOR:
        which = "every layer is" if placement.is_fully_offloaded else "layers that -ngl takes are"
        return f"{which} on all devices (-sm tensor)"
    if len(placement.devices) < 2:
        by_choice = " (-sm none)" if placement.split_mode is SplitMode.NONE else ""
        return f"the model uses fewer than two devices{by_choice}"
    if not placement.is_fully_offloaded:
        return "not every layer is on a device (-ngl)"
    if placement.split_mode is SplitMode.ROW:
        return "the rows of each matrix are on all devices (-sm row)"
    if not options.offload_kqv:
        return "keys and values are in the CPU's memory (-nkvo)"
    if placement.overrides:
        return "weights were given other memory (-ot, --cpu-moe, --n-cpu-moe)"
    for device in (*placement.devices, *placement.accels):
        if device.type is not DeviceType.CPU and not (
            device.caps.asynchronous and device.caps.events
        ):
            return f"{device.name} does not compute asynchronously, or has no events"
    if options.n_copies == 1:
        return "only one graph at a time was asked for (--n-copies 1)"
    return ""
