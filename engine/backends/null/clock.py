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
    """The way into a device's memory or out of it: one transfer at a time, whatever the other end.

    A transfer begins as soon as there is room: what waits for its stream does not hold up what
    others send meanwhile.
    """

    _taken: list[Interval] = field(default_factory=list)
    """By start, without overlaps."""

    def free_ns(self, duration_ns: int, *, after_ns: int) -> int:
        """When it is free for long enough for the first time from `after_ns` on."""
        start_ns = after_ns
        for other in self._taken:
            if other.start_ns - start_ns >= duration_ns:
                break
            start_ns = max(start_ns, other.end_ns)
        return start_ns

    def take(self, mine: Interval) -> None:
        """Have it for a time in which it is free."""
        bisect.insort(self._taken, mine)

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

    def way(self, source: str, target: str) -> tuple[Link, ...]:
        """The links that a transfer takes from one device to another, by their names.

        HOST is the host, whose memory serves any number of devices at once.
        """
        ends = ((source, "out"), (target, "in"))
        return tuple(self._links.setdefault(end, Link()) for end in ends if end[0] != HOST)

    def work(
        self,
        duration_ns: int,
        *,
        stream: Stream | None = None,
        way: tuple[Link, ...] = (),
        after_ns: int = 0,
    ) -> Interval:
        """When work takes place that the host asks for now.

        `stream` (optional) has it in its turn, the links of `way` (optional) all at once for
        itself; `after_ns` (optional) is the end of what else it waits for.
        """
        start_ns = max(self.now_ns, after_ns, 0 if stream is None else stream.free_ns)
        for link in way:
            link.forget(self.now_ns)
        start_ns = _free_together(way, duration_ns, start_ns)
        done = Interval(start_ns, start_ns + duration_ns)
        for link in way:
            link.take(done)
        if stream is not None:
            stream.wait(done.end_ns)
        return done


def _free_together(way: tuple[Link, ...], duration_ns: int, after_ns: int) -> int:
    """When all links are free for long enough for the first time from `after_ns` on."""
    while True:
        start_ns = after_ns
        for link in way:
            start_ns = link.free_ns(duration_ns, after_ns=start_ns)
        if start_ns == after_ns:
            return start_ns
        after_ns = start_ns
