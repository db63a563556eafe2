"""Where weights and caches go: devices, layers, buffer types. Source: SCHED.md 6, 7, 8."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from engine.core import build
from engine.core.devices import (
    BackendView,
    BufferFacts,
    BufferTypeFacts,
    BufferUsage,
    DeviceFacts,
    DeviceType,
)
from engine.core.ops import Op, RopeParams
from engine.core.tensor import Tensor
from engine.core.types import TensorType
from engine.errors import PlacementError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine.core.options import Options

PROBE_TOKENS = 512
"""The batch a weight's operation is tried with when its buffer type is chosen."""


@dataclass(frozen=True, slots=True)
class MemorySpot:
    """A device and one of its buffer types."""

    device: DeviceFacts
    buft: BufferTypeFacts


@dataclass(frozen=True, slots=True)
class ModelPlacement:
    """What is decided before a weight is looked at.

    `devices` are the model's own, in order; `layer_devices[il]` the device of layer il, the last
    entry that of the output layer. `n_gpu_layers` is never negative.
    """

    devices: tuple[DeviceFacts, ...]
    accels: tuple[DeviceFacts, ...]
    cpu: DeviceFacts
    n_gpu_layers: int
    layer_devices: tuple[DeviceFacts, ...]
    use_mmap: bool

    @property
    def is_fully_offloaded(self) -> bool:
        """Whether every layer and the output were asked onto devices."""
        return self.n_gpu_layers >= len(self.layer_devices)

    def cpu_spots(self) -> list[MemorySpot]:
        """Where a weight of the CPU may go, best first."""
        spots = [
            MemorySpot(accel, accel.buft) for accel in self.accels if accel.buft != self.cpu.buft
        ]
        pinned = [MemorySpot(d, d.host_buft) for d in self.devices if d.host_buft is not None]
        return [*spots, *pinned[:1], MemorySpot(self.cpu, self.cpu.buft)]

    def device_spots(self, device: DeviceFacts) -> list[MemorySpot]:
        """Where a weight of a device's layer may go, best first."""
        if device.type is DeviceType.CPU:
            return self.cpu_spots()
        return [MemorySpot(device, device.buft), *self.cpu_spots()]


def place_model(
    devices: Sequence[DeviceFacts], options: Options, *, n_layer: int
) -> ModelPlacement:
    """Choose devices and give every layer one."""
    cpu = next((d for d in devices if d.type is DeviceType.CPU), None)
    if cpu is None:
        raise PlacementError(
            "There is no CPU device.",
            "The scheduler puts what nothing else can run on the CPU.",
            "Add one, for example --virtual CPU:cpu:16384.",
        )
    chosen = choose_devices(devices, options.devices)
    n_gpu_layers = n_layer + 1 if options.n_gpu_layers < 0 else options.n_gpu_layers
    layers = layers_to_devices(chosen, cpu, n_layer=n_layer, n_gpu_layers=n_gpu_layers)
    return ModelPlacement(
        devices=chosen,
        accels=tuple(d for d in devices if d.type is DeviceType.ACCEL),
        cpu=cpu,
        n_gpu_layers=n_gpu_layers,
        layer_devices=layers,
        use_mmap=all(d.caps.mmap_support for d in chosen),
    )


def choose_devices(
    devices: Sequence[DeviceFacts], names: tuple[str, ...] | None
) -> tuple[DeviceFacts, ...]:
    """The devices a model uses: those named, in that order, else GPUs as llama.cpp picks them."""
    if names is not None:
        wanted = [name for name in names if name.lower() not in ("none", "cpu")]
        chosen = tuple(_named(devices, name) for name in wanted)
        _refuse_twice(chosen)
        return chosen
    rpc: list[DeviceFacts] = []
    gpus: list[DeviceFacts] = []
    igpus: list[DeviceFacts] = []
    for device in devices:
        if device.type is DeviceType.GPU and device.reg == "RPC":
            rpc.append(device)
        elif device.type is DeviceType.GPU:
            seen = device.device_id is not None and device.device_id in (
                gpu.device_id for gpu in gpus
            )
            if not seen:
                gpus.append(device)
        elif device.type is DeviceType.IGPU and (not igpus or igpus[-1].reg == device.reg):
            igpus.append(device)
    return (*rpc, *gpus, *(igpus if not gpus else ()))


def _refuse_twice(chosen: Sequence[DeviceFacts]) -> None:
    for i, device in enumerate(chosen):
        if device in chosen[:i]:
            raise PlacementError(
                f"The device {device.name} is named twice.",
                "A model's layers are shared among different devices.",
                "Name each device once (-dev).",
            )


def _named(devices: Sequence[DeviceFacts], name: str) -> DeviceFacts:
    for device in devices:
        # "opencl" alone stands for the first device of that family.
        if name.lower() in (device.name.lower(), device.reg.lower()):
            return device
    known = ", ".join(device.name for device in devices)
    raise PlacementError(
        f"There is no device {name}.", f"This machine has {known}.", "See: python -m engine devices"
    )


def layers_to_devices(
    devices: Sequence[DeviceFacts], cpu: DeviceFacts, *, n_layer: int, n_gpu_layers: int
) -> tuple[DeviceFacts, ...]:
    """The device of every layer and of the output layer, in float32 as llama.cpp computes it."""
    first = max(n_layer + 1 - n_gpu_layers, 0)
    n_active = min(n_gpu_layers, n_layer + 1) if devices else 0
    split_points = _split_points(devices, cpu)
    placed: list[DeviceFacts] = []
    for il in range(n_layer + 1):
        if il < first or il - first >= n_active:
            placed.append(cpu)
            continue
        share = np.float32(il - first) / np.float32(n_active)
        placed.append(devices[int(np.searchsorted(split_points, share, side="right"))])
    return tuple(placed)


def _split_points(devices: Sequence[DeviceFacts], cpu: DeviceFacts) -> np.ndarray:
    weights = [
        d.memory_free if d.memory_free or d.memory_total else cpu.memory_free for d in devices
    ]
    if not any(weights):
        # Nobody knows how much is free, or all is taken: share equally.
        weights = [1] * len(devices)
    cumulative = np.cumsum(np.array(weights, np.float32), dtype=np.float32)
    return cumulative / cumulative[-1] if devices else cumulative


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


def choose_spot(
    spots: Sequence[MemorySpot], weight: Tensor, op: Op, placement: ModelPlacement
) -> MemorySpot:
    """The first spot whose device runs the weight's operation from there.

    With a mapped file pinned memory makes no sense: the plain CPU type takes its place.
    """
    for spot in spots:
        if _runs_from(spot, weight, op):
            pinned = spot.device.type is not DeviceType.CPU and spot.buft.is_host
            if pinned and placement.use_mmap:
                return MemorySpot(placement.cpu, placement.cpu.buft)
            return spot
    raise PlacementError(
        f"No device can hold {weight.name}.",
        f"No backend runs {op.value} with {weight.type.label} weights.",
        "Choose another quantisation of the model.",
    )


def _runs_from(spot: MemorySpot, weight: Tensor, op: Op) -> bool:
    probe_weight = Tensor(
        weight.type,
        weight.ne,
        name=weight.name,
        buffer=BufferFacts(spot.buft, BufferUsage.WEIGHTS),
    )
    rules = spot.device.rules
    own = spot.device.buft == spot.buft or spot.device.host_buft == spot.buft
    return (own or rules.supports_buft(spot.buft)) and rules.supports_op(probe_op(probe_weight, op))


def probe_op(weight: Tensor, op: Op) -> Tensor:
    """The operation a weight is used with, on a batch of 512. Source: lml:927-1078."""
    f32 = TensorType.F32
    if op is Op.GET_ROWS:
        return build.get_rows(weight, Tensor(TensorType.I32, (PROBE_TOKENS, 1, 1, 1)))
    if op is Op.MUL_MAT:
        return build.mul_mat(weight, Tensor(f32, (weight.ne[0], PROBE_TOKENS, 1, 1)))
    if op is Op.ROPE:
        n_dims = weight.ne[0] * 2
        x = Tensor(f32, (n_dims, 1, PROBE_TOKENS, 1))
        positions = Tensor(TensorType.I32, (PROBE_TOKENS, 1, 1, 1))
        return build.rope(x, positions, weight, RopeParams(n_dims))
    assert op in (Op.MUL, Op.ADD), op
    return build.binary(op, Tensor(f32, (weight.ne[0], PROBE_TOKENS, 1, 1)), weight)


def mapped(buft: BufferTypeFacts) -> BufferTypeFacts:
    """The type of a buffer that is a mapped file: another name, the same memory."""
    return replace(buft, name=f"{buft.name}_Mapped")
