"""Screenshot: a picture of the window once it shows what was asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, QTimer, Signal
from PySide6.QtGui import QImageWriter

from engine.errors import ExportError
from engine.trace.export.atomic import check_target

if TYPE_CHECKING:
    from pathlib import Path

    from app.shell.controller import Controller
    from app.shell.main_window import MainWindow
    from app.shell.messages import Message

SETTLE_MS = 600
"""Panes paint, and the last spans of a run arrive."""


class Screenshot(QObject):
    """Waits for a plan or an ended run, grabs the window, writes the file."""

    ended = Signal(object)
    """Carries why there is no picture, empty if there is one."""

    def __init__(
        self,
        controller: Controller,
        window: MainWindow,
        path: Path,
        *,
        opens_model: bool,
        after_run: bool,
    ) -> None:
        super().__init__(window)
        self._controller, self._window, self._path = controller, window, path
        self._opens_model = opens_model
        self._problem = ""
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.setInterval(SETTLE_MS)
        self._after_run = after_run
        self._has_started = False
        self._timer.timeout.connect(self._next)
        controller.planning.settled.connect(self._wait)
        controller.running.ended.connect(self._wait)
        controller.message.connect(self._on_message)

    def _on_message(self, message: Message) -> None:
        self._problem = message.text
        self._wait()

    def _wait(self) -> None:
        if not self._controller.is_busy:
            self._timer.start()

    def _next(self) -> None:
        if self._controller.is_busy:
            return
        state = self._controller.state
        if self._opens_model and state.model is None:
            # Between the engine's start and the opening of the file nothing is wrong yet.
            if self._problem:
                self.ended.emit(self._problem)
        elif self._after_run and not self._has_started:
            self._has_started = True
            self._run()
        else:
            self.ended.emit(self._saved())

    def _run(self) -> None:
        action = self._window.actions_["run"]
        if action.isEnabled():
            action.trigger()
        else:
            self.ended.emit(f"Nothing was run. {action.toolTip()}")

    def _saved(self) -> str:
        """Write the picture; gives back why it could not be written."""
        try:
            check_target(self._path)
        except ExportError as error:
            return f"{error.title}. {error.sentence}. {error.hint}"
        writer = QImageWriter(str(self._path))
        if writer.write(self._window.grab().toImage()):
            return ""
        return f"Cannot write {self._path.name}: {writer.errorString()}. {self._path}"
