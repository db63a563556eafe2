"""What the bars show: bytes by device and part, capacity, what is held twice. Pure."""

from __future__ import annotations

import enum
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from app.theme.colours import is_on_paper
from app.theme.text import SPACE, bytes_text, count, percent_text
from engine.core.devices import MAPPED
from engine.core.memory_pool import MemoryPool, memory_pool
from engine.core.plan import MemoryKind
from engine.core.repack import CPU_REPACK
from engine.trace.records import MEMBER_LANE, placed_lanes

if TYPE_CHECKING:
    from engine.core.plan import MemoryLedger, MemoryRow
    from engine.core.shards import MemberShare
    from engine.core.table import DeviceRow, PlanSetTable, PlanTable

MIB = 1024**2


class Part(enum.StrEnum):
    """A part of a bar, in the order in which they stand in it."""

    MODEL = "model"
    REPACK = "repack"
    """Weights too, in memory that only the CPU's products can read."""
    KV = "kv"
    STATE = "state"
    HELD = "held"
    """What a device that is joined with others holds of weights and caches."""
    COMPUTE = "compute"
    OUTPUT = "output"


PART_WORDS = {
    Part.MODEL: "weights",
    Part.REPACK: CPU_REPACK.name,
    Part.KV: "KV",
    Part.STATE: "state",
    Part.COMPUTE: "compute",
    Part.OUTPUT: "output",
    Part.HELD: "weights and KV",
}

_KIND_PARTS = {
    MemoryKind.MODEL: Part.MODEL,
    MemoryKind.KV: Part.KV,
    MemoryKind.STATE: Part.STATE,
    MemoryKind.COMPUTE: Part.COMPUTE,
    MemoryKind.OUTPUT: Part.OUTPUT,
}

PART_NOTES = {
    Part.REPACK: "Weights that the CPU keeps interleaved, because it multiplies them faster.\n"
    "They cannot be offloaded: op_offload leaves their operations on the CPU.",
    Part.STATE: "What recurrent layers carry from token to token.\n"
    "It does not grow with the context.",
}
"""What the tooltip adds where the words do not say it."""


@dataclass(frozen=True, slots=True)
class Share:
    """What part of something that several devices hold one of them was asked to and does hold.

    Fractions of 1. `whole_bytes` of what it holds is on each of them.
    """

    asked: float
    held: float
    whole_bytes: int = 0

    @property
    def words(self) -> str:
        """Both, for people."""
        return f"share {percent_text(self.held)}, asked {percent_text(self.asked)}"

    @property
    def tip(self) -> str:
        """The same in lines."""
        if not self.whole_bytes:
            return self.words
        return f"{self.words}\n{bytes_text(self.whole_bytes)} of it is on every device, whole"


@dataclass(frozen=True, slots=True, eq=False)
class DeviceMemory:
    """One device's bytes by part; `was` are those before a change. `free` 0: nothing reported.

    `lane` is its backend's id, or for a device that a backend joins its lane in traces.
    """

    lane: int
    name: str
    free: int
    now: dict[Part, int]
    was: dict[Part, int] | None = None
    bufts: dict[Part, str] = field(default_factory=dict)
    """Names of the buffer types of each part."""
    on_paper: bool = False
    """Whether the device exists in plans only."""
    share: Share | None = None
    """Its part of what several devices hold together."""

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
        return sum(max(self.now.get(part, 0), self.was.get(part, 0)) for part in Part)

    @property
    def over(self) -> int:
        """Bytes missing; 0 where it fits or nothing is reported."""
        return max(self.total - self.free, 0) if self.free else 0


@dataclass(frozen=True, slots=True)
class MemoryFacts:
    """All devices of a plan in order of priority; those that are joined, not what joins them."""

    devices: tuple[DeviceMemory, ...]
    held_twice: str = ""
    together: str = ""
    """What does not fit although each device alone has room; empty if nothing."""

    @property
    def is_difference(self) -> bool:
        """Whether the bars compare two plans."""
        return any(device.was is not None for device in self.devices)

    @property
    def problem(self) -> str:
        """What does not fit, in words; empty if all fits."""
        problems = [_problem(device) for device in self.devices if device.over]
        return " ".join(filter(None, (*problems, self.together)))


def memory_facts(plans: PlanSetTable, was: PlanSetTable | None = None) -> MemoryFacts:
    """What a plan set needs, compared with an earlier one if there is one."""
    table = plans.prompt
    devices = []
    for backend_id, row in enumerate(table.devices):
        members = _members(plans, was, backend_id)
        ledger = None if was is None else was.memory
        devices += members or [_device(backend_id, row, plans.memory, ledger)]
    pool = memory_pool(plans.memory, table.devices)
    together = _pool_problem(pool) if pool.is_over else ""
    return MemoryFacts(tuple(devices), held_twice(table), together)


def held_twice(table: PlanTable) -> str:
    """Which weights are in two memories at once, and how much that costs; empty if none are.

    Devices that have mapped the same file share its pages: that is one memory.
    """
    sizes: dict[str, list[int]] = defaultdict(list)
    seen_in_file: set[str] = set()
    for slot in np.flatnonzero(table.is_weight[: table.n_leafs]).tolist():
        name = table.name[slot]
        if table.bufts[table.home[slot]].endswith(MAPPED):
            if name in seen_in_file:
                continue
            seen_in_file.add(name)
        sizes[name].append(int(table.n_bytes[slot]))
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
    bufts: dict[Part, dict[str, None]] = defaultdict(dict)
    for entry in ledger.rows:
        if entry.device == row.name:
            bufts[part_of(entry)][entry.buft.name] = None
    return DeviceMemory(
        lane=backend_id,
        name=row.name,
        free=row.memory_free,
        now=_by_part(ledger, row.name),
        was=None if was is None else _by_part(was, row.name),
        bufts={part: ", ".join(names) for part, names in bufts.items()},
        on_paper=is_on_paper(row),
        share=_row_share(ledger, row.name),
    )


def _members(plans: PlanSetTable, was: PlanSetTable | None, backend_id: int) -> list[DeviceMemory]:
    """The devices that a backend joins, with what the model takes of each one's memory."""
    held = {share.device: share for share in plans.memory.shares}
    placed = placed_lanes(plans.prompt.devices)
    mine = [it for it in placed if it.lane >= MEMBER_LANE and it.owner == backend_id]
    return [
        DeviceMemory(
            lane=lane,
            name=member.name,
            free=member.memory_free,
            now=_held_bytes(share),
            was=None if was is None else _held_before(was.memory, member.name),
            bufts={Part.HELD: member.buft},
            on_paper=is_on_paper(member),
            share=Share(share.asked, share.achieved, share.whole_bytes),
        )
        for lane, member, _ in mine
        if (share := held.get(member.name)) is not None
    ]


def _held_bytes(share: MemberShare) -> dict[Part, int]:
    parts = {Part.HELD: share.n_bytes, Part.COMPUTE: share.results_bytes}
    return {part: n_bytes for part, n_bytes in parts.items() if n_bytes}


def _held_before(ledger: MemoryLedger, device: str) -> dict[Part, int]:
    """What a device held before it was joined with others, or when it was; in the same parts."""
    share = next((share for share in ledger.shares if share.device == device), None)
    if share is not None:
        return _held_bytes(share)
    parts = _by_part(ledger, device)
    results = parts.pop(Part.COMPUTE, 0) + parts.pop(Part.OUTPUT, 0)
    before = {Part.HELD: sum(parts.values()), Part.COMPUTE: results}
    return {part: n_bytes for part, n_bytes in before.items() if n_bytes}


def _row_share(ledger: MemoryLedger, device: str) -> Share | None:
    """A device's part of matrices whose rows are on several; None where it has no such rows."""
    split = [row for row in ledger.rows if row.buft.row_shares is not None]
    total = sum(row.n_bytes for row in split)
    held = sum(row.n_bytes for row in split if row.device == device)
    asked = {
        name: share / sum(row.buft.row_shares.shares)
        for row in split
        if row.buft.row_shares is not None
        for name, share in zip(row.buft.row_shares.devices, row.buft.row_shares.shares, strict=True)
    }
    return Share(asked[device], held / total) if total and device in asked else None


def part_of(row: MemoryRow) -> Part:
    """The part of the bar that a row of the ledger belongs to."""
    is_repacked = row.kind is MemoryKind.MODEL and row.buft.name == CPU_REPACK.name
    return Part.REPACK if is_repacked else _KIND_PARTS[row.kind]


def _by_part(ledger: MemoryLedger, device: str) -> dict[Part, int]:
    totals = dict.fromkeys(Part, 0)
    for row in ledger.rows:
        if row.device == device:
            totals[part_of(row)] += row.n_bytes
    return {part: n_bytes for part, n_bytes in totals.items() if n_bytes}


def _pool_problem(pool: MemoryPool) -> str:
    need, has = round(pool.needed_bytes / MIB), round(pool.free_bytes / MIB)
    return (
        f"Does not fit: {', '.join(pool.devices)} work in the same memory, need "
        f"{count(need)}{SPACE}MiB together and have {count(has)}, over by "
        f"{count(need - has)}{SPACE}MiB."
    )


def _problem(device: DeviceMemory) -> str:
    need, has = round(device.total / MIB), round(device.free / MIB)
    return (
        f"Does not fit: {device.name} needs {count(need)}{SPACE}MiB and has {count(has)}, "
        f"over by {count(need - has)}{SPACE}MiB."
    )
