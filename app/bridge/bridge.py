"""Bridge: what the engine says, as one Qt signal in the GUI thread."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, QTimer, Signal

from engine.core.summary import RunState
from engine.service.messages import (
    Answer,
    EmbedEnded,
    EngineDied,
    EngineReady,
    Poll,
    Request,
    RunEnded,
    RunStateChanged,
    TraceArrived,
)

if TYPE_CHECKING:
    from app.bridge.engine_host import EngineHost

POLL_MS = 100
"""Between two questions for spans. Whoever answers runs code that the weights have pushed out of
every cache: 1 ms, however few spans there are. Asked 30 times a second that is 4 % of a token."""
PATIENCE_TICKS = 10
"""Polls not sent while one is unanswered; after this many the answer counts as lost."""


class Bridge(QObject):
    """Made in the GUI thread; the only object that emits from another one.

    While the engine runs something, and after it until no new spans come, a timer asks for spans;
    never more than one such question is under way.
    """

    answered = Signal(object)
    """Carries every Answer, in order."""

    _arrived = Signal(object)

    def __init__(self, host: EngineHost, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._host = host
        self._generation = 0
        self._ids = itertools.count(1)
        self._trace_seq = 0
        self._runs = False
        self._unanswered_ticks = 0
        self._poll_timer = QTimer(self)
        self._poll_timer.setInterval(POLL_MS)
        self._poll_timer.timeout.connect(self._poll)
        self._arrived.connect(self._on_arrived)

    def start(self) -> None:
        """Start the engine; EngineReady follows."""
        self._generation += 1
        generation = self._generation
        self._trace_seq = 0
        self._runs = False
        self._poll_timer.stop()

        def deliver(answer: Answer) -> None:
            self._arrived.emit((generation, answer))

        self._host.start(deliver)

    def restart(self) -> None:
        """Start anew; what the old process still says is dropped."""
        self.start()

    def close(self) -> None:
        """End the engine; waits up to two seconds, so call it when the window is gone."""
        self._generation += 1
        self._poll_timer.stop()
        self._host.close()

    def next_id(self) -> int:
        """A request id that was not used before."""
        return next(self._ids)

    def send(self, request: Request) -> None:
        """Send a request; does not wait."""
        self._host.send(request)

    def _on_arrived(self, delivery: tuple[int, Answer]) -> None:
        generation, answer = delivery
        if generation != self._generation:
            return
        match answer:
            case EngineReady() | EngineDied():
                self._set_runs(RunState.IDLE)
            case RunEnded() | EmbedEnded():
                self._runs = False
                self._start_polling()
            case RunStateChanged(state=run_state):
                self._set_runs(run_state)
            case TraceArrived(snapshot=snapshot):
                self._on_trace(snapshot.seq)
        self.answered.emit(answer)

    def _set_runs(self, state: RunState) -> None:
        self._runs = state is not RunState.IDLE
        if self._runs:
            self._start_polling()

    def _start_polling(self) -> None:
        if not self._poll_timer.isActive():
            self._unanswered_ticks = 0
            self._poll_timer.start()

    def _on_trace(self, seq: int) -> None:
        self._unanswered_ticks = 0
        nothing_new = seq == self._trace_seq
        self._trace_seq = seq
        if nothing_new and not self._runs:
            self._poll_timer.stop()

    def _poll(self) -> None:
        if 0 < self._unanswered_ticks < PATIENCE_TICKS:
            self._unanswered_ticks += 1
            return
        if self._unanswered_ticks >= PATIENCE_TICKS and not self._runs:
            self._poll_timer.stop()
            return
        self._unanswered_ticks = 1
        self._host.send(Poll(self._trace_seq))
