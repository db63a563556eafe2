"""Controller: routes the engine's answers, restarts it when it ended, says what happened."""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QObject, Signal

from app.shell.backends import Backends
from app.shell.checking import Checking
from app.shell.messages import (
    LOST_TOPIC,
    Message,
    died_message,
    failed_message,
    protocol_message,
    waiting_message,
)
from app.shell.planning import Planning
from app.shell.running import RUN_TOPIC, Running
from engine.core.summary import RunState, StopReason
from engine.service.messages import (
    DEMO,
    PROTOCOL,
    BackendsChanged,
    EmbedEnded,
    EngineDied,
    EngineReady,
    Exported,
    Failed,
    JobProgress,
    ModelOpened,
    OpsChecked,
    PlanMet,
    Planned,
    RunEnded,
    RunStateChanged,
    TextEmitted,
    TraceArrived,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from app.bridge.bridge import Bridge
    from app.state.app_state import AppState, RunInfo
    from app.state.option_memory import OptionMemory
    from app.state.settings import Settings
    from engine.service.messages import Answer

log = logging.getLogger(__name__)


class Controller(QObject):
    """Between the bridge and the state. GUI thread only."""

    message = Signal(object)
    """Carries a Message."""
    message_gone = Signal(object)
    """Carries a topic: messages about it no longer hold."""
    progress = Signal(object)
    """Carries a Progress, or None when nothing has any."""
    facts_changed = Signal()
    """What commands can be used may have changed."""

    def __init__(
        self,
        state: AppState,
        bridge: Bridge,
        parent: QObject | None = None,
        memory: OptionMemory | None = None,
        settings: Settings | None = None,
    ) -> None:
        """Without `settings` no backend is loaded at the start."""
        super().__init__(parent)
        self.state = state
        self.planning = Planning(state, bridge, self, memory)
        self.running = Running(state, bridge, self)
        self.backends = Backends(state, bridge, self.planning, settings, self)
        self.checking = Checking(state, bridge, self)
        self._bridge = bridge
        self._is_ready = False
        self._ready_words = "engine ready"
        self._to_open = ""
        self._routes: dict[type, Callable[[Any], object]] = {
            EngineReady: self._on_ready,
            EngineDied: self._on_died,
            BackendsChanged: self._on_backends,
            ModelOpened: self.planning.on_model_opened,
            Planned: self._on_planned,
            JobProgress: self._on_progress,
            RunStateChanged: self._on_run_state,
            TextEmitted: self.running.on_text,
            PlanMet: self.running.on_plan_met,
            RunEnded: self.running.on_ended,
            EmbedEnded: self.running.on_embedded,
            OpsChecked: self.checking.on_checked,
            TraceArrived: self.running.on_trace,
            Exported: self.running.on_exported,
            Failed: self._on_failed,
        }
        bridge.answered.connect(self._on_answer)
        for part in (self.planning, self.running, self.backends, self.checking):
            part.message.connect(self.message)
        for part in (self.running, self.backends, self.checking):
            part.message_gone.connect(self.message_gone)
        self.planning.opened.connect(self._on_opened)
        self.planning.settled.connect(self._on_settled)
        self.running.started.connect(self._on_settled)
        self.running.ended.connect(self._on_settled)
        self.checking.started.connect(self._on_settled)
        self.checking.ended.connect(self._on_settled)

    @property
    def is_ready(self) -> bool:
        """Whether the engine answers."""
        return self._is_ready

    @property
    def is_busy(self) -> bool:
        """Whether something runs that `Running.stop` can stop."""
        parts = (self.running.is_running, self.planning.is_opening, self.checking.is_checking)
        return any(parts)

    def start(self) -> None:
        """Start the engine."""
        self.state.set_engine_text("engine starting")
        self._bridge.start()

    def open(self, path: str) -> None:
        """Open a file or `DEMO`, as soon as the engine is ready and nothing runs."""
        if path != DEMO:
            path = str(Path(path).resolve())
        self._to_open = path
        if self._is_ready and self.is_busy:
            self.message.emit(waiting_message(path, self._busy_until()))
        else:
            self._open_next()

    def _busy_until(self) -> str:
        """When what is going on is over, in words."""
        if self.running.is_running:
            return "the run has ended"
        is_checking = self.checking.is_checking
        return "the check has ended" if is_checking else "the file before it is open"

    def restart(self) -> None:
        """End the engine and start it anew; model and options are kept."""
        self._engine_gone()
        self._ready_words = f"engine restarted {_time_of_day()}"
        self.state.set_engine_text("engine restarting")
        self._bridge.restart()

    # Answers.

    def _on_answer(self, answer: Answer) -> None:
        self._routes[type(answer)](answer)

    def _on_ready(self, answer: EngineReady) -> None:
        if answer.protocol != PROTOCOL:
            self.message.emit(protocol_message(answer.protocol, PROTOCOL))
            return
        self._is_ready = True
        self.state.set_devices(answer.devices, answer.unavailable, answer.load_report)
        self.state.set_engine_text(self._ready_words)
        self.backends.load_again()
        self.planning.reopen()
        self._open_next()
        self.facts_changed.emit()

    def _open_next(self) -> None:
        """Open what waits, unless something runs."""
        if not self._to_open or not self._is_ready or self.is_busy:
            return
        path, self._to_open = self._to_open, ""
        self.message_gone.emit("model")
        self.planning.open(path)

    def _on_opened(self, _file: object) -> None:
        """What was said of the run of another model holds no longer."""
        for topic in (RUN_TOPIC, LOST_TOPIC, "engine"):
            self.message_gone.emit(topic)

    def _on_died(self, answer: EngineDied) -> None:
        was_ready = self._is_ready
        parts = (self.running, self.checking, self.backends, self.planning)
        doing = next((part.doing for part in parts if part.doing), "")
        died = replace(answer, doing=doing)
        log.warning("The engine ended with %s %s\n%s", died.exit_code, doing, died.details)
        kept = self._what_is_kept()
        self._engine_gone()
        self._ready_words = f"engine restarted {_time_of_day()}"
        self.message.emit(died_message(died, restarts=was_ready, kept=kept))
        if was_ready:
            self._bridge.restart()
        else:
            self.state.set_engine_text("engine stopped")

    def _what_is_kept(self) -> str:
        if self.state.model is None:
            return ""
        trace = self.state.trace
        if self.running.is_running and trace is not None and trace.n_spans:
            return "What the run recorded so far is kept; plan and options are unchanged."
        return "Plan and options are unchanged."

    def _engine_gone(self) -> None:
        self._is_ready = False
        self.running.on_engine_died()
        self.planning.on_engine_died()
        self.backends.on_engine_died()
        self.checking.on_engine_died()
        self.progress.emit(None)
        self.facts_changed.emit()

    def _on_backends(self, answer: BackendsChanged) -> None:
        self.backends.on_changed(answer)
        self.facts_changed.emit()

    def _on_planned(self, answer: Planned) -> None:
        self.backends.on_planned()
        self.planning.on_planned(answer)
        self.facts_changed.emit()

    def _on_progress(self, answer: JobProgress) -> None:
        if not self.checking.on_progress(answer):
            self.progress.emit(answer.progress)

    def _on_run_state(self, answer: RunStateChanged) -> None:
        if answer.state is not RunState.PREPARING:
            self.progress.emit(None)
        self.running.on_state(answer)

    def _on_failed(self, answer: Failed) -> None:
        parts = (self.planning, self.running, self.backends, self.checking)
        if not any(part.on_failed(answer) for part in parts):
            self.message.emit(failed_message(answer))

    def _on_settled(self) -> None:
        if not self.is_busy:
            self.progress.emit(None)
        if self._is_ready:
            self.state.set_engine_text(self._engine_words())
        self.facts_changed.emit()
        self._open_next()

    def _engine_words(self) -> str:
        if self.planning.is_opening:
            return "opening"
        if self.running.is_running:
            return "running"
        if self.checking.is_checking:
            return "checking"
        return ended_words(self.state.run) or self._ready_words


def unexpected_message(title: str, details: str) -> Message:
    """An exception nobody caught; the window goes on."""
    return Message(
        "Something went wrong in the window.",
        title,
        "Nothing was lost. Please report this with the details.",
        details,
        topic="exception",
    )


def ended_words(run: RunInfo) -> str:
    """How the last run ended, and when; empty without one."""
    if run.summary is None or run.ended_at is None:
        return ""
    is_stopped = run.summary.stop_reason is StopReason.STOPPED
    return f"run {'stopped' if is_stopped else 'finished'} {run.ended_at:%H:%M:%S}"


def _time_of_day() -> str:
    return f"{datetime.now().astimezone():%H:%M:%S}"
