"""Ctrl-C while a program is imported: it ends at once and says so in a word.

Imports nothing but the standard library, and that sparingly: it comes before everything else.
"""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Iterator

EXIT_STOPPED = 130
"""How a process ends that Ctrl-C stopped: 128 and the number of the signal."""


@contextmanager
def ending_quietly() -> Iterator[None]:
    """Let Ctrl-C end the process without a traceback; nothing is written yet that could be lost.

    KeyboardInterrupt would be raised somewhere inside other packages: some give it out as a
    failure of their own, and in a callback of the import system it is printed and forgotten.
    Who does not listen to Ctrl-C, such as a job of `nohup`, goes on not listening.
    """
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, _end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _end(_number: int, _frame: object) -> NoReturn:
    with suppress(OSError):
        os.write(2, b"Stopped.\n")
    os._exit(EXIT_STOPPED)
