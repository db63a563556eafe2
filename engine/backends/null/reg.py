"""Devices on paper behind the whole contract: they allocate nothing and compute nothing.

Their time is virtual. An asynchronous device does what is queued one after another, while the host
goes on; the host waits for everything that another device is told to do. What was queued has its
times at once, and they may lie ahead of the host's: whoever synchronises takes the host there.

`log` (optional) is told of every call, in the words of the scheduler's recorded traces.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from engine.backend.interface import (
    Backend,
    BackendReg,
    Buffer,
    BufferType,
    Bytes,
    Completion,
    Device,
    Event,
    Place,
    SplitGraph,
)
from engine.backends.null.clock import HOST, Interval, Link, Stream, VirtualClock
from engine.backends.null.costs import (
    USUAL,
    DeviceSpeed,
    host_cost_ns,
    inside_cost_ns,
    link_cost_ns,
    node_cost_ns,
    usual_speed,
)
from engine.core.devices import BufferTypeFacts, BufferUsage, DeviceFacts, DeviceType
from engine.core.ops import EMPTY_OPS

Log = Callable[[str], None]


def _silent(line: str) -> None:
    del line


class PaperEvent(Event):
    """Work whose times are known: it is over when the host has come as far."""

    def __init__(self, clock: VirtualClock, done: Interval) -> None:
        self._clock = clock
        self._done = done

    def synchronize(self) -> None:
        """Let the host wait for the end."""
        self._clock.wait(self._done.end_ns)

    def on_complete(self, fn: Callable[[Completion], None]) -> None:
        """Call `fn` now; the end may be ahead of the host."""
        fn(Completion(*self._done))


class NullBuffer(Buffer):
    """A size without memory. Reads give zeros, writes are forgotten; both take the host's time.

    `owner` (optional) is the device's name, `speed` how fast it is.
    """

    def __init__(
        self,
        buft: BufferTypeFacts,
        size: int,
        usage: BufferUsage,
        clock: VirtualClock,
        log: Log,
        *,
        owner: str = "",
        speed: DeviceSpeed = USUAL,
    ) -> None:
        super().__init__(buft, size, usage)
        self._clock = clock
        self._log = log
        self._owner = owner
        self._speed = speed

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
        return self._move(HOST, self._owner, data.size)

    def get_tensor(self, offset: int, out: Bytes) -> Event:
        """Fill `out` with zeros."""
        del offset
        self._log(f"get_tensor {self.buft.name} n={out.size}")
        if out.flags.writeable:  # Host memory on paper is one shared zero byte.
            out[:] = 0
        return self._move(self._owner, HOST, out.size)

    def cpy_tensor(self, offset: int, source: Place, n_bytes: int) -> Event | None:
        """Done within one kind of memory; else refused."""
        del offset
        same = source.buffer.buft == self.buft
        self._log(f"cpy_tensor {self.buft.name} {'ok' if same else 'refused'}")
        return self._block(inside_cost_ns(n_bytes, self._speed)) if same else None

    def clear(self, value: int) -> None:
        """Nothing to clear."""
        del value

    def _move(self, source: str, target: str, n_bytes: int) -> Event:
        if self.buft.is_host:
            return self._block(host_cost_ns(n_bytes))
        way = self._clock.way(source, target)
        return self._block(link_cost_ns(n_bytes, self._speed), way)

    def _block(self, cost_ns: int, way: tuple[Link, ...] = ()) -> Event:
        done = self._clock.work(cost_ns, way=way)
        self._clock.wait(done.end_ns)
        return PaperEvent(self._clock, done)


class NullBufferType(BufferType):
    """Allocates sizes."""

    def __init__(self, facts: BufferTypeFacts, device: NullDevice) -> None:
        self.facts = facts
        self._device = device

    def alloc_buffer(self, size: int, usage: BufferUsage = BufferUsage.ANY) -> NullBuffer:
        """A buffer of `size` bytes that takes no memory."""
        device = self._device
        device.log(f"alloc_buffer {self.facts.name} {size}")
        return NullBuffer(
            self.facts, size, usage, device.clock, device.log,
            owner=device.facts.name, speed=device.speed,
        )  # fmt: skip


class NullEvent(Event):
    """The end of everything that was queued when it was recorded."""

    def __init__(self, device: str, number: int, clock: VirtualClock, log: Log) -> None:
        self.words = f"{device} ev{number}"
        self.end_ns = 0
        self._clock = clock
        self._log = log

    def synchronize(self) -> None:
        """Let the host wait for it; one that was never recorded is past."""
        self._log(f"event_synchronize {self.words}")
        self._clock.wait(self.end_ns)

    def on_complete(self, fn: Callable[[Completion], None]) -> None:
        """Call `fn` now."""
        fn(Completion(self.end_ns, self.end_ns))


class NullBackend(Backend):
    """A stream in virtual time; where the device is asynchronous the host goes on meanwhile."""

    def __init__(self, device: NullDevice) -> None:
        self.device: NullDevice = device
        self.name = device.facts.stream_name
        self.stream = Stream()
        self._clock = device.clock
        self._log = device.log
        self._guarded_ns = 0

    def graph_compute(self, graph: SplitGraph) -> Event:
        """Take the time that the nodes cost."""
        names = ",".join(node.name for node in graph.nodes)
        self._log(f"graph_compute {self.name} n={len(graph.nodes)}:{names}")
        if graph.program is None:
            speed = self.device.speed
            computed = [node for node in graph.nodes if node.op not in EMPTY_OPS]
            graph.program = sum(node_cost_ns(node, speed) for node in computed)
        return self._queue(graph.program)

    def synchronize(self) -> None:
        """Let the host wait for everything that was queued."""
        self._log(f"synchronize {self.name}")
        self._clock.wait(self.stream.free_ns)

    def set_tensor_async(self, place: Place, data: Bytes) -> Event:
        """Forget the data in the stream's turn."""
        if not self.device.facts.caps.asynchronous:
            return super().set_tensor_async(place, data)
        self._log(f"set_tensor_async {self.name} n={data.size}")
        return self._transfer(HOST, self.device.facts.name, data.size)

    def get_tensor_async(self, place: Place, out: Bytes) -> Event:
        """Zeros, in the stream's turn."""
        if not self.device.facts.caps.asynchronous:
            return super().get_tensor_async(place, out)
        self._log(f"get_tensor_async {self.name} n={out.size}")
        out[:] = 0
        return self._transfer(self.device.facts.name, HOST, out.size)

    def cpy_tensor_async(
        self, source_backend: Backend, source: Place, target: Place, n_bytes: int
    ) -> Event | None:
        """A copy in the source's stream, between two devices that both queue copies; else refused.

        It waits for the event that this stream was made to wait for, since it overwrites what was
        guarded by that; what comes later here waits for the copy.
        """
        del source, target
        if not self.device.facts.copies_async:
            return None
        pair = f"cpy_tensor_async {source_backend.name}->{self.name}"
        both = source_backend.device.facts.copies_async
        if not both or source_backend.device.facts.type is DeviceType.CPU:
            self._log(f"{pair} refused")
            return None
        self._log(f"{pair} ok")
        assert isinstance(source_backend, NullBackend), source_backend
        return self._fetch(source_backend, n_bytes)

    def event_record(self, event: Event) -> None:
        """Let the event stand for everything queued so far."""
        recorded = _known(event)
        self._log(f"event_record {recorded.words}")
        recorded.end_ns = self.stream.free_ns

    def event_wait(self, event: Event) -> None:
        """Let what is queued later wait, not the host."""
        awaited = _known(event)
        self._log(f"event_wait {awaited.words}")
        self._guarded_ns = max(self._guarded_ns, awaited.end_ns)
        self.stream.wait(awaited.end_ns)

    def _transfer(self, source: str, target: str, n_bytes: int) -> Event:
        """Between host and device, in the stream's turn."""
        way = self._clock.way(source, target)
        return self._queue(link_cost_ns(n_bytes, self.device.speed), way)

    def _fetch(self, source: NullBackend, n_bytes: int) -> Event:
        names = source.device.facts.name, self.device.facts.name
        done = self._clock.work(
            link_cost_ns(n_bytes, source.device.speed, self.device.speed),
            stream=source.stream,
            way=self._clock.way(*names),
            after_ns=self._guarded_ns,
        )
        self.stream.wait(done.end_ns)
        self._clock.call()
        return PaperEvent(self._clock, done)

    def _queue(self, cost_ns: int, way: tuple[Link, ...] = ()) -> Event:
        done = self._clock.work(cost_ns, stream=self.stream, way=way)
        if self.device.facts.caps.asynchronous:
            self._clock.call()
        else:
            self._clock.wait(done.end_ns)
        return PaperEvent(self._clock, done)


def _known(event: Event) -> NullEvent:
    assert isinstance(event, NullEvent), event
    return event


class NullDevice(Device):
    """A device on paper."""

    def __init__(self, reg: NullReg, facts: DeviceFacts, speed: DeviceSpeed, log: Log) -> None:
        self.reg = reg
        self.speed = speed
        self.clock = reg.clock
        self.log = log
        self._event_numbers = reg.event_numbers
        self._facts = facts
        self._buft = NullBufferType(facts.buft, self)
        host = facts.host_buft
        self._host_buft = None if host is None else NullBufferType(host, self)
        self._extra_bufts = tuple(NullBufferType(buft, self) for buft in facts.extra_bufts)

    @property
    def facts(self) -> DeviceFacts:
        """The facts it was made with; nothing changes on paper."""
        return self._facts

    def init_backend(self) -> Backend:
        """A new stream."""
        return NullBackend(self)

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
        event = NullEvent(self._facts.name, next(self._event_numbers), self.clock, self.log)
        self.log(f"event_new {event.words}")
        return event


class NullReg(BackendReg):
    """A family of devices on paper that share one virtual clock.

    `speeds` (optional) by name; a device without has the usual one of its kind.
    """

    name = "NULL"

    def __init__(
        self,
        devices: Sequence[DeviceFacts],
        log: Log = _silent,
        *,
        speeds: Mapping[str, DeviceSpeed] | None = None,
    ) -> None:
        self.clock = VirtualClock()
        self.event_numbers = itertools.count()
        known = speeds or {}
        self._devices = tuple(
            NullDevice(self, facts, known.get(facts.name, usual_speed(facts)), log)
            for facts in devices
        )

    def devices(self) -> tuple[Device, ...]:
        """The devices, in the order given."""
        return self._devices
