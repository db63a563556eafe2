"""Planning: the open model and its plans.

Devices are asked for their facts when a model is opened; a plan touches none, so planning goes on
during a run.
"""

from __future__ import annotations

import copy
import functools
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from engine.core.graph import Graph
from engine.core.options import Options
from engine.core.table import PlanSetTable, table_of_set
from engine.errors import ModelError, PlacementError
from engine.gguf.reader import GgufFile, open_gguf
from engine.machine import Machine, exchange_bytes, with_paper_gpu
from engine.model.fetch import fetch_demo
from engine.model.generic import check_has_graph
from engine.model.manifest import DEMO
from engine.model.planning import ModelPlanner, make_planner
from engine.report.weight_places import WeightPlace, weight_places
from engine.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engine.core.devices import DeviceFacts
    from engine.core.summary import OnProgress, StopAsked

DEMO_GPU_LAYERS = 15
"""Layers the demo puts on the GPU: half, so that both devices have something to show."""


class OpenedModel:
    """A file, opened. `facts` are the devices at that moment: what a plan is a function of."""

    def __init__(
        self,
        file: GgufFile,
        facts: tuple[DeviceFacts, ...],
        *,
        is_demo: bool,
        is_on_paper: bool,
    ) -> None:
        self.file = file
        self.facts = facts
        self.is_demo = is_demo
        self._is_on_paper = is_on_paper

    def on(self, facts: tuple[DeviceFacts, ...]) -> OpenedModel:
        """The same file on other devices."""
        other = copy.copy(self)
        other.facts = facts
        return other

    @functools.cached_property
    def tokenizer(self) -> Tokenizer:
        """Its tokenizer, made on first use."""
        return Tokenizer.from_metadata(self.file.metadata)

    @property
    def default_options(self) -> Options:
        """llama.cpp's defaults; the demo leaves half of its layers on the CPU."""
        return Options(n_gpu_layers=DEMO_GPU_LAYERS) if self.is_demo else Options()

    def plan_facts(self, options: Options) -> tuple[DeviceFacts, ...]:
        """The devices to plan for.

        The demo gets a GPU on paper where there is none, so that there is a placement to look at;
        who names devices, real ones or on paper, gets those.
        """
        is_free = self.is_demo and options.devices is None and not self._is_on_paper
        return with_paper_gpu(self.facts) if is_free else self.facts


@dataclass(frozen=True, slots=True, eq=False)
class RunSetup:
    """What a run is made of, as it was when the run was asked for."""

    model: OpenedModel
    options: Options

    @property
    def paper_note(self) -> str:
        """What to tell when the plan names devices that exist on paper only; else nothing."""
        planned, real = self.model.plan_facts(self.options), self.model.facts
        names = ", ".join(facts.name for facts in planned if facts not in real)
        if not names:
            return ""
        used = (facts for facts in real if facts.in_use(self.options.blas) is not None)
        here = ", ".join(facts.name for facts in used)
        return f"{names} exists on paper only: this run uses {here}"


class Planning:
    """What is open, and with which options. One thread at a time."""

    def __init__(self, machine: Machine, plan_ids: Iterator[int]) -> None:
        self._machine = machine
        self._plan_ids = plan_ids
        self._model: OpenedModel | None = None
        self._planner: ModelPlanner | None = None
        self.options = Options()

    def read(self, path: str, on_progress: OnProgress, stop_asked: StopAsked) -> OpenedModel:
        """Open a file, or the demo model, which is fetched first; what is open stays.

        Raises:
            GgufError: the file cannot be read.
            FetchError: the demo model cannot be fetched.
            Stopped: `stop_asked` said so.
        """
        is_demo = path == DEMO
        file = open_gguf(fetch_demo(on_progress, stop_asked) if is_demo else Path(path))
        return OpenedModel(
            file, self._machine.facts(), is_demo=is_demo, is_on_paper=self._machine.is_on_paper
        )

    def adopt(self, model: OpenedModel) -> None:
        """Let this be the open model; the one before is closed."""
        self.close()
        self._model = model
        self.options = model.default_options

    @property
    def model(self) -> OpenedModel:
        """The open model; ModelError when there is none."""
        if self._model is None:
            raise ModelError("No model is open.", hint="Open a GGUF file first.")
        return self._model

    def see_devices(self) -> None:
        """Take the devices that are there now; a plan of the open model knows them from then on."""
        if self._model is not None:
            self._model, self._planner = self._model.on(self._machine.facts()), None

    def plan(self, options: Options) -> PlanSetTable:
        """Plan the open model; `options` become those of the next run, unless that fails.

        Raises:
            ModelError: this version cannot plan the model.
            PlacementError: options and devices contradict each other.
        """
        start_ns = time.monotonic_ns()
        model = self.model
        facts = model.plan_facts(options)
        planner = make_planner(
            model.file, facts, options, plan_ids=self._plan_ids, before=self._planner
        )
        plans = planner.plan_set(exchange_bytes=exchange_bytes(planner))
        self.options, self._planner = options, planner
        return table_of_set(plans, time.monotonic_ns() - start_ns)

    def weight_places(self, name: str) -> tuple[WeightPlace, ...]:
        """Where the last plan has a weight, and why; empty for what is none, or without a plan."""
        return () if self._planner is None else weight_places(self._planner.model, name)

    def run_graphs(self) -> tuple[Graph, Graph]:
        """The graphs of a prompt that fills a batch, and of the token after it.

        They are those of the last plan, else of one that is made now. An encoder has no second one.

        Raises: ModelError, PlacementError.
        """
        if self._planner is None:
            self.plan(self.options)
        planner = self._planner
        assert planner is not None
        n_tokens = max(1, min(planner.n_ubatch, planner.n_ctx - 1))
        shapes = [planner.run_shape(n_tokens, 0)]
        if planner.hparams.encoder is None:
            shapes.append(planner.run_shape(1, n_tokens))
        flash = planner.flash_attn
        graphs = [planner.model.build(shape, flash_attn=flash).built.graph for shape in shapes]
        return graphs[0], graphs[1] if len(graphs) > 1 else Graph((), ())

    def setup(self) -> RunSetup:
        """What a run needs, now.

        Raises:
            PlacementError: devices on paper run nothing.
            ModelError: this version has no graph for the model.
        """
        if self._machine.is_on_paper:
            raise PlacementError(
                "Devices on paper cannot run a model.",
                "They have no memory and no kernels.",
                "Leave --virtual out to run on this machine's devices, or predict how long a run "
                "would take: python -m engine trace --help",
            )
        check_has_graph(self.model.file)
        return RunSetup(self.model, self.options)

    def paper_setup(self) -> RunSetup:
        """What a prediction needs, now.

        Raises:
            PlacementError: the devices are real, so that a run can be measured.
            ModelError: this version has no graph for the model.
        """
        if not self._machine.is_on_paper:
            raise PlacementError(
                "Only devices on paper are predicted.",
                "What this machine's devices take can be measured.",
                "Name devices on paper, such as --virtual GPU0:gpu:8192:preset=cuda",
            )
        check_has_graph(self.model.file)
        return RunSetup(self.model, self.options)

    def close(self) -> None:
        """Close the open file."""
        if self._model is not None:
            self._model.file.close()
        self._model, self._planner, self.options = None, None, Options()
