"""What painters share: hatch, badges, elision."""

from __future__ import annotations

import enum

from PySide6.QtCore import QBuffer, QByteArray, QIODevice, QPointF, QRectF, Qt
from PySide6.QtGui import QBrush, QColor, QFont, QFontMetricsF, QImage, QPainter, QPen, QPixmap

from app.theme.colours import DeviceLook, Hatch, Palette
from app.theme.fonts import general_font

BADGE_PX = 16
TABLE_BADGE_PX = 14

TONE_ALPHA = 0.5
"""How strong the marks of a tone are: weaker than any device's."""

_HATCH_ALPHA = {"light": 0.45, "dark": 0.55}


class Tone(enum.StrEnum):
    """A faint pattern for time in which nothing is done, so that it is no device's."""

    RISING = "rising"
    LEVEL = "level"
    DOTS = "dots"


def tone_brush(tone: Tone, colour: QColor) -> QBrush:
    """A tone as a tiled brush, transparent between its marks. Make it once a paint."""
    faint = QColor(colour)
    faint.setAlphaF(TONE_ALPHA)
    if tone is Tone.DOTS:
        return QBrush(_dots(faint, 6))
    if tone is Tone.RISING:
        return QBrush(_lines(faint, small=True, crossed=False))
    image, painter = _tile(5)
    painter.fillRect(QRectF(0, 2, 5, 1), faint)
    painter.end()
    return QBrush(image)


def hatch_brush(look: DeviceLook, palette: Palette, *, small: bool = False) -> QBrush:
    """A device's pattern as a tiled brush, transparent between the marks; `NoBrush` for plain.

    Brushes are fixed to the painter's origin, so neighbours join. `small` is for shapes under 12 px
    height. Make it once a paint, not once a shape.
    """
    colour = QColor(look.colours.edge)
    colour.setAlphaF(_HATCH_ALPHA[palette.name])
    hatch = look.colours.hatch
    if hatch is Hatch.PLAIN:
        return QBrush(Qt.BrushStyle.NoBrush)
    if hatch is Hatch.DOTS:
        return QBrush(_dots(colour, 4 if small else 5))
    return QBrush(_lines(colour, small=small, crossed=hatch is Hatch.CROSS))


def paint_badge(painter: QPainter, rect: QRectF, look: DeviceLook) -> None:
    """Draw a device's letter on its colour, filling `rect` (16 px square, 14 in tables)."""
    painter.save()
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    painter.setPen(Qt.PenStyle.NoPen)
    painter.setBrush(look.colours.base)
    painter.drawRoundedRect(rect, 3, 3)
    painter.setFont(general_font(max(8, round(rect.height() * 0.66)), QFont.Weight.Bold))
    painter.setPen(look.colours.on_base)
    painter.drawText(rect, Qt.AlignmentFlag.AlignCenter, look.letter)
    painter.restore()


def badge_pixmap(look: DeviceLook, size_px: int = BADGE_PX, ratio: float = 1.0) -> QPixmap:
    """A badge as a picture; `ratio` is the screen's device pixel ratio."""
    pixmap = QPixmap(round(size_px * ratio), round(size_px * ratio))
    pixmap.setDevicePixelRatio(ratio)
    pixmap.fill(Qt.GlobalColor.transparent)
    painter = QPainter(pixmap)
    paint_badge(painter, QRectF(0, 0, size_px, size_px), look)
    painter.end()
    return pixmap


def badge_html(look: DeviceLook, size_px: int = BADGE_PX, ratio: float = 1.0) -> str:
    """A badge as an inline image of rich text, its letter as the alternative text."""
    data = QByteArray()
    buffer = QBuffer(data)
    buffer.open(QIODevice.OpenModeFlag.WriteOnly)
    badge_pixmap(look, size_px, ratio).save(buffer, "PNG")
    code = bytes(data.toBase64().data()).decode("ascii")
    return (
        f'<img src="data:image/png;base64,{code}" alt="{look.letter}" '
        f'width="{size_px}" height="{size_px}" style="vertical-align: middle">'
    )


def elide_middle(text: str, metrics: QFontMetricsF, width_px: float) -> str:
    """`text`, its middle replaced by an ellipsis where it is wider than `width_px`."""
    return metrics.elidedText(text, Qt.TextElideMode.ElideMiddle, width_px)


def _lines(colour: QColor, *, small: bool, crossed: bool) -> QImage:
    # A tile of 8 px puts lines 5.7 px apart at 45 degrees, one of 6 px 4.2 px.
    size = 6 if small else 8
    image, painter = _tile(size)
    painter.setPen(QPen(colour, 1.0 if small else 1.4))
    for shift in (-size, 0, size):
        painter.drawLine(QPointF(shift - 1, size + 1), QPointF(shift + size + 1, -1))
        if crossed:
            painter.drawLine(QPointF(shift - 1, -1), QPointF(shift + size + 1, size + 1))
    painter.end()
    return image


def _dots(colour: QColor, size: int) -> QImage:
    image, painter = _tile(size)
    painter.setPen(Qt.PenStyle.NoPen)
    painter.setBrush(colour)
    painter.drawEllipse(QRectF(size / 2 - 1, size / 2 - 1, 2, 2))
    painter.end()
    return image


def _tile(size: int) -> tuple[QImage, QPainter]:
    image = QImage(size, size, QImage.Format.Format_ARGB32_Premultiplied)
    image.fill(Qt.GlobalColor.transparent)
    painter = QPainter(image)
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    return image, painter
