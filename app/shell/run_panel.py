"""RunPanel: the prompt, the text as it comes or its embedding, and how fast that came."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QTextCursor
from PySide6.QtWidgets import (
    QHBoxLayout,
    QLabel,
    QPlainTextEdit,
    QPushButton,
    QSpinBox,
    QVBoxLayout,
    QWidget,
)

from app.models.dock_title import DockTitle
from app.shell.embedding_result import EmbeddingResult
from app.shell.job_row import JobRow
from app.state.settings import N_PREDICT_RANGE
from app.theme.text import count, rate_text
from engine.core.summary import RunState

if TYPE_CHECKING:
    from app.commands.actions import ActionSet
    from app.state.app_state import AppState, RunInfo
    from app.theme.theme import Theme

DEMO_PROMPT = (
    "Explain in one paragraph why a language model that does not fit into GPU memory can still be "
    "run, what the computer does with the layers that are left over, why reading a long prompt "
    "is a different kind of work than writing one word after another, and which of the two gains "
    "more when the weights of the left-over layers are copied to the GPU for every batch."
)
"""Long enough for op_offload's rule to matter, which starts at 32 tokens."""

MIN_PROMPT_LINES, PROMPT_LINES = 2, 6


class RunPanel(QWidget):
    """Prompt above, text below; buttons and figures between."""

    dock_title_changed = Signal(object)

    def __init__(
        self,
        state: AppState,
        theme: Theme,
        actions: ActionSet,
        n_predict: int,
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(parent)
        self.setProperty("role", "sheet")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self._state, self._theme, self._actions = state, theme, actions
        self._shown_text = ""
        self.prompt = QPlainTextEdit(DEMO_PROMPT, self)
        self.prompt.setAccessibleName("Prompt")
        # A file dropped here is meant for the window.
        self.prompt.setAcceptDrops(False)
        self.prompt.setTabChangesFocus(True)
        line_px = self.prompt.fontMetrics().lineSpacing()
        self.prompt.setMinimumHeight(line_px * MIN_PROMPT_LINES + 14)
        self.prompt.setMaximumHeight(line_px * PROMPT_LINES + 14)
        self.n_predict = QSpinBox(self)
        self.n_predict.setRange(*N_PREDICT_RANGE)
        self.n_predict.setValue(n_predict)
        self.n_predict.setButtonSymbols(QSpinBox.ButtonSymbols.NoButtons)
        self.n_predict.setAlignment(Qt.AlignmentFlag.AlignRight)
        self.n_predict.setToolTip("Tokens to generate; the arrow keys change it")
        self.n_predict.setAccessibleName("Tokens to generate")
        self.problem = QLabel(self)
        self.problem.setProperty("role", "problem")
        self.problem.setWordWrap(True)
        self.tokens_label = QLabel("tokens", self)
        self.tokens_label.setProperty("role", "muted")
        self.run_button = self._button("run", "")
        self.export_button = self._button("export", "")
        self.job_row = JobRow(self)
        self.speeds = QLabel(self)
        self.speeds.setWordWrap(True)
        self.counts = QLabel(self)
        self.counts.setProperty("role", "muted")
        self.text = QPlainTextEdit(self)
        self.text.setReadOnly(True)
        self.text.setMinimumHeight(line_px * MIN_PROMPT_LINES)
        self.text.setProperty("role", "plain")
        self.text.setAccessibleName("Generated text")
        self.text.setPlaceholderText("The text appears here.")
        self.embedding = EmbeddingResult(theme, actions, self)
        self._make_layout()
        self.prompt.textChanged.connect(self.problem.hide)
        state.model_changed.connect(self._on_model)
        state.run_changed.connect(self._on_run)
        theme.changed.connect(self._tint)
        for action_id in ("run", "export"):
            actions[action_id].changed.connect(self._sync_buttons)
        self._tint()
        self._on_model()
        self._on_run(state.run)

    @property
    def dock_title(self) -> DockTitle:
        """What the title bar shows."""
        run = self._state.run
        kind = "embedding" if self._state.embeds else "chat"
        fact = kind if run.prompt else ""
        return DockTitle("Run", fact)

    def _make_layout(self) -> None:
        controls = QHBoxLayout()
        controls.setSpacing(8)
        controls.addWidget(self.run_button)
        controls.addWidget(self.n_predict)
        controls.addWidget(self.tokens_label)
        controls.addStretch()
        footer = QHBoxLayout()
        footer.addWidget(self.export_button)
        footer.addStretch()
        footer.addWidget(self.counts)
        column = QVBoxLayout(self)
        column.setContentsMargins(12, 8, 12, 8)
        column.setSpacing(8)
        column.addWidget(self.prompt, stretch=1)
        column.addWidget(self.problem)
        column.addLayout(controls)
        column.addWidget(self.job_row)
        column.addWidget(self.speeds)
        column.addWidget(self.text, stretch=2)
        column.addWidget(self.embedding, stretch=2)
        column.addLayout(footer)

    def _button(self, action_id: str, kind: str) -> QPushButton:
        action = self._actions[action_id]
        button = QPushButton(action.text(), self)
        button.setProperty("kind", kind)
        button.clicked.connect(action.trigger)
        return button

    def _on_model(self) -> None:
        """Offer what the open model can do."""
        embeds = self._state.embeds
        for widget in (self.n_predict, self.tokens_label, self.text):
            widget.setVisible(not embeds)
        self.embedding.setVisible(embeds)
        self.prompt.setAccessibleName("Text to embed" if embeds else "Prompt")
        self._sync_buttons()

    def _on_run(self, run: RunInfo) -> None:
        self._append(run.text)
        self.embedding.show_run(run)
        self.problem.setText(run.problem)
        self.problem.setVisible(bool(run.problem))
        self.speeds.setText(speeds_text(run))
        self.speeds.setVisible(bool(self.speeds.text()))
        self.counts.setText(counts_text(run))
        is_idle = run.state is RunState.IDLE
        self.prompt.setReadOnly(not is_idle)
        self.n_predict.setEnabled(is_idle)
        self._sync_buttons()
        self.dock_title_changed.emit(self.dock_title)

    def _append(self, text: str) -> None:
        """Add what is new; start over for another run."""
        if not text.startswith(self._shown_text):
            self.text.setPlainText(text)
        elif len(text) > len(self._shown_text):
            cursor = QTextCursor(self.text.document())
            cursor.movePosition(QTextCursor.MoveOperation.End)
            cursor.insertText(text[len(self._shown_text) :])
            bar = self.text.verticalScrollBar()
            bar.setValue(bar.maximum())
        self._shown_text = text

    def _sync_buttons(self) -> None:
        has_run = self._state.run.summary is not None
        verb = "Embed" if self._state.embeds else "Run"
        self.run_button.setText(f"{verb} again" if has_run else verb)
        for action_id, button in (("run", self.run_button), ("export", self.export_button)):
            action = self._actions[action_id]
            button.setEnabled(action.isEnabled())
            button.setToolTip(action.toolTip())

    def _tint(self) -> None:
        self.run_button.setIcon(self._theme.icon("run"))
        self.export_button.setIcon(self._theme.icon("export"))


def speeds_text(run: RunInfo) -> str:
    """Both speeds, as far as they are measured."""
    parts = []
    if run.prefill_tokens_per_s:
        parts.append(f"Prompt {rate_text(run.prefill_tokens_per_s)}")
    if run.decode_tokens_per_s:
        parts.append(f"generation {rate_text(run.decode_tokens_per_s)}")
    return ", ".join(parts)


def counts_text(run: RunInfo) -> str:
    """How many tokens there are: "12 of 48 tokens"."""
    if not run.n_predict:
        return ""
    reason = "" if run.summary is None else f", {run.summary.stop_reason.value}"
    shown = "" if reason == ", length" else reason
    return f"{count(run.n_tokens)} of {count(run.n_predict)} tokens{shown}"
