"""Devices as their platforms describe them: which are used, which are left out, and why. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from engine.core.devices import Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

REG_NAME = "OpenCL"
NO_PLATFORM = "no OpenCL platform found"
NO_PLATFORM_HINT = (
    "Install a driver of the graphics card, or a software driver: apt install pocl-opencl-icd, "
    "or the one that pip has: .venv/bin/pip install -e '.[pocl]'."
)
CHECK_HINT = (
    "Install another driver, for example: apt install pocl-opencl-icd. The one that pip brings "
    "needs a linker and its libraries: apt install gcc. PoCL compiles only where it can write."
)


class Verdict(NamedTuple):
    """What a check found: why a device cannot be used, and why it cannot read a mapped file.

    Empty where it can; `no_mapping` says nothing of a device that does not share host memory.
    """

    problem: str = ""
    no_mapping: str = ""


@dataclass(frozen=True, slots=True)
class FoundDevice:
    """A device as its platform describes it. `version_text` is CL_PLATFORM_VERSION.

    `shares_memory`: it works in the host's memory, so that what is there need not be copied.
    `no_mapping` is why it cannot read a mapped file all the same, as a check found. `part` names a
    device that is a part of another.
    """

    platform: str
    version_text: str
    device_name: str
    is_cpu: bool
    shares_memory: bool = False
    no_mapping: str = ""
    part: str = ""
    handle: Any = field(default=None, compare=False, repr=False)

    @property
    def driver(self) -> str:
        """The driver's short name, such as "PoCL 3.1"."""
        match = re.match(r"OpenCL \d+\.\d+\s+(PoCL \d+\.\d+)", self.version_text)
        return match.group(1) if match else self.platform

    @property
    def maps_files(self) -> bool:
        """Whether weights can be used where the file is mapped."""
        return self.shares_memory and not self.no_mapping

    @property
    def description(self) -> str:
        """Driver and hardware for people, such as "PoCL 3.1, Intel Xeon"."""
        copies = f"; weights are copied, as {self.no_mapping}" if self.no_mapping else ""
        part = f", {self.part}" if self.part else ""
        return f"{self.driver}, {hardware_name(self.device_name)}{part}{copies}"


def platform_rank(version_text: str) -> tuple[int, ...]:
    """The numbers of a platform version: OpenCL's, then the driver's; larger is newer."""
    return tuple(int(number) for number in re.findall(r"\d+", version_text)[:4])


def hardware_name(device_name: str) -> str:
    """A device's name without PoCL's driver and target in front and without marks."""
    name = re.sub(r"^(?:pthread|basic|cpu)(?:-[a-z0-9_]+(?:-avx512)?)?-(?=[A-Z])", "", device_name)
    return " ".join(re.sub(r"\((?:R|TM|r|tm)\)", "", name).split())


def select(
    found: Iterable[FoundDevice], check: Callable[[FoundDevice], Verdict]
) -> tuple[tuple[FoundDevice, ...], tuple[Unavailable, ...]]:
    """Devices to use, newest platform first, and those left out with the reason.

    A CPU that a newer platform already offers is hidden and not even checked, since old software
    drivers can end the process.
    """
    usable: list[FoundDevice] = []
    left_out: list[Unavailable] = []
    ordered = sorted(found, key=lambda d: platform_rank(d.version_text), reverse=True)
    for device in ordered:
        twin = _same_cpu(device, usable)
        if twin is not None:
            reason = f"the same CPU through {device.driver}"
            left_out.append(Unavailable(device.description, reason, hidden=True))
            continue
        problem, no_mapping = check(device)
        if problem:
            left_out.append(Unavailable(device.description, problem, CHECK_HINT))
        else:
            usable.append(replace(device, no_mapping=no_mapping))
    return tuple(usable), tuple(left_out)


def _same_cpu(device: FoundDevice, usable: Iterable[FoundDevice]) -> FoundDevice | None:
    """A usable CPU device of another platform, which must be the same CPU."""
    if not device.is_cpu:
        return None
    others = (u for u in usable if u.is_cpu and u.version_text != device.version_text)
    return next(others, None)
