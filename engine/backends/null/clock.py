"""VirtualClock: time of devices on paper, which work at the same time. No threads.

What is queued has its start and its end as soon as it is queued: it begins when the host has
called, when what came before in its stream and what it waits for is done, and when the link that it
takes is free. Only calls and waits move the host's own time.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass, field
from typing import NamedTuple

CALL_NS = 500
"""What it costs the host to queue something."""

HOST = ""
"""The host as one end of a link."""


class Interval(NamedTuple):
    """From start to end, ns of a virtual clock."""

    start_ns: int
    end_ns: int


@dataclass(slots=True)
class Stream:
    """Work in order: what comes next begins at `free_ns` at the earliest."""

    free_ns: int = 0

    def wait(self, until_ns: int) -> None:
        """Let nothing begin before `until_ns`."""
        self.free_ns = max(self.free_ns, until_ns)


@dataclass(slots=True)
class Link:
    """The way from one memory to another: one transfer at a time, each as soon as there is room.

    What waits for its stream does not hold up what others send meanwhile.
    """

    _taken: list[Interval] = field(default_factory=list)
    """By start, without overlaps."""

    def take(self, duration_ns: int, *, after_ns: int) -> Interval:
        """The first time from `after_ns` on in which the link is free for long enough."""
        start_ns = after_ns
        for other in self._taken:
            if other.start_ns - start_ns >= duration_ns:
                break
            start_ns = max(start_ns, other.end_ns)
        mine = Interval(start_ns, start_ns + duration_ns)
        bisect.insort(self._taken, mine)
        return mine

    def forget(self, before_ns: int) -> None:
        """Leave out what is over: nothing begins before the host's own time."""
        while self._taken and self._taken[0].end_ns <= before_ns:
            del self._taken[0]


@dataclass(slots=True)
class VirtualClock:
    """The host's time, ns since an arbitrary start, and the links between memories."""

    now_ns: int = 0
    _links: dict[tuple[str, str], Link] = field(default_factory=dict)

    def read(self) -> int:
        """The host's time: in place of `time.monotonic_ns`."""
        return self.now_ns

    def call(self) -> None:
        """Take the time of a call that queues something."""
        self.now_ns += CALL_NS

    def wait(self, until_ns: int) -> None:
        """Let the host block until then."""
        self.now_ns = max(self.now_ns, until_ns)

    def link(self, source: str, target: str) -> Link:
        """The way from one device to another, by their names; HOST is the host."""
        return self._links.setdefault((source, target), Link())

    def work(
        self,
        duration_ns: int,
        *,
        stream: Stream | None = None,
        link: Link | None = None,
        after_ns: int = 0,
    ) -> Interval:
        """When work takes place that the host asks for now.

        `stream` (optional) has it in its turn, `link` (optional) for itself; `after_ns` (optional)
        is the end of what else it waits for.
        """
        ready_ns = max(self.now_ns, after_ns, 0 if stream is None else stream.free_ns)
        done = Interval(ready_ns, ready_ns + duration_ns)
        if link is not None:
            link.forget(self.now_ns)
            done = link.take(duration_ns, after_ns=ready_ns)
        if stream is not None:
            stream.wait(done.end_ns)
        return done
