"""Segment: exclusive buttons that share borders, such as "prompt 512 | one token"."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QAbstractButton, QButtonGroup, QHBoxLayout, QToolButton, QWidget

if TYPE_CHECKING:
    from collections.abc import Sequence

HEIGHT_PX = 28


class Segment(QWidget):
    """One of a few choices. Arrow keys move between them, as in a group of radio buttons."""

    chosen = Signal(object)
    """Carries the value a person chose; `choose` does not emit it."""

    def __init__(
        self, choices: Sequence[tuple[Any, str]], name: str, parent: QWidget | None = None
    ) -> None:
        """Make a button for each (value, text); `name` is what a screen reader says."""
        super().__init__(parent)
        self.setAccessibleName(name)
        self._values = [value for value, _ in choices]
        self._group = QButtonGroup(self)
        layout = QHBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        for index, (_, text) in enumerate(choices):
            button = _button(text, _place(index, len(choices)))
            button.setAccessibleName(f"{name}: {text}")
            self._group.addButton(button, index)
            layout.addWidget(button)
        self._group.button(0).setChecked(True)
        self._group.buttonClicked.connect(self._on_clicked)

    @property
    def value(self) -> Any:
        """The choice."""
        return self._values[self._group.checkedId()]

    def choose(self, value: Any) -> None:
        """Show a choice."""
        self._group.button(self._values.index(value)).setChecked(True)

    def set_text(self, value: Any, text: str) -> None:
        """Change the words of a choice."""
        button = self.button(value)
        button.setText(text)
        button.setAccessibleName(f"{self.accessibleName()}: {text}")

    def button(self, value: Any) -> QAbstractButton:
        """The button of a choice."""
        return self._group.button(self._values.index(value))

    def _on_clicked(self, button: QAbstractButton) -> None:
        self.chosen.emit(self._values[self._group.id(button)])


def _button(text: str, place: str) -> QToolButton:
    button = QToolButton()
    button.setText(text)
    button.setCheckable(True)
    button.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonTextOnly)
    button.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
    button.setFixedHeight(HEIGHT_PX)
    button.setProperty("segment", place)
    return button


def _place(index: int, n: int) -> str:
    if index == 0:
        return "first"
    return "last" if index == n - 1 else "middle"
