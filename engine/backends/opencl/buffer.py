"""Device memory. Blocking transfers go through the device's transfer queue, or need no queue."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np
import pyopencl as cl

from engine.backend.interface import Buffer, BufferType, Completion, DoneEvent
from engine.backends.opencl.errors import driver_errors
from engine.backends.opencl.events import CommandEvent
from engine.core.devices import BufferTypeFacts, BufferUsage
from engine.errors import DeviceError

if TYPE_CHECKING:
    from engine.backend.interface import Bytes, Event, Place
    from engine.backends.opencl.device import OpenClDevice

MIN_BYTES = 128
"""OpenCL has no empty buffers; an empty one of ours takes this much."""

SHARED_ALIGNMENT = 128
"""Bytes: the largest type of OpenCL, to which drivers align shared memory."""

NO_MAPPING_HINT = "Read the file into memory instead (--no-mmap)."


class OpenClBuffer(Buffer):
    """Memory on one device. Kernels take `memory` and an offset."""

    def __init__(
        self, device: OpenClDevice, memory: cl.Buffer, size: int, usage: BufferUsage
    ) -> None:
        super().__init__(device.buft_facts, size, usage)
        self._device = device
        self._memory: cl.Buffer | None = memory

    @property
    def held_bytes(self) -> int:
        """What it takes of the device's memory."""
        return self.size

    @property
    def memory(self) -> cl.Buffer:
        """The OpenCL object."""
        assert self._memory is not None, "the buffer was released"
        return self._memory

    @property
    def target(self) -> cl.Buffer:
        """The OpenCL object, to be written to."""
        return self.memory

    @property
    def context(self) -> cl.Context:
        """The context it belongs to; copies inside one need no host."""
        return self._device.context

    def set_tensor(self, offset: int, data: Bytes) -> Event:
        """Write `data` at `offset`; blocking."""
        with driver_errors(self._device.name, "take data"):
            return self._done(
                cl.enqueue_copy(self._device.transfer_queue, self.target, data, dst_offset=offset)
            )

    def get_tensor(self, offset: int, out: Bytes) -> Event:
        """Fill `out` from `offset`; blocking."""
        with driver_errors(self._device.name, "give data back"):
            return self._done(
                cl.enqueue_copy(self._device.transfer_queue, out, self.memory, src_offset=offset)
            )

    def cpy_tensor(self, offset: int, source: Place, n_bytes: int) -> Event | None:
        """Copy from a buffer of the same context; blocking. None for any other buffer."""
        origin = source.buffer
        if not isinstance(origin, OpenClBuffer) or origin.context != self.context:
            return None
        with driver_errors(self._device.name, "copy data"):
            command = cl.enqueue_copy(
                self._device.transfer_queue,
                self.target,
                origin.memory,
                byte_count=n_bytes,
                src_offset=source.offset,
                dst_offset=offset,
            )
            command.wait()
            return self._done(command)

    def clear(self, value: int) -> None:
        """Set every byte to `value`; blocking."""
        if self.size == 0:
            return
        with driver_errors(self._device.name, "clear memory"):
            queue = self._device.transfer_queue
            pattern = np.array([value], np.uint8)
            cl.enqueue_fill_buffer(queue, self.target, pattern, 0, self.size).wait()

    def release(self) -> None:
        """Give the memory back to the driver now."""
        memory, self._memory = self._memory, None
        if memory is None:
            return
        self._device.note_released(self.held_bytes)
        with driver_errors(self._device.name, "give memory back"):
            memory.release()

    def _done(self, command: cl.Event) -> Event:
        return CommandEvent(command, command, self._device.events)


class SharedBuffer(OpenClBuffer):
    """Memory that host and device use in one place: what one wrote the other sees.

    A blocking transfer is a copy by the host, where the driver's threads take 65 us even for a few
    bytes. As with the transfer queue, what the device computes with it must be done before.
    """

    def __init__(self, device: OpenClDevice, size: int, usage: BufferUsage) -> None:
        shared: Bytes = cl.fsvm_empty(
            device.context, (max(size, MIN_BYTES),), np.dtype(np.uint8), alignment=SHARED_ALIGNMENT
        )
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.USE_HOST_PTR
        super().__init__(device, cl.Buffer(device.context, flags, hostbuf=shared), size, usage)
        self._shared: Bytes | None = shared

    def set_tensor(self, offset: int, data: Bytes) -> Event:
        """Write `data` at `offset`; blocking."""
        return _copied(data, self._bytes(offset, len(data)))

    def get_tensor(self, offset: int, out: Bytes) -> Event:
        """Fill `out` from `offset`; blocking."""
        return _copied(self._bytes(offset, len(out)), out)

    def release(self) -> None:
        """Give the memory back to the driver now."""
        super().release()
        self._shared = None

    def _bytes(self, offset: int, n_bytes: int) -> Bytes:
        assert self._shared is not None, "the buffer was released"
        return self._shared[offset : offset + n_bytes]


def _copied(source: Bytes, target: Bytes) -> Event:
    start_ns = time.monotonic_ns()
    target[:] = source
    return DoneEvent(Completion(start_ns, time.monotonic_ns()))


class MappedBuffer(OpenClBuffer):
    """A mapped file that kernels read where it lies; nothing can write to it."""

    def __init__(self, device: OpenClDevice, mapping: Bytes, buft: BufferTypeFacts) -> None:
        flags = cl.mem_flags.READ_ONLY | cl.mem_flags.USE_HOST_PTR
        _check_size(device.name, buft, mapping.size)
        with driver_errors(device.name, "use the mapped file", NO_MAPPING_HINT):
            memory = cl.Buffer(device.context, flags, hostbuf=mapping)
        super().__init__(device, memory, mapping.size, BufferUsage.WEIGHTS)
        self.buft = buft

    @property
    def held_bytes(self) -> int:
        """Nothing: the pages are those of the file."""
        return 0

    @property
    def target(self) -> cl.Buffer:
        """Never: the file is mapped for reading."""
        raise AssertionError("a mapped file would be written to")


class OpenClBufferType(BufferType):
    """The memory of one device."""

    def __init__(self, device: OpenClDevice, facts: BufferTypeFacts) -> None:
        self.facts = facts
        self._device = device

    def alloc_buffer(self, size: int, usage: BufferUsage = BufferUsage.ANY) -> OpenClBuffer:
        """A buffer of `size` bytes.

        Raises: DeviceError when it is larger than the device allows or than what is free.
        """
        _check_size(self._device.name, self.facts, size)
        with driver_errors(self._device.name, f"allocate {size:,} bytes"):
            made = self._allocate(size, usage)
        self._device.note_allocated(size)
        return made

    def _allocate(self, size: int, usage: BufferUsage) -> OpenClBuffer:
        if self._device.writes_in_place:
            return SharedBuffer(self._device, size, usage)
        flags = cl.mem_flags.READ_WRITE
        memory = cl.Buffer(self._device.context, flags, max(size, MIN_BYTES))
        return OpenClBuffer(self._device, memory, size, usage)


def _check_size(device_name: str, facts: BufferTypeFacts, size: int) -> None:
    largest = facts.max_bytes
    if largest is not None and size > largest:
        raise DeviceError(
            f"{device_name} allows buffers of up to {largest:,} bytes, not {size:,}.",
            hint="Place fewer layers on it, or choose a smaller context.",
        )
