"""Canvas: what every painted pane shares.

A background cached as a pixmap and painted again only when its key changes; an overlay (hover,
selection) painted on top at every repaint; hover that never scrolls; a tooltip after 500 ms; a
focus ring.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyqtgraph.Qt.internals import PrimitiveArray
from PySide6.QtCore import QPointF, QRectF, Qt, QTimer, Signal
from PySide6.QtGui import QBrush, QColor, QPainter, QPen, QPixmap
from PySide6.QtWidgets import QToolTip, QWidget

if TYPE_CHECKING:
    from collections.abc import Hashable

    import numpy as np
    import numpy.typing as npt
    from PySide6.QtCore import QEvent
    from PySide6.QtGui import QFocusEvent, QMouseEvent, QPaintEvent

    from app.theme.theme import Theme

TOOLTIP_DELAY_MS = 500
FOCUS_RING_PX = 2


class Canvas(QWidget):
    """Base of the painters. Items are hashable values that `item_at` gives back.

    A subclass overrides `background_key`, `paint_background`, `paint_overlay`, `item_at`,
    `tip_text`, and calls `update()` when the overlay changed.
    """

    hovered_changed = Signal(object)

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.theme = theme
        self.hovered: Hashable | None = None
        self._background = QPixmap()
        self._painted_key: Hashable = None
        self._theme_version = 0
        self._tip_point = QPointF()
        self._tip_timer = QTimer(self)
        self._tip_timer.setSingleShot(True)
        self._tip_timer.setInterval(TOOLTIP_DELAY_MS)
        self._tip_timer.timeout.connect(self._show_tip)
        self.setMouseTracking(True)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setAttribute(Qt.WidgetAttribute.WA_OpaquePaintEvent)
        theme.changed.connect(self._on_theme_changed)

    # What a subclass says.

    def background_key(self) -> Hashable:
        """Everything the background depends on besides size and theme."""
        return None

    def paint_background(self, painter: QPainter) -> None:
        """Paint everything but hover and selection."""

    def paint_overlay(self, painter: QPainter) -> None:
        """Paint hover and selection, above all neighbours."""

    def item_at(self, point: QPointF) -> Hashable | None:
        """What is under a point."""
        return None

    def tip_text(self, item: Hashable) -> str:
        """The tooltip of an item; empty for none."""
        return ""

    # What the base does.

    def set_hovered(self, item: Hashable | None) -> None:
        """Highlight an item lightly; it never scrolls."""
        if item == self.hovered:
            return
        self.hovered = item
        QToolTip.hideText()
        self.hovered_changed.emit(item)
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        """Draw the cached background, the overlay, the focus ring."""
        ratio = self.devicePixelRatioF()
        key = (self.background_key(), self.width(), self.height(), ratio, self._theme_version)
        if key != self._painted_key:
            self._repaint_background(ratio)
            self._painted_key = key
        painter = QPainter(self)
        painter.drawPixmap(0, 0, self._background)
        self.paint_overlay(painter)
        if self.hasFocus():
            self._paint_focus(painter)
        painter.end()

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        """Hover, and begin to wait for the tooltip."""
        self._tip_point = event.position()
        self.set_hovered(self.item_at(event.position()))
        if self.hovered is None:
            self._tip_timer.stop()
        else:
            self._tip_timer.start()
        super().mouseMoveEvent(event)

    def leaveEvent(self, event: QEvent) -> None:
        """Stop hovering."""
        self._tip_timer.stop()
        self.set_hovered(None)
        super().leaveEvent(event)

    def focusInEvent(self, event: QFocusEvent) -> None:
        """Show the focus ring."""
        self.update()
        super().focusInEvent(event)

    def focusOutEvent(self, event: QFocusEvent) -> None:
        """Take the focus ring away."""
        self.update()
        super().focusOutEvent(event)

    def _repaint_background(self, ratio: float) -> None:
        self._background = QPixmap(self.size() * ratio)
        self._background.setDevicePixelRatio(ratio)
        self._background.fill(QColor(self.theme.palette.bg1))
        painter = QPainter(self._background)
        painter.setFont(self.font())
        self.paint_background(painter)
        painter.end()

    def _paint_focus(self, painter: QPainter) -> None:
        inset = FOCUS_RING_PX / 2
        painter.setRenderHint(QPainter.RenderHint.Antialiasing, on=False)
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.setPen(QPen(QColor(self.theme.palette.ink), FOCUS_RING_PX))
        painter.drawRect(QRectF(self.rect()).adjusted(inset, inset, -inset, -inset))

    def _show_tip(self) -> None:
        if self.hovered is None or not self.isVisible():
            return
        text = self.tip_text(self.hovered)
        if text:
            QToolTip.showText(self.mapToGlobal(self._tip_point).toPoint(), text, self)

    def _on_theme_changed(self, _theme: object = None) -> None:
        self._theme_version += 1
        self.update()


class RectBatch:
    """Draws many rectangles in one call from a numpy array [n, 4] of x, y, w, h."""

    def __init__(self) -> None:
        self._primitives = PrimitiveArray(QRectF, 4)

    def fill(self, painter: QPainter, rects: npt.NDArray[np.float64], brush: QBrush) -> None:
        """Fill without an outline."""
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(brush)
        self._draw(painter, rects)

    def outline(self, painter: QPainter, rects: npt.NDArray[np.float64], pen: QPen) -> None:
        """Outline only; the pen is centred on the edge."""
        painter.setPen(pen)
        painter.setBrush(Qt.BrushStyle.NoBrush)
        self._draw(painter, rects)

    def _draw(self, painter: QPainter, rects: npt.NDArray[np.float64]) -> None:
        if len(rects):
            self._primitives.resize(len(rects))
            self._primitives.ndarray()[:] = rects
            painter.drawRects(*self._primitives.drawargs())
