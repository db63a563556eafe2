"""EmbeddingResult: what an encoder gave for a text, and where it may go."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from PySide6.QtWidgets import QHBoxLayout, QLabel, QPlainTextEdit, QPushButton, QVBoxLayout, QWidget

from app.theme.fonts import fixed_font
from app.theme.text import MINUS, count, duration_text, plural

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from app.commands.actions import ActionSet
    from app.state.app_state import RunInfo
    from app.theme.theme import Theme
    from engine.core.summary import Embedded

N_FIRST = 4
"""Values of a row that are shown."""

_COMMANDS = (("copy_embedding", "Copy JSON"), ("save_embedding", "Save .npy…"))


class EmbeddingResult(QWidget):
    """Figures, a line a row, and two buttons; what came of those stands below them."""

    def __init__(self, theme: Theme, actions: ActionSet, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme, self._actions = theme, actions
        self._shown: Embedded | None = None
        self.facts = QLabel(self)
        self.facts.setWordWrap(True)
        self.rows = QPlainTextEdit(self)
        self.rows.setReadOnly(True)
        self.rows.setTabChangesFocus(True)
        self.rows.setLineWrapMode(QPlainTextEdit.LineWrapMode.NoWrap)
        self.rows.setFont(fixed_font())
        self.rows.setProperty("role", "plain")
        self.rows.setAccessibleName("Embedding")
        self.rows.setPlaceholderText("The embedding appears here.")
        self.buttons = {action_id: QPushButton(text, self) for action_id, text in _COMMANDS}
        self.outcome = QLabel(self)
        self.outcome.setWordWrap(True)
        self._make_layout()
        for action_id, button in self.buttons.items():
            button.clicked.connect(actions[action_id].trigger)
            actions[action_id].changed.connect(self._sync_buttons)
        theme.changed.connect(self._tint)
        self._tint()
        self._sync_buttons()
        self.show_run(None)

    def _make_layout(self) -> None:
        buttons = QHBoxLayout()
        buttons.setSpacing(8)
        for button in self.buttons.values():
            buttons.addWidget(button)
        buttons.addStretch()
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(8)
        column.addWidget(self.facts)
        column.addWidget(self.rows, stretch=1)
        column.addLayout(buttons)
        column.addWidget(self.outcome)

    def show_run(self, run: RunInfo | None) -> None:
        """Show what a run gave; None: there was none."""
        embedded = None if run is None else run.embedded
        if embedded is None:
            self.facts.hide()
            self.rows.clear()
            self.say("")
        elif embedded is not self._shown:
            self.facts.setText(facts_text(embedded))
            self.facts.show()
            self.rows.setPlainText(rows_text(embedded))
        self._shown = embedded

    def say(self, words: str, *, is_problem: bool = False) -> None:
        """Say what came of copying or saving; empty for nothing."""
        self.outcome.setProperty("role", "problem" if is_problem else "muted")
        self.outcome.style().unpolish(self.outcome)
        self.outcome.style().polish(self.outcome)
        self.outcome.setText(words)
        self.outcome.setVisible(bool(words))

    def _sync_buttons(self) -> None:
        for action_id, button in self.buttons.items():
            button.setEnabled(self._actions[action_id].isEnabled())
            button.setToolTip(self._actions[action_id].toolTip())

    def _tint(self) -> None:
        self.buttons["copy_embedding"].setIcon(self._theme.icon("copy"))
        self.buttons["save_embedding"].setIcon(self._theme.icon("export"))


def facts_text(embedded: Embedded) -> str:
    """How many rows and values, how they were made, and how long it took."""
    n_rows, n_embd = embedded.rows.shape
    summary = embedded.summary
    return (
        f"{plural(n_rows, 'row')} of {plural(n_embd, 'value')}, pooling {embedded.pooling}; "
        f"{plural(len(summary.prompt_tokens), 'token')} in {duration_text(summary.prefill_ns)}. "
        f"{_columns_text(n_embd)}"
    )


def _columns_text(n_embd: int) -> str:
    shown = f"the first {N_FIRST} values" if n_embd > N_FIRST else "all values"
    return f"Below: the norm of each row and {shown}."


def rows_text(embedded: Embedded) -> str:
    """A numbered line a row, its norm and its first values; one row alone takes two lines."""
    n_rows = len(embedded.rows)
    width = len(str(n_rows - 1))
    if n_rows == 1:
        return "\n".join(_row_parts(embedded.rows[0]))
    return "\n".join(
        f"{i:>{width}}  {'  '.join(_row_parts(row))}" for i, row in enumerate(embedded.rows)
    )


def _row_parts(row: NDArray[np.float32]) -> tuple[str, str]:
    more = " …" if len(row) > N_FIRST else ""
    values = " ".join(_number(value) for value in row[:N_FIRST])
    return f"norm {count(float(np.linalg.norm(row)), 4)}", f"{values}{more}"


def _number(value: float) -> str:
    return f"{value:7.4f}".replace("-", MINUS)
