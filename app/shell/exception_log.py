"""An exception nobody caught becomes a log entry and a message; the window goes on."""

from __future__ import annotations

import logging
import logging.handlers
import sys
import threading
import traceback
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Signal

from engine import paths

if TYPE_CHECKING:
    from types import TracebackType

log = logging.getLogger("splitscope")

MAX_LOG_BYTES = 1_000_000


class ExceptionLog(QObject):
    """Takes the place of Python's hooks while it is installed."""

    caught = Signal(object)
    """Carries (one line, traceback); emitted in the GUI thread's turn."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._previous = (sys.excepthook, threading.excepthook)

    def install(self) -> None:
        """Hear of exceptions from now on."""
        sys.excepthook = self._on_exception
        threading.excepthook = self._on_thread_exception

    def remove(self) -> None:
        """Give the hooks back."""
        sys.excepthook, threading.excepthook = self._previous

    def _on_exception(
        self, kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        if issubclass(kind, KeyboardInterrupt):
            self._previous[0](kind, error, trace)
            return
        log.error("Not caught", exc_info=(kind, error, trace))
        details = "".join(traceback.format_exception(kind, error, trace))
        self.caught.emit((f"{kind.__name__}: {error}", details))

    def _on_thread_exception(self, args: threading.ExceptHookArgs) -> None:
        error = args.exc_value
        if error is not None:
            self._on_exception(args.exc_type, error, args.exc_traceback)


def start_logging() -> None:
    """Write warnings to a file that is replaced when it is full; to nothing if that cannot be."""
    folder = paths.cache_dir()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handler = logging.handlers.RotatingFileHandler(
            folder / "splitscope.log", maxBytes=MAX_LOG_BYTES, backupCount=1, encoding="utf-8"
        )
    except OSError:
        return
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.getLogger().addHandler(handler)
