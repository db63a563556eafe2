"""WrappedLabel: lines of plain text that are never cut: it is as high as they need."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QRect, Qt, QTimer
from PySide6.QtWidgets import QLabel, QSizePolicy, QWidget

if TYPE_CHECKING:
    from PySide6.QtGui import QResizeEvent


_ANY_HEIGHT_PX = 1 << 16


class WrappedLabel(QLabel):
    """Hidden while it is empty.

    Qt gives a label that wraps less than its lines need where a layout is short of room; this one
    asks for the height of its own width.
    """

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setTextFormat(Qt.TextFormat.PlainText)
        self.setWordWrap(True)
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Fixed)
        self.hide()

    def setText(self, text: str) -> None:  # noqa: N802 - Qt's name
        """Show another text; nothing for an empty one."""
        super().setText(text)
        self._fit()
        self.setVisible(bool(text))

    def set_role(self, role: str) -> None:
        """Give it another look of the style sheet."""
        self.setProperty("role", role)
        self.style().unpolish(self)
        self.style().polish(self)
        self._fit()

    def hasHeightForWidth(self) -> bool:  # noqa: N802 - Qt's name
        """Its height is fixed; a layout that asked again would give the rest what it prefers."""
        return False

    def resizeEvent(self, event: QResizeEvent) -> None:
        """A narrower one has more lines."""
        super().resizeEvent(event)
        # Its own change of height must not ask for another one.
        if event.size().width() != event.oldSize().width():
            # A layout does not hear of a size that changes while it places its widgets.
            QTimer.singleShot(0, self, self._fit)

    def _fit(self) -> None:
        room = QRect(0, 0, self.width(), _ANY_HEIGHT_PX)
        lines = self.fontMetrics().boundingRect(room, Qt.TextFlag.TextWordWrap, self.text())
        if lines.height() != self.minimumHeight():
            self.setFixedHeight(lines.height())
