"""The event of a split that several devices share: done when all of them are."""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from engine.backend.interface import Completion, Event, ShardTime

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence


class Work(NamedTuple):
    """What a member does: a stage of a split, with a `source` what it is handed there; a copy."""

    event: Event
    device: str
    source: str = ""
    n_bytes: int = 0


class JointEvent(Event):
    """All the work of a split, at least one item. `last` are those after which all is done.

    Only these are watched while the work goes on.
    """

    __slots__ = ("_last", "_works")

    def __init__(self, works: Sequence[Work], last: Collection[int]) -> None:
        self._works = tuple(works)
        self._last = frozenset(last)

    def synchronize(self) -> None:
        """Block until every member is done."""
        for i_work in self._last:
            self._works[i_work].event.synchronize()

    def on_complete(self, fn: Callable[[Completion], None]) -> None:
        """Call `fn` once every member is done, with the time of each stage and exchange."""
        _Waiting(self._works, self._last, fn).begin()


class _Waiting:
    """Collects what the events of a split say, those of `last` first."""

    def __init__(
        self, works: Sequence[Work], last: frozenset[int], fn: Callable[[Completion], None]
    ) -> None:
        self._works = works
        self._last = last
        self._fn = fn
        self._done: dict[int, Completion] = {}
        self._lock = threading.Lock()

    def begin(self) -> None:
        """Watch the last events."""
        self._watch(self._last)

    def _watch(self, indices: Collection[int]) -> None:
        for i_work in indices:
            self._works[i_work].event.on_complete(partial(self._take, i_work))

    def _take(self, i_work: int, done: Completion) -> None:
        """Any thread: an event is done."""
        with self._lock:
            self._done[i_work] = done
            n_done = len(self._done)
        if n_done == len(self._works):
            self._fn(self._completion())
        elif n_done == len(self._last):
            self._watch(sorted(set(range(len(self._works))) - self._last))

    def _completion(self) -> Completion:
        dones = [self._done[i_work] for i_work in range(len(self._works))]
        shards = [
            ShardTime(work.device, done.start_ns, done.end_ns, work.source, work.n_bytes)
            for work, done in zip(self._works, dones, strict=True)
        ]
        return Completion(
            min(done.start_ns for done in dones),
            max(done.end_ns for done in dones),
            clock_converted=any(done.clock_converted for done in dones),
            shards=tuple(shards),
        )
