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
    QScrollArea,
    QSpinBox,
    QVBoxLayout,
    QWidget,
)

from app.models.dock_title import DockTitle
from app.shell.embedding_result import EmbeddingResult
from app.state.settings import N_PREDICT_RANGE
from app.theme.job_row import JobRow
from app.theme.text import count, rate_text
from app.theme.whole_lines import WholeLines
from app.theme.wrapped_label import WrappedLabel
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
    """Prompt above, text below; buttons and figures between. It scrolls before anything is cut."""

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
        self._state, self._theme, self._actions = state, theme, actions
        self._shown_text = ""
        self._offers_embedding: bool | None = None
        self._make_prompt()
        self._make_n_predict(n_predict)
        self._make_text()
        self.problem = WrappedLabel(self)
        self.problem.setProperty("role", "problem")
        self.run_button = self._button("run", "")
        self.export_button = self._button("export", "")
        self.job_row = JobRow(self)
        self.speeds = WrappedLabel(self)
        self.counts = QLabel(self)
        self.counts.setProperty("role", "muted")
        self.embedding = EmbeddingResult(theme, actions, self)
        self._make_layout()
        self._connect()
        self._tint()
        self._on_model()
        self._on_run(state.run)

    def _make_prompt(self) -> None:
        self.prompt = WholeLines(DEMO_PROMPT, self)
        # A file dropped here is meant for the window.
        self.prompt.setAcceptDrops(False)
        self.prompt.setTabChangesFocus(True)
        line_px = self.prompt.fontMetrics().lineSpacing()
        self.prompt.setMinimumHeight(line_px * MIN_PROMPT_LINES + 14)
        self.prompt.setMaximumHeight(line_px * PROMPT_LINES + 14)

    def _make_n_predict(self, n_predict: int) -> None:
        self.n_predict = QSpinBox(self)
        self.n_predict.setRange(*N_PREDICT_RANGE)
        self.n_predict.setValue(n_predict)
        self.n_predict.setButtonSymbols(QSpinBox.ButtonSymbols.NoButtons)
        self.n_predict.setAlignment(Qt.AlignmentFlag.AlignRight)
        self.n_predict.setToolTip("Tokens to generate; the arrow keys change it")
        self.n_predict.setAccessibleName("Tokens to generate")
        self.tokens_label = QLabel("tokens", self)
        self.tokens_label.setProperty("role", "muted")

    def _make_text(self) -> None:
        self.text = QPlainTextEdit(self)
        self.text.setReadOnly(True)
        self.text.setMinimumHeight(self.text.fontMetrics().lineSpacing() * MIN_PROMPT_LINES)
        self.text.setProperty("role", "plain")
        self.text.setAccessibleName("Generated text")
        self.text.setPlaceholderText("The text appears here.")

    def _make_layout(self) -> None:
        self._controls, self._footer = QHBoxLayout(), QHBoxLayout()
        self._controls.setSpacing(8)
        for widget in (self.run_button, self.n_predict, self.tokens_label):
            self._controls.addWidget(widget)
        self._controls.addStretch()
        self._footer.addStretch()
        self._footer.addWidget(self.counts)
        body = QWidget(self)
        body.setProperty("role", "sheet")
        column = QVBoxLayout(body)
        column.setContentsMargins(12, 8, 12, 8)
        column.setSpacing(6)
        column.addWidget(self.prompt, stretch=1)
        column.addWidget(self.problem)
        column.addLayout(self._controls)
        column.addWidget(self.job_row)
        column.addWidget(self.speeds)
        column.addWidget(self.text, stretch=2)
        column.addWidget(self.embedding, stretch=2)
        column.addLayout(self._footer)
        self._scroll(body)

    def _scroll(self, body: QWidget) -> None:
        area = QScrollArea(self)
        area.setWidgetResizable(True)
        area.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        area.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        area.setWidget(body)
        whole = QVBoxLayout(self)
        whole.setContentsMargins(0, 0, 0, 0)
        whole.addWidget(area)

    def _connect(self) -> None:
        self.prompt.textChanged.connect(self.problem.hide)
        for signal in (self._state.model_changed, self._state.plans_changed):
            signal.connect(self._on_model)
        self._state.run_changed.connect(self._on_run)
        self._theme.changed.connect(self._tint)
        for action_id in ("run", "export"):
            self._actions[action_id].changed.connect(self._sync_buttons)

    @property
    def dock_title(self) -> DockTitle:
        """What the title bar shows."""
        run = self._state.run
        model = self._state.model
        kind = "chat" if model is not None and model.has_chat_template else "text"
        kind = "embedding" if self._state.embeds else kind
        fact = kind if run.prompt else ""
        return DockTitle("Run", fact)

    def _button(self, action_id: str, kind: str) -> QPushButton:
        action = self._actions[action_id]
        button = QPushButton(action.text(), self)
        button.setProperty("kind", kind)
        button.clicked.connect(action.trigger)
        return button

    def _on_model(self) -> None:
        """Offer what the open model does."""
        embeds = self._state.embeds
        if embeds is self._offers_embedding:
            return
        self._offers_embedding = embeds
        for widget in (self.n_predict, self.tokens_label, self.text):
            widget.setVisible(not embeds)
        self.embedding.setVisible(embeds)
        self.prompt.setAccessibleName("Text to embed" if embeds else "Prompt")
        self.prompt.setPlaceholderText("Type a text to embed." if embeds else "Type a prompt.")
        # An embedding has two buttons of its own below it, and no controls above.
        if embeds:
            self._controls.addWidget(self.export_button)
        else:
            self._footer.insertWidget(0, self.export_button)
        self._sync_buttons()

    def _on_run(self, run: RunInfo) -> None:
        self._append(run.text)
        self.embedding.show_run(run)
        self.problem.setText(run.problem)
        self.speeds.setText("" if run.embedded is not None else speeds_text(run))
        self.counts.setText(counts_text(run))
        self.counts.setVisible(bool(self.counts.text()))
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
        # At once: a longer text must not stand in the old width while the window is busy.
        self._controls.activate()

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
