"""Screenshot: a picture of the window once it shows what was asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, QTimer, Signal

if TYPE_CHECKING:
    from pathlib import Path

    from app.shell.controller import Controller
    from app.shell.main_window import MainWindow

SETTLE_MS = 600
"""Panes paint, and the last spans of a run arrive."""


class Screenshot(QObject):
    """Waits for a plan or an ended run, grabs the window, writes the file."""

    taken = Signal()

    def __init__(
        self, controller: Controller, window: MainWindow, path: Path, *, after_run: bool
    ) -> None:
        super().__init__(window)
        self._controller, self._window, self._path = controller, window, path
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.setInterval(SETTLE_MS)
        self._after_run = after_run
        self._has_started = False
        self._timer.timeout.connect(self._next)
        controller.planning.settled.connect(self._wait)
        controller.running.ended.connect(self._wait)
        controller.message.connect(self._wait)

    def _wait(self, _message: object = None) -> None:
        if not self._controller.is_busy:
            self._timer.start()

    def _next(self) -> None:
        if self._after_run and not self._has_started and self._controller.state.plans is not None:
            self._has_started = True
            self._window.actions_["run"].trigger()
            return
        if self._controller.is_busy:
            return
        self._window.grab().save(str(self._path))
        self.taken.emit()
