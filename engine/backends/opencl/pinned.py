"""Host memory that the driver has pinned: a device copies from and to it without a detour.

The driver allocates it, and it stays mapped while it lives: the host uses it as any other memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyopencl as cl

from engine.backend.host_buffer import HostBuffer, HostBufferType
from engine.core.devices import BufferTypeFacts, BufferUsage

if TYPE_CHECKING:
    from engine.backend.interface import Bytes
    from engine.backends.opencl.device import OpenClDevice

ALIGNMENT = 64
"""What drivers give: a cache line or more."""

SUFFIX = "_Host"
"""Ends the name of the type: its owner's name comes before it."""


def pinned_facts(device_name: str, max_bytes: int) -> BufferTypeFacts:
    """The type of the host memory that a device's driver pins."""
    return BufferTypeFacts(
        f"{device_name}{SUFFIX}", alignment=ALIGNMENT, max_bytes=max_bytes, is_host=True
    )


class PinnedBufferType(HostBufferType):
    """Allocates pinned memory, and ordinary memory where the driver has none left, as CUDA does."""

    def __init__(self, device: OpenClDevice, facts: BufferTypeFacts) -> None:
        super().__init__(facts)
        self._device = device

    def alloc_buffer(self, size: int, usage: BufferUsage = BufferUsage.ANY) -> HostBuffer:
        """A buffer of `size` bytes.

        Raises: DeviceError when there is no memory of any kind for it.
        """
        if size == 0:
            return super().alloc_buffer(size, usage)
        try:
            return HostBuffer(self.facts, self._mapped(size), usage)
        except cl.Error:
            return super().alloc_buffer(size, usage)

    def _mapped(self, size: int) -> Bytes:
        """Pinned bytes; the array keeps the mapping, and with it the memory, while it lives."""
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.ALLOC_HOST_PTR
        pinned = cl.Buffer(self._device.context, flags, size)
        # What is mapped for writing can be read as well: it holds the buffer's bytes.
        mapped: Bytes
        mapped, _ = cl.enqueue_map_buffer(
            self._device.transfer_queue, pinned, cl.map_flags.WRITE, 0, (size,), np.dtype(np.uint8)
        )
        return mapped
