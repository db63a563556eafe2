"""The controls of options. Each shows a value and tells when a person gives it another.

`changed` carries a value its option allows; `refused` says why what was typed is none, and the
text stays; `edited` carries a text that is still being typed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QLineEdit, QWidget

from app.theme.choice_box import ChoiceBox
from app.theme.fonts import SMALL_PX, fixed_font
from app.theme.switch import Switch
from app.views.options.values import refusal_words, text_of, value_of
from engine.core.options import SPEC_BY_FIELD
from engine.errors import PlacementError

if TYPE_CHECKING:
    from PySide6.QtGui import QKeyEvent

    from app.theme.theme import Theme


class TextField(QLineEdit):
    """A number, a word for one, or a list."""

    changed = Signal(object)
    refused = Signal(object)
    edited = Signal()
    taken_back = Signal()
    """What was typed shall be forgotten."""

    def __init__(self, field: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._field = field
        self._value: Any = None
        self._asked: Any = None
        self.setFont(fixed_font(SMALL_PX))
        self.editingFinished.connect(self._on_finished)
        self.textEdited.connect(self._on_edited)

    def show_value(self, value: Any) -> None:
        """Show a value in place of whatever was typed."""
        self._value = self._asked = value
        self._show_text(value, is_bad=False)

    def show_refused(self, value: Any) -> None:
        """Show a value that was asked for and is impossible."""
        self._asked = value
        self._show_text(value, is_bad=True)

    def _show_text(self, value: Any, *, is_bad: bool) -> None:
        self.setText(text_of(self._field, value))
        self.setCursorPosition(0)
        self._mark(is_bad=is_bad)

    def _mark(self, *, is_bad: bool) -> None:
        """Show whether the text can be used."""
        if bool(self.property("bad")) != is_bad:
            self.setProperty("bad", is_bad)
            self.style().unpolish(self)
            self.style().polish(self)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Esc takes back what was typed."""
        if event.key() == Qt.Key.Key_Escape and self.text() != text_of(self._field, self._value):
            self.taken_back.emit()
        else:
            super().keyPressEvent(event)

    def _on_finished(self) -> None:
        # Enter and then the loss of focus both end an edit: a value is asked for once.
        if self.text() == text_of(self._field, self._asked):
            return
        try:
            value = value_of(self._field, self.text())
        except PlacementError as error:
            self._mark(is_bad=True)
            self.refused.emit(refusal_words(self._field, error.sentence))
            return
        if value == self._value:
            self.taken_back.emit()
        else:
            self._asked = value
            self._show_text(value, is_bad=False)
            self.changed.emit(value)

    def _on_edited(self, _text: str) -> None:
        self.edited.emit()


class ChoiceField(ChoiceBox):
    """One of the words of an option."""

    changed = Signal(object)

    def __init__(self, field: str, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(theme, parent)
        self._spec = SPEC_BY_FIELD[field]
        self.setFont(fixed_font(SMALL_PX))
        for choice in self._spec.choices:
            self.addItem(str(choice))
        self.fit_list()
        self.activated.connect(self._on_activated)

    def show_value(self, value: Any) -> None:
        """Show a value."""
        self.setCurrentIndex(self.findText(str(value)))

    show_refused = show_value

    def _on_activated(self, _index: int) -> None:
        self.changed.emit(self._spec.check(self.currentText()))


class SwitchField(Switch):
    """On or off."""

    changed = Signal(object)

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__("off", theme, parent)
        self.clicked.connect(self._on_clicked)

    def show_value(self, value: Any) -> None:
        """Show a value."""
        self.setChecked(bool(value))
        self.setText("on" if value else "off")

    show_refused = show_value

    def _on_clicked(self) -> None:
        self.show_value(self.isChecked())
        self.changed.emit(self.isChecked())
