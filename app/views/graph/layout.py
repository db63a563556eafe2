"""Where everything stands on the canvas, in logical px of the canvas. Pure; no placement in it.

    heads        fixed at the top
    "in", layers, "out"     scroll; one layer may be open
    row labels   fixed at the left;   gutter   fixed at the right

Zoom widens columns and rows; text keeps its size.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from app.views.graph.block import Block
    from app.views.graph.columns import GraphShape

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.integer[Any]]

HEADS_PX = 32
LEFT_PX = 34
GUTTER_PX = 132
WIDE_GUTTER_PX = 148
WIDE_FROM_PX = 760
BOTTOM_PX = 6
RIGHT_PX = 12
"""Free space right of an opened layer."""

CUT_GAP_PX = 4.0
GAP_PX = 1.5
GROUP_GAP_PX = 6.0
BOX_ROW_PX = 14.0
"""Height of the cells of "in" and "out"."""
BOX_GAP_PX = 6.0
BOX_PX = 44.0
OUT_BOX_PX = 92.0

MIN_ROW_PX = 5.0
MAX_ROW_PX = 22.0
NEAR_ROW_PX = 40.0
COPY_TEXT_PX = 13.0
OPEN_MIN_PX = 116.0
OPEN_MAX_PX = 160.0
OPEN_MARGIN_PX = 5.0
ARROW_PX = 36.0
"""Above an opened layer's nodes: a copy's size and its arrow."""
RESIDUAL_PX = 12.0
NODE_PX = 22.0
MAX_NODE_WIDTH_PX = 84.0
MAX_ZOOM = 16.0


class Detail(enum.IntEnum):
    """How much is drawn, by row height."""

    SPLITS = 0
    """Under 5 px: one rectangle a split."""
    CELLS = 1
    """5 to 11: cells, every fourth layer's number."""
    NUMBERS = 2
    """12 and 13: all numbers."""
    LETTERS = 3
    """14 and up: letters in cells at least 14 px wide."""
    NAMES = 4
    """Near: names in cells, sizes at copies."""


def detail_of(row_px: float) -> Detail:
    """The level of detail for a row height."""
    for detail, least in ((Detail.NAMES, 24), (Detail.LETTERS, 14), (Detail.NUMBERS, 12)):
        if row_px >= least:
            return detail
    return Detail.CELLS if row_px >= MIN_ROW_PX else Detail.SPLITS


@dataclass(frozen=True, slots=True)
class Viewport:
    """What a person made of the canvas: its size, zoom (1 = all fits) and how far it is moved."""

    width: int
    height: int
    zoom: float = 1.0
    x: float = 0.0
    y: float = 0.0
    open_row: int = -1


@dataclass(frozen=True, slots=True, eq=False)
class OpenLayer:
    """The opened layer: one rectangle a node, in the order of the layer's cells."""

    row: int
    top: float
    height: float
    block: Block
    cells: Ints
    rects: Floats
    """[n, 4] x, y, w, h."""

    @property
    def trunk_y(self) -> float:
        """The middle of lane 0."""
        for lane, rect in zip(self.block.lanes, self.rects, strict=True):
            if lane == 0:
                return float(rect[1] + rect[3] / 2)
        return self.top + self.height / 2


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """Rectangles of all cells and rows. `rects` [n_cells, 4]; an opened layer's are its nodes'."""

    viewport: Viewport
    rects: Floats
    column_x: Floats
    column_w: Floats
    gap_before: Floats
    row_y: Floats
    row_h: Floats
    row_px: float
    detail: Detail
    opened: OpenLayer | None
    content_width: float
    content_height: float
    gutter: int
    rows_shown: Ints = field(default_factory=lambda: np.empty(0, np.intp))

    @property
    def matrix_left(self) -> float:
        """Left edge of what scrolls."""
        return LEFT_PX

    @property
    def matrix_right(self) -> float:
        """Right edge of what scrolls: where the gutter begins."""
        return self.viewport.width - self.gutter

    def row_at(self, y: float) -> int:
        """The row under a height, -1 for none."""
        if y < HEADS_PX:
            return -1
        row = int(np.searchsorted(self.row_y, y, side="right")) - 1
        return row if row >= 0 and y < self.row_y[row] + self.row_h[row] else -1

    def cell_at(self, shape: GraphShape, x: float, y: float) -> int:
        """The cell under a point, -1 for none."""
        row = self.row_at(y)
        if row < 0 or x < LEFT_PX:
            return -1
        cells = shape.cells_of_row(row)
        left, top, width, height = self.rects[cells].T
        slack = 0.0 if self.opened is not None and self.opened.row == row else 1.0
        hit = (left - slack <= x) & (x < left + width + slack) & (top <= y) & (y < top + height)
        found = np.flatnonzero(hit)
        return int(cells[found[0]]) if found.size else -1


def layout_of(shape: GraphShape, viewport: Viewport, block: Block | None = None) -> Layout:
    """Place everything; `block` is the drawing of the row to open, if one is open.

    The opened layer closes where less than 5 px a row would be left for the others.
    """
    gutter = WIDE_GUTTER_PX if viewport.width >= WIDE_FROM_PX else GUTTER_PX
    opened = viewport.open_row if block is not None else -1
    open_px = 0.0 if block is None else _open_height(block)
    pitch = _pitch(shape, viewport, open_px, opened)
    if opened >= 0 and pitch < MIN_ROW_PX:
        opened, open_px = -1, 0.0
        pitch = _pitch(shape, viewport, 0.0, -1)
    row_px = pitch - _row_gap(pitch)
    row_y, row_h, content_height = _rows(shape, pitch, row_px, opened, open_px)
    column_x, column_w, gap_before, matrix_width = _columns(shape, viewport, gutter)
    shift_x, shift_y, viewport = _clamped(viewport, matrix_width, content_height, gutter)
    row_y += HEADS_PX - shift_y
    column_x += LEFT_PX - shift_x
    rects = _cell_rects(shape, column_x, column_w, row_y, row_h)
    open_layer = None
    if opened >= 0 and block is not None:
        open_layer = _open_layer(shape, viewport, block, row_y[opened], open_px, shift_x)
        rects[open_layer.cells] = open_layer.rects
    below, above = row_y + row_h > HEADS_PX, row_y < viewport.height
    return Layout(
        viewport=viewport,
        rects=rects,
        column_x=column_x,
        column_w=column_w,
        gap_before=gap_before,
        row_y=row_y,
        row_h=row_h,
        row_px=row_px,
        detail=detail_of(row_px),
        opened=open_layer,
        content_width=matrix_width,
        content_height=content_height,
        gutter=gutter,
        rows_shown=np.flatnonzero(below & above),
    )


def _pitch(shape: GraphShape, viewport: Viewport, open_px: float, opened: int) -> float:
    """Row height with its gap, at this zoom."""
    n_rows = shape.n_layers - (opened >= 0)
    boxes = 2 * (BOX_ROW_PX + BOX_GAP_PX)
    free = viewport.height - HEADS_PX - boxes - open_px - BOTTOM_PX - 2 * _kind_gaps(shape)
    fit = min(free / max(n_rows, 1), MAX_ROW_PX)
    return max(fit, 1.0) * viewport.zoom


def _row_gap(pitch: float) -> float:
    if pitch >= NEAR_ROW_PX:
        return 3.0 + COPY_TEXT_PX
    return 2.0 if pitch >= 9 else 1.0 if pitch >= 4 else 0.0


def _kind_gaps(shape: GraphShape) -> int:
    return 2 if (np.diff(shape.kind[1:-1]) != 0).sum() == 1 else 0


def _open_height(block: Block) -> float:
    n_lanes = block.last_lane - block.first_lane + 1
    wanted = ARROW_PX + n_lanes * (NODE_PX + 5) + RESIDUAL_PX + 2 * OPEN_MARGIN_PX
    return min(max(wanted, OPEN_MIN_PX), OPEN_MAX_PX)


def _rows(
    shape: GraphShape, pitch: float, row_px: float, opened: int, open_px: float
) -> tuple[Floats, Floats, float]:
    """Tops and heights from the top of the content, and its height."""
    pitches = np.full(shape.n_rows, pitch)
    heights = np.full(shape.n_rows, row_px)
    pitches[[0, -1]], heights[[0, -1]] = BOX_ROW_PX + BOX_GAP_PX, BOX_ROW_PX
    if opened >= 0:
        pitches[opened], heights[opened] = open_px + 4, open_px
    if _kind_gaps(shape):
        border = 2 + int(np.flatnonzero(np.diff(shape.kind[1:-1]))[0])
        pitches[border - 1] += 2
    tops = np.concatenate([[0.0], np.cumsum(pitches)[:-1]])
    # Near, the gap above a row holds the sizes of its copies.
    tops[1:-1] += np.where(heights[1:-1] == row_px, pitch - row_px - min(pitch - row_px, 3.0), 0.0)
    return tops, heights, float(tops[-1] + heights[-1] + BOTTOM_PX)


def _columns(
    shape: GraphShape, viewport: Viewport, gutter: int
) -> tuple[Floats, Floats, Floats, float]:
    """Left edges from the left of the content, widths, the gap before each, and the whole width."""
    units = np.array([column.units for column in shape.columns])
    gaps = np.array([CUT_GAP_PX if column.can_cut else GAP_PX for column in shape.columns])
    for group in shape.groups[1:]:
        gaps[group.start] += GROUP_GAP_PX
    if gaps.size:
        gaps[0] = CUT_GAP_PX
    width = (viewport.width - LEFT_PX - gutter) * viewport.zoom
    unit = max((width - gaps.sum()) / max(units.sum(), 1.0), 1.0)
    ends = np.cumsum(units * unit + gaps)
    return ends - units * unit, units * unit, gaps, float(ends[-1]) if ends.size else 0.0


def _clamped(
    viewport: Viewport, width: float, height: float, gutter: int
) -> tuple[float, float, Viewport]:
    """How far the content is moved, kept inside."""
    most_x = max(width - (viewport.width - LEFT_PX - gutter), 0.0)
    most_y = max(height - (viewport.height - HEADS_PX), 0.0)
    x = min(max(viewport.x, 0.0), most_x)
    y = min(max(viewport.y, 0.0), most_y)
    moved = Viewport(viewport.width, viewport.height, viewport.zoom, x, y, viewport.open_row)
    return x, y, moved


def _cell_rects(
    shape: GraphShape, column_x: Floats, column_w: Floats, row_y: Floats, row_h: Floats
) -> Floats:
    rects = np.empty((shape.n_cells, 4))
    is_box = (shape.row == 0) | (shape.row == shape.n_rows - 1)
    inside = ~is_box
    column = shape.column[inside]
    rects[inside, 0] = column_x[column]
    rects[inside, 2] = column_w[column]
    left = column_x[0] if column_x.size else LEFT_PX
    for row, wide in ((0, BOX_PX), (shape.n_rows - 1, OUT_BOX_PX)):
        cells = shape.cells_of_row(row)
        n = len(cells)
        widths = np.full(n, BOX_PX)
        widths[-1:] = wide
        rects[cells, 0] = left + np.arange(n) * (BOX_PX + CUT_GAP_PX)
        rects[cells, 2] = widths
    rects[:, 1] = row_y[shape.row]
    rects[:, 3] = row_h[shape.row]
    return rects


def _open_layer(
    shape: GraphShape, viewport: Viewport, block: Block, top: float, height: float, shift_x: float
) -> OpenLayer:
    cells = shape.cells_of_row(viewport.open_row)
    rank = np.array(block.ranks, float)
    lane = np.array(block.lanes, float) - block.first_lane
    n_lanes = block.last_lane - block.first_lane + 1
    width = (viewport.width - LEFT_PX - RIGHT_PX) * viewport.zoom
    rank_px = width / max(block.n_ranks, 1)
    room = height - ARROW_PX - RESIDUAL_PX - 2 * OPEN_MARGIN_PX
    lane_px = min(room / n_lanes, NODE_PX + 6)
    node_px = min(lane_px - 4, NODE_PX)
    node_w = min(rank_px - 9, MAX_NODE_WIDTH_PX)
    first = top + OPEN_MARGIN_PX + ARROW_PX + (room - n_lanes * lane_px) / 2
    rects = np.empty((len(cells), 4))
    rects[:, 0] = LEFT_PX - shift_x + rank * rank_px + (rank_px - node_w) / 2
    rects[:, 1] = first + lane * lane_px + (lane_px - node_px) / 2
    rects[:, 2] = node_w
    rects[:, 3] = node_px
    return OpenLayer(viewport.open_row, top, height, block, cells, rects)
