"""Registry: backend families in the order they were registered, and their devices.

Knows no backend by name. Source: SCHED.md 2.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from engine.backend.claims import check_claims
from engine.backend.interface import API_VERSION, BackendReg, Device
from engine.core.devices import DeviceType, Unavailable
from engine.errors import DeviceError

if TYPE_CHECKING:
    from engine.core.load_report import Origin


class Registry:
    """An ordered list of families.

    Devices stand in registration order, those of type CPU last. A device whose id another family
    has registered before is hidden: one card is used once.
    """

    def __init__(self) -> None:
        self._regs: list[BackendReg] = []
        self._origins: dict[BackendReg, Origin] = {}
        self._absent: list[Unavailable] = []
        self._used: dict[Device, BackendReg] = {}
        """Devices in order, each with the family that brought it."""
        self._hidden: dict[Device, Device] = {}
        """Hidden devices, each with the one that is used in its place."""
        self._all_hidden: set[BackendReg] = set()

    def register(self, reg: BackendReg, origin: Origin | None = None) -> None:
        """Add a family. `origin` says how it got here.

        Raises:
            DeviceError: it is there already, was made for another version of the contract, or has
                a device by a name that is taken.
            Exception: whatever its own code raises. Nothing has changed then, nor for DeviceError.
        """
        self._refuse_second(reg)
        _refuse_version(reg)
        self._refuse_names(reg)
        self._sort_out([*self._regs, reg])
        if origin is not None:
            self._origins[reg] = origin

    def unregister(self, reg: BackendReg) -> None:
        """Remove a family and its devices; what it hid is used again."""
        self._sort_out([other for other in self._regs if other is not reg])
        self._origins.pop(reg, None)

    def add_absent(self, absent: Unavailable) -> None:
        """Remember a backend that is not registered, and why."""
        self._absent.append(absent)

    def regs(self) -> tuple[BackendReg, ...]:
        """The families, in order."""
        return tuple(self._regs)

    def origin(self, reg: BackendReg) -> Origin | None:
        """How a family got here; None when that was not said."""
        return self._origins.get(reg)

    def devices(self) -> tuple[Device, ...]:
        """Every device that is used, in order."""
        return tuple(self._used)

    def family(self, device: Device) -> BackendReg:
        """The family that a used device came with."""
        return self._used[device]

    def is_hidden(self, device: Device) -> bool:
        """Whether another family's device is used in its place."""
        return device in self._hidden

    def is_all_hidden(self, reg: BackendReg) -> bool:
        """Whether a family has devices, and all are used through other families."""
        return reg in self._all_hidden

    def unavailable(self) -> tuple[Unavailable, ...]:
        """Backends and devices that were left out, with reasons."""
        left_out = tuple(item for reg in self._regs for item in reg.unavailable())
        twice = tuple(_as_hidden(*pair) for pair in self._hidden.items())
        return (*self._absent, *left_out, *twice)

    def device(self, name: str) -> Device:
        """The first device of that name, capitals ignored; DeviceError names what is near."""
        for device in self.devices():
            if device.facts.name.lower() == name.lower():
                return device
        names = [device.facts.name for device in self.devices()]
        near = difflib.get_close_matches(name, names, n=1)
        hint = f"Did you mean {near[0]}?" if near else f"There are {', '.join(names) or 'none'}."
        raise DeviceError(f"There is no device {name}.", hint=hint)

    def _sort_out(self, regs: list[BackendReg]) -> None:
        """Have these families, and tell used devices from hidden ones; all or nothing."""
        by_id: dict[str, tuple[Device, BackendReg]] = {}
        used: list[tuple[bool, Device, BackendReg]] = []
        hidden: dict[Device, Device] = {}
        all_hidden: set[BackendReg] = set()
        for reg in regs:
            for device in reg.devices():
                facts = device.facts
                first, owner = device, reg
                if facts.device_id is not None:
                    first, owner = by_id.setdefault(facts.device_id, (device, reg))
                if owner is reg:
                    used.append((facts.type is DeviceType.CPU, device, reg))
                else:
                    hidden[device] = first
                    all_hidden.add(reg)
        used.sort(key=lambda each: each[0])
        self._regs = regs
        self._used = {device: reg for _, device, reg in used}
        self._hidden = hidden
        self._all_hidden = all_hidden - set(self._used.values())

    def _refuse_second(self, reg: BackendReg) -> None:
        if reg in self._regs:
            raise DeviceError(
                f"The backend {reg.name} is registered already.",
                "A backend is registered once.",
                "Unload it first to load it anew.",
            )

    def _refuse_names(self, reg: BackendReg) -> None:
        owners = {d.facts.name.lower(): r.name for r in self._regs for d in r.devices()}
        for device in reg.devices():
            name = check_claims(device).name
            if name.lower() in owners:
                raise DeviceError(
                    f"The backend {reg.name} cannot be used.",
                    f"A second device would be called {name}, as one of {owners[name.lower()]} is: "
                    "placements and memory are told apart by name.",
                    "Unload that one, or leave it out.",
                )
            owners[name.lower()] = reg.name


def _refuse_version(reg: BackendReg) -> None:
    if reg.api_version != API_VERSION:
        raise DeviceError(
            f"The backend {reg.name} cannot be used.",
            f"It was made for version {reg.api_version} of the contract, this is {API_VERSION}.",
            "Install a version of it that fits this Splitscope.",
        )


def _as_hidden(device: Device, used: Device) -> Unavailable:
    name = used.facts.name
    return Unavailable(
        device.facts.name,
        f"it is the same device as {name} ({device.facts.device_id}), which is used",
        f"Leave out {used.reg.name} to use it.",
        hidden=True,
    )
