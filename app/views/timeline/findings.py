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

_KINDS = {Batch.PROMPT: StepKind.PROMPT, Batch.TOKEN: StepKind.TOKEN}


class Findings(QObject):
    """The analysis comes some time after a run has ended, the path after that. GUI thread only."""

    changed = Signal()

    def __init__(self, state: AppState, scene: Scene, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._state, self._scene = state, scene
        self._analysed: tuple[int, ...] = ()
        self._asked_steps: tuple[int, ...] = ()
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
        """Find the critical path of what is selected, if it is to be shown."""
        scene = self._scene
        steps = self._wanted_steps() if self._state.shows_path else ()
        if scene.analysis is None or steps == self._asked_steps:
            return
        self._asked_steps = steps
        if not steps:
            self._pathfinder.forget()
            self._on_path(Path())
        else:
            self._pathfinder.ask(functools.partial(path_of, scene.analysis, steps))

    def _drop(self) -> None:
        self._analyst.forget()
        self._pathfinder.forget()
        self._asked_steps = ()
        if self._scene.analysis is not None:
            self._scene.set_analysis(None)
            self._scene.set_path(Path())
            self.changed.emit()

    def _plans(self) -> dict[int, PlanTable]:
        plans = self._state.plans
        planned = () if plans is None else (plans.prompt, plans.token)
        return {plan.plan_id: plan for plan in planned} | self._state.met_plans

    def _wanted_steps(self) -> tuple[int, ...]:
        """The selected step; without one the whole prompt, or the last token, as is shown."""
        steps = self._scene.store.steps()
        selected = self._state.selection.step
        if selected in steps["step"]:
            return (selected,)
        kind = _KINDS[self._state.batch]
        found = tuple(steps["step"][steps["peer"] == kind].tolist())
        return found if kind is StepKind.PROMPT else found[-1:]

    def _on_analysis(self, analysis: Analysis) -> None:
        self._scene.set_analysis(analysis)
        self.read_path()
        self.changed.emit()

    def _on_path(self, path: Path) -> None:
        self._scene.set_path(path)
        self.changed.emit()
