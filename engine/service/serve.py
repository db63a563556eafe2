"""The child process: `python -m engine serve`.

    main thread      reads requests; answers polls and passes on wishes to stop at once
       │ Inbox       in order; a newer Replan replaces the one right before it
    planner thread   opens files and plans; hands what computes to
       │
    engine thread    loads, runs, exports

So a plan is answered in the middle of a run. Order is kept where it matters: a run has the options
of the newest plan that was asked for before it, and a model is replaced between runs. A job that
fails is answered with Failed and the next one is done.
"""

from __future__ import annotations

import functools
import os
import signal
import threading
import traceback
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from engine.backends.python_plugin import fault_of
from engine.errors import Stopped, UserError
from engine.running import Listeners, out_of_memory
from engine.service.inbox import Inbox, Job
from engine.service.messages import (
    PROTOCOL,
    BackendsChanged,
    CheckOps,
    EmbedEnded,
    EngineReady,
    Exported,
    ExportTrace,
    Failed,
    JobProgress,
    LoadBackend,
    ModelOpened,
    OpenModel,
    OpsChecked,
    PlanMet,
    Planned,
    Poll,
    Replan,
    RunEnded,
    RunStateChanged,
    Shutdown,
    StartEmbed,
    StartRun,
    StopRun,
    TextEmitted,
    TraceArrived,
    TraceFormat,
    UnloadBackend,
)
from engine.service.pipe import Pipe, connected_pipe
from engine.session import Session

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.core.load_report import LoadReport
    from engine.core.summary import Progress
    from engine.core.table import PlanTable
    from engine.opcheck.cases import CountedCase
    from engine.planning import RunSetup
    from engine.report.run_progress import RunStatus
    from engine.service.messages import Request

END_GRACE_S = 5.0
"""How long a kernel or a driver may take to stop once the window is gone; then the process ends."""


def serve_from_environment() -> None:
    """Connect to the window that started this process and serve it until it goes away.

    Raises:
        UserError: there is no such window, or it sent something that is no request.
    """
    # A terminal sends Ctrl-C to the window and to us: it is the window that decides.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with connected_pipe() as pipe:
        Server(pipe).run()


class Server:
    """One window's engine."""

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe
        self._inbox = Inbox()
        self._engine = ThreadPoolExecutor(1, thread_name_prefix="engine")
        self._run_id = 0
        self._session = Session(
            listeners=Listeners(
                on_progress=lambda progress: self._tell_progress(self._run_id, progress),
                on_plan=self._tell_plan,
                on_text=self._tell_text,
                on_state=self._tell_state,
            )
        )

    def run(self) -> None:
        """Serve until the window asks to end or is gone."""
        planner = threading.Thread(target=self._plan_and_hand_on, name="planner")
        planner.start()
        try:
            self._read_requests()
        finally:
            self._end(planner)

    def _end(self, planner: threading.Thread) -> None:
        # Leaves no orphan behind when a driver hangs.
        last_resort = threading.Timer(END_GRACE_S, os._exit, args=(1,))
        last_resort.daemon = True
        last_resort.start()
        self._session.ask_stop()
        self._inbox.close()
        planner.join()
        self._engine.shutdown(cancel_futures=True)
        self._session.close()
        last_resort.cancel()

    # The main thread.

    def _read_requests(self) -> None:
        while True:
            request = self._pipe.receive()
            if request is None or isinstance(request, Shutdown):
                return
            if isinstance(request, Poll):
                self._pipe.send(TraceArrived(self._session.snapshot(request.trace_seq)))
            elif isinstance(request, StopRun):
                self._session.ask_stop()
            else:
                self._inbox.put(Job(self._session.admit(), request))

    # The planner thread.

    def _plan_and_hand_on(self) -> None:
        self._do(0, self._greet)
        while (job := self._inbox.get()) is not None:
            self._do(_id_of(job.request), functools.partial(self._start, job))

    def _greet(self) -> None:
        session = self._session
        self._pipe.send(
            EngineReady(PROTOCOL, session.devices(), session.unavailable(), session.load_report())
        )

    def _start(self, job: Job) -> None:
        request = job.request
        match request:
            case OpenModel():
                self._open(request, job.number)
            case Replan():
                plans = self._session.plan(request.options)
                self._pipe.send(Planned(request.request_id, plans))
            case LoadBackend():
                self._tell_backends(request, self._load(request))
            case UnloadBackend():
                reg = self._session.find_backend(request.name)
                unload = functools.partial(self._session.unload_backend, reg)
                self._tell_backends(request, self._engine.submit(unload).result())
            case StartRun():
                setup = self._session.setup()
                run = functools.partial(self._run, request, job.number, setup)
                self._engine.submit(self._do, request.request_id, run)
            case StartEmbed():
                setup = self._session.setup()
                embed = functools.partial(self._embed, request, job.number, setup)
                self._engine.submit(self._do, request.request_id, embed)
            case CheckOps():
                cases = self._session.op_cases(
                    of_model=request.of_model, op=request.op, kind=request.type
                )
                check = functools.partial(self._check_ops, request, job.number, cases)
                self._engine.submit(self._do, request.request_id, check)
            case ExportTrace():
                export = functools.partial(self._export, request)
                self._engine.submit(self._do, request.request_id, export)

    def _open(self, request: OpenModel, number: int) -> None:
        request_id = request.request_id
        opened = self._session.read(
            request.path,
            lambda progress: self._tell_progress(request_id, progress),
            job=number,
        )
        model = self._engine.submit(self._session.adopt, opened).result()
        self._pipe.send(ModelOpened(request_id, model))
        if not model.plan_problem:
            options = request.options or self._session.default_options()
            self._pipe.send(Planned(request_id, self._session.plan(options)))

    def _load(self, request: LoadBackend) -> LoadReport:
        return self._session.load_backend(request.path, is_asked=not request.must_be_own)

    def _tell_backends(self, request: LoadBackend | UnloadBackend, report: LoadReport) -> None:
        session = self._session
        self._pipe.send(
            BackendsChanged(
                request.request_id,
                report,
                session.devices(),
                session.unavailable(),
                session.load_report(),
            )
        )

    # The engine thread.

    def _run(self, request: StartRun, number: int, setup: RunSetup) -> None:
        self._run_id = request.request_id
        summary = self._session.run(
            request.prompt, request.n_predict, chat=request.chat, setup=setup, job=number
        )
        self._pipe.send(RunEnded(request.request_id, summary))

    def _embed(self, request: StartEmbed, number: int, setup: RunSetup) -> None:
        self._run_id = request.request_id
        embedded = self._session.embed(request.text, setup=setup, job=number)
        self._pipe.send(EmbedEnded(request.request_id, embedded))

    def _check_ops(self, request: CheckOps, number: int, cases: tuple[CountedCase, ...]) -> None:
        matrix = self._session.check_ops(
            cases,
            request.devices,
            with_speed=request.speed,
            on_progress=functools.partial(self._tell_progress, request.request_id),
            job=number,
        )
        self._pipe.send(OpsChecked(request.request_id, matrix))

    def _export(self, request: ExportTrace) -> None:
        chrome = request.format is TraceFormat.CHROME
        n_bytes = self._session.export_trace(request.path, chrome=chrome)
        self._pipe.send(Exported(request.request_id, request.path, n_bytes))

    # Both.

    def _do(self, request_id: int, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - the window must hear of every failure
            self._pipe.send(failed_answer(request_id, error))

    def _tell_progress(self, request_id: int, progress: Progress) -> None:
        self._pipe.send(JobProgress(request_id, progress))

    def _tell_plan(self, plan: PlanTable) -> None:
        self._pipe.send(PlanMet(plan))

    def _tell_text(self, text: str) -> None:
        if text:
            self._pipe.send(TextEmitted(text))

    def _tell_state(self, status: RunStatus) -> None:
        self._pipe.send(
            RunStateChanged(
                status.state,
                status.n_prompt_tokens,
                status.n_tokens,
                status.prefill_tokens_per_s,
                status.decode_tokens_per_s,
            )
        )


def _id_of(request: Request) -> int:
    return 0 if isinstance(request, Poll | Shutdown) else request.request_id


def failed_answer(request_id: int, error: Exception) -> Failed:
    """What the window is told of an error."""
    if isinstance(error, Stopped):
        return Failed(request_id, "Stopped.")
    if isinstance(error, MemoryError):
        error = out_of_memory()
    error = fault_of(error) or error
    if isinstance(error, UserError):
        return Failed(request_id, error.title, error.sentence, error.hint, error.details)
    return Failed(
        request_id,
        "Something went wrong inside the engine.",
        "It is a fault of Splitscope, not of the model.",
        "The model and its plan are kept. Please report this with the details.",
        "".join(traceback.format_exception(error)),
    )
