"""The title row of the graph: its name, one grey fact, the legend."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QRectF, QSize, Qt
from PySide6.QtGui import QFont, QFontMetricsF, QPainter, QPen
from PySide6.QtWidgets import QSizePolicy, QWidget

from app.theme.fonts import SMALL_PX, TINY_PX, general_font
from app.theme.paint import TABLE_BADGE_PX, paint_badge

if TYPE_CHECKING:
    from PySide6.QtGui import QColor, QPaintEvent

    from app.theme.colours import DeviceLook
    from app.theme.theme import Theme

HEIGHT_PX = 28
PADDING_PX = 12
VIRTUAL = "virtual"
"""The tag of a device that exists in plans only."""


class TitleRow(QWidget):
    """Painted, so that the fact gives way to the legend word by word."""

    def __init__(self, theme: Theme, title: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._title = title
        self._fact = ""
        self._looks: tuple[DeviceLook, ...] = ()
        self._difference = False
        self.setFixedHeight(HEIGHT_PX)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        theme.changed.connect(self._on_theme_changed)

    @property
    def fact(self) -> str:
        """The grey text beside the title."""
        return self._fact

    def show_fact(self, fact: str, looks: tuple[DeviceLook, ...], *, difference: bool) -> None:
        """What is shown, and the legend for it."""
        self._fact, self._looks, self._difference = fact, looks, difference
        self.setAccessibleName(f"{self._title}, {fact}")
        self.update()

    def sizeHint(self) -> QSize:
        """As wide as the canvas below."""
        return QSize(480, HEIGHT_PX)

    def paintEvent(self, event: QPaintEvent) -> None:
        """Title, fact, legend from the right."""
        painter = QPainter(self)
        palette = self._theme.palette
        painter.fillRect(self.rect(), palette.bg2)
        painter.setPen(QPen(palette.line, 1))
        painter.drawLine(0, HEIGHT_PX - 1, self.width(), HEIGHT_PX - 1)
        right = self._paint_legend(painter)
        bold = general_font(SMALL_PX, QFont.Weight.DemiBold)
        painter.setFont(bold)
        painter.setPen(palette.ink)
        flags = Qt.AlignmentFlag.AlignVCenter
        painter.drawText(QRectF(PADDING_PX, 0, 200, HEIGHT_PX - 1), flags, self._title)
        left = PADDING_PX + QFontMetricsF(bold).horizontalAdvance(self._title) + 10
        painter.setFont(general_font(SMALL_PX))
        painter.setPen(palette.ink2)
        room = right - left - 8
        fact = painter.fontMetrics().elidedText(
            self._fact, Qt.TextElideMode.ElideRight, max(int(room), 0)
        )
        painter.drawText(QRectF(left, 0, max(room, 0), HEIGHT_PX - 1), flags, fact)
        painter.end()

    def _paint_legend(self, painter: QPainter) -> float:
        """The legend from the right edge; where it begins."""
        palette = self._theme.palette
        right = float(self.width() - PADDING_PX)
        if self._difference:
            right = self._mark(painter, right, "new", palette.more.mark)
            right = self._mark(painter, right, "cut and copy gone", palette.less.mark)
            right = self._swatch(painter, right, "same", palette.bg2, palette.line2)
            return self._swatch(painter, right, "moved", palette.more.fill, palette.more.mark)
        if self._looks:
            right = self._mark(painter, right, "copy", palette.copy_mark)
        for look in reversed(self._looks):
            if look.on_paper:
                right = self._tag(painter, right, VIRTUAL) - 4
            right = self._text(painter, right, look.name) - 4 - TABLE_BADGE_PX
            top = (HEIGHT_PX - TABLE_BADGE_PX) / 2
            paint_badge(painter, QRectF(right, top, TABLE_BADGE_PX, TABLE_BADGE_PX), look)
            right -= 10
        return right

    def _text(self, painter: QPainter, right: float, text: str) -> float:
        painter.setFont(general_font(SMALL_PX))
        painter.setPen(self._theme.palette.ink2)
        width = QFontMetricsF(painter.font()).horizontalAdvance(text)
        place = QRectF(right - width - 1, 0, width + 2, HEIGHT_PX - 1)
        painter.drawText(place, Qt.AlignmentFlag.AlignVCenter, text)
        return right - width

    def _tag(self, painter: QPainter, right: float, text: str) -> float:
        painter.setFont(general_font(TINY_PX))
        width = QFontMetricsF(painter.font()).horizontalAdvance(text) + 8
        frame = QRectF(right - width + 0.5, 6.5, width - 1, HEIGHT_PX - 14)
        painter.setPen(QPen(self._theme.palette.ctl, 1))
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.drawRoundedRect(frame, 3, 3)
        painter.setPen(self._theme.palette.ink2)
        painter.drawText(frame, Qt.AlignmentFlag.AlignCenter, text)
        return right - width

    def _mark(self, painter: QPainter, right: float, text: str, colour: QColor) -> float:
        left = self._text(painter, right, text) - 7
        painter.fillRect(QRectF(left, 9, 3, 10), colour)
        return left - 10

    def _swatch(
        self, painter: QPainter, right: float, text: str, fill: QColor, edge: QColor
    ) -> float:
        left = self._text(painter, right, text) - 16
        painter.setPen(QPen(edge, 1))
        painter.setBrush(fill)
        painter.drawRect(QRectF(left, 9, 11, 9))
        return left - 10

    def _on_theme_changed(self, _palette: object) -> None:
        self.update()
