"""StatusBar: facts from the left, the engine at the right; the last facts give way first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtWidgets import QLabel, QStatusBar, QWidget

from app.shell.status_text import measured_text, status_facts

if TYPE_CHECKING:
    from PySide6.QtGui import QResizeEvent

    from app.state.app_state import AppState

HEIGHT_PX = 24
N_FACTS = 5


class StatusBar(QStatusBar):
    """Follows AppState."""

    def __init__(self, state: AppState, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._state = state
        self.setSizeGripEnabled(False)
        self.setFixedHeight(HEIGHT_PX)
        self.facts = [QLabel(self) for _ in range(N_FACTS)]
        for label in self.facts:
            self.addWidget(label)
        self.engine = QLabel(self)
        self.engine.setProperty("last", "true")
        self.addPermanentWidget(self.engine)
        for signal in (
            state.model_changed, state.plans_changed, state.batch_changed, state.devices_changed,
            state.run_changed, state.trace_changed, state.engine_changed,
        ):  # fmt: skip
            signal.connect(self._refresh)
        self._refresh()

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Hide facts from the right where they do not fit."""
        super().resizeEvent(event)
        self._fit()

    def _refresh(self) -> None:
        facts = status_facts(self._state)
        for i, label in enumerate(self.facts):
            label.setText(facts[i] if i < len(facts) else "")
        words = (self._state.engine_text, measured_text(self._state))
        self.engine.setText(" · ".join(word for word in words if word))
        self._fit()

    def _fit(self) -> None:
        left_px = self.width() - self.engine.sizeHint().width() - 16
        for label in self.facts:
            left_px -= label.sizeHint().width() + 8
            label.setVisible(bool(label.text()) and left_px >= 0)
