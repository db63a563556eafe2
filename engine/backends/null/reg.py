"""Devices on paper behind the whole contract: they allocate nothing and compute nothing.

`log` (optional) is told of every call, in the words of the scheduler's recorded traces.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from engine.backend.interface import (
    Backend,
    BackendReg,
    Buffer,
    BufferType,
    Bytes,
    Completion,
    Device,
    DoneEvent,
    Event,
    Place,
    SplitGraph,
)
from engine.backends.null.clock import VirtualClock, copy_cost_ns, node_cost_ns
from engine.core.devices import BufferTypeFacts, BufferUsage, DeviceFacts, DeviceType
from engine.core.ops import EMPTY_OPS

if TYPE_CHECKING:
    from engine.core.tensor import Tensor

Log = Callable[[str], None]


def _silent(line: str) -> None:
    del line


class NullBuffer(Buffer):
    """A size without memory. Reads give zeros, writes are forgotten."""

    def __init__(
        self, buft: BufferTypeFacts, size: int, usage: BufferUsage, clock: VirtualClock, log: Log
    ) -> None:
        super().__init__(buft, size, usage)
        self._clock = clock
        self._log = log

    @property
    def host(self) -> Bytes | None:
        """Zeros where the memory is host memory; every byte is the same one."""
        if not self.buft.is_host:
            return None
        return np.broadcast_to(np.zeros(1, dtype=np.uint8), (self.size,))

    def set_tensor(self, offset: int, data: Bytes) -> Event:
        """Forget the data."""
        del offset
        self._log(f"set_tensor {self.buft.name} n={data.size}")
        return self._done(data.size)

    def get_tensor(self, offset: int, out: Bytes) -> Event:
        """Fill `out` with zeros."""
        del offset
        self._log(f"get_tensor {self.buft.name} n={out.size}")
        if out.flags.writeable:  # Host memory on paper is one shared zero byte.
            out[:] = 0
        return self._done(out.size)

    def cpy_tensor(self, offset: int, source: Place, n_bytes: int) -> Event | None:
        """Done at once within one kind of memory; else refused."""
        del offset
        same = source.buffer.buft == self.buft
        self._log(f"cpy_tensor {self.buft.name} {'ok' if same else 'refused'}")
        return self._done(n_bytes) if same else None

    def clear(self, value: int) -> None:
        """Nothing to clear."""
        del value

    def _done(self, n_bytes: int) -> Event:
        return DoneEvent(Completion(*self._clock.advance(copy_cost_ns(n_bytes))))


class NullBufferType(BufferType):
    """Allocates sizes."""

    def __init__(self, facts: BufferTypeFacts, clock: VirtualClock, log: Log) -> None:
        self.facts = facts
        self._clock = clock
        self._log = log

    def alloc_buffer(self, size: int, usage: BufferUsage = BufferUsage.ANY) -> NullBuffer:
        """A buffer of `size` bytes that takes no memory."""
        self._log(f"alloc_buffer {self.facts.name} {size}")
        return NullBuffer(self.facts, size, usage, self._clock, self._log)


class NullEvent(Event):
    """An event on paper: whatever it stands for is done."""

    def __init__(self, device: str, number: int, clock: VirtualClock, log: Log) -> None:
        self.words = f"{device} ev{number}"
        self._clock = clock
        self._log = log

    def synchronize(self) -> None:
        """Nothing to wait for."""
        self._log(f"event_synchronize {self.words}")

    def on_complete(self, fn: Callable[[Completion], None]) -> None:
        """Call `fn` now."""
        fn(Completion(*self._clock.advance(0)))


class NullBackend(Backend):
    """A stream that is done as soon as it is told to begin; its time is virtual."""

    def __init__(self, device: NullDevice, clock: VirtualClock, log: Log) -> None:
        self.device = device
        self.name = device.facts.stream_name
        self._clock = clock
        self._log = log

    def graph_compute(self, graph: SplitGraph) -> Event:
        """Advance the clock by what the nodes would cost."""
        names = ",".join(node.name for node in graph.nodes)
        self._log(f"graph_compute {self.name} n={len(graph.nodes)}:{names}")
        cost_ns = sum(node_cost_ns(node) for node in graph.nodes if not _is_empty(node))
        return DoneEvent(Completion(*self._clock.advance(cost_ns)))

    def synchronize(self) -> None:
        """Nothing to wait for."""
        self._log(f"synchronize {self.name}")

    def set_tensor_async(self, place: Place, data: Bytes) -> Event:
        """Forget the data; done at once."""
        if not self.device.facts.caps.asynchronous:
            return super().set_tensor_async(place, data)
        self._log(f"set_tensor_async {self.name} n={data.size}")
        return DoneEvent(Completion(*self._clock.advance(copy_cost_ns(data.size))))

    def get_tensor_async(self, place: Place, out: Bytes) -> Event:
        """Zeros, at once."""
        if not self.device.facts.caps.asynchronous:
            return super().get_tensor_async(place, out)
        self._log(f"get_tensor_async {self.name} n={out.size}")
        out[:] = 0
        return DoneEvent(Completion(*self._clock.advance(copy_cost_ns(out.size))))

    def cpy_tensor_async(
        self, source_backend: Backend, source: Place, target: Place, n_bytes: int
    ) -> Event | None:
        """Done at once between two devices that both queue copies; else refused."""
        del source, target
        if not self.device.facts.copies_async:
            return None
        pair = f"cpy_tensor_async {source_backend.name}->{self.name}"
        both = source_backend.device.facts.copies_async
        if not both or source_backend.device.facts.type is DeviceType.CPU:
            self._log(f"{pair} refused")
            return None
        self._log(f"{pair} ok")
        return DoneEvent(Completion(*self._clock.advance(copy_cost_ns(n_bytes))))

    def event_record(self, event: Event) -> None:
        """Everything queued is done: nothing to remember."""
        self._log(f"event_record {_words(event)}")

    def event_wait(self, event: Event) -> None:
        """Nothing to wait for."""
        self._log(f"event_wait {_words(event)}")


def _words(event: Event) -> str:
    assert isinstance(event, NullEvent), event
    return event.words


class NullDevice(Device):
    """A device on paper."""

    def __init__(self, reg: NullReg, facts: DeviceFacts, clock: VirtualClock, log: Log) -> None:
        self.reg = reg
        self._event_numbers = reg.event_numbers
        self._facts = facts
        self._clock = clock
        self._log = log
        self._buft = NullBufferType(facts.buft, clock, log)
        host = facts.host_buft
        self._host_buft = None if host is None else NullBufferType(host, clock, log)
        self._extra_bufts = tuple(NullBufferType(buft, clock, log) for buft in facts.extra_bufts)

    @property
    def facts(self) -> DeviceFacts:
        """The facts it was made with; nothing changes on paper."""
        return self._facts

    def init_backend(self) -> Backend:
        """A new stream on the family's clock."""
        return NullBackend(self, self._clock, self._log)

    def buffer_type(self) -> BufferType:
        """Its default memory."""
        return self._buft

    def host_buffer_type(self) -> BufferType | None:
        """Pinned memory, where the facts have it."""
        return self._host_buft

    def extra_buffer_types(self) -> tuple[BufferType, ...]:
        """Further kinds of memory, where the facts have them."""
        return self._extra_bufts

    def event_new(self) -> Event | None:
        """An event, where the facts have them; numbers count through the family."""
        if not self._facts.caps.events:
            return None
        event = NullEvent(self._facts.name, next(self._event_numbers), self._clock, self._log)
        self._log(f"event_new {event.words}")
        return event


class NullReg(BackendReg):
    """A family of devices on paper that share one virtual clock."""

    name = "NULL"

    def __init__(self, devices: Sequence[DeviceFacts], log: Log = _silent) -> None:
        self.clock = VirtualClock()
        self.event_numbers = itertools.count()
        self._devices = tuple(NullDevice(self, facts, self.clock, log) for facts in devices)

    def devices(self) -> tuple[Device, ...]:
        """The devices, in the order given."""
        return self._devices


def _is_empty(node: Tensor) -> bool:
    return node.op in EMPTY_OPS
