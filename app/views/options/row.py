"""OptionRow: label, llama.cpp's flag, control, reset, and below them what is to be said."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtWidgets import QGridLayout, QLabel, QPushButton, QWidget

from app.views.options.fields import ChoiceField, SwitchField, TextField
from app.views.options.notes import tip
from app.views.options.overrides import OverridesEditor
from app.views.options.values import default_text
from engine.core.options import DEFAULTS, SPEC_BY_FIELD, TensorOverride

if TYPE_CHECKING:
    from app.theme.theme import Theme

Field = TextField | ChoiceField | SwitchField | OverridesEditor

FIELD_PX = 126
RESET_PX = 24
PADDING_PX = 12


UNCHANGED = "Run uses the plan that is shown, without it."
"""What a refused value leaves as it was."""


class OptionRow(QWidget):
    """One option."""

    changed = Signal(object, object)
    """Carries the option's name and the value a person gave it."""
    edited = Signal(object)
    """Carries the option's name while a text for it is typed."""

    def __init__(self, field: str, label: str, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.field = field
        self._theme = theme
        self._value: Any = None
        self._shown: Any = None
        """The value in the control: the option's, or one that was asked for."""
        self._note, self._problem, self._why_off = "", "", ""
        self.label = QLabel(label, self)
        self.flag = QLabel(SPEC_BY_FIELD[field].flags[0], self)
        self.flag.setProperty("role", "tiny_mono")
        self.control = self._made_control(theme)
        self.control.setAccessibleName(f"{label}, {self.flag.text()}")
        self.reset = self._made_reset()
        self.note = QLabel(self)
        self.note.setTextFormat(Qt.TextFormat.PlainText)
        self.note.setWordWrap(True)
        self._lay_out()
        for widget in (self.label, self.flag, self.control):
            widget.setToolTip(tip(field))
        self._connect()
        theme.changed.connect(self._tint)
        self._tint()
        self._say()

    def _made_control(self, theme: Theme) -> Field:
        spec = SPEC_BY_FIELD[self.field]
        if spec.item is TensorOverride:
            return OverridesEditor(theme, self)
        if spec.kind is bool:
            return SwitchField(theme, self)
        if spec.choices:
            return ChoiceField(self.field, theme, self)
        return TextField(self.field, self)

    def _made_reset(self) -> QPushButton:
        button = QPushButton(self)
        button.setProperty("kind", "icon")
        button.setFixedSize(QSize(RESET_PX, 24))
        button.setToolTip(f"Back to the default: {default_text(self.field)}")
        button.setAccessibleName(f"{self.label.text()}: back to the default")
        policy = button.sizePolicy()
        policy.setRetainSizeWhenHidden(True)
        button.setSizePolicy(policy)
        button.clicked.connect(self._on_reset)
        return button

    def _lay_out(self) -> None:
        grid = QGridLayout(self)
        grid.setContentsMargins(PADDING_PX, 4, 4, 4)
        grid.setHorizontalSpacing(4)
        grid.setVerticalSpacing(0)
        grid.setColumnStretch(0, 1)
        grid.addWidget(self.label, 0, 0)
        grid.addWidget(self.flag, 1, 0)
        grid.addWidget(self.reset, 0, 2, 2, 1)
        if isinstance(self.control, OverridesEditor):
            grid.addWidget(self.control, 2, 0, 1, 2)
        else:
            self.control.setFixedWidth(FIELD_PX)
            grid.addWidget(self.control, 0, 1, 2, 1)
        self.note.setContentsMargins(0, 2, 0, 2)
        grid.addWidget(self.note, 3, 0, 1, 2)

    def _connect(self) -> None:
        self.control.changed.connect(self._on_changed)
        if isinstance(self.control, TextField):
            self.control.refused.connect(self._on_refused)
            self.control.edited.connect(self._on_edited)
            self.control.taken_back.connect(self._on_taken_back)

    # What is shown.

    @property
    def text(self) -> str:
        """What is in the field, typed or set; empty where there is no text."""
        return self.control.text() if isinstance(self.control, TextField) else ""

    @property
    def is_changed(self) -> bool:
        """Whether the option is not at its default."""
        return bool(self._value != getattr(DEFAULTS, self.field))

    @property
    def problem(self) -> str:
        """Why the field's text is not the option's value; empty if it is."""
        return self._problem

    def show_value(self, value: Any, *, is_other_model: bool = False) -> None:
        """Show the option's value; a text that was refused stays until there is another value."""
        if is_other_model and isinstance(self.control, OverridesEditor):
            self.control.clear()
        is_dropped = value != self._shown and not self._problem
        if value != self._value or is_dropped or is_other_model:
            self._value = self._shown = value
            self._problem = ""
            self.control.show_value(value)
        self.reset.setVisible(self.is_changed or bool(self._problem))

    def show_refusal(self, value: Any, words: str) -> None:
        """Show a value that was asked for and is impossible, and why."""
        self.control.show_refused(value)
        self._set_problem(words)

    def show_note(self, note: str, why_off: str) -> None:
        """Show what the value comes to; `why_off` disables the control and says why."""
        self._note, self._why_off = note, why_off
        # What was set stays reachable for the reset button.
        self.control.setEnabled(not why_off)
        self.label.setEnabled(not why_off)
        self._say()

    def _say(self) -> None:
        refusal = f"{self._problem} {UNCHANGED}" if self._problem else ""
        words = refusal or self._why_off or self._note
        self.note.setText(words)
        self.note.setVisible(bool(words))
        role = "problem" if self._problem else "tiny"
        if self.note.property("role") != role:
            self.note.setProperty("role", role)
            self.note.style().unpolish(self.note)
            self.note.style().polish(self.note)
        self.control.setAccessibleDescription(words)

    def _set_problem(self, words: str) -> None:
        self._problem = words
        self.reset.setVisible(self.is_changed or bool(words))
        self._say()

    # What a person does.

    def _on_changed(self, value: Any) -> None:
        self._shown = value
        self._set_problem("")
        self.changed.emit(self.field, value)

    def _on_refused(self, words: str) -> None:
        self._set_problem(words)

    def _on_edited(self) -> None:
        self.edited.emit(self.field)

    def _on_taken_back(self) -> None:
        self._shown = self._value
        self.control.show_value(self._value)
        self._set_problem("")
        self.edited.emit(self.field)

    def _on_reset(self) -> None:
        if self.is_changed:
            self._on_changed(getattr(DEFAULTS, self.field))
        else:
            self._on_taken_back()

    def _tint(self) -> None:
        self.reset.setIcon(self._theme.icon("undo"))
