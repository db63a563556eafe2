"""Histogram: times of the splits that are alike, the selected one's bin outlined."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QPainter, QPen
from PySide6.QtWidgets import QSizePolicy, QWidget

from app.theme.fonts import TINY_PX, general_font
from app.theme.text import ms

if TYPE_CHECKING:
    from PySide6.QtGui import QPaintEvent

    from app.theme.colours import DeviceLook
    from app.theme.theme import Theme
    from app.views.inspector.split_facts import Bins

HEIGHT_PX = 84
AXIS_PX = 18
LABEL_GAP_PX = 48


class Histogram(QWidget):
    """Read-only; the figures below it say the same in words."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._bins: Bins | None = None
        self._look: DeviceLook | None = None
        self.setFixedHeight(HEIGHT_PX)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setAccessibleName("Times of splits that are alike")
        theme.changed.connect(self._on_theme)

    def set_bins(self, bins: Bins, look: DeviceLook) -> None:
        """Show other times."""
        self._bins, self._look = bins, look
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:  # noqa: D102 - Qt calls it
        if self._bins is None or self._look is None:
            return
        painter = QPainter(self)
        self._paint_bars(painter, self._bins, self._look)
        self._paint_axis(painter, self._bins)
        painter.end()

    def _paint_bars(self, painter: QPainter, bins: Bins, look: DeviceLook) -> None:
        palette = self._theme.palette
        base = self.height() - AXIS_PX
        width = self.width() / len(bins.counts)
        highest = max(int(bins.counts.max()), 1)
        own = QRectF()
        for index, n in enumerate(bins.counts):
            height = round((base - 4) * int(n) / highest)
            bar = QRectF(round(index * width) + 1.5, base - height + 0.5, round(width) - 3, height)
            if n:
                painter.setPen(look.colours.edge)
                painter.setBrush(look.colours.fill)
                painter.drawRect(bar)
            if index == bins.own:
                own = bar
        painter.setPen(palette.line2)
        painter.drawLine(0, base, self.width(), base)
        painter.setPen(QPen(palette.ink, 2))
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.drawRect(own.adjusted(-1, -1, 1, 0))

    def _paint_axis(self, painter: QPainter, bins: Bins) -> None:
        painter.setFont(general_font(TINY_PX))
        painter.setPen(self._theme.palette.ink2)
        axis = QRectF(0, self.height() - AXIS_PX + 2, self.width(), AXIS_PX - 2)
        left = Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter
        right = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
        low, high = float(bins.edges_ns[0]), float(bins.edges_ns[-1])
        painter.drawText(axis, left, ms(low))
        painter.drawText(axis, right, f"{ms(high)} ms")
        if self.width() > 4 * LABEL_GAP_PX:
            painter.drawText(axis, Qt.AlignmentFlag.AlignCenter, ms((low + high) / 2))

    def _on_theme(self, _palette: object) -> None:
        self.update()
