"""Machine: the devices of this computer, or devices on paper in their place."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import TYPE_CHECKING

from engine.backend.computer import memory_bytes
from engine.backend.registry import Registry
from engine.backends import register_builtin
from engine.backends.null import presets
from engine.backends.null.virtual import parse_virtual
from engine.core.devices import DeviceFacts, DeviceType, Unavailable
from engine.errors import PlacementError
from engine.report.devices import device_summary

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine.backend.interface import Device
    from engine.core.summary import DeviceSummary

PAPER_GPU_MIB = 8192


class Machine:
    """Devices; `virtual` are lines as `parse_virtual` reads them, and replace the real ones."""

    def __init__(self, virtual: Sequence[str] = ()) -> None:
        self._virtual = _with_cpu(tuple(parse_virtual(text) for text in virtual))
        _refuse_same_names(self._virtual)

    @property
    def is_on_paper(self) -> bool:
        """Whether the devices exist on paper only."""
        return bool(self._virtual)

    @functools.cached_property
    def registry(self) -> Registry:
        """The backends of this computer, found on first use."""
        registry = Registry()
        register_builtin(registry)
        return registry

    def devices(self) -> tuple[Device, ...]:
        """The real devices, in priority order."""
        return self.registry.devices()

    def facts(self) -> tuple[DeviceFacts, ...]:
        """What planning may know of the devices now; devices on paper get a CPU on paper."""
        return self._virtual or tuple(device.facts for device in self.devices())

    def summaries(self) -> tuple[DeviceSummary, ...]:
        """The devices for people."""
        return tuple(device_summary(facts, virtual=self.is_on_paper) for facts in self.facts())

    def unavailable(self) -> tuple[Unavailable, ...]:
        """Devices and backends left out, with reasons."""
        return () if self._virtual else self.registry.unavailable()


def with_paper_gpu(facts: tuple[DeviceFacts, ...]) -> tuple[DeviceFacts, ...]:
    """`facts` with a GPU on paper in front, unless they have a GPU."""
    if any(device.type not in (DeviceType.CPU, DeviceType.ACCEL) for device in facts):
        return facts
    gpu = presets.cuda("GPU0", PAPER_GPU_MIB * presets.MIB)
    description = "on paper: this computer has no OpenCL device"
    return (replace(gpu, description=description), *facts)


def _with_cpu(devices: tuple[DeviceFacts, ...]) -> tuple[DeviceFacts, ...]:
    """Devices on paper with a CPU on paper, unless they have one; none stay none."""
    if not devices or any(facts.type is DeviceType.CPU for facts in devices):
        return devices
    return (*devices, presets.cpu("CPU", memory_bytes()[1]))


def _refuse_same_names(devices: Sequence[DeviceFacts]) -> None:
    seen: set[str] = set()
    for facts in devices:
        if facts.name.lower() in seen:
            raise PlacementError(
                f"Two devices are called {facts.name}.",
                "Placements and memory are told apart by name.",
                "Give each --virtual a name of its own; CPU is the CPU's, which is always there.",
            )
        seen.add(facts.name.lower())
