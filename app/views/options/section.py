"""Section: a heading that folds its rows away, and says how many of them were changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QPointF, QRect, QSize, Qt, Signal
from PySide6.QtGui import QFont, QPainter, QPen, QPolygonF
from PySide6.QtWidgets import QAbstractButton, QVBoxLayout, QWidget

from app.theme.fonts import SMALL_PX, general_font

if TYPE_CHECKING:
    from PySide6.QtGui import QPaintEvent

    from app.theme.theme import Theme
    from app.views.options.groups import Group

HEAD_PX = 28
PADDING_PX = 12
CHEVRON_PX = 16


class Section(QWidget):
    """A heading above rows."""

    folded = Signal()
    """It was opened or closed by a person."""

    def __init__(self, group: Group, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.group = group
        self.head = _Head(group.title, theme, self)
        self.head.toggled.connect(self._on_toggled)
        self.head.clicked.connect(self.folded)
        self._body = QWidget(self)
        self._rows = QVBoxLayout(self._body)
        self._rows.setContentsMargins(0, 4, 0, 8)
        self._rows.setSpacing(0)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        column.addWidget(self.head)
        column.addWidget(self._body)
        self._body.setVisible(False)

    @property
    def is_open(self) -> bool:
        """Whether its rows are there."""
        return self.head.isChecked()

    def set_open(self, *, is_open: bool) -> None:
        """Show the rows or fold them away."""
        self.head.setChecked(is_open)

    def add_row(self, row: QWidget) -> None:
        """Append a row."""
        self._rows.addWidget(row)

    def show_changed(self, n_changed: int) -> None:
        """Say how many of its options are not at their default."""
        self.head.show_fact(f"{n_changed} changed" if n_changed else "")

    def _on_toggled(self, is_open: bool) -> None:
        self._body.setVisible(is_open)


class _Head(QAbstractButton):
    """A row with a chevron, a title, and a fact at the right."""

    def __init__(self, title: str, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._fact = ""
        self.setText(title)
        self.setAccessibleName(title)
        self.setCheckable(True)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setAttribute(Qt.WidgetAttribute.WA_Hover)
        theme.changed.connect(self.update)

    def show_fact(self, fact: str) -> None:
        """Show another fact at the right."""
        self._fact = fact
        self.setAccessibleDescription(fact)
        self.update()

    def sizeHint(self) -> QSize:
        """Any width will do."""
        return QSize(120, HEAD_PX)

    def minimumSizeHint(self) -> QSize:
        """As the size hint."""
        return self.sizeHint()

    def paintEvent(self, event: QPaintEvent) -> None:
        """Draw the row."""
        colours = self._theme.palette
        painter = QPainter(self)
        painter.fillRect(self.rect(), colours.hover if self.underMouse() else colours.bg2)
        painter.setPen(colours.line)
        painter.drawLine(self.rect().bottomLeft(), self.rect().bottomRight())
        self._paint_chevron(painter)
        area = self.rect().adjusted(PADDING_PX + CHEVRON_PX, 0, -PADDING_PX, 0)
        painter.setFont(general_font(SMALL_PX, QFont.Weight.DemiBold))
        painter.setPen(colours.ink)
        painter.drawText(area, Qt.AlignmentFlag.AlignVCenter, self.text())
        painter.setFont(general_font(SMALL_PX))
        painter.setPen(colours.ink2)
        side = Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignRight
        painter.drawText(area, side, self._fact)
        if self.hasFocus():
            self._paint_ring(painter)
        painter.end()

    def _paint_chevron(self, painter: QPainter) -> None:
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(QPen(self._theme.palette.ink2, 1.4))
        x, y = PADDING_PX + 4.0, self.height() / 2
        right = [QPointF(x - 2, y - 4), QPointF(x + 2, y), QPointF(x - 2, y + 4)]
        down = [QPointF(x - 4, y - 2), QPointF(x, y + 2), QPointF(x + 4, y - 2)]
        painter.drawPolyline(QPolygonF(down if self.isChecked() else right))
        painter.setRenderHint(QPainter.RenderHint.Antialiasing, False)

    def _paint_ring(self, painter: QPainter) -> None:
        painter.setPen(QPen(self._theme.palette.ink, 2))
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.drawRect(QRect(1, 1, self.width() - 2, self.height() - 2))
