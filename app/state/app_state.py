"""AppState: what the window knows.

One setter and one signal a fact; views never talk to each other.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Signal

from app.state.kept_run import kept_plans, kept_summary, kept_trace
from engine.core.load_report import LoadReport
from engine.core.options import PoolingWish
from engine.core.plan import Batch, NodeKey
from engine.core.summary import DeviceSummary, Embedded, ModelSummary, RunState, RunSummary

if TYPE_CHECKING:
    from datetime import datetime

    from engine.core.devices import Unavailable
    from engine.core.op_matrix import OpMatrix
    from engine.core.options import Options
    from engine.core.table import PlanSetTable, PlanTable
    from engine.trace.snapshot import TraceSnapshot


@dataclass(frozen=True, slots=True)
class Selection:
    """What is selected: a node, a split, a copy or a span; all may be empty.

    `node` survives a change of plan; `split_id` and `copy_id` belong to the shown plan.
    `step` is the step of the run a timeline slice belongs to, -1 for none.
    """

    node: NodeKey | None = None
    split_id: int = -1
    copy_id: int = -1
    step: int = -1


@dataclass(frozen=True, slots=True)
class DiffMode:
    """The plans before and after a change, and which of them the canvases show."""

    was: PlanSetTable
    now: PlanSetTable
    title: str
    shows: str = "difference"
    """"was", "difference" or "now"."""
    note: str = ""
    """When the change acts, if it was made during a run."""


@dataclass(frozen=True, slots=True)
class RunInfo:
    """The run in progress or the last one."""

    state: RunState = RunState.IDLE
    prompt: str = ""
    text: str = ""
    n_prompt_tokens: int = 0
    n_tokens: int = 0
    n_predict: int = 0
    prefill_tokens_per_s: float = 0.0
    decode_tokens_per_s: float = 0.0
    summary: RunSummary | None = None
    embedded: Embedded | None = None
    """What an encoder gave; its summary is `summary`."""
    problem: str = ""
    """Why a text was not embedded, for people."""
    ended_at: datetime | None = None
    """When it ended, local time; None for one without a summary."""


@dataclass(frozen=True, slots=True, eq=False)
class LastRun:
    """The last run and what was shown of it, set aside until the next one computes something."""

    run: RunInfo
    trace: TraceSnapshot | None
    met_plans: dict[int, PlanTable]
    options: Options | None
    is_newest: bool


@dataclass(frozen=True, slots=True)
class LoadedFiles:
    """Files of backends by their paths: loaded by hand in this window, and those of every start."""

    by_hand: tuple[str, ...] = ()
    at_start: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class OpsInfo:
    """The check of operations in progress, or what the last one of the open model found."""

    is_checking: bool = False
    matrix: OpMatrix | None = None


class AppState(QObject):
    """Facts and their signals; each signal carries the new value. GUI thread only."""

    model_changed = Signal(object)
    devices_changed = Signal(object)
    device_chosen = Signal(object)
    loaded_changed = Signal(object)
    ops_changed = Signal(object)
    plans_changed = Signal(object)
    batch_changed = Signal(object)
    shown_plan_changed = Signal(object)
    diff_changed = Signal(object)
    selection_changed = Signal(object)
    run_changed = Signal(object)
    trace_changed = Signal(object)
    engine_changed = Signal(object)
    path_changed = Signal(object)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.model: ModelSummary | None = None
        self.devices: tuple[DeviceSummary, ...] = ()
        self.unavailable: tuple[Unavailable, ...] = ()
        self.load_report = LoadReport()
        self.loaded = LoadedFiles()
        self.ops = OpsInfo()
        self.device = ""
        """The selected entry of the devices' table: a name, or a path of a file; "" for none."""
        self.plans: PlanSetTable | None = None
        self.batch = Batch.PROMPT
        self.met_plans: dict[int, PlanTable] = {}
        self.shown_plan: PlanTable | None = None
        self.diff: DiffMode | None = None
        self.selection = Selection()
        self.run = RunInfo()
        self.run_is_newest = False
        """Whether the last run had the options that are planned now: then its plans are shown."""
        self._run_options: Options | None = None
        self.trace: TraceSnapshot | None = None
        self.engine_text = "engine starting"
        self.shows_path = False
        """Whether the timeline shows the critical path of the selected step."""

    def set_model(self, model: ModelSummary | None) -> None:
        """The open model; what belongs to the one before goes with it.

        Nothing is said before all of it is so: no listener sees a run without its model.
        """
        is_other_batch = self.batch is not Batch.PROMPT
        self.model = model
        self.plans, self.shown_plan, self.diff = None, None, None
        self.selection, self.batch = Selection(), Batch.PROMPT
        self.run, self.trace, self._run_options = RunInfo(), None, None
        self.run_is_newest = False
        self.met_plans.clear()
        self.set_ops(OpsInfo())
        self.diff_changed.emit(None)
        self.selection_changed.emit(self.selection)
        self.trace_changed.emit(None)
        self.run_changed.emit(self.run)
        if is_other_batch:
            self.batch_changed.emit(self.batch)
        self.plans_changed.emit(None)
        self.shown_plan_changed.emit(None)
        self.model_changed.emit(model)

    @property
    def embeds(self) -> bool:
        """Whether the open model gives embeddings instead of text; any does that is asked to."""
        if self.model is None:
            return False
        asked = self.plans is not None and self.plans.options.pooling is not PoolingWish.MODEL
        return asked or self.model.gives_embeddings

    @property
    def reads(self) -> str:
        """What the open model reads, in a word: an encoder has no prompt that it goes on with."""
        return "text" if self.embeds else "prompt"

    def set_devices(
        self,
        devices: tuple[DeviceSummary, ...],
        unavailable: tuple[Unavailable, ...],
        report: LoadReport | None = None,
    ) -> None:
        """The devices of this machine, those left out, and what was tried to load backends."""
        self.devices, self.unavailable = devices, unavailable
        self.load_report = report or LoadReport()
        self.devices_changed.emit(devices)

    def set_loaded(self, loaded: LoadedFiles) -> None:
        """Which files of backends were loaded by hand, and which are at every start."""
        self.loaded = loaded
        self.loaded_changed.emit(loaded)

    def set_ops(self, ops: OpsInfo) -> None:
        """What checking operations found, or that it is under way."""
        self.ops = ops
        self.ops_changed.emit(ops)

    @property
    def is_computing(self) -> bool:
        """Whether a run or a check uses the devices."""
        return self.run.state is not RunState.IDLE or self.ops.is_checking

    def choose_device(self, key: str) -> None:
        """Select an entry of the devices' table."""
        if key != self.device:
            self.device = key
            self.device_chosen.emit(key)

    def device_of(self, name: str) -> DeviceSummary | None:
        """The device of that name."""
        return next((device for device in self.devices if device.name == name), None)

    def set_plans(self, plans: PlanSetTable | None) -> None:
        """New plans; the shown plan follows the batch switch."""
        self.plans = plans
        self.run_is_newest = False
        if self.embeds and self.batch is not Batch.PROMPT:
            # There is no switch back from a batch that is not asked for any more.
            self.batch = Batch.PROMPT
            self.batch_changed.emit(self.batch)
        self.plans_changed.emit(plans)
        self.show_plan(None if plans is None else plans.plan(self.batch))

    def set_batch(self, batch: Batch) -> None:
        """Switch between the prompt's plan and a token's; never an undo step."""
        if batch is self.batch:
            return
        self.batch = batch
        self.batch_changed.emit(batch)
        self.show_newest_plan()

    def show_newest_plan(self) -> None:
        """Show the plan of the batch switch: the one that ran or runs, unless options changed."""
        plan = self.plan_that_ran(self.batch) if self.run_is_newest else self._running_plan()
        if plan is None and self.plans is not None:
            plan = self.plans.plan(self.batch)
        self.show_plan(plan)

    def return_to_run(self) -> None:
        """Show the last run again if it had the options that are planned now."""
        self.run_is_newest = self.run.summary is not None and self._ran_as_planned()
        if self.run_is_newest:
            self.show_newest_plan()
            self.run_changed.emit(self.run)

    def show_plan(self, plan: PlanTable | None) -> None:
        """The plan every canvas and table shows."""
        self.shown_plan = plan
        self.shown_plan_changed.emit(plan)

    def plan_that_ran(self, batch: Batch) -> PlanTable | None:
        """The plan of that batch that the last ended run used."""
        summary = self.run.summary
        if summary is None:
            return None
        plan_id = summary.prompt_plan_id if batch is Batch.PROMPT else summary.token_plan_id
        return self.met_plans.get(plan_id)

    def add_met_plan(self, plan: PlanTable) -> None:
        """A plan that the run met; the first of its batch is shown, except in a difference."""
        is_run_shown = any(self.shown_plan is met for met in self.met_plans.values())
        self.met_plans[plan.plan_id] = plan
        if self.diff is None and not is_run_shown and self._running_plan() is plan:
            self.show_plan(plan)

    def _running_plan(self) -> PlanTable | None:
        """The plan of the batch switch that the run in progress met first."""
        if self.run.state is RunState.IDLE or not self._ran_as_planned():
            return None
        return next((p for p in self.met_plans.values() if p.batch is self.batch), None)

    def set_diff(self, diff: DiffMode | None) -> None:
        """Enter, change or leave difference mode."""
        self.diff = diff
        self.diff_changed.emit(diff)

    def select(self, selection: Selection) -> None:
        """Select something everywhere."""
        if selection == self.selection:
            return
        self.selection = selection
        self.selection_changed.emit(selection)

    def select_node(self, node_id: int) -> None:
        """Select a node of the shown plan, with the split it is in."""
        plan = self.shown_plan
        if plan is not None and 0 <= node_id < plan.n_nodes:
            self.select(Selection(node=plan.key(node_id), split_id=int(plan.split[node_id])))

    def selected_node_id(self) -> int:
        """The selected node's id in the shown plan, -1 for none."""
        if self.shown_plan is None or self.selection.node is None:
            return -1
        return self.shown_plan.node_ids().get(self.selection.node, -1)

    def set_run(self, run: RunInfo) -> None:
        """How the run stands."""
        if self.run.state is RunState.IDLE and run.state is not RunState.IDLE:
            self._run_options = None if self.plans is None else self.plans.options
        if run.summary is None:
            self.run_is_newest = False
        elif run.summary is not self.run.summary:
            self.run_is_newest = self._ran_as_planned()
        self.run = run
        self.run_changed.emit(run)

    def _ran_as_planned(self) -> bool:
        """Whether the options the last run began with are those of the plans."""
        return self.plans is not None and self._run_options in (None, self.plans.options)

    def last_run(self) -> LastRun:
        """The run as it stands, to be brought back if the next one computes nothing."""
        return LastRun(
            self.run, self.trace, dict(self.met_plans), self._run_options, self.run_is_newest
        )

    def bring_back(self, last: LastRun, problem: str = "") -> None:
        """Show a run again after one that computed nothing; `problem` says why it did not."""
        self.met_plans.update(last.met_plans)
        self._run_options = last.options
        self.run = replace(last.run, problem=problem)
        self.run_is_newest = last.is_newest and self.run.summary is not None
        self.run_is_newest = self.run_is_newest and self._ran_as_planned()
        self.set_trace(last.trace)
        self.run_changed.emit(self.run)
        if self.run_is_newest and self.diff is None:
            self.show_newest_plan()

    def keep_run(self) -> None:
        """Keep the last run apart from what another engine will plan."""
        shown = None if self.shown_plan is None else self.shown_plan.plan_id
        self.met_plans = kept_plans(self.met_plans)
        if self.run.summary is not None:
            self.run = replace(self.run, summary=kept_summary(self.run.summary))
        if self.trace is not None:
            self.set_trace(kept_trace(self.trace))
        if shown is not None and -shown in self.met_plans:
            self.show_plan(self.met_plans[-shown])

    def set_trace(self, trace: TraceSnapshot | None) -> None:
        """Everything recorded so far."""
        self.trace = trace
        self.trace_changed.emit(trace)

    def set_engine_text(self, text: str) -> None:
        """The engine's state in the status bar."""
        self.engine_text = text
        self.engine_changed.emit(text)

    def set_shows_path(self, *, shows: bool) -> None:
        """Show the critical path, or do not."""
        if shows != self.shows_path:
            self.shows_path = shows
            self.path_changed.emit(shows)
