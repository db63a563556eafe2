"""The critical path of a step: the chain of spans that bounded it. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from engine.trace.chains import Chains
    from engine.trace.lanes import Thing


class PathPiece(NamedTuple):
    """A piece of a step's time and what took it, ns of the host's clock.

    Of kind STEP: the host between other things, setting inputs, launching work, reading results.
    """

    start_ns: int
    end_ns: int
    thing: Thing

    @property
    def duration_ns(self) -> int:
        """Its length."""
        return self.end_ns - self.start_ns


def critical_path(chains: Chains, step: int) -> tuple[PathPiece, ...]:
    """What bounded a step, by time: pieces without gaps that add up to the step's wall time.

    From the step's end backwards: of the things that each one waited for, the one that ended last.
    Where steps overlap, pieces may belong to earlier ones. Empty while the step has not ended.
    """
    frame = chains.steps.get(step)
    if frame is None:
        return ()
    found = [
        PathPiece(piece.start_ns, piece.end_ns, piece.thing or frame.thing)
        for piece in chains.before_end(step)
    ]
    return tuple(reversed(found))
