"""The computer's memory, in which the CPU and devices without memory of their own work. Pure.

Each such device reports the same memory as its own, so what a plan needs fits only if all of it
does. A mapped file takes none: its pages can be dropped and read again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.core.devices import DeviceType

if TYPE_CHECKING:
    from collections.abc import Iterable

    from engine.core.devices import DeviceFacts
    from engine.core.plan import MemoryLedger
    from engine.core.table import DeviceRow


@dataclass(frozen=True, slots=True)
class MemoryPool:
    """What a plan needs of the computer's memory, and what that has; bytes, 0 where unknown."""

    devices: tuple[str, ...]
    needed_bytes: int
    free_bytes: int
    total_bytes: int

    @property
    def is_over(self) -> bool:
        """Whether several devices together need more than is free."""
        return len(self.devices) > 1 and 0 < self.free_bytes < self.needed_bytes

    @property
    def is_impossible(self) -> bool:
        """Whether more is needed than the computer has in all."""
        return 0 < self.total_bytes < self.needed_bytes


def memory_pool(ledger: MemoryLedger, devices: Iterable[DeviceFacts | DeviceRow]) -> MemoryPool:
    """The pool of a plan's devices, of which the CPU is one."""
    known = [single for device in devices for single in device.members or (device,)]
    inside = [d for d in known if d.shares_memory or d.type is DeviceType.CPU]
    names = tuple(device.name for device in inside)
    cpu = next(device for device in inside if device.type is DeviceType.CPU)
    needed = sum(row.n_bytes for row in ledger.rows if row.device in names and not row.is_mapped)
    needed += sum(share.needed_bytes for share in ledger.shares if share.device in names)
    return MemoryPool(names, needed, cpu.memory_free, cpu.memory_total)
