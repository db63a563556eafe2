"""Why devices were idle: every idle moment with what was at fault. Pure.

The time before a piece of work is divided by what that waited for, see `chains`: copies, other
devices, the host. A device that has nothing more to do, or no part in a step, waits for nothing.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from engine.trace.lanes import busy, extent
from engine.trace.records import SpanKind

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from engine.trace.causes import Row
    from engine.trace.chains import Chains, Piece
    from engine.trace.lanes import Thing

Key = tuple[object, ...]


class IdleCause(enum.StrEnum):
    """What an idle device waits for."""

    COPY = "copy"
    DEVICE = "device"
    HOST = "host"
    NOTHING = "nothing"
    """It has no work: behind its last, or in steps in which it has no part."""


class Idle(NamedTuple):
    """A piece of a lane's idle time.

    `fault` is the copy or exchange, the split or share on another lane, or what the host did: PLAN,
    WAIT, SPLIT on HOST_LANE for launching the pieces of a split that devices share, or STEP for
    what else it does within a step; None: between steps, or nothing to do.
    """

    lane: int
    start_ns: int
    end_ns: int
    cause: IdleCause
    fault: Thing | None

    @property
    def duration_ns(self) -> int:
        """Its length."""
        return self.end_ns - self.start_ns


class Blame(NamedTuple):
    """What was at fault for the most time, over all steps; `thing` is of the step it took longest.

    None: the host between steps, or nothing to do.
    """

    thing: Thing | None
    total_ns: int


@dataclass(frozen=True, slots=True)
class LaneUse:
    """How a device spent the run: `busy_ns` and the times of `idle_ns` add up to `wall_ns`.

    `idle_ns` has every cause; `worst` those that took time.
    """

    lane: int
    wall_ns: int
    busy_ns: int
    idle_ns: Mapping[IdleCause, int]
    worst: Mapping[IdleCause, Blame]


def run_time(chains: Chains) -> tuple[int, int]:
    """From the start of the first step to the end of the last; (0, 0) without steps."""
    return extent(chains.spans[chains.spans["kind"] == SpanKind.STEP])


def idle_times(chains: Chains) -> tuple[Idle, ...]:
    """The idle time of each device that computed, by lane and start, within the run's time."""
    return tuple(idle for lane in chains.lanes for idle in _idle_of(chains, lane))


def lane_uses(chains: Chains, idle: Sequence[Idle]) -> tuple[LaneUse, ...]:
    """How each device spent the run; `idle` is what `idle_times` gave."""
    start_ns, end_ns = run_time(chains)
    by_lane = {lane: tuple(mine) for lane, mine in groupby(idle, lambda piece: piece.lane)}
    return tuple(
        LaneUse(
            lane=lane,
            wall_ns=end_ns - start_ns,
            busy_ns=intervals.within(start_ns, end_ns).total_ns,
            idle_ns={
                cause: sum(piece.duration_ns for piece in mine if piece.cause is cause)
                for cause in IdleCause
            },
            worst=_worst(chains, mine),
        )
        for lane, intervals in busy(chains.spans).items()
        for mine in (by_lane.get(lane, ()),)
    )


def _idle_of(chains: Chains, lane: int) -> Iterator[Idle]:
    """The idle time of a device, by start."""
    reach_ns, end_ns = run_time(chains)
    step = min(chains.steps, default=0) - 1
    for work in chains.work_on(lane):
        if min(work.start_ns, end_ns) > reach_ns:
            yield from _joined(_gap(chains, work, (reach_ns, end_ns), after_step=step))
        reach_ns, step = max(reach_ns, work.end_ns), max(step, work.step)
    if reach_ns < end_ns:
        yield Idle(lane, reach_ns, end_ns, IdleCause.NOTHING, None)


def _gap(chains: Chains, work: Row, limits: tuple[int, int], *, after_step: int) -> list[Idle]:
    """What held up `work` within the limits, by start; work of `after_step` came before it."""
    pieces = []
    for piece in chains.before(work, limits[0]):
        end_ns = min(piece.end_ns, limits[1])
        if piece.start_ns < end_ns:
            has_part = not after_step < piece.step < work.step
            cause = _cause(chains, piece) if has_part else IdleCause.NOTHING
            fault = piece.thing if has_part else None
            pieces.append(Idle(work.lane, piece.start_ns, end_ns, cause, fault))
    return pieces[::-1]


def _cause(chains: Chains, piece: Piece) -> IdleCause:
    if piece.thing is None:
        return IdleCause.HOST
    if piece.thing.kind in (SpanKind.COPY, SpanKind.EXCHANGE):
        return IdleCause.COPY
    if piece.thing.kind in (SpanKind.SPLIT, SpanKind.SHARD) and piece.thing.lane in chains.lanes:
        return IdleCause.DEVICE
    return IdleCause.HOST


def _joined(pieces: Sequence[Idle]) -> Iterator[Idle]:
    """Neighbours with the same cause and fault as one."""
    for _, group in groupby(pieces, lambda piece: (piece.cause, piece.fault)):
        first, *rest = group
        yield first._replace(end_ns=rest[-1].end_ns) if rest else first


def _worst(chains: Chains, pieces: Sequence[Idle]) -> dict[IdleCause, Blame]:
    """By cause, what was at fault for the most time."""
    totals: dict[IdleCause, dict[Key, int]] = {}
    longest: dict[Key, Idle] = {}
    for piece in pieces:
        key = _key(chains, piece.fault)
        by_key = totals.setdefault(piece.cause, {})
        by_key[key] = by_key.get(key, 0) + piece.duration_ns
        known = longest.get(key)
        if known is None or piece.duration_ns > known.duration_ns:
            longest[key] = piece
    worst = {cause: max(by_key, key=by_key.__getitem__) for cause, by_key in totals.items()}
    return {cause: Blame(longest[key].fault, totals[cause][key]) for cause, key in worst.items()}


def _key(chains: Chains, thing: Thing | None) -> Key:
    """The same for a split or copy of every step and slot, and for all that the host does alike."""
    if thing is None:
        return ()
    if thing.kind in (SpanKind.STEP, SpanKind.PLAN):
        return (thing.kind,)
    plan = chains.plans.get(thing.plan_id)
    batch = "" if plan is None else plan.batch.value
    return (thing.kind, thing.lane, batch, thing.item_id)
