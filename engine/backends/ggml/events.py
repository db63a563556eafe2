"""What was queued on a device, and when it was seen to be done.

A library tells no times. Work of a device that computes before it returns ends when the call does.
That of an asynchronous one is seen to be done when somebody waits for its stream or for an event
behind it; so its end is when that was seen, and its start the end of what was queued before it.
"""

from __future__ import annotations

import time
import weakref
from collections import deque
from typing import TYPE_CHECKING

from engine.backend.interface import Completion, Event

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.backends.ggml.base import Base


class QueuedWork(Event):
    """One call that was queued on a stream. `keeps` are objects that it still uses."""

    def __init__(self, stream: WorkQueue, keeps: object) -> None:
        self._stream = stream
        self._keeps: object = keeps
        self._queued_ns = time.monotonic_ns()
        self._done: Completion | None = None
        self._listeners: list[Callable[[Completion], None]] = []

    def synchronize(self) -> None:
        """Wait for the whole stream, unless this was seen to be done."""
        if self._done is None:
            self._stream.synchronize()

    def on_complete(self, fn: Callable[[Completion], None]) -> None:
        """Call `fn` when somebody has waited for this; at once if somebody has."""
        if self._done is None:
            self._listeners.append(fn)
        else:
            fn(self._done)

    def finish(self, after_ns: int, end_ns: int) -> None:
        """It was seen to be done; what came before it was at `after_ns`."""
        self._done = Completion(min(max(self._queued_ns, after_ns), end_ns), end_ns)
        self._keeps = None
        for listener in self._listeners:
            listener(self._done)
        self._listeners.clear()


class WorkQueue:
    """The unfinished work of one stream, in order; one thread uses it."""

    def __init__(self, wait: Callable[[], None]) -> None:
        self._wait = wait
        self._unfinished: deque[QueuedWork] = deque()
        self._last_end_ns = 0

    def add(self, keeps: object) -> QueuedWork:
        """What was queued just now."""
        work = QueuedWork(self, keeps)
        self._unfinished.append(work)
        return work

    @property
    def newest(self) -> QueuedWork | None:
        """The last work that is not known to be done."""
        return self._unfinished[-1] if self._unfinished else None

    def synchronize(self) -> None:
        """Wait until the stream is empty."""
        self._wait()
        self.finish(None)

    def finish(self, last: QueuedWork | None) -> None:
        """Everything up to `last` is done; None: everything."""
        end_ns = time.monotonic_ns()
        if last is not None and last not in self._unfinished:
            return
        while self._unfinished:
            work = self._unfinished.popleft()
            work.finish(self._last_end_ns, end_ns)
            self._last_end_ns = end_ns
            if work is last:
                break


class GgmlEvent(Event):
    """An event of a device, for what its stream had queued when it was recorded.

    Streams of the same `family` can wait for it.
    """

    def __init__(self, base: Base, family: int, handle: int) -> None:
        self._base = base
        self.family, self.handle = family, handle
        self._stream: WorkQueue | None = None
        self._last: QueuedWork | None = None
        weakref.finalize(self, base.api.ggml_backend_event_free, handle).atexit = False

    @property
    def is_recorded(self) -> bool:
        """Whether it stands for anything yet."""
        return self._stream is not None

    def record(self, backend: int, stream: WorkQueue) -> None:
        """Stand for all that was queued so far."""
        self._base.api.ggml_backend_event_record(self.handle, backend)
        self._stream, self._last = stream, stream.newest

    def synchronize(self) -> None:
        """Block until that is done; at once when it stands for nothing."""
        if self._stream is None:
            return
        self._base.api.ggml_backend_event_synchronize(self.handle)
        if self._last is not None:
            self._stream.finish(self._last)

    def on_complete(self, fn: Callable[[Completion], None]) -> None:
        """Call `fn` when that was seen to be done."""
        if self._last is not None:
            self._last.on_complete(fn)
            return
        now_ns = time.monotonic_ns()
        fn(Completion(now_ns, now_ns))
