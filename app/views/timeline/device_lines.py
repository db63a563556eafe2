"""DeviceLines: what each device did, in as many lines as it takes; no device is cut in two."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import Signal
from PySide6.QtGui import QFontMetricsF
from PySide6.QtWidgets import QVBoxLayout, QWidget

from app.theme.elided_label import ElidedLabel
from app.theme.fonts import SMALL_PX, general_font

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from PySide6.QtGui import QResizeEvent

LINE_PX = 20
SEPARATOR = " · "
MAX_DEVICES = 4
"""Of more of them the tooltip speaks."""


class DeviceLines(QWidget):
    """Words of the run first, then those of devices."""

    lines_changed = Signal()
    """Another width takes more lines, or fewer."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._words: tuple[str, ...] = ()
        self._is_short = False
        self._labels: list[ElidedLabel] = []
        self._column = QVBoxLayout(self)
        self._column.setContentsMargins(0, 0, 0, 0)
        self._column.setSpacing(0)
        self.setFont(general_font(SMALL_PX))

    @property
    def n_lines(self) -> int:
        """How many lines there are."""
        return len(self._labels)

    def text(self) -> str:
        """The words that are shown."""
        return "\n".join(label.text() for label in self._labels)

    def say(self, words: Sequence[str]) -> None:
        """Show other words: of the run, then one text a device."""
        if tuple(words) != self._words:
            self._words = tuple(words)
            n_more = len(words) - 1 - MAX_DEVICES
            self.setToolTip("\n".join(words) if n_more > 0 else "")
            self._lay_out()

    def set_short(self, *, is_short: bool) -> None:
        """Take one line only, where there is no room for more."""
        if is_short is not self._is_short:
            self._is_short = is_short
            self._lay_out()

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Pack the words again."""
        super().resizeEvent(event)
        before = self.n_lines
        self._lay_out()
        if self.n_lines != before:
            self.lines_changed.emit()

    def _lay_out(self) -> None:
        words = self._shown()
        lines = packed(words, self.width(), QFontMetricsF(self.font()).horizontalAdvance)
        lines = [SEPARATOR.join(words)] if self._is_short and words else lines
        for label in self._labels[len(lines) :]:
            self._column.removeWidget(label)
            label.setParent(None)
            label.deleteLater()
        del self._labels[len(lines) :]
        while len(self._labels) < len(lines):
            label = ElidedLabel(parent=self)
            label.setFont(self.font())
            label.setFixedHeight(LINE_PX)
            self._labels.append(label)
            self._column.addWidget(label)
        for label, line in zip(self._labels, lines, strict=True):
            label.setText(line)

    def _shown(self) -> list[str]:
        shown = list(self._words[: 1 + MAX_DEVICES])
        n_more = len(self._words) - len(shown)
        return [*shown, f"and {n_more} more"] if n_more else shown


def packed(words: Sequence[str], width: float, measure: Callable[[str], float]) -> list[str]:
    """Words in as few lines of a width as keep each whole."""
    lines: list[str] = []
    for word in words:
        longer = f"{lines[-1]}{SEPARATOR}{word}" if lines else word
        if lines and measure(longer) <= width:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines
