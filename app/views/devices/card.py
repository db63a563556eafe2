"""DeviceCard: what a device is and how it got here, in two columns that scroll by themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import Qt
from PySide6.QtWidgets import (
    QFrame,
    QGridLayout,
    QHBoxLayout,
    QLabel,
    QScrollArea,
    QSizePolicy,
    QVBoxLayout,
    QWidget,
)

from app.theme.elided_label import ElidedLabel
from engine.core.visible import visible

if TYPE_CHECKING:
    from app.models.device_words import DeviceCardFacts, Facts

CARD_MIN_PX = 440
TITLE_PX = 82
"""The column of titles."""
EMPTY = "Select a device to see what it is, and how it got here."
_SELECTABLE = Qt.TextInteractionFlag.TextSelectableByMouse


class DeviceCard(QWidget):
    """One entry at a time."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.title, self.subtitle = QLabel(self), ElidedLabel(parent=self)
        self.title.setProperty("role", "h2")
        self.title.setTextFormat(Qt.TextFormat.PlainText)
        self.title.setTextInteractionFlags(_SELECTABLE)
        self.subtitle.setProperty("role", "muted")
        self.facts, self.got_here = FactsColumn("What it is"), FactsColumn("How it got here")
        self._empty = _label(EMPTY, "muted")
        head = QHBoxLayout()
        head.setContentsMargins(12, 8, 12, 4)
        head.setSpacing(12)
        head.addWidget(self._empty, stretch=1)
        head.addWidget(self.title)
        head.addWidget(self.subtitle, stretch=1)
        columns = QHBoxLayout()
        columns.setSpacing(0)
        columns.addWidget(self.facts, stretch=1)
        columns.addWidget(self.got_here, stretch=1)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        column.addLayout(head)
        column.addLayout(columns, stretch=1)
        self.setMinimumWidth(CARD_MIN_PX)
        self.show_facts(None)

    def show_facts(self, facts: DeviceCardFacts | None) -> None:
        """Show another entry; None for none."""
        self._empty.setVisible(facts is None)
        for widget in (self.title, self.subtitle, self.facts, self.got_here):
            widget.setVisible(facts is not None)
        if facts is None:
            return
        self.title.setText(visible(facts.title))
        self.subtitle.setText(visible(facts.subtitle))
        self.facts.show_facts(facts.facts)
        self.got_here.show_facts(facts.got_here)
        self.got_here.setVisible(bool(facts.got_here))


class FactsColumn(QScrollArea):
    """A heading and rows of title and words; the words wrap and can be selected."""

    def __init__(self, heading: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._facts: Facts | None = None
        self.setAccessibleName(heading)
        self.setWidgetResizable(True)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self._heading = heading
        self.setWidget(self._made(()))

    def show_facts(self, facts: Facts) -> None:
        """Show other rows; where nothing changed it stays scrolled as it is."""
        if facts != self._facts:
            self._facts = facts
            self.setWidget(self._made(facts))

    def _made(self, facts: Facts) -> QWidget:
        body = QWidget()
        body.setProperty("role", "sheet")
        grid = QGridLayout(body)
        grid.setContentsMargins(12, 4, 12, 8)
        grid.setHorizontalSpacing(8)
        grid.setVerticalSpacing(4)
        grid.setColumnMinimumWidth(0, TITLE_PX)
        grid.setColumnStretch(1, 1)
        grid.addWidget(_label(self._heading, "strong"), 0, 0, 1, 2)
        for row, (title, words) in enumerate(facts, start=1):
            name = _label(title, "muted")
            name.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Preferred)
            text = _label(breakable(visible(words)), "")
            text.setAccessibleName(title)
            grid.addWidget(name, row, 0, Qt.AlignmentFlag.AlignTop)
            grid.addWidget(text, row, 1, Qt.AlignmentFlag.AlignTop)
        grid.setRowStretch(len(facts) + 1, 1)
        return body


def breakable(text: str) -> str:
    """A text whose paths may be broken behind a separator."""
    return text.replace("/", "/\u200b").replace("\\", "\\\u200b").replace("_", "_\u200b")


def _label(text: str, role: str) -> QLabel:
    label = QLabel(text)
    label.setProperty("role", role)
    label.setTextFormat(Qt.TextFormat.PlainText)
    label.setWordWrap(True)
    label.setTextInteractionFlags(_SELECTABLE)
    label.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)
    return label
