"""What a backend implements. Members marked (optional) have the default written here.

Words are ggml's (SCHED.md 3). A backend family is a `BackendReg` with `Device`s; a device makes
`Backend`s (in-order command streams) and, through its `BufferType`, `Buffer`s. Every enqueue gives
back an `Event`.

Example, the whole life of a split:

    backend = device.init_backend()
    buffer = device.buffer_type().alloc_buffer(4096)
    buffer.set_tensor(0, data)                      # blocking
    event = backend.graph_compute(split_graph)      # may return before the work is done
    event.on_complete(lambda done: recorder.append(done.start_ns, done.end_ns))
    backend.synchronize()
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from engine.core.devices import BufferTypeFacts, BufferUsage, DeviceFacts, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from engine.core.tensor import Tensor

API_VERSION = 2
"""The version of this contract; the registry refuses another."""

Bytes = npt.NDArray[np.uint8]
"""A flat view of memory, shared, not copied."""


class Place(NamedTuple):
    """Where a tensor's first byte is."""

    buffer: Buffer
    offset: int


class NodeTimes(NamedTuple):
    """Start and end of each computed node of a split, host monotonic clock.

    `nodes` are those nodes by their index in the split, ascending; views are not among them.
    `read` gives their starts, their ends, and how far off these may be because they come from
    another clock. It may be called later, once or often, on any thread.
    """

    nodes: npt.NDArray[np.int64]
    read: Callable[[], tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], int]]


class ShardTime(NamedTuple):
    """What a device did for a split that several share, or when what is copied into it came.

    Host monotonic clock, ns. `device` is its name. With a `source` it is an exchange: `n_bytes`
    from that device to it.
    """

    device: str
    start_ns: int
    end_ns: int
    source: str = ""
    n_bytes: int = 0


class Completion(NamedTuple):
    """What an event says when its work is done: host monotonic clock, ns.

    `clock_converted` is set when the device has its own clock and the times were mapped. `shards`
    are there for a split that several devices share, and for a copy into all of them.
    """

    start_ns: int
    end_ns: int
    nodes: NodeTimes | None = None
    clock_converted: bool = False
    shards: tuple[ShardTime, ...] = ()


class Event(ABC):
    """The only synchronisation primitive."""

    @abstractmethod
    def synchronize(self) -> None:
        """Block until the work this event stands for is done."""

    @abstractmethod
    def on_complete(self, fn: Callable[[Completion], None]) -> None:
        """Call `fn` once the work is done; at once if it is.

        `fn` runs on whatever thread learns it first (a driver's thread on OpenCL), so it may only
        append to something.
        """


class DoneEvent(Event):
    """An event whose work was done when it was made."""

    __slots__ = ("_completion",)

    def __init__(self, completion: Completion) -> None:
        self._completion = completion

    def synchronize(self) -> None:
        """Nothing to wait for."""

    def on_complete(self, fn: Callable[[Completion], None]) -> None:
        """Call `fn` now."""
        fn(self._completion)


class Buffer(ABC):
    """Memory of one buffer type. Offsets and sizes in bytes."""

    def __init__(self, buft: BufferTypeFacts, size: int, usage: BufferUsage) -> None:
        self.buft = buft
        self.size = size
        self.usage = usage

    @property
    def host(self) -> Bytes | None:
        """(optional) The bytes as host memory; None where kernels of the host cannot read them."""
        return None

    @property
    def address(self) -> int:
        """(optional) Address of the first byte in host memory, 0 where there is none."""
        return 0

    def init_tensor(self, offset: int, tensor: Tensor) -> None:
        """(optional) Say which tensor lies at `offset`, once, before it is written.

        For memory that stores some tensors otherwise than they come, such as interleaved weights.
        """
        del offset, tensor

    @abstractmethod
    def set_tensor(self, offset: int, data: Bytes) -> Event:
        """Write `data` at `offset`; has returned when the source may be reused."""

    @abstractmethod
    def get_tensor(self, offset: int, out: Bytes) -> Event:
        """Fill `out` from `offset`; has returned when `out` is filled."""

    def cpy_tensor(self, offset: int, source: Place, n_bytes: int) -> Event | None:
        """(optional) Copy from another buffer without the host; None when that is impossible."""
        del offset, source, n_bytes
        return None

    @abstractmethod
    def clear(self, value: int) -> None:
        """Set every byte to `value`; blocking."""

    def release(self) -> None:
        """(optional) Give the memory back; the buffer is not used again."""
        return


class BufferType(ABC):
    """A kind of memory that can be allocated."""

    facts: BufferTypeFacts

    @abstractmethod
    def alloc_buffer(self, size: int, usage: BufferUsage = BufferUsage.ANY) -> Buffer:
        """A buffer of at least `size` bytes; DeviceError when there is no memory for it."""

    def alloc_tensors(
        self, tensors: Sequence[Tensor], usage: BufferUsage = BufferUsage.ANY
    ) -> list[Place] | None:
        """(optional) A place for each of `tensors`; DeviceError, and then nothing stays allocated.

        For memory in which one tensor lies in several pieces. None: they lie one behind the other
        in buffers of `alloc_buffer`.
        """
        del tensors, usage
        return None


@dataclass(slots=True, eq=False)
class SplitGraph:
    """One split, ready to compute. Lives as long as the run graph it belongs to.

    `nodes` are in run order with sources already redirected to copies. `place_of` gives the first
    byte of any node or source; for views offset included. `program` belongs to the backend that
    computes it: whatever it compiled for this split, kept from token to token. The places never
    change while the split lives. `read_outside` gives the nodes whose results something outside of
    the split reads: others may be left out by a kernel that computes several nodes at once.
    """

    nodes: tuple[Tensor, ...]
    places: Mapping[Tensor, Place]
    program: Any = None
    uid: int = field(default_factory=itertools.count(1).__next__)
    """A number no other split graph of this process has: backends may keep work by it."""
    outside: Callable[[], frozenset[Tensor]] | None = None

    def read_outside(self) -> frozenset[Tensor]:
        """Nodes that are read outside; all of them where nobody said."""
        return frozenset(self.nodes) if self.outside is None else self.outside()

    def place_of(self, tensor: Tensor) -> Place:
        """Where the first byte of `tensor` is."""
        return locate(tensor, self.places)


def locate(tensor: Tensor, places: Mapping[Tensor, Place]) -> Place:
    """Where the first byte of `tensor` is: a view lies in its source, at its offset."""
    if tensor.view_src is None:
        return places[tensor]
    base = places[tensor.view_src]
    return Place(base.buffer, base.offset + tensor.view_offs)


class Backend(ABC):
    """One in-order command stream on a device. One thread uses it: the engine's."""

    name: str
    device: Device

    @abstractmethod
    def graph_compute(self, graph: SplitGraph) -> Event:
        """Compute the nodes in order; may return before they are done.

        Skips NONE, VIEW, RESHAPE, PERMUTE and TRANSPOSE. Raises DeviceError when the device
        refuses, Stopped when the stop word was set.
        """

    def synchronize(self) -> None:
        """(optional) Block until everything queued is done; default: always is."""
        return

    def set_tensor_async(self, place: Place, data: Bytes) -> Event:
        """(optional) Queue a write; default: synchronize, then the blocking write."""
        self.synchronize()
        return place.buffer.set_tensor(place.offset, data)

    def get_tensor_async(self, place: Place, out: Bytes) -> Event:
        """(optional) Queue a read; default: synchronize, then the blocking read."""
        self.synchronize()
        return place.buffer.get_tensor(place.offset, out)

    def cpy_tensor_async(
        self, source_backend: Backend, source: Place, target: Place, n_bytes: int
    ) -> Event | None:
        """(optional) Queue a copy from another backend's buffer into this one's.

        Asked of the target's backend. It happens after everything queued on the source, and after
        the event that this backend was last made to wait for, which guards the target. What the
        source queues later cannot overwrite what is being copied, and what is queued here later
        finds it there. None means "cannot", nothing was done.
        """
        del source_backend, source, target, n_bytes
        return None

    def event_record(self, event: Event) -> None:
        """(optional) Let `event` stand for everything queued so far; asserts by default."""
        raise AssertionError(f"{self.name} has no events: {event}")

    def event_wait(self, event: Event) -> None:
        """(optional) Make later work of this stream wait for `event`, not the host."""
        raise AssertionError(f"{self.name} has no events: {event}")

    def set_stop_word(self, address: int) -> None:
        """(optional) Address of an int64 that becomes non-zero when a person asks to stop."""
        del address

    def prepare(self, on_progress: Callable[[int, int, str], None] | None = None) -> None:
        """(optional) Compile what a run needs; `on_progress(done, total, name)` on each step."""
        del on_progress

    def prepare_for(
        self,
        nodes: Iterable[Tensor],
        on_progress: Callable[[int, int, str], None] | None = None,
    ) -> None:
        """(optional) The same for a run of these nodes only; by default everything."""
        del nodes
        self.prepare(on_progress)

    def dispose(self) -> None:
        """(optional) Stop threads, release the stream; not used again."""
        return


class Device(ABC):
    """One device of a family."""

    reg: BackendReg

    @property
    @abstractmethod
    def facts(self) -> DeviceFacts:
        """Facts of this moment (free memory changes)."""

    @abstractmethod
    def init_backend(self) -> Backend:
        """A new stream."""

    @abstractmethod
    def buffer_type(self) -> BufferType:
        """The device's default memory; the same object each time."""

    def host_buffer_type(self) -> BufferType | None:
        """(optional) Pinned host memory."""
        return None

    def extra_buffer_types(self) -> tuple[BufferType, ...]:
        """(optional) Further memory for weights, in the order of `facts.extra_bufts`."""
        return ()

    def buffer_from_host_ptr(self, memory: Bytes, name: str) -> Buffer | None:
        """(optional) Memory that exists (a mapped file) as a buffer of type `name`."""
        del memory, name
        return None

    def event_new(self) -> Event | None:
        """(optional) An event for `event_record`; None without event support."""
        return None


class BackendReg(ABC):
    """One backend family."""

    api_version: int = API_VERSION
    name: str

    @abstractmethod
    def devices(self) -> tuple[Device, ...]:
        """Its devices, in index order; the same objects each time."""

    def unavailable(self) -> tuple[Unavailable, ...]:
        """(optional) Devices left out, with the reason."""
        return ()

    def get_proc_address(self, name: str) -> Callable[..., Any] | None:
        """(optional) A function outside the contract, by name; None when there is none.

        Known names: `ggml_backend_set_n_threads` (backend, n), `ggml_backend_get_features` () ->
        mapping of feature to text, `ggml_backend_split_buffer_type` (device, facts) -> the
        BufferType of these facts, which have `row_shares`, whose products `device` computes.
        """
        del name
        return None
