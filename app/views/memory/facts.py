"""What the bars show: bytes by device and kind, capacity, what is held twice. Pure."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from app.theme.colours import is_on_paper
from app.theme.text import SPACE, count
from engine.core.plan import MemoryKind

if TYPE_CHECKING:
    from engine.core.plan import MemoryLedger
    from engine.core.table import DeviceRow, PlanSetTable, PlanTable

MIB = 1024**2

KINDS = (MemoryKind.MODEL, MemoryKind.KV, MemoryKind.COMPUTE, MemoryKind.OUTPUT)
"""The fixed order of kinds in a bar."""

KIND_WORDS = {
    MemoryKind.MODEL: "weights",
    MemoryKind.KV: "KV",
    MemoryKind.COMPUTE: "compute",
    MemoryKind.OUTPUT: "output",
}


@dataclass(frozen=True, slots=True, eq=False)
class DeviceMemory:
    """One device's bytes by kind; `was` are those before a change. `free` 0: nothing reported."""

    backend_id: int
    name: str
    free: int
    now: dict[MemoryKind, int]
    was: dict[MemoryKind, int] | None = None
    bufts: dict[MemoryKind, str] = field(default_factory=dict)
    """Names of the buffer types of each kind."""
    on_paper: bool = False
    """Whether the device exists in plans only."""

    @property
    def title(self) -> str:
        """Its name, and that it is virtual."""
        return f"{self.name} virtual" if self.on_paper else self.name

    @property
    def total(self) -> int:
        """Bytes the plan needs."""
        return sum(self.now.values())

    @property
    def widest(self) -> int:
        """Bytes that the bar must have room for."""
        if self.was is None:
            return self.total
        return sum(max(self.now.get(kind, 0), self.was.get(kind, 0)) for kind in KINDS)

    @property
    def over(self) -> int:
        """Bytes missing; 0 where it fits or nothing is reported."""
        return max(self.total - self.free, 0) if self.free else 0


@dataclass(frozen=True, slots=True)
class MemoryFacts:
    """All devices of a plan, in order of priority."""

    devices: tuple[DeviceMemory, ...]
    held_twice: str = ""

    @property
    def is_difference(self) -> bool:
        """Whether the bars compare two plans."""
        return any(device.was is not None for device in self.devices)

    @property
    def problem(self) -> str:
        """What does not fit, in words; empty if all fits."""
        return " ".join(_problem(device) for device in self.devices if device.over)


def memory_facts(plans: PlanSetTable, was: PlanSetTable | None = None) -> MemoryFacts:
    """What a plan set needs, compared with an earlier one if there is one."""
    table = plans.prompt
    devices = tuple(
        _device(i, row, plans.memory, None if was is None else was.memory)
        for i, row in enumerate(table.devices)
    )
    return MemoryFacts(devices, held_twice(table))


def held_twice(table: PlanTable) -> str:
    """Which weights are in two memories at once, and how much that costs; empty if none are."""
    sizes: dict[str, list[int]] = defaultdict(list)
    for slot in np.flatnonzero(table.is_weight[: table.n_leafs]).tolist():
        sizes[table.name[slot]].append(int(table.n_bytes[slot]))
    doubled = {name: found[0] for name, found in sizes.items() if len(found) > 1}
    if not doubled:
        return ""
    extra = f"{count(sum(doubled.values()) / MIB, 2)}{SPACE}MiB"
    names = [name.removesuffix(".weight") for name in doubled]
    if len(names) == 1:
        return f"{names[0]} is held twice, {extra}"
    return f"{len(names)} tensors are held twice, {extra}"


def _device(
    backend_id: int, row: DeviceRow, ledger: MemoryLedger, was: MemoryLedger | None
) -> DeviceMemory:
    bufts: dict[MemoryKind, dict[str, None]] = defaultdict(dict)
    for entry in ledger.rows:
        if entry.device == row.name:
            bufts[entry.kind][entry.buft.name] = None
    return DeviceMemory(
        backend_id=backend_id,
        name=row.name,
        free=row.memory_free,
        now=_by_kind(ledger, row.name),
        was=None if was is None else _by_kind(was, row.name),
        bufts={kind: ", ".join(names) for kind, names in bufts.items()},
        on_paper=is_on_paper(row),
    )


def _by_kind(ledger: MemoryLedger, device: str) -> dict[MemoryKind, int]:
    totals = dict.fromkeys(KINDS, 0)
    for row in ledger.rows:
        if row.device == device:
            totals[row.kind] += row.n_bytes
    return {kind: n_bytes for kind, n_bytes in totals.items() if n_bytes}


def _problem(device: DeviceMemory) -> str:
    need, has = round(device.total / MIB), round(device.free / MIB)
    return (
        f"Does not fit: {device.name} needs {count(need)}{SPACE}MiB and has {count(has)}, "
        f"over by {count(need - has)}{SPACE}MiB."
    )
