"""WholeLines: a text field that shows no half of a line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtGui import QFontMetricsF
from PySide6.QtWidgets import QPlainTextEdit, QWidget

if TYPE_CHECKING:
    from PySide6.QtGui import QResizeEvent


class WholeLines(QPlainTextEdit):
    """Where not all lines fit, what is left below the last whole one stays empty."""

    def __init__(self, text: str = "", parent: QWidget | None = None) -> None:
        super().__init__(text, parent)
        self.textChanged.connect(self._fit)

    @property
    def line_px(self) -> float:
        """How far lines are apart; the font's own word for it is rounded."""
        layout = self.document().firstBlock().layout()
        if layout.lineCount():
            return layout.lineAt(0).height()
        return QFontMetricsF(self.font()).lineSpacing()

    def height_of(self, n_lines: int) -> int:
        """The height at which so many lines need no scroll bar."""
        around_px = self.height() - self.contentsRect().height()
        return round(n_lines * self.line_px + 2 * self.document().documentMargin()) + 1 + around_px

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Leave room for whole lines only."""
        super().resizeEvent(event)
        self._fit()

    def _fit(self) -> None:
        # Qt counts the height of such a document in lines.
        n_lines = round(self.document().size().height())
        room_px = self.contentsRect().height() - self.document().documentMargin()
        fits = self.height() >= self.height_of(n_lines)
        rest_px = 0.0 if fits else max(room_px, 0.0) % self.line_px
        self.setViewportMargins(0, 0, 0, int(rest_px))
