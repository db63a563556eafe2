"""Level of detail for one lane of a timeline: spans merged by 2, 4, 8, ...

A merged block stands for 2^k neighbours in start order: it begins where the first of them begins
and ends where the last of them ends. Drawing walks down from the coarsest level and opens a block
only while it is wider than a pixel, so the work follows the number of pixels, not of spans.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from engine.trace.snapshot import start_order

if TYPE_CHECKING:
    import numpy.typing as npt

    Ints = npt.NDArray[np.int64]
    Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Level:
    """Blocks of 2^k spans: where each begins and ends, and the time in it that is covered.

    `busy_ns` adds the durations, so it may exceed end - start where spans overlap.
    """

    start_ns: Ints
    end_ns: Ints
    busy_ns: Ints


@dataclass(frozen=True, slots=True, eq=False)
class LanePyramid:
    """A lane's spans by start. `index` is the caller's number of each; level 0 holds them all."""

    index: Ints
    levels: tuple[Level, ...]

    @property
    def n_spans(self) -> int:
        """Number of spans."""
        return len(self.index)


@dataclass(frozen=True, slots=True, eq=False)
class Visible:
    """Rectangles to draw, left to right; one row each.

    x0, x1: pixels from the left edge, clipped to the view. `first_index`: the caller's number of
    the first span in it. `n_merged`: 1 for a span drawn as itself. `busy`: the share of the
    rectangle's time that its spans cover, 0 to 1, before clipping; a single span has 1.
    """

    x0: Floats
    x1: Floats
    first_index: Ints
    n_merged: Ints
    busy: Floats


def lane_pyramid(start_ns: Ints, end_ns: Ints, index: Ints) -> LanePyramid:
    """The pyramid of spans in any order."""
    order = start_order(start_ns, end_ns)
    start, end = start_ns[order], end_ns[order]
    levels = [Level(start, end, end - start)]
    while len(levels[-1].start_ns) > 1:
        levels.append(_merged(levels[-1]))
    return LanePyramid(index[order], tuple(levels))


def appended(pyramid: LanePyramid, start_ns: Ints, end_ns: Ints, index: Ints) -> LanePyramid:
    """The pyramid with more spans; only the blocks they touch are merged again.

    Falls back to a full build when a new span starts before the last known one.
    """
    if not pyramid.n_spans:
        return lane_pyramid(start_ns, end_ns, index)
    order = start_order(start_ns, end_ns)
    base = pyramid.levels[0]
    start = np.concatenate((base.start_ns, start_ns[order]))
    end = np.concatenate((base.end_ns, end_ns[order]))
    all_index = np.concatenate((pyramid.index, index[order]))
    if len(start_ns) and start_ns[order[0]] < base.start_ns[-1]:
        return lane_pyramid(start, end, all_index)
    levels = [Level(start, end, end - start)]
    n_kept = pyramid.n_spans
    while len(levels[-1].start_ns) > 1:
        n_kept //= 2
        level = len(levels)
        old = pyramid.levels[level] if level < len(pyramid.levels) else None
        levels.append(_merged_after(levels[-1], old, n_kept))
    return LanePyramid(all_index, tuple(levels))


def visible(pyramid: LanePyramid, t0_ns: float, t1_ns: float, n_pixels: int) -> Visible:
    """What of the lane to draw between two moments, at most a few rectangles a pixel.

    t0_ns < t1_ns; n_pixels > 0. Spans that touch an edge of the view from outside are left out.
    """
    assert t0_ns < t1_ns, (t0_ns, t1_ns)
    assert n_pixels > 0, n_pixels
    pixel_ns = (t1_ns - t0_ns) / n_pixels
    first, n_merged, start, end, busy = _opened(pyramid, t0_ns, t1_ns, pixel_ns)
    group = _pixel_groups(_pixels(start, t0_ns, pixel_ns), _pixels(end, t0_ns, pixel_ns))
    if len(group) < len(first):
        first, start = first[group], start[group]
        n_merged, busy = np.add.reduceat(n_merged, group), np.add.reduceat(busy, group)
        end = np.maximum.reduceat(end, group)
    length = np.maximum(end - start, 1)
    return Visible(
        x0=np.clip(_pixels(start, t0_ns, pixel_ns), 0.0, n_pixels),
        x1=np.clip(_pixels(end, t0_ns, pixel_ns), 0.0, n_pixels),
        first_index=pyramid.index[first],
        n_merged=n_merged,
        busy=np.where(n_merged == 1, 1.0, np.minimum(busy / length, 1.0)),
    )


def _pixels(times_ns: Ints, t0_ns: float, pixel_ns: float) -> Floats:
    pixels: Floats = (times_ns - np.float64(t0_ns)) / pixel_ns
    return pixels


def _opened(
    pyramid: LanePyramid, t0_ns: float, t1_ns: float, pixel_ns: float
) -> tuple[Ints, Ints, Ints, Ints, Ints]:
    """Blocks in view, opened until they are a pixel or a span: first, n, start, end, busy."""
    parts: list[tuple[Ints, Ints, Ints, Ints, Ints]] = []
    blocks = np.zeros(1 if pyramid.n_spans else 0, np.int64)
    for k in range(len(pyramid.levels) - 1, -1, -1):
        level = pyramid.levels[k]
        start, end = level.start_ns[blocks], level.end_ns[blocks]
        in_view = (end >= t0_ns) & (start <= t1_ns) if k else _shown(start, end, t0_ns, t1_ns)
        wide = in_view & (end - start > pixel_ns) if k else np.zeros(len(blocks), np.bool_)
        drawn = blocks[in_view & ~wide]
        first = drawn << k
        n_merged = np.minimum(1 << k, pyramid.n_spans - first)
        parts.append(
            (first, n_merged, level.start_ns[drawn], level.end_ns[drawn], level.busy_ns[drawn])
        )
        if k:
            blocks = _children(blocks[wide], len(pyramid.levels[k - 1].start_ns))
    return _in_lane_order(parts)


def _shown(start: Ints, end: Ints, t0_ns: float, t1_ns: float) -> npt.NDArray[np.bool_]:
    """Whether a span shares time with the view; one without length counts where it stands."""
    inside = (end > t0_ns) & (start < t1_ns)
    shown: npt.NDArray[np.bool_] = inside | ((start == end) & (start >= t0_ns) & (start <= t1_ns))
    return shown


def _children(blocks: Ints, n_below: int) -> Ints:
    children = np.concatenate((2 * blocks, 2 * blocks + 1))
    return children[children < n_below]


def _in_lane_order(
    parts: list[tuple[Ints, Ints, Ints, Ints, Ints]],
) -> tuple[Ints, Ints, Ints, Ints, Ints]:
    empty = np.zeros(0, np.int64)
    first, n_merged, start, end, busy = (
        np.concatenate([empty, *(part[i] for part in parts)]) for i in range(5)
    )
    order = np.argsort(first, kind="stable")
    return first[order], n_merged[order], start[order], end[order], busy[order]


def _pixel_groups(x0: Floats, x1: Floats) -> Ints:
    """Where groups begin: neighbours narrower than a pixel that start in one pixel are a group."""
    narrow = x1 - x0 < 1.0
    pixel = np.floor(x0)
    same = narrow[1:] & narrow[:-1] & (pixel[1:] == pixel[:-1])
    begins = np.flatnonzero(np.concatenate(([True], ~same))) if len(x0) else np.zeros(0)
    return begins.astype(np.int64)


def _merged(level: Level) -> Level:
    pairs = np.arange(0, len(level.start_ns), 2)
    return Level(
        level.start_ns[pairs],
        np.maximum.reduceat(level.end_ns, pairs),
        np.add.reduceat(level.busy_ns, pairs),
    )


def _merged_after(below: Level, old: Level | None, n_kept: int) -> Level:
    """The level over `below`; its first `n_kept` blocks are known from `old`."""
    if old is None or n_kept == 0:
        return _merged(below)
    rest = Level(
        below.start_ns[2 * n_kept :], below.end_ns[2 * n_kept :], below.busy_ns[2 * n_kept :]
    )
    new = _merged(rest) if len(rest.start_ns) else rest
    return Level(
        np.concatenate((old.start_ns[:n_kept], new.start_ns)),
        np.concatenate((old.end_ns[:n_kept], new.end_ns)),
        np.concatenate((old.busy_ns[:n_kept], new.busy_ns)),
    )
