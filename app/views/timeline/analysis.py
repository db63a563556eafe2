"""What a trace says of several devices, ready to be drawn: idle time, critical path. Pure.

It takes longer than a slot may: an `Analyst` makes it on a thread of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from engine.trace.chains import Chains, last_steps
from engine.trace.critical import PathPiece, critical_path
from engine.trace.idle import Idle, IdleCause, LaneUse, idle_times, lane_uses
from engine.trace.lanes import Overlap, overlap
from engine.trace.links import Link, links
from engine.trace.pyramid import LanePyramid, lane_pyramid
from engine.trace.records import SpanKind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from engine.core.table import PlanTable
    from engine.trace.causes import Row
    from engine.trace.lanes import Thing
    from engine.trace.records import Spans

    Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Analysis:
    """A whole run. `pyramids` have the idle moments by lane and cause, as places in `idle`."""

    chains: Chains
    n_steps: int
    """How many steps were analysed: the last ones of a very long run."""
    idle: tuple[Idle, ...]
    pyramids: Mapping[tuple[int, IdleCause], LanePyramid]
    uses: Mapping[int, LaneUse]
    links: tuple[Link, ...]
    overlap: Overlap

    def link(self, source: int, target: int) -> Link | None:
        """The link from a lane to another; None where nothing was moved."""
        ends = (source, target)
        found = (link for link in self.links if (link.source_lane, link.target_lane) == ends)
        return next(found, None)


@dataclass(frozen=True, slots=True, eq=False)
class Path:
    """The critical path of a step, or of several up to it, as columns, by time."""

    step: int = -1
    pieces: tuple[PathPiece, ...] = ()
    n_steps: int = 1
    """Of how many steps it is: of a pipelined prompt of all that were analysed."""

    @property
    def start_ns(self) -> Ints:
        """Where each piece begins."""
        return np.array([piece.start_ns for piece in self.pieces], np.int64)

    @property
    def end_ns(self) -> Ints:
        """Where each piece ends."""
        return np.array([piece.end_ns for piece in self.pieces], np.int64)

    def at(self, t_ns: float) -> int:
        """The piece at a moment, -1 for none."""
        place = int(np.searchsorted(self.start_ns, t_ns, side="right")) - 1
        return place if place >= 0 and t_ns <= self.pieces[place].end_ns else -1


def analyse(spans: Spans, plans: Mapping[int, PlanTable]) -> Analysis:
    """All of it, from the spans of a run and the plans that it met."""
    spans = last_steps(spans[spans["kind"] != SpanKind.NODE])
    found = Chains(spans, plans)
    idle = idle_times(found)
    return Analysis(
        chains=found,
        n_steps=int(np.count_nonzero(spans["kind"] == SpanKind.STEP)),
        idle=idle,
        pyramids=_pyramids(idle),
        uses={use.lane: use for use in lane_uses(found, idle)},
        links=links(spans),
        overlap=overlap(spans),
    )


def path_of(analysis: Analysis, steps: Sequence[int]) -> Path:
    """The critical path of some steps together, one or several; those not known are left out.

    From the end of the last one backwards: where the path of a step begins, it goes on along the
    one that this waited for. Pieces have no gaps and do not overlap.
    """
    frames = {step: analysis.chains.steps[step] for step in steps if step in analysis.chains.steps}
    if not frames:
        return Path(steps[-1])
    last = step = max(frames, key=lambda step: (frames[step].end_ns, step))
    reach_ns, pieces = frames[last].end_ns, []
    while step >= 0:
        frame = frames[step]
        if frame.end_ns < reach_ns:
            pieces.append(PathPiece(frame.end_ns, reach_ns, frames[step].thing))
        found = critical_path(analysis.chains, step)
        pieces += [
            piece._replace(end_ns=min(piece.end_ns, reach_ns))
            for piece in reversed(found)
            if piece.start_ns < reach_ns
        ]
        reach_ns = frame.start_ns
        step = _step_before(frames, reach_ns, pieces[-1] if pieces else None)
    return Path(last, tuple(reversed(pieces)), len(frames))


def _step_before(frames: Mapping[int, Row], at_ns: int, piece: PathPiece | None) -> int:
    """The step along which a path goes on before a moment; -1 at the start of all of them.

    That of the work that runs then, else the last that had ended: its slot is what was waited for;
    else the last that had begun.
    """
    before = [step for step in frames if frames[step].start_ns < at_ns]
    if piece is not None and piece.thing.step in before:
        return piece.thing.step
    ended = [step for step in before if frames[step].end_ns <= at_ns]
    if ended:
        return max(ended, key=lambda step: frames[step].end_ns)
    return max(before, key=lambda step: frames[step].start_ns, default=-1)


def rows_of_things(spans: Spans, things: Sequence[Thing]) -> Ints:
    """The rows of all spans of some things."""
    steps = np.unique([thing.step for thing in things])
    near: Ints = np.flatnonzero(np.isin(spans["step"], steps))
    wanted = set(things)
    names = ("kind", "lane", "plan_id", "index", "step")
    columns = zip(*(spans[name][near].tolist() for name in names), strict=True)
    mine = np.fromiter((column in wanted for column in columns), np.bool_, len(near))
    return near[mine]


def _pyramids(idle: Sequence[Idle]) -> dict[tuple[int, IdleCause], LanePyramid]:
    places: dict[tuple[int, IdleCause], list[int]] = {}
    for i, moment in enumerate(idle):
        places.setdefault((moment.lane, moment.cause), []).append(i)
    start = np.array([moment.start_ns for moment in idle], np.int64)
    end = np.array([moment.end_ns for moment in idle], np.int64)
    return {
        key: lane_pyramid(start[mine], end[mine], np.array(mine, np.int64))
        for key, mine in places.items()
    }
