"""ContextBox: how many tokens the model can look back on; typed or chosen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QComboBox, QWidget

from app.theme.choice_box import ARROW_PX, ChoiceBox
from app.theme.fonts import SMALL_PX, fixed_font
from app.theme.text import NOTHING, count
from engine.core.options import SPEC_BY_FIELD

if TYPE_CHECKING:
    from PySide6.QtGui import QKeyEvent

    from app.theme.theme import Theme

OF_THE_MODEL = 0
"""The option's value that stands for the context the model was trained with."""

CHOICES = (512, 1024, 2048, 4096)
WIDEST = "888 888"


class ContextBox(ChoiceBox):
    """Shows tokens; `chosen` comes with what a person chose or typed, if it is another value."""

    chosen = Signal(object)
    """Carries n_ctx."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(theme, parent)
        self._n_ctx = OF_THE_MODEL
        self._n_tokens = self._n_trained = 0
        self.setEditable(True)
        self.setInsertPolicy(QComboBox.InsertPolicy.NoInsert)
        # Completing 51 to 512 would make the shorter number impossible to type.
        self.setCompleter(None)  # type: ignore[arg-type]  # None is Qt's "no completer"
        self.setFont(fixed_font(SMALL_PX))
        self.setAccessibleName("ctx, tokens of context")
        self.setFixedWidth(self.fontMetrics().horizontalAdvance(WIDEST) + ARROW_PX + 18)
        self.activated.connect(self._on_activated)
        edit = self.lineEdit()
        assert edit is not None
        edit.editingFinished.connect(self._on_typed)

    def show_context(self, n_ctx: int, n_tokens: int, n_trained: int) -> None:
        """Show the option's value, the tokens it comes to, and offer the model's own number."""
        if n_trained != self._n_trained or not self.count():
            self._fill(n_trained)
        self._n_ctx, self._n_tokens, self._n_trained = n_ctx, n_tokens, n_trained
        self._show_value()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Esc takes back what was typed."""
        if event.key() == Qt.Key.Key_Escape:
            self._show_value()
        else:
            super().keyPressEvent(event)

    def _fill(self, n_trained: int) -> None:
        self.clear()
        for n in CHOICES:
            if n < n_trained or not n_trained:
                self.addItem(count(n), n)
        own = f"model's {count(n_trained)}" if n_trained else "model's own"
        self.addItem(own, OF_THE_MODEL)
        self.fit_list()

    def _show_value(self) -> None:
        place = self.findData(self._n_ctx)
        was_blocked = self.blockSignals(True)
        self.setCurrentIndex(place)
        self.setEditText(count(self._n_tokens) if self._n_tokens else NOTHING)
        self.blockSignals(was_blocked)

    def _on_activated(self, index: int) -> None:
        self._choose(int(self.itemData(index)))

    def _on_typed(self) -> None:
        self._choose(_tokens_typed(self.currentText(), self._n_tokens, self._n_ctx))

    def _choose(self, n_ctx: int) -> None:
        if n_ctx == self._n_ctx:
            self._show_value()
        else:
            self._n_ctx = n_ctx
            self.chosen.emit(n_ctx)


def _tokens_typed(text: str, n_tokens: int, n_ctx: int) -> int:
    """The value a text stands for; `n_ctx` as it was where the text is that or no number."""
    digits = "".join(text.split())
    if not digits.isdecimal() or int(digits) == n_tokens:
        return n_ctx
    high = SPEC_BY_FIELD["n_ctx"].high
    assert high is not None
    return min(int(digits), int(high))
