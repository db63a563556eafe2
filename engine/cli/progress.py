"""How far a job is, on one line of standard error, where a person looks at it."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, TextIO

from engine.cli.output import MIB, mib

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.core.summary import Progress

QUIET_S = 1.0
"""What is over sooner is not worth a line."""

INTERVAL_S = 0.1


class ProgressLine:
    """Shows names and counts of what takes over a second, if `stream` is a terminal.

    Default: standard error.
    """

    def __init__(
        self, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._stream = stream or sys.stderr
        self._clock = clock
        self._is_seen = self._stream.isatty()
        self._started_s = clock()
        self._written_s = 0.0

    def __call__(self, progress: Progress) -> None:
        """Show how far a job is."""
        now_s = self._clock()
        is_early = now_s - self._started_s < QUIET_S
        if not self._is_seen or is_early or now_s - self._written_s < INTERVAL_S:
            return
        self._written_s = now_s
        self._stream.write(f"\r\033[K{progress_text(progress)}")
        self._stream.flush()

    def clear(self) -> None:
        """Take the line away; the next job begins."""
        if self._written_s:
            self._stream.write("\r\033[K")
            self._stream.flush()
        self._started_s, self._written_s = self._clock(), 0.0


def progress_text(progress: Progress) -> str:
    """The label and how much of how much; large counts are bytes."""
    if not progress.total:
        return progress.label
    if progress.total >= MIB:
        return f"{progress.label}  {mib(progress.done)} of {mib(progress.total)} MiB"
    return f"{progress.label}  {progress.done} of {progress.total}"
