"""Idle time and the critical path to pixels."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QBrush, QColor, QPen

from app.theme.paint import Tone, tone_brush
from app.views.canvas import RectBatch
from app.views.timeline.lane_paint import EDGE_INSET, paint_slices
from app.views.timeline.slices import Slices, pixel_slices, rects
from engine.trace.idle import IdleCause
from engine.trace.pyramid import visible
from engine.trace.records import SpanKind

if TYPE_CHECKING:
    import numpy.typing as npt
    from PySide6.QtGui import QPainter

    from app.theme.colours import Palette
    from app.views.timeline.lanes import PlacedLane
    from app.views.timeline.scale import TimeView
    from app.views.timeline.scene import Scene

    Floats = npt.NDArray[np.float64]
    Ints = npt.NDArray[np.int64]

VEIL = 0.72
"""How much of the ground covers what is not on the critical path."""

PATTERN_PX = 3
"""From here on idle time shows why."""

_TONES = {
    IdleCause.COPY: Tone.RISING,
    IdleCause.DEVICE: Tone.DOTS,
    IdleCause.HOST: Tone.LEVEL,
}


def idle_brushes(palette: Palette) -> dict[IdleCause, list[QBrush]]:
    """What idle time is filled with: a ground, and marks by cause; nothing to do has none."""
    brushes = {cause: [QBrush(palette.bg2)] for cause in IdleCause}
    for cause, tone in _TONES.items():
        marks = palette.copy_mark if cause is IdleCause.COPY else palette.ink3
        brushes[cause].append(tone_brush(tone, marks))
    return brushes


def idle_slices(scene: Scene, lane: int, width: int) -> list[tuple[IdleCause, Slices]]:
    """The idle moments of a device in view, by cause."""
    if scene.analysis is None:
        return []
    view = scene.view
    found = []
    for cause in IdleCause:
        pyramid = scene.analysis.pyramids.get((lane, cause))
        if pyramid is not None:
            shown = visible(pyramid, view.t0, view.t1, width)
            if len(shown.x0):
                found.append((cause, pixel_slices(shown, view.span / width)))
    return found


def paint_idle(
    painter: QPainter,
    lane: PlacedLane,
    found: list[tuple[IdleCause, Slices]],
    brushes: dict[IdleCause, list[QBrush]],
) -> None:
    """The idle moments of a lane: between its slices, which are painted after them.

    The ground is one rectangle from the first to the last: slices hide the rest of it. Moments too
    narrow for a pattern have none.
    """
    if not found:
        return
    left = min(slices.x0[0] for _, slices in found)
    right = max(slices.x1[-1] for _, slices in found)
    painter.fillRect(QRectF(left, lane.y, right - left, lane.height), brushes[found[0][0]][0])
    batch = RectBatch()
    for cause, slices in found:
        wide = slices.x1 - slices.x0 >= PATTERN_PX
        areas = rects(slices.x0[wide], slices.x1[wide], lane.y, lane.height)
        for marks in brushes[cause][1:]:
            batch.fill(painter, areas, marks)


def path_rects(scene: Scene, lane: PlacedLane, view: TimeView, width: float) -> Floats:
    """[n, 4] of the pieces of the critical path, whole pixels."""
    x0, x1 = (
        np.round((edge - view.t0) / view.span * width)
        for edge in (scene.path.start_ns, scene.path.end_ns)
    )
    x0, x1 = np.clip(x0, -4, width + 4), np.clip(x1, -4, width + 4)
    return rects(x0, x1, lane.y, lane.height)


def paint_path_lane(painter: QPainter, scene: Scene, lane: PlacedLane, width: float) -> None:
    """The critical path as a band: each piece in the colour of what took its time."""
    areas = path_rects(scene, lane, scene.view, width)
    batch = RectBatch()
    groups: dict[tuple[bool, int], list[int]] = {}
    for i, piece in enumerate(scene.path.pieces):
        is_copy = piece.thing.kind in (SpanKind.COPY, SpanKind.EXCHANGE)
        is_work = piece.thing.kind in (SpanKind.SPLIT, SpanKind.SHARD)
        is_compute = is_work and not piece.thing.is_launching
        groups.setdefault((is_copy, piece.thing.lane if is_compute else -1), []).append(i)
    for (is_copy, device), mine in groups.items():
        fill, edge = _path_colours(scene, device, is_copy=is_copy)
        batch.fill(painter, areas[mine], QBrush(fill))
        wide = areas[mine][areas[mine][:, 2] >= 3]
        batch.outline(painter, wide + EDGE_INSET, QPen(edge, 1))


def paint_path_slices(painter: QPainter, scene: Scene, width: float, height: float) -> None:
    """Dim everything but what is on the critical path."""
    if not scene.path.pieces:
        return
    veil = QColor(scene.theme.palette.bg1)
    veil.setAlphaF(VEIL)
    painter.fillRect(QRectF(0, 0, width, height), veil)
    for lane in scene.lanes:
        rows = scene.path_rows.get(lane.key)
        if rows is not None:
            paint_slices(painter, scene, lane, _row_slices(scene, rows, width))


def paint_idle_outline(painter: QPainter, scene: Scene, rect: QRectF) -> None:
    """The frame of the selected idle moment: dashed, since nothing was done."""
    painter.setPen(QPen(scene.theme.palette.ink, 2, Qt.PenStyle.DashLine))
    painter.setBrush(Qt.BrushStyle.NoBrush)
    painter.drawRect(rect.adjusted(1, 1, -1, -1))


def _path_colours(scene: Scene, device: int, *, is_copy: bool) -> tuple[QColor, QColor]:
    palette = scene.theme.palette
    if is_copy:
        return palette.copy_fill, palette.copy_mark
    look = scene.looks.get(device)
    return (palette.sel, palette.line2) if look is None else (look.colours.fill, look.colours.edge)


def _row_slices(scene: Scene, rows: Ints, width: float) -> Slices:
    """Single spans as slices, those out of view left out."""
    spans, view = scene.store.spans[rows], scene.view
    x0, x1 = ((spans[name] - view.t0) / view.span * width for name in ("start_ns", "end_ns"))
    seen = (x1 >= 0) & (x0 <= width)
    x0, x1 = (
        np.floor(np.clip(x0[seen], 0, width) + 0.5),
        np.floor(np.clip(x1[seen], 0, width) + 0.5),
    )
    n_merged, busy = np.ones(len(x0), np.int64), np.zeros(len(x0))
    return Slices(x0, np.maximum(x1, x0 + 1), rows[seen], n_merged, busy)
