"""Sheet: a pane of a table, words below it and a footer with buttons."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QFrame, QHBoxLayout, QPushButton, QWidget

if TYPE_CHECKING:
    from app.commands.actions import ActionSet

COPY_TIP = "Copy the rows that are shown; Ctrl+C copies the selected one"


class Sheet(QWidget):
    """`buttons` are those of actions, by the action; `_sync_buttons` follows them."""

    dock_title_changed = Signal(object)

    def __init__(self, name: str, actions: ActionSet, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName(name)
        self.setProperty("role", "sheet")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self._actions = actions
        self.buttons: dict[str, QPushButton] = {}

    def _sync_buttons(self) -> None:
        """An action changed."""

    def _empty_footer(self, margin_px: int) -> tuple[QFrame, QHBoxLayout]:
        """The footer, and its row of buttons."""
        footer = QFrame(self)
        footer.setProperty("role", "footer")
        row = QHBoxLayout(footer)
        row.setContentsMargins(12, margin_px, 12, margin_px)
        row.setSpacing(8)
        return footer, row

    def _small_button(self, text: str, tip: str = "") -> QPushButton:
        button = QPushButton(text, self)
        button.setToolTip(tip)
        button.setProperty("kind", "small")
        return button

    def _button(self, action_id: str, text: str) -> QPushButton:
        """The button of an action."""
        action = self._actions[action_id]
        button = self._small_button(text)
        button.clicked.connect(action.trigger)
        action.changed.connect(self._sync_buttons)
        self.buttons[action_id] = button
        return button
