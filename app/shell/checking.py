"""Checking: ask for the open model's operations to be checked on every device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Signal

from app.shell.messages import failed_message
from app.state.app_state import OpsInfo
from engine.service.messages import CheckOps, Failed, JobProgress, OpsChecked

if TYPE_CHECKING:
    from app.bridge.bridge import Bridge
    from app.state.app_state import AppState

TOPIC = "ops"
STOPPED_TITLE = "Stopped."


class Checking(QObject):
    """Wishes about checks, and what they found. GUI thread only."""

    message = Signal(object)
    """Carries a Message."""
    message_gone = Signal(object)
    """Carries a topic."""
    progress = Signal(object)
    """Carries a Progress, or None when nothing is checked."""
    started = Signal()
    ended = Signal()

    def __init__(self, state: AppState, bridge: Bridge, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._state, self._bridge = state, bridge
        self._request_id = 0
        self._label = ""

    @property
    def is_checking(self) -> bool:
        """Whether a check was asked for that has not ended."""
        return bool(self._request_id)

    @property
    def doing(self) -> str:
        """What the engine does for us, in words."""
        return f"while checking {self._label or 'operations'}" if self._request_id else ""

    def check(self, *, with_speed: bool) -> None:
        """Check every operation of the open model on every device."""
        if self._request_id:
            return
        self.message_gone.emit(TOPIC)
        self._request_id, self._label = self._bridge.next_id(), ""
        self._bridge.send(CheckOps(self._request_id, speed=with_speed))
        self._state.set_ops(OpsInfo(is_checking=True))
        self.started.emit()

    def on_progress(self, answer: JobProgress) -> bool:
        """Show how far it is; gives back whether it is ours."""
        if not self._request_id or answer.request_id != self._request_id:
            return False
        self._label = answer.progress.label
        self.progress.emit(answer.progress)
        return True

    def on_checked(self, answer: OpsChecked) -> None:
        """Show what was found."""
        if answer.request_id == self._request_id:
            self._end(OpsInfo(matrix=answer.matrix))

    def on_failed(self, answer: Failed) -> bool:
        """Say what could not be done; gives back whether it was ours."""
        if not self._request_id or answer.request_id != self._request_id:
            return False
        self._end(OpsInfo())
        if answer.title != STOPPED_TITLE:
            self.message.emit(failed_message(answer, TOPIC))
        return True

    def on_engine_died(self) -> None:
        """Nothing that was asked for will be answered."""
        if self._request_id:
            self._end(OpsInfo())

    def _end(self, ops: OpsInfo) -> None:
        self._request_id = 0
        self.progress.emit(None)
        self._state.set_ops(ops)
        self.ended.emit()
