"""Shapes of the memory bars to pixels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QBrush, QColor, QFontMetricsF, QPen

from app.theme.colours import DeviceLook, Hatch, Palette
from app.theme.fonts import SMALL_PX, TINY_PX, fixed_font, general_font
from app.theme.paint import hatch_brush, paint_badge
from app.views.memory.layout import LABEL_PAD_PX, BarLine, Ink, Layout, Rect, Role, Shape, Text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from PySide6.QtGui import QPainter

TINTS = (0.0, 0.15, 0.3, 0.45, 0.0, 0.6, 0.75)
"""How far each part's colour goes from the device's fill to the background."""

CAPACITY_PX = 2


def paint_layout(
    painter: QPainter, layout: Layout, looks: Mapping[int, DeviceLook], palette: Palette
) -> None:
    """Draw all bars."""
    for line in layout.lines:
        _paint_line(painter, line, looks[line.lane], palette)
    if layout.note is not None:
        _paint_text(painter, layout.note, palette)


def q_rect(rect: Rect) -> QRectF:
    """Qt's rectangle."""
    return QRectF(rect.x, rect.y, rect.width, rect.height)


def _paint_line(painter: QPainter, line: BarLine, look: DeviceLook, palette: Palette) -> None:
    paint_badge(painter, q_rect(line.badge), look)
    hatch = hatch_brush(look, palette)
    for shape in line.shapes:
        _paint_shape(painter, shape, look, hatch, palette)
    if line.shapes:
        _paint_marks(painter, line, palette)
    for text in line.texts:
        _paint_text(painter, text, palette)


def _paint_shape(
    painter: QPainter, shape: Shape, look: DeviceLook, hatch: QBrush, palette: Palette
) -> None:
    rect = q_rect(shape.rect)
    fill, edge = _colours(shape, look, palette)
    if shape.role is Role.OVER:
        _paint_over(painter, rect, palette)
        return
    painter.fillRect(rect, fill)
    if shape.role is Role.SEGMENT and look.colours.hatch is not Hatch.PLAIN:
        painter.fillRect(rect, hatch)
    painter.setPen(edge)
    painter.setBrush(Qt.BrushStyle.NoBrush)
    painter.drawRect(rect.adjusted(0.5, 0.5, -0.5, -0.5))
    if shape.label:
        _paint_label(painter, rect, shape.label, fill, palette)


def _colours(shape: Shape, look: DeviceLook, palette: Palette) -> tuple[QColor, QColor]:
    if shape.role is Role.LESS:
        return palette.less.fill, palette.less.mark
    if shape.role is Role.MORE:
        return palette.more.fill, palette.more.mark
    if shape.role is Role.SAME:
        return palette.bg2, palette.line2
    return _mixed(look.colours.fill, palette.bg1, TINTS[shape.tint]), look.colours.edge


def _mixed(one: QColor, other: QColor, share: float) -> QColor:
    pairs = zip(one.getRgb()[:3], other.getRgb()[:3], strict=True)  # type: ignore[index]
    return QColor(*(round(a + (b - a) * share) for a, b in pairs))


def _paint_over(painter: QPainter, rect: QRectF, palette: Palette) -> None:
    painter.fillRect(rect, QBrush(palette.alert, Qt.BrushStyle.BDiagPattern))
    painter.setPen(palette.alert)
    painter.setBrush(Qt.BrushStyle.NoBrush)
    painter.drawRect(rect.adjusted(0.5, 0.5, -0.5, -0.5))


def _paint_label(
    painter: QPainter, rect: QRectF, label: str, fill: QColor, palette: Palette
) -> None:
    """The label on a plain plate, so that no hatch runs through it."""
    font = general_font(TINY_PX)
    painter.setFont(font)
    width = QFontMetricsF(font).horizontalAdvance(label)
    plate = QRectF(rect.left() + LABEL_PAD_PX - 2, rect.top() + 3, width + 4, rect.height() - 6)
    painter.fillRect(plate, fill)
    painter.setPen(palette.ink)
    painter.drawText(plate.adjusted(2, 0, 2, 0), Qt.AlignmentFlag.AlignVCenter, label)


def _paint_marks(painter: QPainter, line: BarLine, palette: Palette) -> None:
    bar = line.shapes[0].rect
    if line.capacity_x is not None:
        pen = QPen(palette.ink, CAPACITY_PX)
        painter.setPen(pen)
        x = round(line.capacity_x)
        painter.drawLine(QPointF(x, bar.y - 4), QPointF(x, bar.y + bar.height + 4))
    if line.break_x is not None:
        painter.setFont(fixed_font(SMALL_PX))
        painter.setPen(palette.ink2)
        area = QRectF(line.break_x, bar.y, 20, bar.height)
        painter.drawText(area, Qt.AlignmentFlag.AlignCenter, "//")


def _paint_text(painter: QPainter, text: Text, palette: Palette) -> None:
    colours = {
        Ink.PLAIN: palette.ink,
        Ink.MUTED: palette.ink2,
        Ink.LESS: palette.less.text,
        Ink.MORE: palette.more.text,
        Ink.ALERT: palette.alert,
    }
    painter.setFont(fixed_font(SMALL_PX) if text.mono else general_font(SMALL_PX))
    painter.setPen(colours[text.ink])
    side = Qt.AlignmentFlag.AlignRight if text.right else Qt.AlignmentFlag.AlignLeft
    painter.drawText(q_rect(text.rect), side | Qt.AlignmentFlag.AlignVCenter, text.text)
