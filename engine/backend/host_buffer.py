"""Ordinary memory as a buffer: allocated and aligned, or there already (a mapped file)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from engine.backend.interface import Buffer, BufferType, Bytes, Completion, DoneEvent
from engine.core.devices import BufferTypeFacts, BufferUsage
from engine.errors import DeviceError

if TYPE_CHECKING:
    from engine.backend.interface import Event

CACHE_LINE = 64


class HostBuffer(Buffer):
    """Bytes that the host reads and writes directly; keeps `memory` alive."""

    def __init__(self, buft: BufferTypeFacts, memory: Bytes, usage: BufferUsage) -> None:
        super().__init__(buft, int(memory.size), usage)
        self._memory = memory
        self._address = int(memory.ctypes.data) if memory.size else 0

    @property
    def host(self) -> Bytes:
        """The bytes."""
        return self._memory

    @property
    def address(self) -> int:
        """Address of the first byte; 0 for an empty buffer."""
        return self._address

    def set_tensor(self, offset: int, data: Bytes) -> Event:
        """Write `data` at `offset`."""
        start_ns = time.monotonic_ns()
        self._memory[offset : offset + data.size] = data
        return DoneEvent(Completion(start_ns, time.monotonic_ns()))

    def get_tensor(self, offset: int, out: Bytes) -> Event:
        """Fill `out` from `offset`."""
        start_ns = time.monotonic_ns()
        out[:] = self._memory[offset : offset + out.size]
        return DoneEvent(Completion(start_ns, time.monotonic_ns()))

    def clear(self, value: int) -> None:
        """Set every byte to `value`."""
        self._memory.fill(value)


class HostBufferType(BufferType):
    """Host memory from numpy, aligned to a cache line or more."""

    def __init__(self, facts: BufferTypeFacts) -> None:
        self.facts = facts

    def alloc_buffer(self, size: int, usage: BufferUsage = BufferUsage.ANY) -> HostBuffer:
        """A buffer whose first byte is aligned; pages come zeroed and are touched on first use."""
        return HostBuffer(self.facts, aligned_bytes(size, self.facts.alignment), usage)


def aligned_bytes(size: int, alignment: int) -> Bytes:
    """`size` zero bytes whose address is a multiple of `alignment` and of a cache line."""
    step = max(alignment, CACHE_LINE)
    try:
        raw = np.zeros(size + step, dtype=np.uint8)
    except MemoryError as error:
        raise DeviceError(
            f"The computer has no {size:,} bytes of memory left.",
            hint="Close programs, or choose a smaller context or batch.",
        ) from error
    skip = -raw.ctypes.data % step
    return raw[skip : skip + size]
