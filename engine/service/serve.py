"""The child process: `python -m engine serve`.

The main thread reads requests, answers polls and asks the session to stop; one engine thread owns
the Session and does everything else, in order. Answers leave through one writer lock.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import threading
import traceback
from dataclasses import dataclass
from multiprocessing.connection import Client, Connection
from typing import Any

from engine.core.summary import Progress
from engine.core.table import PlanTable
from engine.errors import Stopped, UserError
from engine.report import RunStatus
from engine.service.messages import (
    PROTOCOL,
    Answer,
    EngineReady,
    Exported,
    ExportTrace,
    Failed,
    JobProgress,
    ModelOpened,
    OpenModel,
    PlanMet,
    Planned,
    Poll,
    Replan,
    Request,
    RunEnded,
    RunStateChanged,
    Shutdown,
    StartRun,
    StopRun,
    TextEmitted,
    TraceArrived,
    TraceFormat,
)
from engine.session import Listeners, Session

ADDRESS_VARIABLE = "SPLITSCOPE_ADDRESS"
KEY_VARIABLE = "SPLITSCOPE_AUTHKEY"


def serve_from_environment() -> None:
    """Connect to the window that started this process and serve it until it goes away."""
    address = os.environ.pop(ADDRESS_VARIABLE)
    key = bytes.fromhex(os.environ.pop(KEY_VARIABLE))
    with contextlib.closing(Client(address, authkey=key)) as connection:
        Server(connection).run()


@dataclass(slots=True)
class Outbox:
    """Sends answers; any thread. A window that is gone is not an error: the process ends soon."""

    connection: Connection[Any, Any]
    lock: Any

    def send(self, answer: Answer) -> None:
        """Send one answer."""
        data = pickle.dumps(answer, protocol=5)
        with self.lock, contextlib.suppress(OSError):
            self.connection.send_bytes(data)


class Server:
    """One window's engine."""

    def __init__(self, connection: Connection[Any, Any]) -> None:
        self._connection = connection
        self._outbox = Outbox(connection, threading.Lock())
        self._jobs: queue.SimpleQueue[Request | None] = queue.SimpleQueue()
        self._session = Session(
            listeners=Listeners(
                on_progress=self._tell_progress,
                on_plan=self._tell_plan,
                on_text=self._tell_text,
                on_state=self._tell_state,
            )
        )
        self._request_id = 0
        self._is_running = False
        self._newest_replan: Replan | None = None

    def run(self) -> None:
        """Serve until the window asks to end or is gone."""
        engine = threading.Thread(target=self._engine_thread, name="engine")
        engine.start()
        try:
            self._read_requests()
        finally:
            self._session.ask_stop()
            self._jobs.put(None)
            engine.join()

    # The main thread.

    def _read_requests(self) -> None:
        while True:
            try:
                request: Request = pickle.loads(self._connection.recv_bytes())  # noqa: S301 - our own window's pipe
            except (EOFError, OSError):
                return
            if isinstance(request, Shutdown):
                return
            self._dispatch(request)

    def _dispatch(self, request: Request) -> None:
        if isinstance(request, Poll):
            self._outbox.send(TraceArrived(self._session.snapshot(request.trace_seq)))
        elif isinstance(request, StopRun):
            self._session.ask_stop()
        elif isinstance(request, Replan):
            self._newest_replan = request
            if self._is_running:
                # The switch is one word read between graphs; the plan itself waits its turn.
                self._session.set_op_offload(on=request.options.op_offload)
            self._jobs.put(request)
        else:
            self._jobs.put(request)

    # The engine thread.

    def _engine_thread(self) -> None:
        self._outbox.send(
            EngineReady(PROTOCOL, self._session.devices(), self._session.unavailable())
        )
        while True:
            request = self._jobs.get()
            if request is None:
                self._session.close()
                return
            self._do(request)

    def _do(self, request: Request) -> None:
        request_id = getattr(request, "request_id", 0)
        self._request_id = request_id
        self._session.allow()
        try:
            self._handle(request)
        except Stopped:
            self._outbox.send(Failed(request_id, "Stopped."))
        except UserError as error:
            self._outbox.send(
                Failed(request_id, error.title, error.sentence, error.hint, error.details)
            )
        except Exception as error:  # noqa: BLE001 - the window must hear of every failure
            self._outbox.send(
                Failed(
                    request_id,
                    "Something went wrong inside the engine.",
                    f"{type(error).__name__}: {error}",
                    "The model and its plan are kept. Please report this with the details.",
                    traceback.format_exc(),
                )
            )

    def _handle(self, request: Request) -> None:
        if isinstance(request, OpenModel):
            self._open(request)
        elif isinstance(request, Replan):
            self._replan(request)
        elif isinstance(request, StartRun):
            self._run(request)
        elif isinstance(request, ExportTrace):
            chrome = request.format is TraceFormat.CHROME
            n_bytes = self._session.export_trace(request.path, chrome=chrome)
            self._outbox.send(Exported(request.request_id, request.path, n_bytes))

    def _open(self, request: OpenModel) -> None:
        model = self._session.open(request.path)
        self._outbox.send(ModelOpened(request.request_id, model))
        if not model.plan_problem:
            options = request.options or self._session.default_options()
            self._outbox.send(Planned(request.request_id, self._session.plan(options)))

    def _replan(self, request: Replan) -> None:
        if request is not self._newest_replan:
            return  # A newer one waits behind it; this one would only be drawn over.
        self._outbox.send(Planned(request.request_id, self._session.plan(request.options)))

    def _run(self, request: StartRun) -> None:
        self._is_running = True
        try:
            summary = self._session.run(request.prompt, request.n_predict, chat=request.chat)
        finally:
            self._is_running = False
        self._outbox.send(RunEnded(request.request_id, summary))

    # What the session tells.

    def _tell_progress(self, progress: Progress) -> None:
        self._outbox.send(JobProgress(self._request_id, progress))

    def _tell_plan(self, plan: PlanTable) -> None:
        self._outbox.send(PlanMet(plan))

    def _tell_text(self, text: str) -> None:
        if text:
            self._outbox.send(TextEmitted(text))

    def _tell_state(self, status: RunStatus) -> None:
        self._outbox.send(
            RunStateChanged(
                status.state,
                status.n_prompt_tokens,
                status.n_tokens,
                status.prefill_tokens_per_s,
                status.decode_tokens_per_s,
            )
        )

