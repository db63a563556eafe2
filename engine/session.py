"""Session: open -> plan -> run, score -> snapshot. The only engine object that service and cli use.

One thread uses a session; `ask_stop` may be called from any.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from engine import report
from engine.backend.registry import Registry
from engine.backends import register_builtin
from engine.backends.null import presets
from engine.backends.null.virtual import parse_virtual
from engine.core.devices import DeviceFacts, DeviceType, Unavailable
from engine.core.options import Options, Redo, redo_of
from engine.core.plan import Plan, PlanSet
from engine.core.summary import (
    DeviceSummary,
    ModelSummary,
    Progress,
    RunState,
    RunSummary,
    ScoreStep,
    StopReason,
)
from engine.core.table import PlanSetTable, PlanTable, table_of, table_of_set
from engine.errors import ModelError, Stopped, UserError
from engine.gguf.reader import GgufFile, open_gguf
from engine.model.context import Logits, ModelContext
from engine.model.fetch import fetch_demo
from engine.model.manifest import DEMO
from engine.model.planning import ModelPlanner, make_planner
from engine.text.chat_template import ChatMessage, has_template, render_chat, template_of
from engine.text.sampling import Sampler, SamplingOptions, gap
from engine.text.tokenizer import Tokenizer
from engine.trace.export.chrome import write_chrome
from engine.trace.export.perfetto import write_perfetto
from engine.trace.recorder import Recorder
from engine.trace.records import StepKind

if TYPE_CHECKING:
    from engine.trace.snapshot import TraceSnapshot

DEMO_GPU_LAYERS = 15
"""Layers the demo puts on the GPU: half, so that both devices have something to show."""

PAPER_GPU_MIB = 8192


@dataclass(frozen=True, slots=True)
class Listeners:
    """Whom a session tells; each is called on the session's thread."""

    on_progress: Callable[[Progress], None] = lambda _: None
    on_plan: Callable[[PlanTable], None] = lambda _: None
    on_text: Callable[[str], None] = lambda _: None
    on_state: Callable[[report.RunStatus], None] = lambda _: None


@dataclass(frozen=True, slots=True)
class ScoreResult:
    """Forced tokens, and the logits after the prompt and after each of them but the last."""

    prompt_tokens: tuple[int, ...]
    steps: tuple[ScoreStep, ...]
    logits: tuple[Logits, ...]


class Session:
    """A model, its plans and its runs on the devices of this machine."""

    def __init__(
        self, *, virtual: Sequence[str] = (), listeners: Listeners | None = None
    ) -> None:
        self.recorder = Recorder()
        self.options = Options()
        self.met_plans: dict[int, PlanTable] = {}
        self._listeners = listeners or Listeners()
        self._virtual = tuple(parse_virtual(text) for text in virtual)
        self._registry = Registry()
        self._registered = False
        self._file: GgufFile | None = None
        self._is_demo = False
        self._plan: PlanSet | None = None
        self._context: ModelContext | None = None
        self._context_options: Options | None = None
        self._tokenizer: Tokenizer | None = None
        self._stop = np.zeros(1, np.int64)

    # Stopping.

    def ask_stop(self) -> None:
        """Ask whatever runs to stop; any thread."""
        self._stop[0] = 1

    def allow(self) -> None:
        """Take back an earlier `ask_stop`, before the next job; the session's thread."""
        self._stop[0] = 0

    def _stop_asked(self) -> bool:
        return bool(self._stop[0])

    # Devices.

    @property
    def registry(self) -> Registry:
        """The backends of this machine, found on first use."""
        if not self._registered:
            self._registered = True
            register_builtin(self._registry)
        return self._registry

    def device_facts(self) -> tuple[DeviceFacts, ...]:
        """The devices planning uses: those on paper when there are any, else this machine's.

        Devices on paper get a CPU on paper unless one is among them. Without a GPU the demo is
        planned with one on paper, so that there is a placement to look at.
        """
        if self._virtual:
            if any(facts.type is DeviceType.CPU for facts in self._virtual):
                return self._virtual
            return (*self._virtual, presets.cpu("CPU", report.host_memory_bytes()))
        real = tuple(device.facts for device in self.registry.devices())
        return (self._paper_gpu(), *real) if self.plans_on_paper else real

    @property
    def plans_on_paper(self) -> bool:
        """Whether the demo's plan has a GPU that this machine has not."""
        if self._virtual or not self._is_demo:
            return False
        gpu = any(d.facts.type is not DeviceType.CPU for d in self.registry.devices())
        return not gpu and self.options.devices is None

    def _paper_gpu(self) -> DeviceFacts:
        facts = presets.cuda("GPU0", PAPER_GPU_MIB * presets.MIB)
        return replace(facts, description="on paper: this computer has no OpenCL device")

    def devices(self) -> tuple[DeviceSummary, ...]:
        """The devices for people."""
        virtual = {facts.name for facts in self._virtual}
        return tuple(
            report.device_summary(facts, virtual=facts.name in virtual)
            for facts in self.device_facts()
        )

    def unavailable(self) -> tuple[Unavailable, ...]:
        """Devices and backends left out, with reasons."""
        return () if self._virtual else self.registry.unavailable()

    # Opening and planning.

    def open(self, path: str) -> ModelSummary:
        """Open a file, or the demo model; what was open before stays when this fails."""
        is_demo = path == DEMO
        real_path = self._fetch_demo() if is_demo else Path(path)
        file = open_gguf(real_path)
        self._close_model()
        self._file, self._is_demo = file, is_demo
        return report.model_summary(file)

    def _fetch_demo(self) -> Path:
        def tell(done: int, total: int, label: str) -> None:
            self._listeners.on_progress(Progress(label, done, total))

        return fetch_demo(tell, self._stop_asked)

    def default_options(self) -> Options:
        """llama.cpp's defaults; the demo leaves half of its layers on the CPU."""
        return Options(n_gpu_layers=DEMO_GPU_LAYERS) if self._is_demo else Options()

    def plan(self, options: Options) -> PlanSetTable:
        """Plan the open model; `options` become the session's."""
        start_ns = time.monotonic_ns()
        self.options = options
        planner = make_planner(self.file, self.device_facts(), options)
        self._plan = planner.plan_set()
        if self._context is not None:
            # The switch acts on a run from its next graph on.
            self._context.planner.op_offload = options.op_offload
        return table_of_set(self._plan, time.monotonic_ns() - start_ns)

    def set_op_offload(self, *, on: bool) -> None:
        """Flip op_offload during a run: from the next graph on, with a mark in the trace."""
        if self._context is None or self._context.planner.op_offload == on:
            return
        self._context.planner.op_offload = on
        self.recorder.mark(f"op_offload {'on' if on else 'off'}")

    @property
    def file(self) -> GgufFile:
        """The open file; ModelError when there is none."""
        if self._file is None:
            raise ModelError("No model is open.", hint="Open a GGUF file first.")
        return self._file

    @property
    def tokenizer(self) -> Tokenizer:
        """The open model's tokenizer; TextError when it cannot be used."""
        if self._tokenizer is None:
            self._tokenizer = Tokenizer.from_metadata(self.file.metadata)
        return self._tokenizer

    # Running.

    def prepare(self) -> ModelContext:
        """The model on its devices, loaded with the session's options; loaded once."""
        known = self._context_options
        if self._context is not None and known is not None:
            if Redo.CONTEXT not in redo_of(known, self.options):
                self._context.planner.op_offload = self.options.op_offload
                self._context.set_threads(self.options.n_threads or report.physical_cores())
                return self._context
            self._drop_context()
        planner = self._run_planner()
        devices = {device.facts.name: device for device in self.registry.devices()}
        context = ModelContext(
            self.file,
            planner,
            devices,
            self.recorder,
            on_plan=self._remember_plan,
            stop_address=int(self._stop.ctypes.data),
            stop_asked=self._stop_asked,
        )
        try:
            context.load(self._listeners.on_progress)
        except BaseException:
            context.dispose()
            raise
        context.set_threads(self.options.n_threads or report.physical_cores())
        self._context, self._context_options = context, self.options
        return context

    def _run_planner(self) -> ModelPlanner:
        if self._virtual:
            raise ModelError(
                "Devices on paper cannot run a model.",
                "They have no memory and no kernels.",
                "Leave --virtual out to run on this machine's devices.",
            )
        real = tuple(device.facts for device in self.registry.devices())
        return make_planner(self.file, real, self.options)

    def _remember_plan(self, plan: Plan) -> None:
        table = table_of(plan)
        self.met_plans[plan.plan_id] = table
        self._listeners.on_plan(table)

    def prompt_tokens(self, prompt: str, *, chat: bool = False) -> list[int]:
        """Tokens of a prompt, raw or wrapped in the model's chat template."""
        if chat and has_template(self.file.metadata):
            return self._chat_tokens(prompt)
        tokens = self.tokenizer.encode(prompt, add_special=True, parse_special=True)
        if not tokens:
            raise ModelError("The prompt is empty.", hint="Type something to continue from.")
        return tokens

    def _chat_tokens(self, prompt: str) -> list[int]:
        tokenizer = self.tokenizer

        def text_of(token: int | None) -> str:
            return "" if token is None else tokenizer.token_text(token)

        rendered = render_chat(
            template_of(self.file.metadata),
            [ChatMessage("user", prompt)],
            add_generation_prompt=True,
            bos_token=text_of(tokenizer.bos_id),
            eos_token=text_of(tokenizer.eos_id),
        )
        return tokenizer.encode(rendered, add_special=False, parse_special=True)

    def run(self, prompt: str, n_predict: int, *, chat: bool = False) -> RunSummary:
        """Generate up to `n_predict` tokens; a stopped run is summed up too."""
        progress = report.RunProgress(self._listeners.on_state)
        progress.enter(RunState.PREPARING)
        try:
            tokens = self.prompt_tokens(prompt, chat=chat)
            context = self.prepare()
            self._begin(context)
            progress.n_prompt_tokens = len(tokens)
            reason = self._generate(context, tokens, n_predict, progress)
            return self._sum_up(prompt, tokens, progress, reason)
        finally:
            progress.enter(RunState.IDLE)

    def _begin(self, context: ModelContext) -> None:
        context.clear()
        self.recorder.clear()
        self.met_plans.clear()
        context.forget_graph()

    def _generate(
        self,
        context: ModelContext,
        tokens: list[int],
        n_predict: int,
        progress: report.RunProgress,
    ) -> StopReason:
        sampler = Sampler(sampling_options(self.options))
        stream = self.tokenizer.stream()
        try:
            progress.enter(RunState.PROMPT)
            logits = context.decode(tokens, StepKind.PROMPT)
            progress.prompt_done()
            for _ in range(n_predict):
                token = sampler.sample(logits)
                if self.tokenizer.is_end(token):
                    return StopReason.END_OF_TEXT
                progress.add(token)
                self._listeners.on_text(stream.push(token))
                if len(progress.tokens) == n_predict:
                    break
                if context.n_past >= context.planner.n_ctx:
                    return StopReason.CONTEXT_FULL
                logits = context.decode([token], StepKind.TOKEN)
                progress.token_done()
        except Stopped:
            return StopReason.STOPPED
        finally:
            rest = stream.finish()
            if rest:
                self._listeners.on_text(rest)
        return StopReason.LENGTH

    def _sum_up(
        self, prompt: str, tokens: list[int], progress: report.RunProgress, reason: StopReason
    ) -> RunSummary:
        return report.run_summary(
            prompt,
            tokens,
            progress.tokens,
            self.tokenizer.decode(progress.tokens),
            reason,
            report.settled_snapshot(self.recorder, self.met_plans),
            self.met_plans,
        )

    def score(self, prompt: str, tokens: Sequence[int]) -> ScoreResult:
        """Feed `tokens` after the prompt whatever it would have chosen."""
        prompt_tokens = self.prompt_tokens(prompt)
        context = self.prepare()
        self._begin(context)
        n_vocab = context.planner.hparams.n_vocab
        bad = next((token for token in tokens if not 0 <= token < n_vocab), None)
        if bad is not None:
            raise ModelError(
                f"There is no token {bad}.", f"The model knows tokens 0 to {n_vocab - 1}."
            )
        logits = context.decode(prompt_tokens, StepKind.PROMPT)
        steps, seen = [], [logits]
        for i_token, token in enumerate(tokens):
            steps.append(ScoreStep(token, int(np.argmax(logits)), gap(logits, token)))
            if i_token + 1 < len(tokens):
                logits = context.decode([token], StepKind.TOKEN)
                seen.append(logits)
        return ScoreResult(tuple(prompt_tokens), tuple(steps), tuple(seen))

    # Traces.

    def snapshot(self, since: int = 0) -> TraceSnapshot:
        """Spans newer than `since`."""
        return self.recorder.snapshot(since)

    def export_trace(self, path: Path, *, chrome: bool = False) -> int:
        """Write the trace of the last run; bytes written. ExportError says what to do."""
        snapshot = report.settled_snapshot(self.recorder, self.met_plans)
        meta = report.trace_meta(self.met_plans, self.options, self.file.path.name)
        (write_chrome if chrome else write_perfetto)(path, meta, snapshot)
        return path.stat().st_size

    # Ending.

    def _drop_context(self) -> None:
        if self._context is not None:
            self._context.dispose()
        self._context, self._context_options = None, None

    def _close_model(self) -> None:
        self._drop_context()
        if self._file is not None:
            self._file.close()
        self._file, self._plan, self._tokenizer = None, None, None
        self.options = Options()

    def close(self) -> None:
        """Release everything."""
        self._close_model()


def sampling_options(options: Options) -> SamplingOptions:
    """The sampler's part of the options; seed -1 is a new one each time."""
    return SamplingOptions(
        temp=options.temperature,
        top_k=options.top_k,
        top_p=options.top_p,
        seed=None if options.seed < 0 else options.seed,
    )


def why_not_runnable(session: Session) -> str:
    """Why the open model cannot run here, or nothing."""
    try:
        session.tokenizer  # noqa: B018 - the property raises when the vocabulary is unusable
    except UserError as error:
        return str(error)
    return ""
