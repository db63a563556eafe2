"""A split with products in split memory, computed by several devices through their queues."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, NamedTuple

import pyopencl as cl

from engine.backend.interface import ShardTime
from engine.backend.memory_refusal import Wanted, asking
from engine.backend.release import release_all
from engine.backends.opencl.binding import bind_all
from engine.backends.opencl.buffer import OpenClBuffer
from engine.backends.opencl.events import END, PROFILING, START, command_ns
from engine.backends.opencl.launches import CompiledSplit
from engine.backends.opencl.row_plan import Compute, Send, Take
from engine.backends.opencl.scratch import Scratch

if TYPE_CHECKING:
    from collections.abc import Iterable
    from contextlib import AbstractContextManager

    from engine.backend.interface import Place
    from engine.backends.opencl.device import OpenClDevice
    from engine.backends.opencl.row_plan import Step
    from engine.backends.opencl.tuning import Tuning


class RowMate:
    """A device that computes rows for another stream, with a queue of its own for that."""

    def __init__(self, device: OpenClDevice) -> None:
        self.device = device
        self.queue = cl.CommandQueue(device.context, device.handle, properties=PROFILING)
        self._scratch = Scratch(device.buffer_type())
        self._inputs = Scratch(device.buffer_type())
        self._results: list[Scratch] = []

    @property
    def tuning(self) -> Tuning:
        """How the device is driven."""
        return self.device.tuning

    def scratch_place(self, n_bytes: int) -> Place:
        """Room for rounded activations."""
        return self._scratch.place(n_bytes)

    def input_place(self, n_bytes: int) -> Place:
        """Room for activations."""
        with self._asking(n_bytes):
            return self._inputs.place(n_bytes)

    def result_place(self, number: int, n_bytes: int) -> Place:
        """Room for the result of the product with this number among those of one input."""
        while len(self._results) <= number:
            self._results.append(Scratch(self.device.buffer_type()))
        with self._asking(n_bytes):
            return self._results[number].place(n_bytes)

    def _asking(self, n_bytes: int) -> AbstractContextManager[None]:
        asked = Wanted("what it multiplies its rows with, and the results", n_bytes, is_shared=True)
        return asking(self.device, asked)

    def dispose(self) -> None:
        """Finish the queue and give the memory back."""
        # A device that refuses even this has nothing left to wait for, and was reported before.
        with contextlib.suppress(cl.Error):
            self.queue.finish()
        memory = (self._scratch, self._inputs, *self._results)
        release_all(scratch.release for scratch in memory)


class TimedCommands(NamedTuple):
    """Commands of which a split's completion tells: on `device`, in the queue of `timed_by`."""

    device: OpenClDevice
    timed_by: OpenClDevice
    first: cl.Event
    last: cl.Event
    source: str = ""
    n_bytes: int = 0


class RowSplit:
    """The steps of a split, bound to the kernels and queues of their devices."""

    is_empty = False

    def __init__(self, device: OpenClDevice, steps: Iterable[Step]) -> None:
        self._device = device
        self._steps = tuple((step, _compiled(device, step)) for step in steps)

    def enqueue(self, queue: cl.CommandQueue) -> tuple[list[cl.Event], list[TimedCommands]]:
        """Queue every step, copies in the main device's `queue`.

        Gives that queue's commands, of which the last ends after everything, and what is timed.
        """
        return _Run(self._device, queue).enqueue(self._steps)


def _compiled(device: OpenClDevice, step: Step) -> CompiledSplit | None:
    if not isinstance(step, Compute):
        return None
    worker = device if step.mate is None else _mate(step).device
    return CompiledSplit(bind_all(worker, step.calls), can_clone=worker.can_clone)


class _Run:
    """One time that the steps are queued."""

    def __init__(self, device: OpenClDevice, queue: cl.CommandQueue) -> None:
        self._device = device
        self._queue = queue
        self._commands: list[cl.Event] = []
        self._timed: list[TimedCommands] = []
        self._last_of: dict[RowMate, cl.Event] = {}
        self._i_own = -1
        """What the main device computes since it last copied, among `_timed`; -1 for nothing."""

    def enqueue(
        self, steps: Iterable[tuple[Step, CompiledSplit | None]]
    ) -> tuple[list[cl.Event], list[TimedCommands]]:
        for step, compiled in steps:
            if isinstance(step, Send):
                self._send(step)
            elif isinstance(step, Take):
                self._take(step)
            else:
                assert compiled is not None, step
                self._compute(step, compiled)
        return self._commands, self._timed

    def _compute(self, step: Compute, compiled: CompiledSplit) -> None:
        if step.mate is None:
            events = compiled.enqueue(self._queue)
            self._commands += events
            self._note_own(events)
        else:
            mate = _mate(step)
            events = compiled.enqueue(mate.queue)
            mate.queue.flush()
            self._last_of[mate] = events[-1]
            self._timed.append(TimedCommands(mate.device, mate.device, events[0], events[-1]))

    def _note_own(self, events: list[cl.Event]) -> None:
        """What the main device computes between two copies follows without a wait: it is one."""
        if self._i_own < 0:
            self._i_own = len(self._timed)
            self._timed.append(TimedCommands(self._device, self._device, events[0], events[-1]))
        else:
            self._timed[self._i_own] = self._timed[self._i_own]._replace(last=events[-1])

    def _send(self, step: Send) -> None:
        """Copy activations; what the mate computes next waits for them."""
        mate = _mate(step)
        command = cl.enqueue_copy(
            self._queue,
            _memory(step.target),
            _memory(step.source),
            byte_count=step.n_bytes,
            src_offset=step.source.offset,
            dst_offset=step.target.offset,
        )
        self._queue.flush()
        cl.enqueue_barrier(mate.queue, wait_for=[command])
        self._note_copy(command, mate.device, self._device, step.n_bytes)

    def _take(self, step: Take) -> None:
        """Copy a mate's rows into the result once they are there."""
        mate = _mate(step)
        command = cl.enqueue_copy(
            self._queue,
            _memory(step.target),
            _memory(step.source),
            src_origin=(step.source.offset, 0, 0),
            dst_origin=(step.target.offset, 0, 0),
            region=(step.n_bytes, step.n_columns, 1),
            src_pitches=(step.n_bytes,),
            dst_pitches=(step.pitch,),
            wait_for=[self._last_of[mate]],
        )
        self._note_copy(command, self._device, mate.device, step.n_bytes * step.n_columns)

    def _note_copy(
        self, command: cl.Event, target: OpenClDevice, source: OpenClDevice, n_bytes: int
    ) -> None:
        self._commands.append(command)
        self._i_own = -1
        timed = TimedCommands(target, self._device, command, command, source.name, n_bytes)
        self._timed.append(timed)


def shard_times(timed: Iterable[TimedCommands]) -> tuple[ShardTime, ...]:
    """When each shard of a split was computed or copied; all of them must be done.

    Each clock is read once: what it may drift meanwhile is less than what a reading may be off.
    """
    shifts: dict[OpenClDevice, int] = {}
    times: list[ShardTime] = []
    for run in timed:
        start_ns, end_ns = command_ns(run.first, START), command_ns(run.last, END)
        if run.timed_by not in shifts:
            shifts[run.timed_by] = run.timed_by.events.clock.to_host(end_ns) - end_ns
        shift = shifts[run.timed_by]
        times.append(
            ShardTime(run.device.name, start_ns + shift, end_ns + shift, run.source, run.n_bytes)
        )
    return tuple(times)


def _mate(step: Step) -> RowMate:
    assert isinstance(step.mate, RowMate), step
    return step.mate


def _memory(place: Place) -> cl.Buffer:
    assert isinstance(place.buffer, OpenClBuffer), place.buffer
    return place.buffer.memory
