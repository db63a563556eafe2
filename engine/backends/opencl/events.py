"""Commands of a queue as events; their times on the host's clock."""

from __future__ import annotations

import atexit
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyopencl as cl

from engine.backend.interface import Completion, Event
from engine.backends.opencl.errors import driver_errors

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.backend.interface import ShardTime
    from engine.backends.opencl.clock import DeviceClock

PROFILING = cl.command_queue_properties.PROFILING_ENABLE
"""What a queue is made with so that its commands have times."""

START = cl.profiling_info.START
END = cl.profiling_info.END
COMPLETE = cl.command_execution_status.COMPLETE

LONGEST_WAIT_S = 10.0
"""How long the end of the process waits for callbacks that the driver owes."""


class OwedCallbacks:
    """Counts the callbacks that the driver still owes.

    pyopencl calls back on threads of its own; one that asks for Python's lock while the process
    ends aborts it. So the end of the process waits until all have come.
    """

    def __init__(self) -> None:
        self._owed = 0
        self._changed = threading.Condition()

    def owe(self) -> None:
        """One more is to come."""
        with self._changed:
            self._owed += 1

    def pay(self) -> None:
        """One has come."""
        with self._changed:
            self._owed -= 1
            self._changed.notify_all()

    def wait_until_paid(self, timeout_s: float = LONGEST_WAIT_S) -> bool:
        """Whether none is owed any more within `timeout_s`."""
        with self._changed:
            waited = self._owed > 0
            paid = self._changed.wait_for(lambda: self._owed == 0, timeout_s)
        if waited:
            # The thread that paid last has a few instructions left before it lets go of the lock.
            time.sleep(0.005)
        return paid


@dataclass(frozen=True, slots=True)
class EventSource:
    """What the events of one device have in common."""

    device_name: str
    clock: DeviceClock
    callbacks: OwedCallbacks = field(default_factory=OwedCallbacks)

    def __post_init__(self) -> None:
        atexit.register(self.callbacks.wait_until_paid)


class CommandEvent(Event):
    """A run of commands in one queue, from the start of `first` to the end of `last`.

    `shards` (optional) gives what several devices did for it, once it is done.
    The driver calls back on a thread of its own; whoever learns first that the work is done, that
    thread or one that waits, calls the functions, once each.
    """

    __slots__ = ("_first", "_fns", "_last", "_lock", "_shards", "_source", "_watched")

    def __init__(
        self,
        first: cl.Event,
        last: cl.Event,
        source: EventSource,
        shards: Callable[[], tuple[ShardTime, ...]] = tuple,
    ) -> None:
        self._first = first
        self._last = last
        self._source = source
        self._shards = shards
        self._fns: list[Callable[[Completion], None]] = []
        self._lock = threading.Lock()
        self._watched = False

    @property
    def last(self) -> cl.Event:
        """The command whose end is the end of the work."""
        return self._last

    @property
    def context(self) -> object:
        """The OpenCL context of the queue."""
        return self._last.get_info(cl.event_info.CONTEXT)

    @property
    def is_done(self) -> bool:
        """Whether the device has finished (or given up) the work."""
        return bool(self._last.command_execution_status <= COMPLETE)

    def synchronize(self) -> None:
        """Block until the last command is done."""
        with driver_errors(self._source.device_name, "finish its work"):
            self._last.wait()
        self.fire()

    def on_complete(self, fn: Callable[[Completion], None]) -> None:
        """Call `fn` once the last command is done, at once if it is."""
        with self._lock:
            self._fns.append(fn)
        if self.is_done:
            self.fire()
        elif not self._watched:
            self._watched = True
            self._source.callbacks.owe()
            self._last.set_callback(COMPLETE, self._on_status)

    def fire(self) -> None:
        """Call the waiting functions; the work must be done. Returns after they have run."""
        with self._lock:
            fns, self._fns = self._fns, []
            if fns:
                completion = self._completion()
                for fn in fns:
                    fn(completion)

    def _on_status(self, status: int) -> None:
        """The driver's thread: the work is done or has been given up."""
        del status
        try:
            self.fire()
        finally:
            self._source.callbacks.pay()

    def _completion(self) -> Completion:
        clock = self._source.clock
        try:
            start = clock.to_host(command_ns(self._first, START))
            end = clock.to_host(command_ns(self._last, END))
            shards = self._shards()
        except cl.Error:
            # Work that the device gave up has no times; synchronize() tells the error.
            now_ns = time.monotonic_ns()
            return Completion(now_ns, now_ns)
        return Completion(start, max(start, end), clock_converted=clock.converted, shards=shards)


def command_ns(command: cl.Event, moment: cl.profiling_info) -> int:
    """A time of a finished command on the device's clock."""
    ns = command.get_profiling_info(moment)
    assert isinstance(ns, int), ns
    return ns


class StreamEvent(Event):
    """What `Device.event_new` gives: stands for whatever a stream recorded last."""

    def __init__(self) -> None:
        self._recorded: CommandEvent | None = None
        self.stream: object = None
        """The stream that recorded last."""

    @property
    def recorded(self) -> CommandEvent | None:
        """The marker of the last record; None before the first."""
        return self._recorded

    def record(self, marker: CommandEvent, stream: object) -> None:
        """Stand for `marker`, which is in the queue of `stream`, from now on."""
        self._recorded = marker
        self.stream = stream

    def synchronize(self) -> None:
        """Block until what was recorded is done; returns at once before the first record."""
        if self._recorded is not None:
            self._recorded.synchronize()

    def on_complete(self, fn: Callable[[Completion], None]) -> None:
        """Call `fn` when what was recorded is done."""
        if self._recorded is not None:
            self._recorded.on_complete(fn)
            return
        now_ns = time.monotonic_ns()
        fn(Completion(now_ns, now_ns))
