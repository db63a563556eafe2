"""GgmlBackend: a stream of a library's device that computes splits.

ctypes lets go of Python's lock while the library computes. Nodes have no times of their own: a
split is one call.
"""

from __future__ import annotations

import ctypes
import time
from typing import TYPE_CHECKING, TypeGuard

from engine.backend.interface import Backend, Completion, DoneEvent, Place
from engine.backends.ggml.buffer import PIECE_BYTES, GgmlBuffer
from engine.backends.ggml.c_api import STATUS_ABORTED, STATUS_SUCCESS
from engine.backends.ggml.events import GgmlEvent, WorkQueue
from engine.backends.ggml.split_graph import SplitProgram, build_split
from engine.backends.ggml.tensors import Context
from engine.errors import DeviceError, Stopped

if TYPE_CHECKING:
    from engine.backend.interface import Bytes, Event, SplitGraph
    from engine.backends.ggml.device import GgmlDevice


class GgmlBackend(Backend):
    """A stream. With an asynchronous device calls return before the work is done."""

    def __init__(self, device: GgmlDevice) -> None:
        base = device.base
        handle = base.api.ggml_backend_dev_init(device.handle, None)
        if handle is None:
            raise DeviceError(
                f"{device.name} cannot be started.",
                "Its library made no stream for it.",
                "Leave it out (-dev), or restart the computer's driver.",
                base.log.take(),
            )
        self.device: GgmlDevice = device
        self.name = device.facts.stream_name
        self.handle: int | None = handle
        self._base, self._api = base, base.api
        self._is_async = device.facts.caps.asynchronous
        self._queue = WorkQueue(self._wait)
        self._guard: GgmlEvent | None = None
        self._stop_word: ctypes.c_int64 | None = None

    def graph_compute(self, graph: SplitGraph) -> Event:
        """Compute every node that computes; one span for all of them."""
        if self._stop_word is not None and self._stop_word.value:
            raise Stopped
        program = graph.program
        if not isinstance(program, SplitProgram):
            program = graph.program = build_split(self._base, self.device.memory, graph)
        start_ns = time.monotonic_ns()
        if program.address is None:
            return DoneEvent(Completion(start_ns, start_ns))
        if self._is_async:
            self._check(self._api.ggml_backend_graph_compute_async(self.handle, program.address))
            return self._queue.add(program)
        self._check(self._api.ggml_backend_graph_compute(self.handle, program.address))
        return DoneEvent(Completion(start_ns, time.monotonic_ns()))

    def _check(self, status: int) -> None:
        if status == STATUS_ABORTED:
            raise Stopped
        if status != STATUS_SUCCESS:
            raise DeviceError(
                f"{self.name} could not compute a split.",
                f"Its library ended with status {status}.",
                "Place fewer layers on it (-ngl), or choose a smaller batch (-ub).",
                self._base.log.take(),
            )

    def synchronize(self) -> None:
        """Block until everything queued is done."""
        if self._is_async and self.handle is not None:
            self._queue.synchronize()

    def _wait(self) -> None:
        self._api.ggml_backend_synchronize(self.handle)

    def set_tensor_async(self, place: Place, data: Bytes) -> Event:
        """Queue a write; `data` must not change before it is done."""
        target = place.buffer
        if not self._queues(target):
            return super().set_tensor_async(place, data)
        parts = list(target.windows(place.offset, data))
        for _, at, part in parts:
            self._api.ggml_backend_tensor_set_async(self.handle, at, part.ctypes.data, 0, part.size)
        return self._queue.add(parts)

    def get_tensor_async(self, place: Place, out: Bytes) -> Event:
        """Queue a read into `out`."""
        source = place.buffer
        if not self._queues(source):
            return super().get_tensor_async(place, out)
        parts = list(source.windows(place.offset, out))
        for _, at, part in parts:
            self._api.ggml_backend_tensor_get_async(self.handle, at, part.ctypes.data, 0, part.size)
        return self._queue.add(parts)

    def cpy_tensor_async(
        self, source_backend: Backend, source: Place, target: Place, n_bytes: int
    ) -> Event | None:
        """Queue a copy between devices of one family that queues copies; else None.

        Families copy in the source's stream, which knows nothing of what this one waits for: so the
        source waits for that too.
        """
        if not isinstance(source_backend, GgmlBackend) or n_bytes > PIECE_BYTES:
            return None
        devices = (self.device, source_backend.device)
        origin, own = source.buffer, target.buffer
        if not all(device.facts.copies_async for device in devices):
            return None
        if devices[0].reg is not devices[1].reg or not self._queues(own):
            return None
        if not isinstance(origin, GgmlBuffer):
            return None
        context = Context(self._base, 2)
        from_at = context.window(origin.handle, origin.start + source.offset, n_bytes)
        to_at = context.window(own.handle, own.start + target.offset, n_bytes)
        if self._guard is not None:
            source_backend.event_wait(self._guard)
        self._api.ggml_backend_tensor_copy_async(source_backend.handle, self.handle, from_at, to_at)
        return self._queue.add(context)

    def _queues(self, buffer: object) -> TypeGuard[GgmlBuffer]:
        """Whether transfers with this buffer are queued by the library."""
        if not self._is_async or not isinstance(buffer, GgmlBuffer):
            return False
        return buffer.base is self._base and not buffer.is_special

    def event_record(self, event: Event) -> None:
        """Let `event` stand for everything queued so far."""
        assert isinstance(event, GgmlEvent), event
        assert self.handle is not None, "the stream has ended"
        event.record(self.handle, self._queue)

    def event_wait(self, event: Event) -> None:
        """Make later work wait for `event`; one of another family holds the host."""
        if not isinstance(event, GgmlEvent) or not self.device.shares_events_with(event):
            event.synchronize()
            self._guard = None
        elif event.is_recorded:
            self._guard = event
            self._api.ggml_backend_event_wait(self.handle, event.handle)

    def set_stop_word(self, address: int) -> None:
        """Look at the int64 at `address` before each split, and between operations on a CPU."""
        self._stop_word = ctypes.c_int64.from_address(address)
        assert self.handle is not None, "the stream has ended"
        self.device.watch_stop_word(self.handle, address)

    def dispose(self) -> None:
        """Finish what is queued and end the stream."""
        if self.handle is None:
            return
        self.synchronize()
        handle, self.handle = self.handle, None
        self._api.ggml_backend_free(handle)
