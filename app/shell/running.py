"""Running: start, stop and export runs; text and spans as they come."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, QTimer, Signal

from app.shell.messages import LOST_TOPIC, exported_message, failed_message, lost_message
from app.state.app_state import RunInfo
from engine.core.summary import RunState
from engine.service.messages import (
    EmbedEnded,
    Exported,
    ExportTrace,
    Failed,
    PlanMet,
    RunEnded,
    RunStateChanged,
    StartEmbed,
    StartRun,
    StopRun,
    TextEmitted,
    TraceArrived,
    TraceFormat,
)
from engine.trace.snapshot import TraceSnapshot, extend

if TYPE_CHECKING:
    from pathlib import Path

    from app.bridge.bridge import Bridge
    from app.state.app_state import AppState, LastRun
    from engine.core.summary import RunSummary

TEXT_INTERVAL_MS = 33

RUN_TOPIC = "run"
"""What messages about a run that could not be done are about."""


class Running(QObject):
    """Wishes about runs, and what they bring. GUI thread only."""

    message = Signal(object)
    """Carries a Message."""
    message_gone = Signal(object)
    """Carries a topic: messages about it no longer hold."""
    started = Signal()
    ended = Signal()

    def __init__(self, state: AppState, bridge: Bridge, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._state = state
        self._bridge = bridge
        self._run_id = 0
        self._embeds = False
        self._before: LastRun | None = None
        """What is brought back if the run computes nothing."""
        self._export_id = 0
        self._new: RunInfo | None = None
        self._old_epoch = -1
        # A new engine knows nothing of the run before: what was recorded stays until the next run.
        self._hears_spans = self._heard_before = True
        self._lossy_epoch = -1
        self._engine_has_trace = False
        self._flush_timer = QTimer(self)
        self._flush_timer.setSingleShot(True)
        self._flush_timer.setInterval(TEXT_INTERVAL_MS)
        self._flush_timer.timeout.connect(self._flush)

    @property
    def is_running(self) -> bool:
        """Whether a run was asked for that has not ended."""
        return bool(self._run_id)

    @property
    def has_trace(self) -> bool:
        """Whether the engine holds a trace that is shown: one it lost with its process is not."""
        trace = self._state.trace
        return self._engine_has_trace and trace is not None and trace.n_spans > 0

    @property
    def doing(self) -> str:
        """What the engine does for us, in words."""
        words = {
            RunState.PREPARING: "while preparing a run",
            RunState.PROMPT: "while reading the prompt",
            RunState.GENERATING: f"after {self._state.run.n_tokens} generated tokens",
        }
        return words.get(self._state.run.state, "") if self._run_id else ""

    # Wishes.

    def start(self, prompt: str, n_predict: int) -> None:
        """Run a prompt, as a chat message where the model has a template for it."""
        if not self._run_id:
            self._begin(RunInfo(prompt=prompt, n_predict=n_predict), embeds=False)
            model = self._state.model
            chat = model is not None and model.has_chat_template
            self._bridge.send(StartRun(self._run_id, prompt, n_predict, chat))
            self.started.emit()

    def embed(self, text: str) -> None:
        """Ask for the embeddings of a text."""
        if not self._run_id:
            self._begin(RunInfo(prompt=text), embeds=True)
            self._bridge.send(StartEmbed(self._run_id, text))
            self.started.emit()

    def _begin(self, run: RunInfo, *, embeds: bool) -> None:
        self.message_gone.emit(RUN_TOPIC)
        trace = self._state.trace
        self._old_epoch = -1 if trace is None else trace.epoch
        self._before = self._state.last_run()
        self._heard_before = self._hears_spans
        self._run_id = self._bridge.next_id()
        self._embeds = embeds
        self._new = None
        self._hears_spans = True
        self._state.met_plans.clear()
        self._state.set_trace(None)
        self._state.set_run(replace(run, state=RunState.PREPARING))

    def stop(self) -> None:
        """Stop what runs: a fetch, a load or a generation."""
        self._bridge.send(StopRun(self._bridge.next_id()))

    def export(self, path: Path, trace_format: TraceFormat) -> None:
        """Write the trace of the last run."""
        self._export_id = self._bridge.next_id()
        self._bridge.send(ExportTrace(self._export_id, path, trace_format))

    # Answers.

    def on_state(self, answer: RunStateChanged) -> None:
        """Counts and speeds; the state at once, figures with the next flush."""
        if not self._run_id:
            return
        if self._before is not None and answer.state in (RunState.PROMPT, RunState.GENERATING):
            self._before = None
            self.message_gone.emit(LOST_TOPIC)
        before = self._current()
        state = answer.state if answer.state is not RunState.IDLE else before.state
        self._change(
            state=state,
            n_prompt_tokens=answer.n_prompt_tokens or before.n_prompt_tokens,
            n_tokens=answer.n_tokens or before.n_tokens,
            prefill_tokens_per_s=answer.prefill_tokens_per_s or before.prefill_tokens_per_s,
            decode_tokens_per_s=answer.decode_tokens_per_s or before.decode_tokens_per_s,
        )
        if state is not self._state.run.state:
            self._flush()

    def on_text(self, answer: TextEmitted) -> None:
        """Text is gathered and shown every 33 ms."""
        if self._run_id and answer.text:
            self._change(text=self._current().text + answer.text)

    def on_plan_met(self, answer: PlanMet) -> None:
        """A plan that spans name."""
        self._state.add_met_plan(answer.plan)

    def on_trace(self, answer: TraceArrived) -> None:
        """Spans newer than those we have."""
        newer, older = answer.snapshot, self._state.trace
        is_of_the_run_before = bool(self._run_id) and newer.epoch == self._old_epoch
        if is_of_the_run_before or not self._hears_spans:
            return
        self._old_epoch = -1
        known = TraceSnapshot() if older is None else older
        joins = newer.since == known.seq or newer.since == 0 or newer.epoch != known.epoch
        self._engine_has_trace = True
        if joins and (newer.seq, newer.epoch) != (known.seq, known.epoch):
            self._state.set_trace(extend(known, newer))
        if newer.lost and newer.epoch != self._lossy_epoch:
            self._lossy_epoch = newer.epoch
            self.message.emit(lost_message(newer.lost))

    def on_ended(self, answer: RunEnded) -> None:
        """The run is over: its figures, its text, its plans."""
        if answer.request_id == self._run_id:
            self._end(answer.summary)

    def on_embedded(self, answer: EmbedEnded) -> None:
        """The embeddings are here, and the figures of the run that gave them."""
        if answer.request_id == self._run_id:
            self._change(embedded=answer.embedded)
            self._end(answer.embedded.summary)

    def _end(self, summary: RunSummary) -> None:
        self._change(
            state=RunState.IDLE,
            text=summary.text,
            n_prompt_tokens=len(summary.prompt_tokens),
            n_tokens=len(summary.tokens),
            prefill_tokens_per_s=summary.prefill_tokens_per_s,
            decode_tokens_per_s=summary.decode_tokens_per_s,
            summary=summary,
            ended_at=datetime.now().astimezone(),
        )
        self._finish()
        if self._state.diff is None:
            self._state.show_newest_plan()

    def on_exported(self, answer: Exported) -> None:
        """A file was written."""
        if answer.request_id == self._export_id:
            self.message.emit(exported_message(answer))

    def on_failed(self, answer: Failed) -> bool:
        """Say what could not be done; gives back whether it was ours."""
        if answer.request_id == self._run_id and self._run_id:
            # What is wrong with a text is said at its field; details need a message's room.
            at_field = self._embeds and not answer.details
            said = (answer.title, answer.sentence, answer.hint)
            self._give_up(" ".join(part for part in said if part) if at_field else "")
            if at_field:
                return True
            topic = RUN_TOPIC
        elif answer.request_id == self._export_id:
            topic = "export"
        else:
            return False
        self.message.emit(failed_message(answer, topic))
        return True

    def on_engine_died(self) -> None:
        """The run is over; what came of it stays."""
        self._engine_has_trace = False
        self._hears_spans = False
        if self._run_id:
            self._give_up("")
        self._state.keep_run()

    # Inside.

    def _give_up(self, problem: str) -> None:
        """End a run without a summary; one that computed nothing leaves the last one's results."""
        before, self._before = self._before, None
        if before is None:
            self._change(state=RunState.IDLE, problem=problem)
            self._finish()
            return
        self._flush_timer.stop()
        self._run_id, self._new, self._hears_spans = 0, None, self._heard_before
        self._state.bring_back(before, problem)
        self.ended.emit()

    def _current(self) -> RunInfo:
        return self._new or self._state.run

    def _change(self, **changes: object) -> None:
        self._new = replace(self._current(), **changes)  # type: ignore[arg-type]  # fields by name
        if not self._flush_timer.isActive():
            self._flush_timer.start()

    def _flush(self) -> None:
        new, self._new = self._new, None
        if new is not None:
            self._state.set_run(new)

    def _finish(self) -> None:
        self._flush_timer.stop()
        self._run_id = 0
        self._flush()
        self.ended.emit()
