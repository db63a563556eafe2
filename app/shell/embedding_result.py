"""EmbeddingResult: what an encoder gave for a text, and where it may go."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from PySide6.QtWidgets import QHBoxLayout, QPushButton, QVBoxLayout, QWidget

from app.theme.elided_label import ElidedLabel
from app.theme.fonts import fixed_font
from app.theme.text import MINUS, count, duration_text, plural, rate_text
from app.theme.whole_lines import WholeLines
from app.theme.wrapped_label import WrappedLabel

if TYPE_CHECKING:
    from PySide6.QtGui import QResizeEvent

    from app.commands.actions import ActionSet
    from app.state.app_state import RunInfo
    from app.theme.theme import Theme
    from engine.core.summary import Embedded

N_FIRST = 4
"""Values of a row that are shown, where they fit."""
MIN_LINES = 2
LENGTH_CHARS, VALUE_CHARS = 7, 8
PADDING_PX = 12

PLACEHOLDER = "The embedding appears here. How it is pooled: Options, --pooling."

_COMMANDS = (("copy_embedding", "Copy JSON"), ("save_embedding", "Save .npy…"))


class EmbeddingResult(QWidget):
    """Figures, a line a row, and two buttons; what came of those stands below them."""

    def __init__(self, theme: Theme, actions: ActionSet, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme, self._actions = theme, actions
        self._shown: Embedded | None = None
        self.facts = ElidedLabel(parent=self)
        self.speed = ElidedLabel(parent=self)
        self.rows = self._make_rows()
        self.buttons = {action_id: QPushButton(text, self) for action_id, text in _COMMANDS}
        self.outcome = WrappedLabel(self)
        self._make_layout()
        for action_id, button in self.buttons.items():
            button.clicked.connect(actions[action_id].trigger)
            actions[action_id].changed.connect(self._sync_buttons)
        theme.changed.connect(self._tint)
        self._tint()
        self._sync_buttons()
        self.show_run(None)

    def _make_rows(self) -> WholeLines:
        rows = WholeLines(parent=self)
        rows.setReadOnly(True)
        rows.setTabChangesFocus(True)
        rows.setLineWrapMode(WholeLines.LineWrapMode.NoWrap)
        rows.setFont(fixed_font())
        rows.setProperty("role", "plain")
        rows.setAccessibleName("Embedding")
        rows.setMinimumHeight(rows.height_of(MIN_LINES) + PADDING_PX)
        return rows

    def _make_layout(self) -> None:
        buttons = QHBoxLayout()
        buttons.setSpacing(8)
        for button in self.buttons.values():
            buttons.addWidget(button)
        buttons.addStretch()
        facts = QVBoxLayout()
        facts.setSpacing(2)
        facts.addWidget(self.facts)
        facts.addWidget(self.speed)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(6)
        column.addLayout(facts)
        column.addWidget(self.rows, stretch=1)
        column.addLayout(buttons)
        column.addWidget(self.outcome)

    def resizeEvent(self, event: QResizeEvent) -> None:
        """A narrower pane has fewer values in a line."""
        super().resizeEvent(event)
        self._show_rows()

    def show_run(self, run: RunInfo | None) -> None:
        """Show what a run gave; None: there was none."""
        embedded = None if run is None else run.embedded
        if embedded is self._shown and embedded is not None:
            return
        self._shown = embedded
        self.say("")
        for label in (self.facts, self.speed):
            label.setVisible(embedded is not None)
        if embedded is not None:
            self.facts.setText(facts_text(embedded))
            self.speed.setText(speed_text(embedded))
        self.rows.setPlaceholderText("" if embedded is not None else PLACEHOLDER)
        self._show_rows()

    def say(self, words: str, *, is_problem: bool = False) -> None:
        """Say what came of copying or saving; empty for nothing."""
        self.outcome.set_role("problem" if is_problem else "muted")
        self.outcome.setText(words)

    def _show_rows(self) -> None:
        embedded = self._shown
        text = "" if embedded is None else rows_text(embedded, self._n_chars())
        if text != self.rows.toPlainText():
            self.rows.setPlainText(text)

    def _n_chars(self) -> int:
        """How many characters a line has room for beside a scroll bar."""
        bar_px = self.rows.verticalScrollBar().sizeHint().width()
        char_px = self.rows.fontMetrics().horizontalAdvance("0")
        margin_px = 2 * self.rows.document().documentMargin()
        return int((self.width() - bar_px - margin_px - PADDING_PX) / max(char_px, 1))

    def _sync_buttons(self) -> None:
        for action_id, button in self.buttons.items():
            button.setEnabled(self._actions[action_id].isEnabled())
            button.setToolTip(self._actions[action_id].toolTip())

    def _tint(self) -> None:
        self.buttons["copy_embedding"].setIcon(self._theme.icon("copy"))
        self.buttons["save_embedding"].setIcon(self._theme.icon("export"))


def facts_text(embedded: Embedded) -> str:
    """How many rows and values, and what made them."""
    n_rows, n_embd = embedded.rows.shape
    size = f"{plural(n_rows, 'row')} of {plural(n_embd, 'value')}"
    return f"{size}, pooling {embedded.pooling} (Options)"


def speed_text(embedded: Embedded) -> str:
    """How long the text took."""
    summary = embedded.summary
    tokens = plural(len(summary.prompt_tokens), "token")
    speed = rate_text(summary.prefill_tokens_per_s)
    return f"{tokens} in {duration_text(summary.prefill_ns)}, {speed}"


def rows_text(embedded: Embedded, n_chars: int = 80) -> str:
    """The length of each row and its first values, as many as `n_chars` have room for.

    Several rows are numbered below heads; one alone has its values below its length.
    """
    rows, n_embd = embedded.rows, embedded.rows.shape[1]
    lengths = [count(float(np.linalg.norm(row.astype(np.float64))), 4) for row in rows]
    n_first = min(N_FIRST, n_embd)
    if len(rows) == 1:
        n_line = max(1, min(n_first, (n_chars - 2) // VALUE_CHARS))
        values = [_number(value) for value in rows[0][:n_first]]
        lines = [" ".join(values[i : i + n_line]) for i in range(0, n_first, n_line)]
        return "\n".join((f"length {lengths[0]}", *lines)) + (" …" if n_embd > n_first else "")
    n_label, n_length = max(3, len(str(len(rows) - 1))), max(LENGTH_CHARS, *map(len, lengths))
    room = n_chars - n_label - n_length - 4
    n_shown = max(1, min(n_first, room // VALUE_CHARS))
    more = " …" if n_embd > n_shown else ""
    heads = f"{'row':>{n_label}} {'length':>{n_length}}  first values"
    return "\n".join(
        (
            heads,
            *(
                f"{i:>{n_label}} {length:>{n_length}}  "
                f"{' '.join(_number(value) for value in row[:n_shown])}{more}"
                for i, (row, length) in enumerate(zip(rows, lengths, strict=True))
            ),
        )
    )


def _number(value: float) -> str:
    return f"{value:7.4f}".replace("-", MINUS)
