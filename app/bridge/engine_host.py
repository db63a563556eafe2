"""EngineHost: the engine's process and the pipe to it.

    start() ── child: sys.executable -P -m engine serve
       │          connects to SPLITSCOPE_ADDRESS with SPLITSCOPE_AUTHKEY (both in its environment)
       ├─ reader thread   accepts, unpacks answers, reports the end of the process
       ├─ writer thread   packs requests, so that a full pipe never holds the window
       ├─ output thread   keeps the last lines the process printed
       └─ watch thread    wakes the reader if the process ends before it connects

Messages are pickles sent with `send_bytes`; only a process that knows the key can send any.
"""

from __future__ import annotations

import os
import pickle
import queue
import secrets
import shutil
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Sequence
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Any

from engine.paths import repository_dir
from engine.service.messages import Answer, EngineDied, Request, Shutdown

ADDRESS_VARIABLE = "SPLITSCOPE_ADDRESS"
AUTHKEY_VARIABLE = "SPLITSCOPE_AUTHKEY"

CLOSE_TIMEOUT_S = 2.0
KEPT_LINES = 60

OnAnswer = Callable[[Answer], None]


def engine_command() -> list[str]:
    """What starts the engine: this Python, or this executable in a bundle.

    -P: what lies in the current folder must not stand in for modules of ours or of others.
    """
    if getattr(sys, "frozen", False):
        return [sys.executable, "--engine-serve"]
    return [sys.executable, "-P", "-m", "engine", "serve"]


class EngineHost:
    """Starts, hears and ends one engine process at a time."""

    def __init__(self, command: Sequence[str] | None = None) -> None:
        self._command = list(command or engine_command())
        self._child: _Child | None = None

    @property
    def is_running(self) -> bool:
        """Whether a process was started and has not ended."""
        return self._child is not None and self._child.is_running

    def start(self, on_answer: OnAnswer) -> None:
        """Start a process; `on_answer` is called on its reader thread, at last with EngineDied.

        A process that is still there is ended first, without a word to its `on_answer`.
        """
        self.close(timeout_s=0)
        self._child = _Child(self._command, on_answer)

    def send(self, request: Request) -> None:
        """Queue a request; one to a process that has ended is dropped."""
        if self._child is not None:
            self._child.send(request)

    def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """Ask the process to end, wait, then end it. Waits up to `timeout_s`: not for a slot."""
        if self._child is not None:
            self._child.close(timeout_s)
            self._child = None


class _Child:
    """One process, from start to end."""

    def __init__(self, command: list[str], on_answer: OnAnswer) -> None:
        self._on_answer = on_answer
        self._closing = threading.Event()
        self._connected = threading.Event()
        self._requests: queue.SimpleQueue[Request | None] = queue.SimpleQueue()
        self._lines: deque[str] = deque(maxlen=KEPT_LINES)
        self._authkey = secrets.token_bytes(32)
        self._folder, address = _private_address()
        self._listener = Listener(address, authkey=self._authkey)
        self._address = self._listener.address
        self._process = _spawn(command, self._address, self._authkey)
        self._output = _thread(self._keep_output)
        self._threads = [_thread(self._read), self._output, _thread(self._watch)]
        for thread in self._threads:
            thread.start()

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def send(self, request: Request) -> None:
        self._requests.put(request)

    def close(self, timeout_s: float) -> None:
        self._closing.set()
        self._requests.put(Shutdown())
        self._requests.put(None)
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(CLOSE_TIMEOUT_S)

    # The reader thread.

    def _read(self) -> None:
        try:
            reason = self._hear()
        finally:
            self._listener.close()
            if self._folder is not None:
                shutil.rmtree(self._folder, ignore_errors=True)
        if not self._closing.is_set():
            self._report_end(reason)

    def _hear(self) -> str:
        """Pass answers on until the pipe ends; gives back why it ended if it is not that."""
        try:
            with self._listener.accept() as connection:
                if self._process.poll() is not None:
                    return ""
                self._connected.set()
                self._start_writer(connection)
                return self._pass_on(connection)
        except (OSError, EOFError, AuthenticationError):
            return ""

    def _pass_on(self, connection: Connection[Any, Any]) -> str:
        while True:
            data = connection.recv_bytes()
            try:
                answer = pickle.loads(data)
            except Exception as error:  # noqa: BLE001 - unpickling raises whatever a class raises
                return f"An answer of the engine cannot be read: {error!r}"
            if self._closing.is_set():
                return ""
            self._on_answer(answer)

    def _report_end(self, reason: str) -> None:
        exit_code = self._exit_code()
        self._requests.put(None)
        self._output.join(CLOSE_TIMEOUT_S)
        details = "\n".join([*self._lines, *([reason] if reason else [])])
        self._on_answer(EngineDied(exit_code, details=details))

    def _exit_code(self) -> int:
        """The process's exit code; one that closed its pipe and stays is ended."""
        try:
            return self._process.wait(CLOSE_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()

    # The other threads.

    def _start_writer(self, connection: Connection[Any, Any]) -> None:
        writer = threading.Thread(
            target=self._write, args=(connection,), name="engine-write", daemon=True
        )
        self._threads.append(writer)
        writer.start()

    def _write(self, connection: Connection[Any, Any]) -> None:
        while (request := self._requests.get()) is not None:
            try:
                connection.send_bytes(pickle.dumps(request, protocol=5))
            except OSError:
                # The reader sees the same end and reports it.
                return

    def _keep_output(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as stream:
            for line in stream:
                self._lines.append(line.rstrip("\n"))

    def _watch(self) -> None:
        """Wait for the process to end; if it never connected, connect in its place."""
        self._process.wait()
        if self._connected.is_set():
            return
        try:
            Client(self._address, authkey=self._authkey).close()
        except (OSError, EOFError, AuthenticationError):
            # It connected in this moment: the reader has seen it, and its end.
            return


def _thread(target: Callable[[], None]) -> threading.Thread:
    return threading.Thread(target=target, name=f"engine{target.__name__}", daemon=True)


def _private_address() -> tuple[Path | None, str | None]:
    """A socket in a folder only this user enters; None lets Windows choose a pipe's name."""
    if sys.platform == "win32":
        return None, None
    folder = Path(tempfile.mkdtemp(prefix="splitscope-"))
    return folder, str(folder / "engine")


def _spawn(command: list[str], address: Any, authkey: bytes) -> subprocess.Popen[str]:
    environment = os.environ | {
        ADDRESS_VARIABLE: str(address),
        AUTHKEY_VARIABLE: authkey.hex(),
        "PYTHONPATH": _python_path(),
        "PYTHONUNBUFFERED": "1",
    }
    return subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        errors="replace",
    )


def _python_path() -> str:
    """The child finds `engine` where this process did, whatever folder it was started in."""
    parts = [str(repository_dir()), os.environ.get("PYTHONPATH", "")]
    return os.pathsep.join(part for part in parts if part)
