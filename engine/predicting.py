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
from engine.report.prediction import Prediction, steps_ns
from engine.report.run_sums import context_note
from engine.report.together import together
from engine.report.trace_names import trace_meta
from engine.running import check_writes
from engine.trace.export.chrome import write_chrome
from engine.trace.export.perfetto import write_perfetto
from engine.trace.recorder import Recorder
from engine.trace.records import StepKind, placed_lanes

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
    run = _PaperRun(machine, setup, planner, (n_prompt, n_predict), stop, on_progress)
    try:
        run.compute()
        return run.result()
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


def _device_names(backends: Sequence[BackendView]) -> list[str]:
    """The devices that compute: members in place of what joins them."""
    lanes = placed_lanes(view.device for view in backends)
    return [placed.device.name for placed in lanes if not placed.device.members]


class _PaperRun:
    """A context on devices on paper, and what it met.

    `length` is how many tokens the prompt has, and how many are asked for after it.
    """

    def __init__(
        self,
        machine: Machine,
        setup: RunSetup,
        planner: ModelPlanner,
        length: tuple[int, int],
        stop: StopSwitch,
        on_progress: OnProgress,
    ) -> None:
        n_prompt, n_predict = length
        family = machine.paper_family()
        self._setup = setup
        self._lines = machine.paper_lines
        self._plans: dict[int, PlanTable] = {}
        self._n_prompt, self._n_predict, self._n_tokens = n_prompt, n_predict, 0
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

    def compute(self) -> None:
        """Run the prompt and the tokens after it; the first one is the prompt's own."""
        context = self.context
        context.load(self._on_progress)
        self._recorder.clear()
        self._recorder.mark(self._paper_note())
        context.decode([ANY_TOKEN] * self._n_prompt, StepKind.PROMPT)
        n_free = context.planner.n_ctx - self._n_prompt
        n_steps = max(0, min(self._n_predict - 1, n_free))
        for _ in range(n_steps):
            context.decode([ANY_TOKEN], StepKind.TOKEN)
        self._n_tokens = n_steps + min(self._n_predict, 1)
        for note in self._notes():
            self._recorder.mark(note)

    def _notes(self) -> tuple[str, ...]:
        picks_experts = any(table.copies["n_experts"].any() for table in self._plans.values())
        is_cut = self._n_tokens < self._n_predict
        full = context_note(self._n_tokens, self.context.planner.n_ctx)
        return (*((ROUTING_NOTE,) if picks_experts else ()), *((full,) if is_cut else ()))

    def _paper_note(self) -> str:
        names = ", ".join(_device_names(self.context.planner.backends))
        return f"predicted, not measured: {names} exist on paper only"

    def result(self) -> Predicted:
        """Figures and trace."""
        planner, snapshot = self.context.planner, self._recorder.snapshot()
        spans = snapshot.spans()
        figures = Prediction(
            n_prompt_tokens=self._n_prompt,
            n_tokens=self._n_tokens,
            n_ubatch=planner.n_ubatch,
            prompt_ns=steps_ns(spans, StepKind.PROMPT),
            generation_ns=steps_ns(spans, StepKind.TOKEN),
            notes=self._notes(),
            together=together(
                spans, self._plans, planner.model.n_copies, planner.pipeline_obstacle
            ),
        )
        return Predicted(figures, self._meta(), snapshot)

    def _meta(self) -> TraceMeta:
        meta = trace_meta(self._plans, self._setup.options, self._setup.model.file.path.name)
        length = ["--n-prompt", str(self._n_prompt), "-n", str(self._n_predict)]
        devices = [word for line in self._lines for word in ("--virtual", line)]
        command = " ".join([meta.command, *length, *devices])
        return replace(meta, command=command, is_predicted=True)
