"""PassRow: the steps of the passes in a row, the deciding one inked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QFont, QPainter
from PySide6.QtWidgets import QSizePolicy, QToolTip, QWidget

from app.theme.fonts import TINY_PX, fixed_font
from engine.core.placement import PASS_STEPS

if TYPE_CHECKING:
    from PySide6.QtCore import QEvent
    from PySide6.QtGui import QHelpEvent, QPaintEvent

    from app.theme.theme import Theme

HEIGHT_PX = 22

STEP_WORDS = {
    "1": "pass 1: tensors with a home, and weights",
    "2a": "pass 2, sweep a: GPUs, downwards",
    "2b": "pass 2, sweep b: GPUs, upwards",
    "2c": "pass 2, sweep c: any device, downwards",
    "2d": "pass 2, sweep d: any device, upwards",
    "3": "pass 3: a better device in the same memory, or the one with most inputs",
    "4": "pass 4: what is left follows its source or its reader",
    "5": "pass 5: splits are cut, copies are inserted",
}


class PassRow(QWidget):
    """Read-only; says its step to screen readers."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._step = ""
        self.setFixedHeight(HEIGHT_PX)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        theme.changed.connect(self._on_theme)

    @property
    def step(self) -> str:
        """The inked step."""
        return self._step

    def set_step(self, step: str) -> None:
        """Ink another step; one outside the row inks none."""
        self._step = step
        self.setAccessibleName(f"Decided in {STEP_WORDS.get(step, 'no pass')}")
        self.update()

    def cell(self, index: int) -> QRectF:
        """The cell of a step."""
        width = (self.width() - 1) / len(PASS_STEPS)
        return QRectF(round(index * width) + 0.5, 0.5, round(width), self.height() - 1)

    def paintEvent(self, event: QPaintEvent) -> None:  # noqa: D102 - Qt calls it
        palette = self._theme.palette
        painter = QPainter(self)
        for index, step in enumerate(PASS_STEPS):
            cell = self.cell(index)
            decided = step == self._step
            painter.setPen(palette.inv if decided else palette.line2)
            painter.setBrush(palette.inv if decided else palette.bg1)
            painter.drawRect(cell)
            weight = QFont.Weight.Bold if decided else QFont.Weight.Normal
            painter.setFont(fixed_font(TINY_PX, weight))
            painter.setPen(palette.invt if decided else palette.ink2)
            painter.drawText(cell, Qt.AlignmentFlag.AlignCenter, step)
        painter.end()

    def event(self, event: QEvent) -> bool:  # noqa: D102 - Qt calls it
        if event.type() == event.Type.ToolTip:
            self._show_tip(event)  # type: ignore[arg-type]  # A ToolTip event is a QHelpEvent.
            return True
        return super().event(event)

    def _show_tip(self, event: QHelpEvent) -> None:
        for index, step in enumerate(PASS_STEPS):
            if self.cell(index).contains(event.pos().toPointF()):
                QToolTip.showText(event.globalPos(), STEP_WORDS[step], self)

    def _on_theme(self, _palette: object) -> None:
        self.update()
