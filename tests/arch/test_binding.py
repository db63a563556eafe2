"""PySide6 gives back the references it takes.

6.12.0 on Python 3.11 lost one reference to None a void call, and one to the value a signal
carried; the interpreter aborts after a few thousand. pyproject.toml keeps that version out, this
test notices the next one. From Python 3.12 on None is immortal and its count says nothing.
"""

import sys

import pytest
from PySide6.QtCore import QObject, Signal
from PySide6.QtGui import QPainterPath

N_CALLS = 2000
MAX_DRIFT = N_CALLS // 10


class Sender(QObject):
    sent = Signal(object)


@pytest.fixture
def count_none():
    """Return a function that gives the references of None gained or lost by a call."""

    def count(call) -> int:
        before = sys.getrefcount(None)
        call()
        return sys.getrefcount(None) - before

    return count


def test_void_calls_keep_the_references_of_none(count_none):
    path = QPainterPath()

    def call() -> None:
        for _ in range(N_CALLS):
            path.moveTo(0.0, 0.0)

    assert abs(count_none(call)) < MAX_DRIFT


def test_emitting_none_keeps_its_references(count_none):
    sender = Sender()
    received = []
    sender.sent.connect(received.append)

    def call() -> None:
        for _ in range(N_CALLS):
            sender.sent.emit(None)
        received.clear()

    assert abs(count_none(call)) < MAX_DRIFT


def test_emitting_true_keeps_its_references():
    sender = Sender()
    before = sys.getrefcount(True)

    for _ in range(N_CALLS):
        sender.sent.emit(True)

    assert abs(sys.getrefcount(True) - before) < MAX_DRIFT
