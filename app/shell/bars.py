"""Bars above the panes: messages and the change bar. They push content and never cover it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtGui import QAccessible, QAccessibleEvent, QGuiApplication
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QPushButton, QVBoxLayout, QWidget

from app.shell.change_text import change_facts, token_facts
from app.shell.clause_label import ClauseLabel
from app.theme.segment import Segment
from engine.core.diff import diff_sets
from engine.core.visible import visible

if TYPE_CHECKING:
    from collections.abc import Callable

    from app.shell.messages import Message
    from app.state.app_state import DiffMode
    from app.theme.theme import Theme

MAX_MESSAGES = 2
BAR_MIN_PX = 40
GAP = "    "
"""Between the facts of a change."""


class Bar(QFrame):
    """A row: what is said at the left, buttons at the right."""

    def __init__(self, role: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setProperty("role", role)
        self.setMinimumHeight(BAR_MIN_PX)
        self.row = QHBoxLayout(self)
        self.row.setContentsMargins(12, 6, 12, 6)
        self.row.setSpacing(8)

    def add_button(
        self, text: str, on_click: Callable[[], object], *, kind: str = "", tip: str = ""
    ) -> QPushButton:
        """Append a button; `on_click` is a bound method."""
        button = QPushButton(text, self)
        button.setProperty("kind", kind)
        button.setToolTip(tip)
        button.clicked.connect(on_click)
        self.row.addWidget(button)
        return button

    def alert(self, text: str) -> None:
        """Have a screen reader say it now."""
        self.setAccessibleName(text)
        QAccessible.updateAccessibility(QAccessibleEvent(self, QAccessible.Event.Alert))


class MessageBar(Bar):
    """One message: what happened, why, what to do, and buttons that do it."""

    closed = Signal(object)
    """Carries the bar."""
    asked = Signal(object)
    """Carries the id of a command."""

    def __init__(
        self, message: Message, texts: dict[str, str], theme: Theme, parent: QWidget | None = None
    ) -> None:
        """`texts` are the words of commands by id."""
        super().__init__("message", parent)
        self.message = message
        self._theme = theme
        self._icon = QLabel(self)
        self.row.addWidget(self._icon, alignment=Qt.AlignmentFlag.AlignTop)
        self.row.addLayout(self._texts(), stretch=1)
        for place, action_id in enumerate(message.actions):
            button = self.add_button(
                texts[action_id], self._on_action, kind="primary" if place == 0 else ""
            )
            button.setObjectName(action_id)
        if message.details:
            self.add_button("Copy details", self._copy, tip="Copy the message with its details")
        close = self.add_button("", self._close, kind="small", tip="Close this message")
        close.setAccessibleName("Close message")
        self._close_button = close
        theme.changed.connect(self._tint)
        self._tint()

    def _texts(self) -> QVBoxLayout:
        column = QVBoxLayout()
        column.setSpacing(2)
        title = _label(self.message.title, "strong")
        column.addWidget(title)
        for text, role in ((self.message.sentence, ""), (self.message.hint, "muted")):
            if text:
                column.addWidget(_label(text, role))
        return column

    def _on_action(self) -> None:
        sender = self.sender()
        assert sender is not None
        self.asked.emit(sender.objectName())
        self._close()

    def _copy(self) -> None:
        QGuiApplication.clipboard().setText(self.message.text)

    def _close(self) -> None:
        self.closed.emit(self)

    def _tint(self) -> None:
        self._icon.setPixmap(self._theme.icon("message").pixmap(QSize(16, 16)))
        self._close_button.setIcon(self._theme.icon("close"))


class MessageStack(QWidget):
    """At most two messages, the newest on top; the log keeps the rest."""

    asked = Signal(object)
    """Carries the id of a command."""

    def __init__(self, texts: dict[str, str], theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._texts, self._theme = texts, theme
        self._layout = QVBoxLayout(self)
        self._layout.setContentsMargins(0, 0, 0, 0)
        self._layout.setSpacing(0)
        self.hide()

    @property
    def messages(self) -> tuple[Message, ...]:
        """What is shown, newest first."""
        return tuple(bar.message for bar in self._bars())

    def show_message(self, message: Message) -> None:
        """Put a message on top; one about the same topic goes."""
        if message.topic:
            self.remove_topic(message.topic)
        bar = MessageBar(message, self._texts, self._theme, self)
        bar.closed.connect(self._remove)
        bar.asked.connect(self.asked)
        self._layout.insertWidget(0, bar)
        for old in self._bars()[MAX_MESSAGES:]:
            self._remove(old)
        self.show()
        bar.alert(message.text)

    def remove_topic(self, topic: str) -> None:
        """Take messages about something away."""
        for bar in self._bars():
            if bar.message.topic == topic:
                self._remove(bar)

    def _bars(self) -> list[MessageBar]:
        items = (self._layout.itemAt(i) for i in range(self._layout.count()))
        widgets = (item.widget() for item in items if item is not None)
        return [widget for widget in widgets if isinstance(widget, MessageBar)]

    def _remove(self, bar: MessageBar) -> None:
        self._layout.removeWidget(bar)
        bar.hide()
        bar.deleteLater()
        if not self._layout.count():
            self.hide()


class ChangeBar(Bar):
    """What a change of options changed, until Keep, Undo or the next change."""

    shows_chosen = Signal(object)
    """Carries "was", "difference" or "now"."""
    kept = Signal()
    undone = Signal()

    def __init__(self, theme: Theme, undo_key: str, parent: QWidget | None = None) -> None:
        super().__init__("bar", parent)
        self.facts = ClauseLabel(theme, GAP, self)
        self.token_facts = ClauseLabel(theme, GAP, self)
        self.token_facts.setProperty("role", "muted")
        lines = QVBoxLayout()
        lines.setSpacing(0)
        lines.addWidget(self.facts)
        lines.addWidget(self.token_facts)
        self.row.setContentsMargins(12, 4, 12, 4)
        self.row.addLayout(lines, stretch=1)
        choices = (("was", "was"), ("difference", "difference"), ("now", "now"))
        self.segment = Segment(choices, "Shown plan", self)
        self.segment.chosen.connect(self.shows_chosen)
        self.row.addWidget(self.segment)
        self._theme = theme
        self.undo_button = self.add_button(
            "Undo", self._on_undo, tip=f"Take the change back ({undo_key})"
        )
        self.keep_button = self.add_button(
            "Keep", self._on_keep, kind="primary", tip="Go on with the new plan"
        )
        theme.changed.connect(self._tint)
        self._tint()
        self.hide()

    def show_diff(self, diff: DiffMode | None, *, makes_tokens: bool = True) -> None:
        """Say what changed; None hides the bar. A model without tokens has one line."""
        if diff is None:
            self.hide()
            return
        changes = diff_sets(diff.was, diff.now)
        facts = change_facts(changes, diff.title, diff.note)
        is_news = facts != self.facts.clauses or self.isHidden()
        self.facts.set_clauses(facts)
        self.token_facts.set_clauses(token_facts(changes, diff.title) if makes_tokens else ())
        self.token_facts.setVisible(makes_tokens)
        self.segment.choose(diff.shows)
        self.show()
        if is_news:
            said = (self.facts.plain_text, self.token_facts.plain_text)
            self.alert(", ".join(text for text in said if text))

    def _on_undo(self) -> None:
        self.undone.emit()

    def _on_keep(self) -> None:
        self.kept.emit()

    def _tint(self) -> None:
        self.undo_button.setIcon(self._theme.icon("undo"))


def _label(text: str, role: str) -> QLabel:
    label = QLabel(visible(text, keeps="\n"))
    label.setProperty("role", role)
    label.setTextFormat(Qt.TextFormat.PlainText)
    label.setWordWrap(True)
    label.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
    return label
