"""Ctrl-C: the first asks what runs to stop, the second ends the process."""

from __future__ import annotations

import signal
import threading
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

T = TypeVar("T")

LOOK_S = 0.2
"""How often the main thread looks whether the work is done; Python handles signals in between."""


def stoppable(work: Callable[[], T], ask_stop: Callable[[], None]) -> T:
    """What `work` gives back, computed on a thread of its own; Ctrl-C calls `ask_stop`.

    Python handles a signal on the main thread between two instructions, and a kernel is one
    instruction: work on the main thread would hear of Ctrl-C only when it is over.
    """
    outcome: Future[T] = Future()

    def compute() -> None:
        try:
            outcome.set_result(work())
        except BaseException as error:  # noqa: BLE001 - raised again on the main thread
            outcome.set_exception(error)

    worker = threading.Thread(target=compute, name="engine", daemon=True)
    with _first_interrupt_calls(ask_stop):
        worker.start()
        while worker.is_alive():
            worker.join(LOOK_S)
    return outcome.result()


@contextmanager
def _first_interrupt_calls(ask_stop: Callable[[], None]) -> Iterator[None]:
    def on_interrupt(_number: int, _frame: object) -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        ask_stop()

    before = signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
