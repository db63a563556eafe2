"""AnswerBar: the answer, one sentence before any picture; it changes with every control."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtWidgets import QToolBar, QWidget

from app.shell.answer_text import (
    Clauses,
    live_clauses,
    no_plan,
    offload_clause,
    plan_clauses,
    plan_tooltip,
    run_clauses,
    run_note,
)
from app.shell.clause_label import ClauseLabel
from app.theme.colours import is_on_paper
from app.theme.fonts import ANSWER_PX, BODY_PX, general_font
from engine.core.plan import Batch
from engine.core.summary import RunState

if TYPE_CHECKING:
    from PySide6.QtGui import QResizeEvent

    from app.state.app_state import AppState
    from app.theme.theme import Theme
    from engine.core.table import PlanSetTable

HEIGHT_PX = 36
PADDING_PX = 14
LARGE_FROM_PX = 1400

OPEN_FIRST = "Open a model to see where its operations run."


class AnswerBar(QToolBar):
    """The second row of the window."""

    def __init__(self, state: AppState, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__("Answer", parent)
        self.setObjectName("answer_bar")
        self.setMovable(False)
        self.setFixedHeight(HEIGHT_PX)
        self._state = state
        self._run_key: object = None
        self._run_clauses: Clauses = ()
        self.label = ClauseLabel(theme, parent=self)
        self.label.setFont(general_font(BODY_PX))
        self.label.setContentsMargins(PADDING_PX, 0, PADDING_PX, 0)
        self.addWidget(self.label)
        for signal in (
            state.plans_changed, state.batch_changed, state.run_changed, state.trace_changed,
            state.model_changed, state.diff_changed,
        ):  # fmt: skip
            signal.connect(self._refresh)
        self._refresh()

    def resizeEvent(self, event: QResizeEvent) -> None:
        """A wide window has larger words."""
        super().resizeEvent(event)
        size_px = ANSWER_PX if self.width() >= LARGE_FROM_PX else BODY_PX
        if self.label.font().pixelSize() != size_px:
            self.label.setFont(general_font(size_px))
            self._refresh()

    def _refresh(self) -> None:
        state = self._state
        plans = state.plans
        if plans is None:
            self.label.set_clauses((OPEN_FIRST,) if state.model is None else no_plan(state.model))
            return
        note = plan_tooltip(plans, state.batch)
        paper = [row.name for row in plans.prompt.devices if is_on_paper(row)]
        if state.run.state is not RunState.IDLE:
            self.label.set_clauses(live_clauses(state.run, state.reads), plans.prompt.devices, note)
        elif state.run_is_newest and state.diff is None:
            self._show_run(plans, paper)
        else:
            is_change = state.diff is not None
            clauses = plan_clauses(
                plans, state.batch, is_change=is_change, makes_tokens=not state.embeds
            )
            self.label.set_clauses(clauses, plans.prompt.devices, note)

    def _show_run(self, plans: PlanSetTable, paper: list[str]) -> None:
        """Sums over spans are made once a trace."""
        state = self._state
        summary = state.run.summary
        plan = state.plan_that_ran(Batch.PROMPT)
        assert summary is not None
        key = (id(summary), None if state.trace is None else state.trace.seq, id(plan))
        if key != self._run_key:
            spans = None if state.trace is None else state.trace.spans()
            self._run_key = key
            note = offload_clause(plans, plan, len(summary.prompt_tokens))
            self._run_clauses = run_clauses(
                summary, plan, spans, paper, note=note, reads=state.reads
            )
        devices = () if plan is None else plan.devices
        note = run_note(state.reads, is_together=summary.together is not None)
        self.label.set_clauses(self._run_clauses, devices, note)
