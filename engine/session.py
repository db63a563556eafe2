"""Session: open -> plan -> run, score -> snapshot. The only engine object that service and cli use.

    session = Session()
    session.open("model.gguf")
    plans = session.plan(Options(n_gpu_layers=15))
    summary = session.run("The capital of France is", 32)
    session.close()

It joins two parts: `Planning` (what is open, and its plans) and `Running` (what is loaded and
recorded), which takes from the first nothing but a frozen `RunSetup`. One thread may plan while
another runs; `ask_stop` and `snapshot` may be called from any.
"""

from __future__ import annotations

import itertools
from functools import partial
from typing import TYPE_CHECKING

from engine.backend.computer import physical_cores
from engine.machine import Machine
from engine.planning import OpenedModel, Planning, RunSetup
from engine.report.models import model_summary
from engine.running import Listeners, Running, ScoreResult, prompt_tokens
from engine.stopping import StopSwitch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from engine.backend.interface import BackendReg
    from engine.core.devices import Unavailable
    from engine.core.load_report import LoadReport
    from engine.core.op_matrix import OpMatrix
    from engine.core.options import Options
    from engine.core.summary import DeviceSummary, Embedded, ModelSummary, Progress, RunSummary
    from engine.core.table import PlanSetTable, PlanTable
    from engine.model.context import ModelContext
    from engine.opcheck.cases import CountedCase
    from engine.predicting import Predicted
    from engine.report.weight_places import WeightPlace
    from engine.trace.recorder import Recorder
    from engine.trace.snapshot import TraceSnapshot


class Session:
    """A model, its plans and its runs on the devices of this machine."""

    def __init__(
        self,
        *,
        virtual: Sequence[str] = (),
        backends: str | None = None,
        load: Sequence[str | Path] = (),
        rpc: Sequence[str] = (),
        listeners: Listeners | None = None,
    ) -> None:
        """`virtual`, `backends`, `load` and `rpc` are what `Machine` takes."""
        self._listeners = listeners or Listeners()
        self._stop = StopSwitch()
        self._machine = Machine(virtual, backends=backends, load=load, rpc=rpc)
        # Both parts take from it: `next` is one step, whichever thread asks.
        plan_ids = itertools.count(1)
        self._planning = Planning(self._machine, plan_ids)
        self._running = Running(self._machine, self._stop, self._listeners, plan_ids=plan_ids)

    # Stopping; any thread.

    def admit(self) -> int:
        """A number for a job that is asked for now; a later `ask_stop` concerns it."""
        return self._stop.admit()

    def ask_stop(self) -> None:
        """Ask every job admitted so far to stop."""
        self._stop.ask()

    # Devices.

    def devices(self) -> tuple[DeviceSummary, ...]:
        """The devices for people."""
        return self._machine.summaries()

    def unavailable(self) -> tuple[Unavailable, ...]:
        """Devices and backends left out, with reasons."""
        return self._machine.unavailable()

    def load_report(self) -> LoadReport:
        """Every path that was tried to load backends."""
        return self._machine.load_report()

    def check_loaded(self) -> None:
        """Raise DeviceError when a path of `load` or a server of `rpc` gave nothing."""
        self._machine.check_loaded()

    def load_backend(self, path: Path, *, is_asked: bool = True) -> LoadReport:
        """Load a backend, or those of a folder; the open model can be planned for them then.

        The thread that plans. `is_asked` as `Loader.load` takes it.
        """
        report = self._machine.loader.load(path, is_asked=is_asked)
        self._planning.see_devices()
        return report

    def find_backend(self, name: str) -> BackendReg:
        """A loaded backend by its name, a device's or its file; DeviceError when there is none."""
        return self._machine.loader.loaded(name)

    def unload_backend(self, reg: BackendReg) -> LoadReport:
        """Take out a backend that was loaded, and what is loaded on its devices.

        The thread that plans, and no run may be under way.
        """
        self._running.drop()
        report = self._machine.loader.unload(reg)
        self._planning.see_devices()
        return report

    # Opening and planning; the thread that plans.

    def open(self, path: str) -> ModelSummary:
        """Open a file, or the demo model; what was open before stays when this fails."""
        return self.adopt(self.read(path, self._listeners.on_progress, job=self.admit()))

    def read(self, path: str, on_progress: Callable[[Progress], None], *, job: int) -> OpenedModel:
        """The first half of `open`: read a file; what is open stays, and may run on."""
        return self._planning.read(path, on_progress, lambda: self._stop.is_stopped(job))

    def adopt(self, model: OpenedModel) -> ModelSummary:
        """The second half of `open`: release the old model and take this one.

        No run may be under way.
        """
        self._running.drop()
        self._planning.adopt(model)
        return self.summary

    @property
    def summary(self) -> ModelSummary:
        """What is said of the open model; ModelError when there is none."""
        return model_summary(self._planning.model.file)

    def default_options(self) -> Options:
        """llama.cpp's defaults; the demo leaves half of its layers on the CPU."""
        return self._planning.model.default_options

    def weight_places(self, name: str) -> tuple[WeightPlace, ...]:
        """Where the last plan has a weight, and why."""
        return self._planning.weight_places(name)

    @property
    def options(self) -> Options:
        """What the next run uses: the options of the last plan, unless they were set."""
        return self._planning.options

    @options.setter
    def options(self, options: Options) -> None:
        self._planning.options = options

    def plan(self, options: Options) -> PlanSetTable:
        """Plan the open model; a run that is under way takes op_offload from its next graph on.

        Raises: ModelError, PlacementError; the options are as before then.
        """
        plans = self._planning.plan(options)
        self._running.follow(options)
        return plans

    def setup(self) -> RunSetup:
        """What a run would be made of, now: model and options."""
        setup = self._planning.setup()
        self._running.follow(setup.options)
        return setup

    def op_cases(self, *, of_model: bool, op: str = "", kind: str = "") -> tuple[CountedCase, ...]:
        """What `check_ops` can check: the open model's operations, or the built-in cases.

        `op` and `kind`, a type, narrow them down by name; UserError when nothing is left.
        """
        # What checks operations is not needed to plan and to run.
        from engine.opcheck.built_in import built_in_cases
        from engine.opcheck.cases import counted_cases
        from engine.opcheck.check import chosen

        cases = counted_cases(*self._planning.run_graphs()) if of_model else built_in_cases()
        return chosen(cases, op, kind)

    # Running; the thread that runs.

    def check_ops(
        self,
        cases: Sequence[CountedCase],
        devices: Sequence[str] = (),
        *,
        with_speed: bool = False,
        in_process: bool = False,
        on_progress: Callable[[Progress], None] | None = None,
        job: int | None = None,
    ) -> OpMatrix:
        """Check single operations on devices by their names, or on all, against a reference.

        A stopped check gives what it found. Loaded backends are checked in processes of their own,
        which they may end, unless `in_process`.

        Raises: DeviceError when there is no such device, or none at all.
        """
        from engine.opcheck.check import check_ops
        from engine.opcheck.subjects import subjects_of

        job = self.admit() if job is None else job
        stop_asked = partial(self._stop.is_stopped, job)
        registry = self._machine.real_registry()
        return check_ops(
            subjects_of(
                registry,
                devices,
                n_threads=self.options.n_threads or physical_cores(),
                in_process=in_process,
                stop_asked=stop_asked,
            ),
            cases,
            with_speed=with_speed,
            on_progress=on_progress or self._listeners.on_progress,
            stop_asked=stop_asked,
        )

    def run(
        self,
        prompt: str,
        n_predict: int,
        *,
        chat: bool = False,
        setup: RunSetup | None = None,
        job: int | None = None,
    ) -> RunSummary:
        """Generate up to `n_predict` tokens; a stopped generation is summed up too.

        `setup` and `job` say what and when it was asked for; default: now.

        Raises: ModelError, PlacementError, DeviceError, and Stopped when somebody asked
        before the first token of the prompt was computed.
        """
        job = self.admit() if job is None else job
        return self._running.run(setup or self.setup(), prompt, n_predict, chat=chat, job=job)

    def score(self, prompt: str, tokens: Sequence[int], *, job: int | None = None) -> ScoreResult:
        """Feed `tokens` after the prompt whatever the model would have chosen."""
        job = self.admit() if job is None else job
        return self._running.score(self.setup(), prompt, tokens, job=job)

    def embed(
        self, text: str, *, setup: RunSetup | None = None, job: int | None = None
    ) -> Embedded:
        """The embeddings of a text, by a model that gives them; `setup` and `job` as in `run`."""
        job = self.admit() if job is None else job
        return self._running.embed(setup or self.setup(), text, job=job)

    def predict(
        self,
        n_prompt: int,
        n_predict: int,
        *,
        setup: RunSetup | None = None,
        job: int | None = None,
    ) -> Predicted:
        """What a run on devices on paper would take, in virtual time; nothing is loaded.

        Raises: ModelError, PlacementError, Stopped.
        """
        # Who runs on real devices does not need it.
        from engine.predicting import predict

        self._stop.begin(self.admit() if job is None else job)
        return predict(
            self._machine, setup or self._planning.paper_setup(), n_prompt, n_predict,
            stop=self._stop, on_progress=self._listeners.on_progress,
        )  # fmt: skip

    def paper_setup(self) -> RunSetup:
        """What a prediction would be made of, now: model and options."""
        return self._planning.paper_setup()

    def prompt_tokens(self, prompt: str, *, chat: bool = False) -> list[int]:
        """Tokens of a prompt, raw or wrapped in the model's chat template."""
        return prompt_tokens(self._planning.model, prompt, chat=chat)

    def prepare(self) -> ModelContext:
        """The model on its devices, loaded with the session's options; for checks."""
        return self._running.prepare(self.setup())

    # What was recorded.

    @property
    def recorder(self) -> Recorder:
        """Spans and marks of the last run."""
        return self._running.recorder

    @property
    def met_plans(self) -> Mapping[int, PlanTable]:
        """The plans of the last run, by the plan_id that spans name."""
        return self._running.met_plans

    def snapshot(self, since: int = 0) -> TraceSnapshot:
        """Spans newer than `since`; any thread."""
        return self.recorder.snapshot(since)

    def export_trace(self, path: Path, *, chrome: bool = False) -> int:
        """Write the trace of the last run; bytes written. ExportError says what to do."""
        return self._running.export(path, chrome=chrome)

    def close(self) -> None:
        """Release everything; no run may be under way."""
        self._running.drop()
        self._planning.close()
