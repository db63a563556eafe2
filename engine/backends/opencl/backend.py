"""OpenClBackend: one in-order queue that computes splits."""

from __future__ import annotations

import contextlib
import ctypes
import time
from collections import deque
from functools import partial
from typing import TYPE_CHECKING

import pyopencl as cl

from engine.backend.interface import (
    Backend,
    Bytes,
    Completion,
    DoneEvent,
    Event,
    Place,
    SplitGraph,
)
from engine.backend.release import release_all
from engine.backends.opencl.binding import bind_all, bind_no_steps
from engine.backends.opencl.buffer import OpenClBuffer
from engine.backends.opencl.errors import driver_errors
from engine.backends.opencl.events import PROFILING, CommandEvent, StreamEvent
from engine.backends.opencl.launches import CompiledSplit
from engine.backends.opencl.row_plan import RowPlan, reserve_for_mates, rows_behind
from engine.backends.opencl.row_split import RowMate, RowSplit, shard_times
from engine.backends.opencl.scratch import Scratch
from engine.backends.opencl.split import encode_split
from engine.errors import DeviceError, Stopped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from engine.backends.opencl.arguments import KernelCall
    from engine.backends.opencl.device import OpenClDevice
    from engine.backends.opencl.row_split import TimedCommands
    from engine.core.tensor import Tensor


class OpenClBackend(Backend):
    """One in-order queue with profiling. Nothing blocks but `synchronize` and a full driver."""

    def __init__(self, device: OpenClDevice) -> None:
        self.name = device.name
        self.device: OpenClDevice = device
        self._queue = cl.CommandQueue(device.context, device.handle, properties=PROFILING)
        self._scratch = Scratch(device.buffer_type())
        self._mates: dict[OpenClDevice, RowMate] = {}
        self._unfinished: deque[CommandEvent] = deque()
        self._guard: cl.Event | None = None
        self._stop_word: ctypes.c_int64 | None = None

    def graph_compute(self, graph: SplitGraph) -> Event:
        """Queue every node that computes; the event spans the first start to the last end."""
        if self._stop_word is not None and self._stop_word.value:
            raise Stopped
        if graph.program is None:
            graph.program = self._compile(graph)
        split: CompiledSplit | RowSplit = graph.program
        if split.is_empty:
            now_ns = time.monotonic_ns()
            return DoneEvent(Completion(now_ns, now_ns))
        with driver_errors(self.name, f"compute split {graph.uid}"):
            if isinstance(split, RowSplit):
                commands, timed = split.enqueue(self._queue)
            else:
                commands, timed = split.enqueue(self._queue), []
            self._queue.flush()
        return self.track(commands[0], commands[-1], timed)

    def synchronize(self) -> None:
        """Block until the queue is empty; every completion has been told when this returns."""
        with driver_errors(self.name, "finish its work"):
            self._queue.finish()
        while self._unfinished:
            self._unfinished.popleft().fire()
        self.device.events.clock.refresh()

    def set_tensor_async(self, place: Place, data: Bytes) -> Event:
        """Queue a write; `data` is kept alive until it is done, and must not change before."""
        target = _own(place)
        with driver_errors(self.name, "take data"):
            command = cl.enqueue_copy(
                self._queue, target.target, data, dst_offset=place.offset, is_blocking=False
            )
        return self.track(command, command)

    def get_tensor_async(self, place: Place, out: Bytes) -> Event:
        """Queue a read into `out`."""
        source = _own(place)
        with driver_errors(self.name, "give data back"):
            command = cl.enqueue_copy(
                self._queue, out, source.memory, src_offset=place.offset, is_blocking=False
            )
        return self.track(command, command)

    def cpy_tensor_async(
        self, source_backend: Backend, source: Place, target: Place, n_bytes: int
    ) -> Event | None:
        """Queue a copy between devices of one context, after all that is queued on the source.

        It runs in the source's queue, so that what the source computes next cannot overwrite what
        is being copied; this queue waits for it. It waits for what this queue was last told to wait
        for, since that guards the target.
        """
        origin, own = source.buffer, target.buffer
        if not isinstance(source_backend, OpenClBackend) or not isinstance(origin, OpenClBuffer):
            return None
        if not isinstance(own, OpenClBuffer) or origin.context != own.context:
            return None
        with driver_errors(self.name, "copy data"):
            command = cl.enqueue_copy(
                source_backend.queue,
                own.target,
                origin.memory,
                byte_count=n_bytes,
                src_offset=source.offset,
                dst_offset=target.offset,
                wait_for=[self._guard] if self._guard is not None else None,
            )
            source_backend.queue.flush()
            if source_backend is not self:
                self.wait_for([command])
        return source_backend.track(command, command)

    @property
    def queue(self) -> cl.CommandQueue:
        """The queue, for work that belongs between other work of this stream."""
        return self._queue

    def wait_for(self, commands: list[cl.Event]) -> None:
        """Hold later work of this queue until commands of other queues of the context are done."""
        cl.enqueue_barrier(self._queue, wait_for=commands)

    def event_record(self, event: Event) -> None:
        """Let `event` stand for everything queued so far."""
        assert isinstance(event, StreamEvent), event
        with driver_errors(self.name, "mark its queue"):
            marker = cl.enqueue_marker(self._queue)
            self._queue.flush()
        event.record(self.track(marker, marker), self)

    def event_wait(self, event: Event) -> None:
        """Hold later work of this queue until `event`; other backends' events hold the host."""
        if not isinstance(event, StreamEvent):
            event.synchronize()
            return
        recorded = event.recorded
        if recorded is None or recorded.context != self.device.context:
            event.synchronize()
            return
        self._guard = recorded.last
        if event.stream is self:
            return  # The queue is in order.
        with driver_errors(self.name, "wait for an event"):
            self.wait_for([recorded.last])

    def set_stop_word(self, address: int) -> None:
        """Look at the int64 at `address` before each split."""
        self._stop_word = ctypes.c_int64.from_address(address)

    def prepare(self, on_progress: Callable[[int, int, str], None] | None = None) -> None:
        """Build every program and run every kernel once on a few elements."""
        from engine.backends.opencl.warmup import warm_up

        warm_up(self, on_progress)

    def prepare_for(
        self,
        nodes: Iterable[Tensor],
        on_progress: Callable[[int, int, str], None] | None = None,
    ) -> None:
        """Build and run what `nodes` need; the kernels of other types are built when first used.

        Devices that compute rows of their products get memory for that.
        """
        from engine.backends.opencl.warmup import warm_up

        wanted = list(nodes)
        warm_up(self, on_progress, nodes=wanted)
        reserve_for_mates(self.device, wanted, self._mate)

    def try_steps(self, calls: Sequence[KernelCall]) -> None:
        """Build and run the program that has the kernels of these calls as steps; computes none."""
        with driver_errors(self.name, "prepare its kernels"):
            CompiledSplit((bind_no_steps(self.device, calls),), can_clone=False).enqueue(
                self._queue
            )
        self.synchronize()

    def dispose(self) -> None:
        """Finish the queue and let every callback come; buffers stay but for the scratch."""
        # A device that refuses even this has nothing left to wait for, and was reported before.
        with contextlib.suppress(DeviceError):
            self.synchronize()
        release_all(
            [
                *[mate.dispose for mate in self._mates.values()],
                self._scratch.release,
                self.device.events.callbacks.wait_until_paid,
            ]
        )

    def _compile(self, graph: SplitGraph) -> CompiledSplit | RowSplit:
        with driver_errors(self.name, "prepare its kernels"):
            if any(rows_behind(node, graph.place_of) for node in graph.nodes):
                plan = RowPlan(self.device, graph.nodes, graph.place_of, self._mate)
                steps = plan.steps(self.device.tuning, self._scratch.place)
                return RowSplit(self.device, steps)
            calls = encode_split(
                graph.nodes, graph.place_of, self.device.tuning, self._scratch.place
            )
            launches = bind_all(self.device, calls)
            return CompiledSplit(launches, can_clone=self.device.can_clone)

    def _mate(self, device: OpenClDevice) -> RowMate:
        """The device as one that computes rows for this stream."""
        if device not in self._mates:
            self._mates[device] = RowMate(device)
        return self._mates[device]

    def track(
        self, first: cl.Event, last: cl.Event, timed: Sequence[TimedCommands] = ()
    ) -> CommandEvent:
        """The commands as an event, kept alive until they are done."""
        while self._unfinished and self._unfinished[0].is_done:
            self._unfinished.popleft().fire()
        shards = partial(shard_times, timed) if timed else tuple
        event = CommandEvent(first, last, self.device.events, shards)
        self._unfinished.append(event)
        return event


def _own(place: Place) -> OpenClBuffer:
    assert isinstance(place.buffer, OpenClBuffer), place.buffer
    return place.buffer
