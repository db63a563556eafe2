"""OverridesEditor: rules for weights by name; a row a rule, and below it what it matches.

A broken rule stays in its row and is not used; the others are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QGridLayout, QLabel, QLineEdit, QPushButton, QVBoxLayout, QWidget

from app.theme.choice_box import ChoiceBox
from app.theme.fonts import SMALL_PX, fixed_font
from app.views.options.rules import RuleFacts, rules_facts
from engine.core.options import SPEC_BY_FIELD, TensorOverride
from engine.errors import PlacementError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from app.theme.theme import Theme
    from engine.core.summary import TensorSummary

FIRST_MEMORY = "CPU"
MEMORY_PX = 98


class OverridesEditor(QWidget):
    """The rules of one model."""

    changed = Signal(object)
    """Carries the rules that can be used."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._value: tuple[TensorOverride, ...] = ()
        self._memories: tuple[str, ...] = (FIRST_MEMORY,)
        self._tensors: tuple[TensorSummary, ...] = ()
        self.rows: list[RuleRow] = []
        self.add_button = QPushButton("Add a rule", self)
        self.add_button.setProperty("kind", "small")
        self.add_button.setToolTip("Give weights whose name holds a pattern another memory")
        self.add_button.clicked.connect(self._on_add)
        self._column = QVBoxLayout(self)
        self._column.setContentsMargins(0, 4, 0, 2)
        self._column.setSpacing(8)
        self._column.addWidget(self.add_button, alignment=Qt.AlignmentFlag.AlignLeft)

    def show_model(self, tensors: Sequence[TensorSummary], memories: Sequence[str]) -> None:
        """Count in another model; `memories` are the names that a rule may give."""
        if (self._tensors, self._memories) == (tuple(tensors), tuple(memories)):
            return
        self._tensors, self._memories = tuple(tensors), tuple(memories)
        for row in self.rows:
            row.offer(self._memories)
        self._count()

    def show_value(self, value: Any) -> None:
        """Show rules; rows that already stand for them stay, broken ones among them too."""
        self._value = value
        if self._used() != value:
            for row in tuple(self.rows):
                self._drop(row)
            for rule in value:
                self._add(rule)
        self._count()

    show_refused = show_value

    def clear(self) -> None:
        """Drop every row, those of broken rules among them."""
        for row in tuple(self.rows):
            self._drop(row)
        self._value = ()

    def _used(self) -> tuple[TensorOverride, ...]:
        facts = self._facts()
        pairs = zip(self.rows, facts, strict=True)
        return tuple(row.rule for row, fact in pairs if fact.is_used)

    def _facts(self) -> tuple[RuleFacts, ...]:
        return rules_facts([row.rule for row in self.rows], self._tensors)

    def _count(self) -> None:
        for row, facts in zip(self.rows, self._facts(), strict=True):
            row.show_facts(facts)

    # Rows.

    def _add(self, rule: TensorOverride) -> RuleRow:
        row = RuleRow(rule, self._memories, self._theme, self)
        row.edited.connect(self._count)
        row.finished.connect(self._on_finished)
        row.removed.connect(self._on_removed)
        self.rows.append(row)
        self._column.insertWidget(len(self.rows) - 1, row)
        return row

    def _drop(self, row: RuleRow) -> None:
        self.rows.remove(row)
        self._column.removeWidget(row)
        row.hide()
        row.deleteLater()

    def _on_add(self) -> None:
        row = self._add(TensorOverride("", self._memories[-1]))
        row.show()
        self._count()
        row.pattern.setFocus(Qt.FocusReason.OtherFocusReason)

    def _on_removed(self, row: RuleRow) -> None:
        self._drop(row)
        self.add_button.setFocus(Qt.FocusReason.OtherFocusReason)
        self._count()
        self._tell()

    def _on_finished(self, row: RuleRow) -> None:
        self._unfold(row)
        self._count()
        self._tell()

    def _unfold(self, row: RuleRow) -> None:
        """Take rules as the command line spells them, in place of the row they were pasted in."""
        try:
            rules = SPEC_BY_FIELD["tensor_overrides"].parse(row.pattern.text().strip())
        except PlacementError:
            return
        row.show_rule(rules[0])
        for rule in rules[1:]:
            self._add(rule)

    def _tell(self) -> None:
        used = self._used()
        if used != self._value:
            self._value = used
            self.changed.emit(used)


class RuleRow(QWidget):
    """Pattern and remove; below them memory, and what the rule matches."""

    edited = Signal()
    finished = Signal(object)
    removed = Signal(object)
    """The last two carry the row."""

    def __init__(
        self,
        rule: TensorOverride,
        memories: Sequence[str],
        theme: Theme,
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(parent)
        self._theme = theme
        self.pattern = QLineEdit(self)
        self.pattern.setFont(fixed_font(SMALL_PX))
        self.pattern.setAccessibleName("Pattern of weights' names")
        self.memory = ChoiceBox(theme, self)
        self.memory.setFont(fixed_font(SMALL_PX))
        self.memory.setFixedWidth(MEMORY_PX)
        self.memory.setAccessibleName("Memory for these weights")
        self.remove = QPushButton(self)
        self.remove.setProperty("kind", "icon")
        self.remove.setFixedWidth(24)
        self.remove.setToolTip("Remove this rule")
        self.remove.setAccessibleName("Remove this rule")
        self.note = QLabel(self)
        self.note.setTextFormat(Qt.TextFormat.PlainText)
        self.note.setWordWrap(True)
        self._lay_out()
        self.offer(memories)
        self.show_rule(rule)
        self.pattern.textEdited.connect(self._on_edited)
        self.pattern.editingFinished.connect(self._on_finished)
        self.memory.activated.connect(self._on_finished)
        self.remove.clicked.connect(self._on_removed)
        theme.changed.connect(self._tint)
        self._tint()

    def _lay_out(self) -> None:
        self._grid = grid = QGridLayout(self)
        grid.setContentsMargins(0, 0, 0, 0)
        grid.setHorizontalSpacing(4)
        grid.setVerticalSpacing(4)
        grid.setColumnStretch(1, 1)
        grid.addWidget(self.pattern, 0, 0, 1, 2)
        grid.addWidget(self.remove, 0, 2)
        grid.addWidget(self.memory, 1, 0)
        self._place_note(is_long=False)

    def _place_note(self, *, is_long: bool) -> None:
        """What is wrong takes a line of its own, what a rule matches stands beside the memory."""
        self._grid.removeWidget(self.note)
        if is_long:
            self._grid.addWidget(self.note, 2, 0, 1, 3)
        else:
            self._grid.addWidget(self.note, 1, 1, 1, 2)

    @property
    def rule(self) -> TensorOverride:
        """What is typed."""
        return TensorOverride(self.pattern.text().strip(), self.memory.currentText())

    def offer(self, memories: Sequence[str]) -> None:
        """Offer other memories; the one that is set stays, whether it is among them or not."""
        chosen = self.memory.currentText()
        self.memory.clear()
        self.memory.addItems([*memories])
        self._choose(chosen or memories[0])
        self.memory.fit_list()

    def show_rule(self, rule: TensorOverride) -> None:
        """Show another rule."""
        self.pattern.setText(rule.pattern)
        self.pattern.setCursorPosition(0)
        self._choose(rule.buft)

    def show_facts(self, facts: RuleFacts) -> None:
        """Say what the rule matches, or what is wrong with it."""
        self._place_note(is_long=bool(facts.problem))
        self.note.setText(facts.words)
        self.pattern.setAccessibleDescription(facts.words)
        for widget, name, value in (
            (self.note, "role", "problem" if facts.problem else "tiny"),
            (self.pattern, "bad", bool(facts.problem)),
        ):
            if widget.property(name) != value:
                widget.setProperty(name, value)
                widget.style().unpolish(widget)
                widget.style().polish(widget)

    def _choose(self, memory: str) -> None:
        if self.memory.findText(memory) < 0:
            self.memory.addItem(memory)
        self.memory.setCurrentIndex(self.memory.findText(memory))

    def _on_edited(self) -> None:
        self.edited.emit()

    def _on_finished(self) -> None:
        self.finished.emit(self)

    def _on_removed(self) -> None:
        self.removed.emit(self)

    def _tint(self) -> None:
        self.remove.setIcon(self._theme.icon("close"))
