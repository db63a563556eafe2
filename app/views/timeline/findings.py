"""Findings: keeps what a scene knows of an ended run's devices up to date."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Signal

from app.views.timeline.analysis import Analysis, Path, analyse, path_of
from app.views.timeline.analyst import Analyst
from engine.core.plan import Batch
from engine.core.summary import RunState
from engine.trace.records import StepKind

if TYPE_CHECKING:
    from app.state.app_state import AppState
    from app.views.timeline.scene import Scene
    from engine.core.table import PlanTable
    from engine.trace.records import Spans

_KINDS = {Batch.PROMPT: StepKind.PROMPT, Batch.TOKEN: StepKind.TOKEN}


class Findings(QObject):
    """The analysis comes some time after a run has ended, the path after that. GUI thread only."""

    changed = Signal()

    def __init__(self, state: AppState, scene: Scene, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._state, self._scene = state, scene
        self._analysed: tuple[int, ...] = ()
        self._asked_step = -1
        self._analyst, self._pathfinder = Analyst(self), Analyst(self)
        self._analyst.done.connect(self._on_analysis)
        self._pathfinder.done.connect(self._on_path)

    def read(self) -> None:
        """Find out what has become of the run; gives up what belongs to another one."""
        trace = self._state.trace
        is_ended = self._state.run.state is RunState.IDLE and trace is not None
        key = (trace.epoch, trace.seq, trace.n_spans) if is_ended and trace is not None else ()
        if key != self._analysed:
            self._analysed = key
            self._drop()
            if trace is not None and key and trace.n_spans:
                self._analyst.ask(functools.partial(analyse, trace.spans(), self._plans()))
        self.read_path()

    def read_path(self) -> None:
        """Find the critical path of the selected step, if it is to be shown."""
        scene = self._scene
        step = self._wanted_step() if self._state.shows_path else -1
        if scene.analysis is None or step == self._asked_step:
            return
        self._asked_step = step
        if step < 0:
            self._pathfinder.forget()
            self._on_path(Path())
        else:
            self._pathfinder.ask(functools.partial(path_of, scene.analysis, step))

    def _drop(self) -> None:
        self._analyst.forget()
        self._pathfinder.forget()
        self._asked_step = -1
        if self._scene.analysis is not None:
            self._scene.set_analysis(None)
            self._scene.set_path(Path())
            self.changed.emit()

    def _plans(self) -> dict[int, PlanTable]:
        plans = self._state.plans
        planned = () if plans is None else (plans.prompt, plans.token)
        return {plan.plan_id: plan for plan in planned} | self._state.met_plans

    def _wanted_step(self) -> int:
        """The selected step; without one the last that the shown plan is of."""
        steps = self._scene.store.steps()
        selected = self._state.selection.step
        if selected in steps["step"]:
            return selected
        return _last(steps[steps["peer"] == _KINDS[self._state.batch]])

    def _on_analysis(self, analysis: Analysis) -> None:
        self._scene.set_analysis(analysis)
        self.read_path()
        self.changed.emit()

    def _on_path(self, path: Path) -> None:
        self._scene.set_path(path)
        self.changed.emit()


def _last(steps: Spans) -> int:
    return int(steps["step"][-1]) if len(steps) else -1
