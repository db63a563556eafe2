"""JobRow: what takes longer than a second: its name, how far it is, a thin bar."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtWidgets import QHBoxLayout, QProgressBar, QVBoxLayout, QWidget

from app.theme.elided_label import ElidedLabel
from app.theme.text import MIB, bytes_text, count

if TYPE_CHECKING:
    from engine.core.summary import Progress

_STEPS = 1000


class JobRow(QWidget):
    """Hidden while there is nothing to wait for."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.label = ElidedLabel(parent=self)
        self.count = ElidedLabel(parent=self)
        self.count.setProperty("role", "muted")
        self.bar = QProgressBar(self)
        self.bar.setTextVisible(False)
        self.bar.setFixedHeight(4)
        row = QHBoxLayout()
        row.addWidget(self.label, stretch=1)
        row.addWidget(self.count)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 4, 0, 4)
        column.setSpacing(4)
        column.addLayout(row)
        column.addWidget(self.bar)
        self.hide()

    def show_progress(self, progress: Progress | None) -> None:
        """Show how far a job is; None hides the row."""
        self.setVisible(progress is not None)
        if progress is None:
            return
        self.label.setText(progress.label)
        self.count.setText(count_text(progress))
        self.bar.setRange(0, _STEPS if progress.total else 0)
        if progress.total:
            self.bar.setValue(_STEPS * min(progress.done, progress.total) // progress.total)


def count_text(progress: Progress) -> str:
    """How far, in words. No job counts a million things: totals of that size are bytes."""
    words = bytes_text if progress.total >= MIB else count
    if not progress.total:
        return count(progress.done) if progress.done else ""
    return f"{words(progress.done)} of {words(progress.total)}"
