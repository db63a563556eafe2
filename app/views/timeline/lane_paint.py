"""Slices, marks and the selection to pixels."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QBrush, QColor, QFontMetricsF, QPen, QPolygonF

from app.theme.colours import Hatch
from app.theme.fonts import TINY_PX, fixed_font, general_font
from app.theme.paint import elide_middle, hatch_brush
from app.views.canvas import RectBatch
from app.views.timeline.slices import Slices, rects, zigzag_rects
from app.views.timeline.store import LaneKind

if TYPE_CHECKING:
    from PySide6.QtGui import QPainter

    from app.views.timeline.lanes import PlacedLane
    from app.views.timeline.scene import Scene

TEXT_PAD_PX = 5
NAMED_PX = 24
NAME_MIN_PX = 56
OUTLINE_PX = 2
CAP_PX = 2
WAIT_PX = 3
ARROW_PX = 5
EDGE_INSET = np.array([0.5, 0.5, -1.0, -1.0])
"""From a filled rectangle to the middle of its outline."""


def lane_colours(scene: Scene, lane: PlacedLane) -> tuple[QColor, QColor, QBrush]:
    """Fill, edge and hatch of a lane's slices."""
    palette = scene.theme.palette
    if lane.key.kind is LaneKind.COPIES:
        return palette.copy_fill, palette.copy_mark, QBrush(Qt.BrushStyle.NoBrush)
    look = scene.looks.get(lane.key.lane)
    if look is None:
        return palette.bg2, palette.line2, QBrush(Qt.BrushStyle.NoBrush)
    hatch = QBrush(Qt.BrushStyle.NoBrush)
    if look.colours.hatch is not Hatch.PLAIN:
        hatch = hatch_brush(look, palette, small=lane.height < 12)
    return look.colours.fill, look.colours.edge, hatch


def paint_slices(painter: QPainter, scene: Scene, lane: PlacedLane, slices: Slices) -> None:
    """One lane: wide slices outlined, thin ones as bars, merged ones with a zig-zag edge."""
    fill, edge, hatch = lane_colours(scene, lane)
    batch = RectBatch()
    y, height = lane.y, lane.height
    wide = slices.wide
    bodies = rects(slices.x0[wide], slices.x1[wide], y, height)
    batch.fill(painter, bodies, QBrush(fill))
    if hatch.style() is not Qt.BrushStyle.NoBrush:
        batch.fill(painter, bodies, hatch)
    batch.outline(painter, bodies + EDGE_INSET, QPen(edge, 1))
    thin = ~wide & ~slices.merged
    batch.fill(painter, rects(slices.x0[thin], slices.x1[thin], y, height), QBrush(edge))
    zigzag = zigzag_rects(slices, y, height)
    batch.fill(painter, zigzag, QBrush(fill))
    caps = zigzag.copy()
    caps[:, 3] = CAP_PX
    batch.fill(painter, caps, QBrush(edge))
    paint_names(painter, scene, lane, slices)


def paint_names(painter: QPainter, scene: Scene, lane: PlacedLane, slices: Slices) -> None:
    """Name and figures inside slices wide enough, else nothing."""
    wide = np.flatnonzero(slices.wide & (slices.x1 - slices.x0 >= NAMED_PX)).tolist()
    if not wide:
        return
    names, figures = general_font(TINY_PX), fixed_font(TINY_PX)
    name_metrics, figure_metrics = QFontMetricsF(names), QFontMetricsF(figures)
    if lane.height < name_metrics.ascent():
        return
    fill, _, hatch = lane_colours(scene, lane)
    plated = hatch.style() is not Qt.BrushStyle.NoBrush
    for i in wide:
        row = int(slices.row[i])
        left = max(float(slices.x0[i]), 0.0) + TEXT_PAD_PX
        room = float(slices.x1[i]) - left - TEXT_PAD_PX
        name = _fitting_name(scene.name(row), name_metrics, room)
        figure = _fitting_figures(scene.figures(row), figure_metrics, room)
        if lane.height < 2 * name_metrics.height():
            figure = "" if name else figure
        lines = [(text, font) for text, font in ((name, names), (figure, figures)) if text]
        line_px = name_metrics.height()
        top = lane.y + (lane.height - line_px * len(lines)) / 2
        for n, (text, font) in enumerate(lines):
            area = QRectF(left, top + n * line_px, room + 2, line_px)
            painter.setFont(font)
            if plated:
                metrics = QFontMetricsF(font)
                plate = QRectF(left - 2, area.top(), metrics.horizontalAdvance(text) + 4, line_px)
                painter.fillRect(plate, fill)
            painter.setPen(scene.theme.palette.ink if n == 0 else scene.theme.palette.ink2)
            painter.drawText(area, Qt.AlignmentFlag.AlignVCenter, text)


def paint_waits(painter: QPainter, scene: Scene, lane: PlacedLane, slices: Slices) -> None:
    """Where the host waited for this device: a grey bar at the lane's foot."""
    y = lane.bottom + 1
    colour = QBrush(scene.theme.palette.ink3)
    RectBatch().fill(painter, rects(slices.x0, slices.x1, y, WAIT_PX), colour)


def paint_marks(painter: QPainter, scene: Scene, width: float, height: float) -> None:
    """What happened at a moment: a line with words at its top."""
    painter.setFont(general_font(TINY_PX))
    metrics = QFontMetricsF(painter.font())
    palette = scene.theme.palette
    for mark in scene.marks:
        x = round(scene.view.x_of(mark.time_ns, width)) + 0.5
        if not 0 <= x <= width:
            continue
        painter.setPen(QPen(palette.ink, 1, Qt.PenStyle.DashLine))
        painter.drawLine(QPointF(x, 0), QPointF(x, height))
        text_px = metrics.horizontalAdvance(mark.text)
        left = x + 4 if x + 8 + text_px < width else x - text_px - 8
        plate = QRectF(left, 1, text_px + 4, metrics.height())
        painter.fillRect(plate, palette.bg1)
        painter.setPen(palette.ink)
        painter.drawText(plate, Qt.AlignmentFlag.AlignCenter, mark.text)


def paint_outline(painter: QPainter, colour: QColor, rect: QRectF) -> None:
    """The frame of something selected, two pixels outside it."""
    painter.setPen(QPen(colour, OUTLINE_PX))
    painter.setBrush(Qt.BrushStyle.NoBrush)
    painter.drawRect(rect.adjusted(-1, -1, 1, 1))


def paint_flow(painter: QPainter, colour: QColor, copy: QRectF, split: QRectF) -> None:
    """An arrow from a copy to the split it is for."""
    down = copy.center().y() < split.center().y()
    x = min(max(copy.center().x(), split.left() + 2), split.right() - 2)
    start = QPointF(copy.center().x(), copy.bottom() if down else copy.top())
    tip = QPointF(x, split.top() if down else split.bottom())
    back = ARROW_PX if down else -ARROW_PX
    between = (start.y() + tip.y()) / 2
    corners = [start, QPointF(start.x(), between), QPointF(x, between), tip]
    painter.setPen(QPen(colour, 1.5))
    painter.setBrush(Qt.BrushStyle.NoBrush)
    painter.drawPolyline(QPolygonF(corners))
    painter.setBrush(colour)
    painter.setPen(Qt.PenStyle.NoPen)
    half = ARROW_PX * 0.7
    head = [tip, tip + QPointF(-half, -back), tip + QPointF(half, -back)]
    painter.drawPolygon(QPolygonF(head))


def paint_copy_label(
    painter: QPainter, scene: Scene, rows: list[int], rect: QRectF, width: float
) -> None:
    """What a selected copy copied, beside its last piece: name, size, time, rate."""
    names, figures = general_font(TINY_PX), fixed_font(TINY_PX)
    name, figure = scene.name(rows[0]), scene.figures(*rows)
    name_px = QFontMetricsF(names).horizontalAdvance(name)
    figure_px = QFontMetricsF(figures).horizontalAdvance(figure)
    text_px = max(name_px, figure_px) + 4
    left = rect.right() + 6 if rect.right() + 6 + text_px < width else rect.left() - 6 - text_px
    palette = scene.theme.palette
    plate = QRectF(left, rect.top(), text_px, rect.height())
    painter.fillRect(plate, palette.bg1)
    half = rect.height() / 2
    painter.setFont(names)
    painter.setPen(palette.ink)
    painter.drawText(plate.adjusted(2, 0, 0, -half), Qt.AlignmentFlag.AlignVCenter, name)
    painter.setFont(figures)
    painter.setPen(palette.copy_text)
    painter.drawText(plate.adjusted(2, half, 0, 0), Qt.AlignmentFlag.AlignVCenter, figure)


def _fitting_name(name: str, metrics: QFontMetricsF, room: float) -> str:
    if metrics.horizontalAdvance(name) <= room:
        return name
    return elide_middle(name, metrics, room) if room >= NAME_MIN_PX else ""


def _fitting_figures(figures: str, metrics: QFontMetricsF, room: float) -> str:
    for text in (figures, figures.split("  ", maxsplit=1)[0]):
        if metrics.horizontalAdvance(text) <= room:
            return text
    return ""
