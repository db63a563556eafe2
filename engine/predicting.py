"""Predicting: a run on devices on paper, in virtual time. Nothing is loaded, nothing is computed.

The same code as in a run plans, allocates, copies and waits; devices on paper say what each piece
would cost. The times are those of the devices: planning costs the host nothing here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from engine.core.table import PlanTable, table_of
from engine.errors import PlacementError
from engine.machine import devices_for
from engine.model.context import ModelContext
from engine.model.planning import make_planner
from engine.report.prediction import Prediction, device_loads, steps_ns
from engine.report.together import together
from engine.report.trace_names import trace_meta
from engine.running import check_writes
from engine.trace.export.chrome import write_chrome
from engine.trace.export.perfetto import write_perfetto
from engine.trace.recorder import Recorder
from engine.trace.records import MEMBER_LANE, StepKind

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from engine.core.devices import BackendView
    from engine.core.plan import Plan
    from engine.core.summary import OnProgress
    from engine.machine import Machine
    from engine.model.planning import ModelPlanner
    from engine.planning import RunSetup
    from engine.stopping import StopSwitch
    from engine.trace.export.meta import TraceMeta
    from engine.trace.snapshot import TraceSnapshot

ROUTING_NOTE = (
    "which experts a token takes is not known on paper: where only used ones are copied, one counts"
)

ANY_TOKEN = 0
"""Devices on paper take as long for one token as for another."""


@dataclass(frozen=True, slots=True, eq=False)
class Predicted:
    """Figures and trace of a run that did not happen."""

    figures: Prediction
    meta: TraceMeta
    snapshot: TraceSnapshot

    def write(self, path: Path, *, chrome: bool) -> None:
        """Write the trace, which says that it is predicted; ExportError says what to do."""
        (write_chrome if chrome else write_perfetto)(path, self.meta, self.snapshot)


def predict(
    machine: Machine,
    setup: RunSetup,
    n_prompt: int,
    n_predict: int,
    *,
    stop: StopSwitch,
    on_progress: OnProgress,
) -> Predicted:
    """What a prompt of so many tokens and so many generated ones would take on paper.

    Generation ends where the context is full.

    Raises:
        ModelError, PlacementError: the model cannot be planned so, or writes no text.
        Stopped: somebody asked to stop.
    """
    planner = make_planner(setup.model.file, setup.model.facts, setup.options)
    check_writes(n_prompt, planner)
    _check_paper(planner)
    run = _PaperRun(machine, setup, planner, stop, on_progress)
    try:
        run.compute(n_prompt, n_predict)
        return run.result(n_prompt)
    finally:
        run.context.dispose()


def _check_paper(planner: ModelPlanner) -> None:
    """PlacementError for memory that devices on paper do not have."""
    if any(buffer.buft.row_shares is not None for buffer in planner.weights.buffers):
        raise PlacementError(
            "-sm row cannot be predicted.",
            "It divides the rows of a matrix among devices, and those on paper hold whole ones.",
            "Choose -sm layer or -sm tensor.",
        )


def _device_names(backends: Sequence[BackendView]) -> dict[int, str]:
    """The devices that compute, by lane: members in place of what joins them."""
    names: dict[int, str] = {}
    member_lane = MEMBER_LANE
    for lane, view in enumerate(backends):
        for member in view.device.members:
            names[member_lane] = member.name
            member_lane += 1
        if not view.device.members:
            names[lane] = view.device.name
    return names


class _PaperRun:
    """A context on devices on paper, and what it met."""

    def __init__(
        self,
        machine: Machine,
        setup: RunSetup,
        planner: ModelPlanner,
        stop: StopSwitch,
        on_progress: OnProgress,
    ) -> None:
        family = machine.paper_family()
        self._setup = setup
        self._lines = machine.paper_lines
        self._plans: dict[int, PlanTable] = {}
        self._n_tokens = 0
        self._recorder = Recorder(clock=family.clock.read)
        self.context = ModelContext(
            setup.model.file,
            planner,
            devices_for(planner, family.devices()),
            self._recorder,
            on_plan=self._remember,
            stop_address=stop.address,
            stop_asked=stop.is_asked,
            reads_weights=False,
        )
        self._on_progress = on_progress

    def _remember(self, plan: Plan) -> None:
        self._plans[plan.plan_id] = table_of(plan)

    def compute(self, n_prompt: int, n_predict: int) -> None:
        """Run the prompt and the tokens after it; the first one is the prompt's own."""
        context = self.context
        context.load(self._on_progress)
        self._recorder.clear()
        self._recorder.mark(self._paper_note())
        context.decode([ANY_TOKEN] * n_prompt, StepKind.PROMPT)
        n_free = context.planner.n_ctx - n_prompt
        n_steps = max(0, min(n_predict - 1, n_free))
        for _ in range(n_steps):
            context.decode([ANY_TOKEN], StepKind.TOKEN)
        self._n_tokens = n_steps + min(n_predict, 1)
        for note in self._notes():
            self._recorder.mark(note)

    def _notes(self) -> tuple[str, ...]:
        picks_experts = any(table.copies["n_experts"].any() for table in self._plans.values())
        return (ROUTING_NOTE,) if picks_experts else ()

    def _paper_note(self) -> str:
        names = ", ".join(_device_names(self.context.planner.backends).values())
        return f"predicted, not measured: {names} exist on paper only"

    def result(self, n_prompt: int) -> Predicted:
        """Figures and trace."""
        planner, snapshot = self.context.planner, self._recorder.snapshot()
        spans = snapshot.spans()
        figures = Prediction(
            n_prompt_tokens=n_prompt,
            n_tokens=self._n_tokens,
            n_ubatch=planner.n_ubatch,
            prompt_ns=steps_ns(spans, StepKind.PROMPT),
            generation_ns=steps_ns(spans, StepKind.TOKEN),
            devices=device_loads(spans, _device_names(planner.backends)),
            n_copies=planner.model.n_copies,
            pipeline_off=planner.pipeline_obstacle,
            notes=self._notes(),
            together=together(
                spans, self._plans, planner.model.n_copies, planner.pipeline_obstacle
            ),
        )
        return Predicted(figures, self._meta(), snapshot)

    def _meta(self) -> TraceMeta:
        meta = trace_meta(self._plans, self._setup.options, self._setup.model.file.path.name)
        devices = [word for line in self._lines for word in ("--virtual", line)]
        return replace(meta, command=" ".join([meta.command, *devices]), is_predicted=True)
