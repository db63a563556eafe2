"""What a lane shows as rectangles of whole pixels. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from engine.trace.pyramid import Visible

    Floats = npt.NDArray[np.float64]
    Ints = npt.NDArray[np.int64]

WIDE_PX = 3
"""From here on a slice has an outline; below it is a bar in the edge's colour."""

ZIGZAG_PX = np.array([0.0, 1.5, 3.0, 1.5])
"""How far the top edge of merged slices is cut, by pixel."""


@dataclass(frozen=True, slots=True, eq=False)
class Slices:
    """A lane's rectangles, left to right, edges on whole pixels and at least one wide."""

    x0: Floats
    x1: Floats
    row: Ints
    n_merged: Ints
    busy_ns: Floats
    """Time that the slices of a rectangle cover."""

    @property
    def merged(self) -> npt.NDArray[np.bool_]:
        """Which stand for several slices."""
        return self.n_merged > 1

    @property
    def wide(self) -> npt.NDArray[np.bool_]:
        """Which are drawn with an outline."""
        return ~self.merged & (self.x1 - self.x0 >= WIDE_PX)

    def at(self, x: float, reach_px: float = 2.0) -> int:
        """The rectangle at a pixel, the narrowest first; -1 for none within reach."""
        inside = (self.x0 - reach_px <= x) & (x <= self.x1 + reach_px)
        hits = np.flatnonzero(inside)
        if not len(hits):
            return -1
        outside = np.maximum(np.maximum(self.x0[hits] - x, x - self.x1[hits]), 0.0)
        width = self.x1[hits] - self.x0[hits]
        return int(hits[np.lexsort((width, outside))[0]])


def pixel_slices(found: Visible, ns_per_px: float) -> Slices:
    """The rectangles that `found` is drawn as."""
    x0 = np.floor(found.x0 + 0.5)
    x1 = np.maximum(np.floor(found.x1 + 0.5), x0 + 1)
    busy_ns = np.maximum(found.x1 - found.x0, 0.0) * ns_per_px * found.busy
    return Slices(x0, x1, found.first_index, found.n_merged, busy_ns)


def rects(x0: Floats, x1: Floats, y: float, height: float) -> Floats:
    """[n, 4] of x, y, width, height."""
    made = np.empty((len(x0), 4))
    made[:, 0], made[:, 1], made[:, 2], made[:, 3] = x0, y, x1 - x0, height
    return made


def zigzag_rects(slices: Slices, y: float, height: float) -> Floats:
    """Rectangles of merged slices, the top edges cut in a zig-zag."""
    merged = slices.merged
    made = rects(slices.x0[merged], slices.x1[merged], y, height)
    cut = ZIGZAG_PX[made[:, 0].astype(np.int64) % len(ZIGZAG_PX)]
    made[:, 1] += cut
    made[:, 3] -= cut
    return made
