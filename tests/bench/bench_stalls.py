"""How long the window's thread is busy at one go while text is generated, and Stop to idle.

`python tests/bench/bench_stalls.py [N_STOPS]`: the real window and engine, offscreen, demo model.
The time of an event is the CPU time of the window's thread from its delivery to its return, so
what other processes do in between does not count. Aim: 50 ms an event, 200 ms from Stop to idle.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from pathlib import Path

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
sys.path.insert(0, str(Path(__file__).parents[2]))

from typing import TYPE_CHECKING

from PySide6.QtCore import QEvent, QObject, QTimer
from PySide6.QtWidgets import QApplication

from app.main import App, create_app
from engine.core.summary import RunState
from engine.service.messages import DEMO

if TYPE_CHECKING:
    from app.state.app_state import RunInfo

N_TOKENS = 96
STOP_AFTER_TOKENS = 8
SLOT_AIM_MS, STOP_AIM_MS = 50, 200


class MeasuredApplication(QApplication):
    """Times every event that is delivered from the event loop itself."""

    # Events are delivered before __init__ is through, so these are there before it.
    is_measuring = False
    _depth = 0

    def __init__(self) -> None:
        super().__init__(sys.argv[:1])
        self.setStyle("Fusion")
        self.events: list[tuple[float, str]] = []

    def notify(self, receiver: QObject, event: QEvent) -> bool:
        if self._depth or not self.is_measuring:
            return super().notify(receiver, event)
        # Named first: an event may delete its receiver.
        what = f"{event.type().name} to {type(receiver).__name__} {receiver.objectName()}"
        self._depth += 1
        start_ns = time.thread_time_ns()
        try:
            return super().notify(receiver, event)
        finally:
            self._depth -= 1
            self.events.append(((time.thread_time_ns() - start_ns) / 1e6, what))


class Bench(QObject):
    """Runs the demo prompt once to the end, then `n_stops` times to a Stop."""

    def __init__(self, app: App, qt: MeasuredApplication, n_stops: int) -> None:
        super().__init__(app.qt)
        self.app, self._qt = app, qt
        self.n_stops = n_stops
        self.stop_ms: list[float] = []
        self._stopped_at = 0.0
        self._is_first = True
        app.controller.planning.settled.connect(self._later)
        app.controller.running.ended.connect(self._ended)
        app.state.run_changed.connect(self._run_changed)

    def _later(self) -> None:
        if not self.app.controller.is_busy:
            QTimer.singleShot(500, self._run)

    def _run(self) -> None:
        self._qt.is_measuring = self._is_first
        self.app.controller.running.start(self.app.window.run_panel.prompt.toPlainText(), N_TOKENS)

    def _run_changed(self, run: RunInfo) -> None:
        if self._is_first or self._stopped_at or run.state is not RunState.GENERATING:
            return
        if run.n_tokens >= STOP_AFTER_TOKENS:
            self._stopped_at = time.monotonic()
            self.app.controller.running.stop()

    def _ended(self) -> None:
        if self._stopped_at:
            self.stop_ms.append(1000 * (time.monotonic() - self._stopped_at))
        self._is_first, self._stopped_at = False, 0.0
        if len(self.stop_ms) >= self.n_stops:
            self.app.qt.quit()
        else:
            self._later()


def main(n_stops: int) -> None:
    qt = MeasuredApplication()
    app = create_app(exec_app=False)
    bench = Bench(app, qt, n_stops)
    app.controller.open(DEMO)
    app.exec()
    qt.is_measuring = False
    slowest = sorted(qt.events, reverse=True)[:5]
    print(f"{len(qt.events)} events while {N_TOKENS} tokens were generated")
    print(f"longest {slowest[0][0]:.1f} ms of CPU time (aim {SLOT_AIM_MS}); the five longest:")
    for busy_ms, what in slowest:
        print(f"  {busy_ms:6.1f} ms  {what}")
    median = statistics.median(bench.stop_ms)
    print(
        f"Stop to idle: median {median:.0f} ms, {min(bench.stop_ms):.0f} to "
        f"{max(bench.stop_ms):.0f} ms, n = {len(bench.stop_ms)} (aim {STOP_AIM_MS})"
    )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
