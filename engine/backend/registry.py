"""Registry: backend families in the order they were registered, and their devices.

Knows no backend by name. Source: SCHED.md 2.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from engine.backend.interface import API_VERSION, BackendReg, Device
from engine.errors import DeviceError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from engine.core.devices import Unavailable


class Registry:
    """An ordered list of families; devices stand in registration order."""

    def __init__(self) -> None:
        self._regs: list[BackendReg] = []
        self._absent: list[Unavailable] = []

    def register(self, reg: BackendReg) -> None:
        """Add a family; the same one twice is a developer's mistake."""
        assert reg not in self._regs, f"{reg.name} is registered already"
        if reg.api_version != API_VERSION:
            raise DeviceError(
                f"The backend {reg.name} cannot be used.",
                f"It was made for version {reg.api_version} of the contract, this is "
                f"{API_VERSION}.",
                "Install a version of it that fits this Splitscope.",
            )
        self._regs.append(reg)

    def unregister(self, reg: BackendReg) -> None:
        """Remove a family and its devices."""
        self._regs.remove(reg)

    def add_absent(self, absent: Unavailable) -> None:
        """Remember a backend that could not be loaded, and why."""
        self._absent.append(absent)

    def regs(self) -> tuple[BackendReg, ...]:
        """The families, in order."""
        return tuple(self._regs)

    def devices(self) -> tuple[Device, ...]:
        """Every device, in order."""
        return tuple(device for reg in self._regs for device in reg.devices())

    def unavailable(self) -> tuple[Unavailable, ...]:
        """Backends and devices that were left out, with reasons."""
        left_out: Iterable[Unavailable] = (item for reg in self._regs for item in reg.unavailable())
        return (*self._absent, *left_out)

    def device(self, name: str) -> Device:
        """The first device of that name, capitals ignored; DeviceError names what is near."""
        for device in self.devices():
            if device.facts.name.lower() == name.lower():
                return device
        names = [device.facts.name for device in self.devices()]
        near = difflib.get_close_matches(name, names, n=1)
        hint = f"Did you mean {near[0]}?" if near else f"There are {', '.join(names) or 'none'}."
        raise DeviceError(f"There is no device {name}.", hint=hint)
