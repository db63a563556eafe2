"""Devices on paper with a real limit of memory, and a count of what is alive on each."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from engine.backend.interface import Backend, Buffer, BufferType, Device, Event
from engine.backends.null.reg import NullReg
from engine.core.devices import BufferUsage, DeviceFacts
from engine.errors import DeviceError
from tests.engine.paper import parse_virtual

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class LimitedType(BufferType):
    """Memory of a device up to what the device has."""

    def __init__(self, inner: BufferType, device: LimitedDevice) -> None:
        self.facts = inner.facts
        self._inner = inner
        self._device = device

    def alloc_buffer(self, size: int, usage: BufferUsage = BufferUsage.ANY) -> Buffer:
        """A buffer that is counted until it is released."""
        device = self._device
        if device.out_of_memory is not None and size > device.free_bytes:
            raise device.out_of_memory
        buffer = self._inner.alloc_buffer(size, usage)
        device.sizes.append(size)
        device.held_bytes += size
        device.buffers += 1
        release = buffer.release

        def counted() -> None:
            device.held_bytes -= size
            device.buffers -= 1
            release()
            if device.is_lost:
                raise DeviceError(f"{device.facts.name} is lost.")

        buffer.release = counted  # type: ignore[method-assign]  # The real one is called too.
        return buffer


class LimitedDevice(Device):
    """A device on paper with `total_bytes`, beyond which it raises `out_of_memory`."""

    def __init__(self, inner: Device, total_bytes: int, out_of_memory: Exception | None) -> None:
        self.reg = inner.reg
        self._inner = inner
        self.total_bytes = total_bytes
        self.out_of_memory = out_of_memory
        self.held_bytes, self.buffers, self.streams = 0, 0, 0
        self.sizes: list[int] = []
        self.is_lost = False
        """Whether it refuses whatever ends something of it, which is counted all the same."""
        self._buft = LimitedType(inner.buffer_type(), self)
        host = inner.host_buffer_type()
        self._host = None if host is None else LimitedType(host, self)
        self._extra = tuple(LimitedType(buft, self) for buft in inner.extra_buffer_types())

    def __getattr__(self, name: str) -> Any:
        """What a stream on paper asks of its own device, such as how fast it is."""
        return getattr(self._inner, name)

    @property
    def asked(self) -> int:
        """How many buffers it gave."""
        return len(self.sizes)

    @property
    def free_bytes(self) -> int:
        return self.total_bytes - self.held_bytes

    @property
    def facts(self) -> DeviceFacts:
        return replace(
            self._inner.facts, memory_free=self.free_bytes, memory_total=self.total_bytes
        )

    def init_backend(self) -> Backend:
        backend = self._inner.init_backend()
        backend.device = self
        self.streams += 1
        dispose: Callable[[], None] = backend.dispose

        def counted() -> None:
            self.streams -= 1
            dispose()
            if self.is_lost:
                raise DeviceError(f"{self.facts.name} is lost.")

        backend.dispose = counted  # type: ignore[method-assign]  # The real one is called too.
        return backend

    def buffer_type(self) -> BufferType:
        return self._buft

    def host_buffer_type(self) -> BufferType | None:
        return self._host

    def extra_buffer_types(self) -> tuple[BufferType, ...]:
        return self._extra

    def event_new(self) -> Event | None:
        return self._inner.event_new()


class LimitedMachine:
    """Devices from lines of --virtual; those named in `limits` have no more bytes than said."""

    def __init__(
        self,
        lines: Sequence[str],
        limits: dict[str, int],
        error: Exception | None = None,
    ) -> None:
        self.facts = [parse_virtual(line) for line in lines]
        error = error or DeviceError("The driver has no such piece.", details="CL_OUT_OF_MEMORY")
        self.devices = {
            device.facts.name: LimitedDevice(
                device,
                limits.get(device.facts.name, device.facts.memory_total),
                error if device.facts.name in limits else None,
            )
            for device in NullReg(self.facts).devices()
        }

    def alive(self) -> Counter[str]:
        """How many buffers and streams there are on each device; devices without any are left out.

        Bytes are 0 where buffers are.
        """
        assert all(d.held_bytes == 0 or d.buffers for d in self.devices.values())
        return +Counter({name: d.buffers + d.streams for name, d in self.devices.items()})
