"""Running: a model on its devices, and what it computes there. One thread at a time uses it.

Two exceptions may be called meanwhile: `StopSwitch.ask` by any thread, `follow` by the thread that
plans.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from engine.backend.computer import physical_cores
from engine.core.options import Options, Redo, redo_of
from engine.core.summary import Embedded, Progress, RunState, RunSummary, ScoreStep, StopReason
from engine.core.table import PlanTable, table_of
from engine.errors import DeviceError, ExportError, ModelError, Stopped
from engine.gguf import keys
from engine.machine import devices_for
from engine.model.context import Logits, ModelContext
from engine.model.planning import ModelPlanner, make_planner
from engine.report.embeddings import check_rows
from engine.report.run_progress import RunProgress, RunStatus
from engine.report.run_sums import Generated, run_notes, run_summary, settled_snapshot
from engine.report.together import are_several, together
from engine.report.trace_names import trace_meta
from engine.text.prompt import Prompt, read_prompt
from engine.text.sampling import Sampler, SamplingOptions, gap
from engine.trace.export.chrome import write_chrome
from engine.trace.export.perfetto import write_perfetto
from engine.trace.recorder import Recorder
from engine.trace.records import StepKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from engine.core.plan import Plan
    from engine.machine import Machine
    from engine.planning import OpenedModel, RunSetup
    from engine.stopping import StopSwitch
    from engine.trace.snapshot import TraceSnapshot

MEMORY_HINT = (
    "Choose a shorter context (-c), a smaller batch (-ub), or another number of layers on the "
    "device (-ngl), and run again."
)


@dataclass(frozen=True, slots=True)
class Listeners:
    """Whom a run tells; each is called on the thread that runs."""

    on_progress: Callable[[Progress], None] = lambda _: None
    on_plan: Callable[[PlanTable], None] | None = None
    on_text: Callable[[str], None] = lambda _: None
    on_state: Callable[[RunStatus], None] = lambda _: None


@dataclass(frozen=True, slots=True)
class ScoreResult:
    """Forced tokens, and the logits after the prompt and after each of them but the last."""

    prompt_tokens: tuple[int, ...]
    steps: tuple[ScoreStep, ...]
    logits: tuple[Logits, ...]


@dataclass(frozen=True, slots=True, eq=False)
class _Loaded:
    """A model on its devices, and what it was loaded with."""

    model: OpenedModel
    options: Options
    context: ModelContext

    def serves(self, setup: RunSetup) -> bool:
        """Whether a run can use it as it is."""
        same_file = self.model is setup.model
        return same_file and Redo.CONTEXT not in redo_of(self.options, setup.options)


class Running:
    """Loads, runs, and keeps what was loaded and recorded until something else is asked for."""

    def __init__(
        self,
        machine: Machine,
        stop: StopSwitch,
        listeners: Listeners,
        *,
        plan_ids: Iterator[int],
    ) -> None:
        self.recorder = Recorder()
        self._met: dict[int, Plan] = {}
        self._tables: dict[int, PlanTable] = {}
        self._machine = machine
        self._plan_ids = plan_ids
        self._stop = stop
        self._listeners = listeners
        self._loaded: _Loaded | None = None
        self._last_setup: RunSetup | None = None
        self._is_computing = False
        self._followed = Options()
        self._follow_lock = threading.Lock()

    # Loading.

    def prepare(
        self, setup: RunSetup, check: Callable[[ModelPlanner], None] = lambda _: None
    ) -> ModelContext:
        """The model on its devices, loaded again only if the options ask for it.

        `check` (optional) raises where the model cannot do what is wanted, before it is loaded.

        Raises:
            ModelError: the file is not whole.
            DeviceError: a device is not there any more, and what is loaded stays; or one refused,
                or there is not enough memory, and nothing stays loaded.
            Stopped: somebody asked to stop.
        """
        if self._loaded is None or not self._loaded.serves(setup):
            planner = make_planner(
                setup.model.file, setup.model.facts, setup.options, plan_ids=self._plan_ids
            )
            check(planner)
            # It refuses what cannot run here, while what is loaded stays.
            context = self._context(setup, planner)
            self.drop()
            self._load(context)
            self._loaded = _Loaded(setup.model, setup.options, context)
        context = self._loaded.context
        check(context.planner)
        context.planner.op_offload = setup.options.op_offload
        context.set_threads(setup.options.n_threads or physical_cores())
        return context

    def _context(self, setup: RunSetup, planner: ModelPlanner) -> ModelContext:
        return ModelContext(
            setup.model.file,
            planner,
            devices_for(planner, self._machine.devices()),
            self.recorder,
            on_plan=self._remember_plan,
            stop_address=self._stop.address,
            stop_asked=self._stop.is_asked,
        )

    def _load(self, context: ModelContext) -> None:
        """Bring the model onto its devices; what was loaded is released when that fails."""
        try:
            context.load(self._listeners.on_progress)
        except MemoryError as error:
            context.dispose()
            raise out_of_memory() from error
        except BaseException:
            context.dispose()
            raise

    def _remember_plan(self, plan: Plan) -> None:
        self._met[plan.plan_id] = plan
        if self._listeners.on_plan is not None:
            self._listeners.on_plan(self._table_of(plan))

    @property
    def met_plans(self) -> dict[int, PlanTable]:
        """The plans that the last run met, by plan_id; their tables are made when asked for."""
        return {plan_id: self._table_of(plan) for plan_id, plan in self._met.items()}

    def _table_of(self, plan: Plan) -> PlanTable:
        if plan.plan_id not in self._tables:
            self._tables[plan.plan_id] = table_of(plan)
        return self._tables[plan.plan_id]

    def _forget_met(self) -> None:
        """Begin a run, which may meet plans of the last one again: tables of those are kept."""
        self._tables = {i: table for i, table in self._tables.items() if i in self._met}
        self._met.clear()

    def drop(self) -> None:
        """Release the model's memory and streams."""
        loaded, self._loaded = self._loaded, None
        if loaded is not None:
            loaded.context.dispose()

    # What may change during a run.

    def follow(self, options: Options) -> None:
        """Let a run take op_offload from its next graph on, with a mark in the trace."""
        with self._follow_lock:
            self._followed = options
            self._apply_op_offload()

    def _apply_op_offload(self) -> None:
        """The lock is held."""
        if not self._is_computing or self._loaded is None:
            return
        planner = self._loaded.context.planner
        if planner.op_offload != self._followed.op_offload:
            planner.op_offload = self._followed.op_offload
            self.recorder.mark(f"op_offload {'on' if planner.op_offload else 'off'}")

    def _apply_threads(self, context: ModelContext) -> None:
        # Between graphs only: the CPU backend replaces its threads.
        context.set_threads(self._followed.n_threads or physical_cores())

    @contextmanager
    def _computing(
        self,
        setup: RunSetup,
        check: Callable[[ModelPlanner], None],
        notes: Sequence[str] = (),
    ) -> Iterator[ModelContext]:
        """A loaded model without tokens, and a trace with nothing but marks, those of `notes` too.

        What it loads stays for the next run. A device that refuses in the middle has lost its
        state: it is loaded anew next time.
        """
        context = self.prepare(setup, check)
        context.clear()
        context.tell_plans_again()
        self._forget_met()
        self.recorder.clear()
        self._last_setup = setup
        with self._follow_lock:
            self._is_computing = True
            self._apply_op_offload()
        if setup.paper_note:
            self.recorder.mark(setup.paper_note)
        for note in notes:
            self.recorder.mark(note)
        try:
            yield context
        except MemoryError as error:
            self.drop()
            raise out_of_memory() from error
        except DeviceError:
            self.drop()
            raise
        finally:
            with self._follow_lock:
                self._is_computing = False

    # Computing.

    @contextmanager
    def _reporting(self, job: int) -> Iterator[RunProgress]:
        """Listeners hear how a job stands, from preparing to idle, however it ends."""
        self._stop.begin(job)
        progress = RunProgress(self._listeners.on_state)
        progress.enter(RunState.PREPARING)
        try:
            yield progress
        finally:
            progress.enter(RunState.IDLE)

    def run(
        self, setup: RunSetup, prompt: str, n_predict: int, *, job: int, chat: bool
    ) -> RunSummary:
        """Generate up to `n_predict` tokens; a stopped generation is summed up too.

        Raises: what `prepare` does.
        """
        with self._reporting(job) as progress:
            read = checked_prompt(setup.model, prompt, chat=chat)
            tokens = list(read.tokens)
            progress.n_prompt_tokens = len(tokens)
            check = partial(check_writes, len(tokens))
            with self._computing(setup, check, read.notes) as context:
                reason = self._generate(context, setup, tokens, n_predict, progress)
            text = setup.model.tokenizer.decode(progress.tokens)
            generated = Generated(prompt, tokens, progress.tokens, text, reason)
            return self._summary(generated, context, read.notes)

    def _generate(
        self,
        context: ModelContext,
        setup: RunSetup,
        tokens: list[int],
        n_predict: int,
        progress: RunProgress,
    ) -> StopReason:
        tokenizer = setup.model.tokenizer
        sampler = Sampler(sampling_options(setup.options))
        stream = tokenizer.stream()
        try:
            progress.enter(RunState.PROMPT)
            logits = context.decode(tokens, StepKind.PROMPT)
            progress.prompt_done()
            for _ in range(n_predict):
                token = sampler.sample(logits)
                if tokenizer.is_end(token):
                    return StopReason.END_OF_TEXT
                progress.add(token)
                self._listeners.on_text(stream.push(token))
                if len(progress.tokens) == n_predict:
                    break
                if context.n_past >= context.planner.n_ctx:
                    return StopReason.CONTEXT_FULL
                logits = self._next_logits(context, token)
                progress.token_done()
        except Stopped:
            return StopReason.STOPPED
        finally:
            rest = stream.finish()
            if rest:
                self._listeners.on_text(rest)
        return StopReason.LENGTH

    def _next_logits(self, context: ModelContext, token: int) -> Logits:
        self._apply_threads(context)
        return context.decode([token], StepKind.TOKEN)

    def score(
        self, setup: RunSetup, prompt: str, tokens: Sequence[int], *, job: int
    ) -> ScoreResult:
        """Feed `tokens` after the prompt whatever the model would have chosen.

        Raises: what `prepare` does, and Stopped.
        """
        self._stop.begin(job)
        start = prompt_tokens(setup.model, prompt)
        n_tokens = len(start) + len(tokens) - 1
        with self._computing(setup, partial(check_writes, n_tokens)) as context:
            _check_tokens(tokens, context.planner.hparams.n_vocab)
            logits = context.decode(start, StepKind.PROMPT)
            steps, seen = [], [logits.copy()]
            for i_token, token in enumerate(tokens):
                steps.append(ScoreStep(token, int(np.argmax(logits)), gap(logits, token)))
                if i_token + 1 < len(tokens):
                    logits = context.decode([token], StepKind.TOKEN)
                    seen.append(logits.copy())
        return ScoreResult(tuple(start), tuple(steps), tuple(seen))

    def embed(self, setup: RunSetup, text: str, *, job: int) -> Embedded:
        """The embeddings of a text.

        Raises: what `prepare` does, and Stopped.
        """
        with self._reporting(job) as progress:
            read = checked_prompt(setup.model, text, embeds=True)
            tokens = list(read.tokens)
            progress.n_prompt_tokens = len(tokens)
            check = partial(check_embeds, len(tokens))
            with self._computing(setup, check, read.notes) as context:
                progress.enter(RunState.PROMPT)
                rows = context.embed(tokens)
                check_rows(rows)
                pooling = context.planner.model.pooling
                assert pooling is not None, "check_embeds lets no other through"
            # As a generation of no tokens: it is as long as was asked for.
            generated = Generated(text, tokens, [], "", StopReason.LENGTH)
            return Embedded(
                pooling.name.lower(), rows, self._summary(generated, context, read.notes)
            )

    def _summary(
        self, generated: Generated, context: ModelContext, notes: Sequence[str]
    ) -> RunSummary:
        """The sums of what was just computed."""
        snapshot, plans, planner = self._settled(), self.met_plans, context.planner
        spans, n_copies = snapshot.without_nodes(), planner.model.n_copies
        return replace(
            run_summary(generated, snapshot, plans),
            notes=run_notes((*notes, context.pipeline_note), generated, planner.n_ctx),
            together=together(spans, plans, n_copies, planner.pipeline_obstacle)
            if are_several(spans, plans)
            else None,
        )

    # Traces.

    def _settled(self) -> TraceSnapshot:
        return settled_snapshot(self.recorder)

    def export(self, path: Path, *, chrome: bool) -> int:
        """Write the trace of the last run; bytes written.

        Raises:
            ExportError: the file cannot be written, or there was no run.
        """
        setup = self._last_setup
        if setup is None:
            raise ExportError("There is no trace yet.", hint="Run something first.")
        meta = trace_meta(self.met_plans, setup.options, setup.model.file.path.name)
        (write_chrome if chrome else write_perfetto)(path, meta, self._settled())
        return path.stat().st_size


def prompt_tokens(model: OpenedModel, prompt: str, *, chat: bool = False) -> list[int]:
    """Tokens of a prompt, raw or wrapped in the model's chat template; ModelError for none."""
    return list(checked_prompt(model, prompt, chat=chat).tokens)


def checked_prompt(
    model: OpenedModel, text: str, *, chat: bool = False, embeds: bool = False
) -> Prompt:
    """A text as tokens, with what was not as the file asks.

    Raises:
        ModelError: it is blank, or the vocabulary has no tokens for it.
    """
    if not text.strip():
        if embeds:
            raise ModelError("The text is empty.", hint="Type a text to embed.")
        raise ModelError("The prompt is empty.", hint="Type something to continue from.")
    read = read_prompt(model.file.metadata, model.tokenizer, text, chat=chat)
    if not read.tokens:
        raise ModelError(
            "The model's vocabulary has no tokens for this text.",
            f"Nothing in it is among the file's {_tokens(model.tokenizer.n_vocab)} "
            f"({keys.TOKENIZER_TOKENS}).",
            "Try another text, or another file of the model.",
        )
    return read


def sampling_options(options: Options) -> SamplingOptions:
    """The sampler's part of the options; seed -1 is a new one each time."""
    return SamplingOptions(
        temp=options.temperature,
        top_k=options.top_k,
        top_p=options.top_p,
        seed=None if options.seed < 0 else options.seed,
    )


def check_writes(n_tokens: int, planner: ModelPlanner) -> None:
    """ModelError when a model writes no text, or its context cannot take that many tokens."""
    if planner.model.pooling is not None:
        raise _no_text(planner)
    n_ctx = planner.n_ctx
    if n_tokens > n_ctx:
        raise ModelError(
            f"The prompt is too long: {_tokens(n_tokens)}.",
            f"The context holds {n_ctx:,}.",
            "Choose a longer context (-c) or a shorter prompt.",
        )


def _no_text(planner: ModelPlanner) -> ModelError:
    """The error for a model that gives embeddings where text is wanted."""
    hparams = planner.hparams
    reason = f"{hparams.arch}.pooling_type is {hparams.pooling}: it was made for embeddings."
    hint = "See: python -m engine embed --help"
    if hparams.encoder is not None:
        reason = f"A {hparams.arch} model has no output layer."
    elif not hparams.gives_embeddings:
        reason = f"--pooling {planner.options.pooling} asks for embeddings."
        hint = "Leave --pooling out, or choose model, to have it write text."
    return ModelError("This model gives embeddings. It writes no text.", reason, hint)


def check_embeds(n_tokens: int, planner: ModelPlanner) -> None:
    """ModelError when a model gives no embeddings, or cannot see that many tokens at once."""
    encoder, arch = planner.hparams.encoder, planner.hparams.arch
    if planner.model.pooling is None:
        found = "missing" if planner.hparams.pooling is None else "0 (none)"
        raise ModelError(
            "This model gives no embeddings. It writes text.",
            f"{arch}.pooling_type is {found}, so its file does not say how the embeddings of a "
            "text's tokens become one.",
            "To have them all the same, say how: --pooling last, mean, cls or none.",
        )
    if encoder is not None and encoder.n_positions and n_tokens > encoder.n_positions:
        raise ModelError(
            f"The text is too long: {_tokens(n_tokens)}.",
            f"The model knows {encoder.n_positions:,} positions.",
            "Choose a shorter text.",
        )
    n_seen = min(planner.n_ctx, planner.n_ubatch)
    if n_tokens > n_seen:
        raise ModelError(
            f"The text is too long: {_tokens(n_tokens)}.",
            f"The model sees a text at once, and a graph takes {_tokens(n_seen)}.",
            "Choose a larger batch (-b and -ub) and context (-c), or a shorter text.",
        )


def _tokens(count: int) -> str:
    return f"{count:,} token{'' if count == 1 else 's'}"


def _check_tokens(tokens: Sequence[int], n_vocab: int) -> None:
    bad = next((token for token in tokens if not 0 <= token < n_vocab), None)
    if bad is not None:
        raise ModelError(f"There is no token {bad}.", f"The model knows tokens 0 to {n_vocab - 1}.")


def out_of_memory() -> DeviceError:
    """What to say when the computer's memory is used up."""
    return DeviceError(
        "There is not enough memory for this run.",
        "The computer could not give what weights, caches and results need.",
        MEMORY_HINT,
    )
