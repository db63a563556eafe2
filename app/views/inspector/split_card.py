"""SplitCard: what a run measured of the selected split, and of the splits like it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QFont
from PySide6.QtWidgets import QGridLayout, QHBoxLayout, QLabel, QPushButton, QVBoxLayout, QWidget

from app.theme.elided_label import ElidedLabel
from app.theme.fonts import BODY_PX, SMALL_PX, TINY_PX, fixed_font
from app.views.inspector.histogram import Histogram
from app.views.inspector.parts import Badge, Rule, mono_label, text_label
from app.views.inspector.split_facts import histogram_bins

if TYPE_CHECKING:
    from app.theme.colours import DeviceLook
    from app.theme.theme import Theme
    from app.views.inspector.split_facts import SplitFacts


_TITLES = (
    "compute, measured",
    "copy in, measured",
    "experts copied",
    "all experts, estimated",
    "cut because",
)


class SplitCard(QWidget):
    """One split at a time. The chip ends the selection."""

    cleared = Signal()

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._chip = QPushButton()
        self._badge = Badge()
        self._name = QLabel()
        self._name.setFont(fixed_font(BODY_PX, QFont.Weight.Bold))
        self._what = ElidedLabel(mode=Qt.TextElideMode.ElideMiddle)
        self._what.setProperty("role", "muted")
        self._rows = [
            (QLabel(title), mono_label(SMALL_PX), text_label(SMALL_PX)) for title in _TITLES
        ]
        self._alike = text_label(TINY_PX, weight=QFont.Weight.DemiBold)
        self.histogram = Histogram(theme)
        self._statistics, self._total = text_label(SMALL_PX), text_label(SMALL_PX)
        self._lay_out()
        self._chip.clicked.connect(self.cleared)

    def set_facts(self, facts: SplitFacts, looks: tuple[DeviceLook, ...]) -> None:
        """Show another split."""
        look = looks[facts.backend_id]
        self._chip.setText(f"split {facts.split_id} \u2715")
        self._chip.setAccessibleName(f"Clear the selection of split {facts.split_id}")
        self._badge.set_look(look)
        self._name.setText(f"split {facts.split_id}")
        self._what.setText(facts.what)
        values = (
            (facts.compute, facts.compute_note),
            (facts.copy, facts.copy_note),
            ("", facts.experts),
            (facts.whole_copy, facts.whole_note),
            ("", facts.cut_because),
        )
        for (title, figure, note), (figure_text, note_text) in zip(self._rows, values, strict=True):
            figure.setText(figure_text)
            note.setText(note_text)
            for label in (title, figure, note):
                label.setVisible(bool(figure_text or note_text))
        self._alike.setText(facts.alike_title)
        shows_bars = len(facts.alike_ns) > 1
        self.histogram.setVisible(shows_bars)
        if shows_bars:
            self.histogram.set_bins(histogram_bins(facts.alike_ns, facts.own_ns), look)
        self._statistics.setText(facts.statistics)
        self._total.setText(facts.total)

    def _lay_out(self) -> None:
        title = QHBoxLayout()
        heading = QLabel("Selection")
        heading.setProperty("role", "strong")
        self._chip.setProperty("kind", "small")
        title.addWidget(heading)
        title.addStretch(1)
        title.addWidget(self._chip)
        head = QHBoxLayout()
        head.setSpacing(8)
        head.addWidget(self._badge)
        head.addWidget(self._name)
        head.addWidget(self._what, 1)
        column = QVBoxLayout(self)
        column.setContentsMargins(12, 0, 12, 12)
        column.setSpacing(8)
        column.addWidget(Rule())
        column.addLayout(title)
        column.addLayout(head)
        column.addLayout(self._grid())
        column.addWidget(self._alike)
        column.addWidget(self.histogram)
        column.addWidget(self._statistics)
        column.addWidget(self._total)

    def _grid(self) -> QGridLayout:
        grid = QGridLayout()
        grid.setHorizontalSpacing(8)
        grid.setVerticalSpacing(4)
        grid.setColumnStretch(2, 1)
        for row, (title, figure, note) in enumerate(self._rows):
            title.setProperty("role", "muted")
            note.setProperty("role", "muted")
            grid.addWidget(title, row, 0, Qt.AlignmentFlag.AlignTop)
            grid.addWidget(figure, row, 1, Qt.AlignmentFlag.AlignTop | Qt.AlignmentFlag.AlignRight)
            grid.addWidget(note, row, 2)
        return grid
