"""Chains: how each span came to begin when it did, and so what held up a device. Pure.

Walking from a span to that which ended last of what it waited for, see `causes`, gives a chain of
pieces without gaps; time in which nothing that it waits for runs is the host's.
"""

from __future__ import annotations

import bisect
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from engine.trace.causes import INNER, Causes, Row
from engine.trace.lanes import Thing, device_lanes
from engine.trace.records import SpanKind

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from engine.core.table import PlanTable
    from engine.trace.records import Spans

MAX_SPANS = 20_000
"""Of a longer run the last steps are looked at: all of it would keep people waiting."""


class Piece(NamedTuple):
    """A piece of a chain. `thing` is None for the host between steps.

    A split on HOST_LANE is the host launching its pieces. `step` is the one that it belongs to;
    between steps the one that follows.
    """

    start_ns: int
    end_ns: int
    thing: Thing | None
    step: int


def last_steps(spans: Spans, most: int = MAX_SPANS) -> Spans:
    """The spans of as many of the last steps as have at most `most` spans together, at least one.

    spans: without those of nodes.
    """
    if len(spans) <= most:
        return spans
    steps = np.sort(spans["step"])
    first = min(int(steps[-most - 1]), int(steps[-1]) - 1)
    kept: Spans = spans[spans["step"] > first]
    return kept


class Chains:
    """The chains of a trace.

    `spans` hold whole steps, together with those that overlap them; see `Causes` for `plans`.
    """

    def __init__(self, spans: Spans, plans: Mapping[int, PlanTable]) -> None:
        self.spans = spans[spans["kind"] != SpanKind.NODE]
        """All but those of single nodes."""
        self.lanes = device_lanes(self.spans)
        """The devices that computed."""
        self.plans = plans
        self._causes = Causes(self.spans, plans)
        self.steps = self._causes.steps
        """The finished steps."""
        self._frames = sorted(self.steps.values(), key=lambda row: (row.start_ns, row.step))
        self._starts = [row.start_ns for row in self._frames]

    def work_on(self, lane: int) -> list[Row]:
        """What a device computed, by start."""
        return self._causes.work_on(lane)

    def before(self, row: Row, until_ns: int) -> Iterator[Piece]:
        """The chain that led to a span, from its start backwards to `until_ns`, without gaps."""
        cause = self._causes.of(row, row.start_ns, set())
        yield from self._walk(row, row.start_ns, until_ns, cause)

    def before_end(self, step: int) -> Iterator[Piece]:
        """The chain that led to the end of a finished step, backwards to its start."""
        frame = self.steps[step]
        yield from self._walk(frame, frame.end_ns, frame.start_ns, self._causes.last_of(step))

    def _walk(self, row: Row, at_ns: int, until_ns: int, cause: Row | None) -> Iterator[Piece]:
        """Pieces from `at_ns` backwards, where `row` waited for `cause`."""
        seen: set[int] = set()
        while cause is not None and at_ns > until_ns:
            end_ns = max(min(cause.end_ns, at_ns), until_ns)
            if end_ns < at_ns:
                yield from self._gap(row, end_ns, at_ns)
            row, at_ns = cause, end_ns
            last = self._causes.last_inside(cause, end_ns)
            start_ns = min(cause.start_ns, end_ns) if last is None else min(last.end_ns, end_ns)
            start_ns = max(start_ns, until_ns)
            if start_ns < end_ns:
                thing = cause.launching if self._causes.is_joint(cause) else cause.thing
                yield Piece(start_ns, end_ns, thing, cause.step)
            at_ns = start_ns
            seen.add(id(cause))
            cause = self._causes.of(cause, at_ns, seen) if last is None else last
        if at_ns > until_ns:
            yield from self._gap(row, until_ns, at_ns)

    def _gap(self, row: Row, start_ns: int, end_ns: int) -> Iterator[Piece]:
        """Time before `row` in which nothing that it waited for ran."""
        split = self._causes.split_around(row) if row.kind in INNER else None
        if split is not None:
            yield Piece(start_ns, end_ns, split.launching, split.step)
        else:
            yield from self._host_pieces(start_ns, end_ns, row.step)

    def _host_pieces(self, start_ns: int, end_ns: int, step: int) -> Iterator[Piece]:
        """The host's time: within steps, `step` before others, and between them."""
        while end_ns > start_ns:
            frame = self._frame_at(end_ns, step)
            if frame is None:
                yield Piece(start_ns, end_ns, None, step)
                return
            if frame.end_ns < end_ns:
                yield Piece(max(frame.end_ns, start_ns), end_ns, None, step)
                end_ns = max(frame.end_ns, start_ns)
            begin_ns = max(frame.start_ns, start_ns)
            if begin_ns < end_ns:
                yield Piece(begin_ns, end_ns, frame.thing, frame.step)
            end_ns = min(begin_ns, end_ns)

    def _frame_at(self, end_ns: int, step: int) -> Row | None:
        """The step whose time ends at `end_ns` or holds it; else the last that begins before."""
        mine = self.steps.get(step)
        if mine is not None and mine.start_ns < end_ns <= mine.end_ns:
            return mine
        i = bisect.bisect_left(self._starts, end_ns)
        return self._frames[i - 1] if i else None
