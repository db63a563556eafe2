"""WhyCard: who decided, in which pass, which test failed first, and the node's facts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtGui import QFont, QGuiApplication
from PySide6.QtWidgets import QGridLayout, QHBoxLayout, QLabel, QPushButton, QVBoxLayout, QWidget

from app.theme.elided_label import ElidedLabel
from app.theme.fonts import ANSWER_PX, BODY_PX, SMALL_PX, TINY_PX, fixed_font
from app.views.inspector.candidates import CandidatesTable
from app.views.inspector.node_facts import (
    NODE_LINK,
    facts_line,
    memory_words,
    neighbour_html,
    readers_html,
    reads_html,
)
from app.views.inspector.parts import Badge, Rule, Tag, link_label, mono_label, text_label
from app.views.inspector.pass_row import PassRow
from app.views.inspector.rich import rich_sentence
from app.views.inspector.was_now import WasNow
from engine.core.why_text import why_text

if TYPE_CHECKING:
    from app.theme.colours import DeviceLook
    from app.theme.theme import Theme
    from engine.core.explain import Explanation
    from engine.core.table import PlanTable

COPIED_MS = 1500


@dataclass(frozen=True, slots=True, eq=False)
class Subject:
    """What a card shows: a node of a plan and why it is there; `was` in difference mode.

    `looks` are those of the plan's backends, `was_looks` those of the plan before.
    """

    table: PlanTable
    slot: int
    looks: tuple[DeviceLook, ...]
    now: Explanation
    was: Explanation | None
    time: str
    was_looks: tuple[DeviceLook, ...] = ()

    @property
    def is_changed(self) -> bool:
        """Whether the change moved the node, or left it there for another reason."""
        was = self.was
        return was is not None and (was.device, was.tag) != (self.now.device, self.now.tag)


class WhyCard(QWidget):
    """One node at a time."""

    node_chosen = Signal(object)
    """Carries a node id."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._subject: Subject | None = None
        self._was_badge, self._arrow, self._badge = Badge(), QLabel("\u2192"), Badge()
        self._name = ElidedLabel(mode=Qt.TextElideMode.ElideMiddle)
        self._name.setFont(fixed_font(BODY_PX, QFont.Weight.Bold))
        self._id = mono_label(SMALL_PX)
        self._facts = text_label(TINY_PX, role="muted")
        self._facts.setFont(fixed_font(TINY_PX))
        self._sentence = text_label(ANSWER_PX)
        self._was_now = WasNow(theme)
        self.pass_row = PassRow(theme)
        self._decided, self._neighbour = text_label(SMALL_PX), link_label(SMALL_PX)
        self._tag = Tag(theme)
        self.candidates = CandidatesTable(theme)
        self._reads, self._readers = link_label(SMALL_PX), link_label(SMALL_PX)
        self._memory, self._time = text_label(SMALL_PX), text_label(SMALL_PX)
        self._copy = QPushButton("Copy as text")
        self._lay_out()
        self._connect()

    def set_subject(self, subject: Subject) -> None:
        """Show another node."""
        self._subject = subject
        now, looks = subject.now, subject.looks
        self._show_device(subject)
        self._name.setText(now.title)
        self._id.setText(f"#{now.node_id}")
        self._facts.setText(facts_line(subject.table, now, subject.slot))
        self._sentence.setText(rich_sentence(now.sentence))
        self._sentence.setVisible(not subject.is_changed)
        self._was_now.setVisible(subject.is_changed)
        if subject.was is not None:
            self._was_now.set_explanations(subject.was, now)
        self.pass_row.set_step(now.step)
        self._decided.setText(now.decided)
        self._tag.set_tag(now.tag)
        self.candidates.set_explanation(now, looks)
        self._memory.setText(memory_words(subject.table, subject.slot))
        self._time.setText(subject.time)
        self._show_links()

    def copied_text(self) -> str:
        """What "Copy as text" copies."""
        return "" if self._subject is None else why_text(self._subject.now)

    def _lay_out(self) -> None:
        head = QHBoxLayout()
        head.setSpacing(8)
        for widget in (self._was_badge, self._arrow, self._badge):
            head.addWidget(widget)
        head.addWidget(self._name, 1)
        head.addWidget(self._id)
        self._id.setProperty("role", "muted")
        buttons = QHBoxLayout()
        self._copy.setProperty("kind", "small")
        buttons.addWidget(self._copy)
        buttons.addStretch(1)
        column = QVBoxLayout(self)
        column.setContentsMargins(12, 12, 12, 12)
        column.setSpacing(8)
        column.addLayout(head)
        column.addWidget(self._facts)
        column.addWidget(self._sentence)
        column.addWidget(self._was_now)
        column.addWidget(self.pass_row)
        column.addLayout(self._decision_grid())
        column.addWidget(self.candidates)
        column.addWidget(_legend())
        column.addWidget(Rule())
        column.addLayout(self._node_grid())
        column.addLayout(buttons)

    def _decision_grid(self) -> QGridLayout:
        grid = _grid()
        grid.addWidget(_row_title("Decided in"), 0, 0)
        grid.addWidget(self._decided, 0, 1)
        grid.addWidget(self._tag, 0, 2)
        grid.addWidget(_row_title("Neighbour"), 1, 0, Qt.AlignmentFlag.AlignTop)
        grid.addWidget(self._neighbour, 1, 1, 1, 2)
        return grid

    def _node_grid(self) -> QGridLayout:
        grid = _grid()
        rows = (
            ("Reads", self._reads),
            ("Read by", self._readers),
            ("Memory", self._memory),
            ("Time", self._time),
        )
        for row, (title, widget) in enumerate(rows):
            widget.setAccessibleName(title)
            grid.addWidget(_row_title(title), row, 0, Qt.AlignmentFlag.AlignTop)
            grid.addWidget(widget, row, 1)
        return grid

    def _connect(self) -> None:
        for label in (self._reads, self._readers, self._neighbour):
            label.linkActivated.connect(self._on_link)
        self._copy.clicked.connect(self._on_copy)
        self._copied_timer = QTimer(self)
        self._copied_timer.setSingleShot(True)
        self._copied_timer.setInterval(COPIED_MS)
        self._copied_timer.timeout.connect(self._on_copied_shown)
        self._theme.changed.connect(self._on_theme)

    def _show_device(self, subject: Subject) -> None:
        moved = subject.was is not None and subject.was.device != subject.now.device
        self._was_badge.setVisible(moved)
        self._arrow.setVisible(moved)
        if moved and subject.was is not None:
            self._was_badge.set_look(subject.was_looks[subject.was.backend_id])
        if subject.now.backend_id >= 0:
            self._badge.set_look(subject.looks[subject.now.backend_id])

    def _show_links(self) -> None:
        subject = self._subject
        if subject is None:
            return
        ink = self._theme.palette.ink.name()
        self._reads.setText(reads_html(subject.table, subject.slot, ink))
        self._readers.setText(readers_html(subject.table, subject.slot, ink))
        self._neighbour.setText(neighbour_html(subject.table, subject.slot, subject.now, ink))

    def _on_theme(self, _palette: object) -> None:
        if self._subject is not None:
            self._show_links()

    def _on_link(self, target: str) -> None:
        self.node_chosen.emit(int(target.removeprefix(NODE_LINK)))

    def _on_copy(self) -> None:
        QGuiApplication.clipboard().setText(self.copied_text())
        self._copy.setText("Copied")
        self._copied_timer.start()

    def _on_copied_shown(self) -> None:
        self._copy.setText("Copy as text")


def _grid() -> QGridLayout:
    grid = QGridLayout()
    grid.setHorizontalSpacing(8)
    grid.setVerticalSpacing(4)
    grid.setColumnMinimumWidth(0, 68)
    grid.setColumnStretch(1, 1)
    return grid


def _row_title(text: str) -> QLabel:
    label = QLabel(text)
    label.setProperty("role", "muted")
    return label


def _legend() -> QLabel:
    label = text_label(TINY_PX, role="muted")
    label.setText("\u25a2 first test that failed · \u2013 not asked")
    return label
