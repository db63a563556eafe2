"""Switch: a check box drawn as a 32 x 16 switch; keys and accessible role are the check box's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QPoint, QRectF, QSize, Qt
from PySide6.QtGui import QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QCheckBox, QWidget

if TYPE_CHECKING:
    from app.theme.theme import Theme

_WIDTH_PX = 32
_HEIGHT_PX = 16
_CLICK_PX = 24
_GAP_PX = 8


class Switch(QCheckBox):
    """A switch with its text to the right."""

    def __init__(self, text: str, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(text, parent)
        self._theme = theme
        theme.changed.connect(self.update)

    def sizeHint(self) -> QSize:
        """The switch, the text, and a target of at least 24 px."""
        text_px = self.fontMetrics().horizontalAdvance(self.text())
        height_px = max(_CLICK_PX, self.fontMetrics().height() + 4)
        return QSize(_WIDTH_PX + (_GAP_PX + text_px if text_px else 0) + 4, height_px)

    def minimumSizeHint(self) -> QSize:
        """As the size hint."""
        return self.sizeHint()

    def hitButton(self, pos: QPoint) -> bool:  # noqa: N802 - Qt's name
        """The whole widget is the target."""
        return self.rect().contains(pos)

    def paintEvent(self, event: QPaintEvent) -> None:
        """Draw track, knob, text and the focus ring."""
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        top = (self.height() - _HEIGHT_PX) / 2
        track = QRectF(2, top, _WIDTH_PX, _HEIGHT_PX)
        self._paint_track(painter, track)
        self._paint_knob(painter, track)
        colours = self._theme.palette
        painter.setPen(colours.ink if self.isEnabled() else colours.ink3)
        text = self.rect().adjusted(_WIDTH_PX + _GAP_PX + 2, 0, 0, 0)
        painter.drawText(text, Qt.AlignmentFlag.AlignVCenter, self.text())
        painter.end()

    def _paint_track(self, painter: QPainter, track: QRectF) -> None:
        colours = self._theme.palette
        if self.hasFocus():
            painter.setPen(QPen(colours.ink, 2))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawRoundedRect(track.adjusted(-1, -3, 1, 3), 10, 10)
        on = self.isChecked() and self.isEnabled()
        border = colours.ctl if self.isEnabled() else colours.line
        painter.setPen(Qt.PenStyle.NoPen if on else QPen(border, 1))
        painter.setBrush(colours.inv if on else colours.track)
        inset = 0.0 if on else 0.5
        painter.drawRoundedRect(track.adjusted(inset, inset, -inset, -inset), 8, 8)

    def _paint_knob(self, painter: QPainter, track: QRectF) -> None:
        colours = self._theme.palette
        checked = self.isChecked()
        left = track.right() - 14 if checked else track.left() + 2
        painter.setPen(Qt.PenStyle.NoPen if checked else QPen(colours.ctl, 1))
        painter.setBrush(colours.invt if checked and self.isEnabled() else colours.bg1)
        painter.drawEllipse(QRectF(left, track.top() + 2, 12, 12))
