"""What was moved between lanes: a link is one direction between two of them. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from engine.trace.lanes import merged
from engine.trace.records import SpanKind

if TYPE_CHECKING:
    from engine.trace.records import Spans


@dataclass(frozen=True, slots=True)
class Link:
    """Copies and exchanges from one lane to another, measured.

    `busy_ns` is the time in which at least one is under way. Percentiles of the durations of
    single ones are interpolated linearly; runs of experts count as one each.
    """

    source_lane: int
    target_lane: int
    n_transfers: int
    n_bytes: int
    busy_ns: int
    p50_ns: float
    p95_ns: float

    @property
    def gb_per_s(self) -> float:
        """Bytes over busy time, in units of 1e9 bytes; 0 where no time was measured."""
        return self.n_bytes / self.busy_ns if self.busy_ns else 0.0


def is_transfer(spans: Spans) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Which spans moved bytes from a lane to another."""
    kinds = (SpanKind.COPY, SpanKind.EXCHANGE)
    found: np.ndarray[tuple[int], np.dtype[np.bool_]] = np.isin(spans["kind"], kinds)
    return found


def links(spans: Spans) -> tuple[Link, ...]:
    """The links that were used, by source and target."""
    moves = spans[is_transfer(spans)]
    pairs = np.unique(moves["peer"].astype(np.int64) << 8 | moves["lane"]).tolist()
    return tuple(_link(moves, *divmod(pair, 256)) for pair in pairs)


def _link(moves: Spans, source: int, target: int) -> Link:
    mine = moves[(moves["peer"] == source) & (moves["lane"] == target)]
    durations = np.maximum(mine["end_ns"] - mine["start_ns"], 0)
    p50, p95 = np.percentile(durations, (50, 95)).tolist()
    return Link(
        source_lane=source,
        target_lane=target,
        n_transfers=len(mine),
        n_bytes=int(mine["bytes"].sum()),
        busy_ns=merged(mine["start_ns"], mine["end_ns"]).total_ns,
        p50_ns=p50,
        p95_ns=p95,
    )
