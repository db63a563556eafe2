"""Analyst: works out what a run says of several devices, on a thread of its own."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QObject, QTimer, Signal

if TYPE_CHECKING:
    from collections.abc import Callable

POLL_MS = 15


class Analyst(QObject):
    """One piece of work at a time; a newer one takes the place of what waits. GUI thread only.

    The thread never emits: a timer of the GUI thread asks whether it has done. It ends with its
    work, so there is nothing to dispose of.
    """

    done = Signal(object)
    """Carries what the newest piece of work gave back."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._future: Future[Any] | None = None
        self._waiting: Callable[[], Any] | None = None
        self._is_wanted = False
        self._timer = QTimer(self)
        self._timer.setInterval(POLL_MS)
        self._timer.timeout.connect(self._on_poll)

    def ask(self, work: Callable[[], Any]) -> None:
        """Have something worked out; what was asked before is forgotten."""
        self._waiting, self._is_wanted = work, False
        if self._future is None:
            self._begin()

    def forget(self) -> None:
        """Say nothing of what was asked."""
        self._waiting, self._is_wanted = None, False

    def _begin(self) -> None:
        work, self._waiting = self._waiting, None
        if work is None:
            self._timer.stop()
            return
        self._future, self._is_wanted = Future(), True
        threading.Thread(target=_run, args=(self._future, work), daemon=True).start()
        self._timer.start()

    def _on_poll(self) -> None:
        future, is_wanted = self._future, self._is_wanted
        if future is None or not future.done():
            return
        self._future = None
        self._begin()
        if is_wanted:
            self.done.emit(future.result())


def _run(future: Future[Any], work: Callable[[], Any]) -> None:
    """Work on the thread; what goes wrong is raised where the result is asked for."""
    try:
        future.set_result(work())
    except Exception as error:  # noqa: BLE001 - passed on, not handled
        future.set_exception(error)
