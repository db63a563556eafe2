"""ElidedLabel: one line that ends in an ellipsis where it does not fit; the tooltip has it all."""

from __future__ import annotations

from PySide6.QtCore import QSize, Qt
from PySide6.QtGui import QPainter, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QLabel, QSizePolicy, QWidget


class ElidedLabel(QLabel):
    """Plain text only. Colour and font come from the style sheet."""

    def __init__(
        self,
        text: str = "",
        mode: Qt.TextElideMode = Qt.TextElideMode.ElideRight,
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(text, parent)
        self._mode = mode
        self.setTextFormat(Qt.TextFormat.PlainText)
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Fixed)

    def minimumSizeHint(self) -> QSize:
        """An ellipsis wide."""
        width_px = self.fontMetrics().horizontalAdvance("…") + 4
        return QSize(width_px, super().minimumSizeHint().height())

    def setText(self, text: str) -> None:  # noqa: N802 - Qt's name
        """Show another text."""
        super().setText(text)
        self._update_tooltip()

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Say the whole text in the tooltip only where it is cut."""
        super().resizeEvent(event)
        self._update_tooltip()

    def paintEvent(self, event: QPaintEvent) -> None:
        """Draw what fits."""
        painter = QPainter(self)
        area = self.contentsRect()
        text = self.fontMetrics().elidedText(self.text(), self._mode, area.width())
        painter.setPen(self.palette().color(self.foregroundRole()))
        painter.drawText(area, int(self.alignment()), text)
        painter.end()

    def _update_tooltip(self) -> None:
        width_px = self.fontMetrics().horizontalAdvance(self.text())
        self.setToolTip(self.text() if width_px > self.contentsRect().width() else "")
