"""ChoiceBox: a combo box with the design's arrow, which a wheel that passes by leaves alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QPointF
from PySide6.QtGui import QPainter, QPen, QPolygonF
from PySide6.QtWidgets import QComboBox, QStyledItemDelegate, QWidget

if TYPE_CHECKING:
    from PySide6.QtGui import QPaintEvent, QWheelEvent

    from app.theme.theme import Theme

ARROW_PX = 18


class ChoiceBox(QComboBox):
    """Base of every combo box."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        # Only such a delegate reads the style sheet's height of an item.
        self.setItemDelegate(QStyledItemDelegate(self))
        theme.changed.connect(self.update)

    def wheelEvent(self, event: QWheelEvent) -> None:
        """Only where it has the focus: a wheel that passes by must not plan."""
        if self.hasFocus():
            super().wheelEvent(event)
        else:
            event.ignore()

    def paintEvent(self, event: QPaintEvent) -> None:
        """Add the arrow: a style sheet could only take it from a file."""
        super().paintEvent(event)
        palette = self._theme.palette
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(QPen(palette.ink2 if self.isEnabled() else palette.ink3, 1.4))
        x, y = self.width() - ARROW_PX / 2 - 2, self.height() / 2
        arrow = [QPointF(x - 4, y - 2), QPointF(x, y + 2), QPointF(x + 4, y - 2)]
        painter.drawPolyline(QPolygonF(arrow))
        painter.end()

    def fit_list(self) -> None:
        """Let the list be as wide as its longest item."""
        view = self.view()
        view.setMinimumWidth(view.sizeHintForColumn(0) + 24)
