"""A device that is checked in a process of its own: what it does to that process is a verdict.

    engine.opcheck.apart ──(pickled orders)──► python -m engine.opcheck.child
                         ◄──(lines of JSON)──

The process loads the one library that the device came from. When a case ends it, or takes too long,
that case has failed and the next one gets a new process.
"""

from __future__ import annotations

import json
import pickle
import queue
import subprocess
import tempfile
import threading
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any

from engine import paths
from engine.backend.apart import child_command, last_words, way_to_end
from engine.core.op_matrix import OpSpeed, OpState, OpVerdict
from engine.errors import Stopped

if TYPE_CHECKING:
    from pathlib import Path

    from engine.core.summary import StopAsked
    from engine.opcheck.cases import Case
    from engine.opcheck.prepared import Exercise

CHILD = "engine.opcheck.child"

LIMIT_S = 120.0
"""Longer than a case takes, with its speed, on a slow and busy machine."""

LOOK_S = 0.1
"""How often it is looked whether a person wants to stop."""

MOST_ENDS = 10
"""Processes that a device may end; then it is left alone."""

_LONGEST = 2000
"""Characters of what the process wrote that are worth keeping."""


@dataclass(frozen=True, slots=True)
class Home:
    """Where a device comes from: the kind of library, its file, and a server behind it (RPC)."""

    kind: str
    path: Path
    device: str
    n_threads: int
    endpoint: str = ""


@dataclass(frozen=True, slots=True)
class Order:
    """A case to check."""

    case: Case
    with_speed: bool


class ApartSubject:
    """A device in a process that may end."""

    def __init__(self, home: Home, stop_asked: StopAsked) -> None:
        self.name = home.device
        self._home = home
        self._stop_asked = stop_asked
        self._child: _Child | None = None
        self._n_ends = 0

    def verdict(self, exercise: Exercise, *, with_speed: bool) -> OpVerdict:
        """What becomes of a case; Stopped when a person asked to stop."""
        if self._n_ends >= MOST_ENDS:
            reason = f"it ended {MOST_ENDS} processes before"
            return OpVerdict(OpState.NOT_CHECKED, exercise.bar, reason=reason)
        try:
            return self._answer(Order(exercise.case, with_speed))
        except _NotStartedError as error:
            reason = f"no process to check it in can be started: {error}"
            return OpVerdict(OpState.NOT_CHECKED, exercise.bar, reason=reason)
        except _EndedError as ended:
            self.close()
            self._n_ends += 1
            return OpVerdict(
                OpState.FAILED, exercise.bar, reason=ended.reason, details=ended.details
            )

    def close(self) -> None:
        """End the process."""
        child, self._child = self._child, None
        if child is not None:
            child.end()

    def _answer(self, order: Order) -> OpVerdict:
        if self._child is None:
            self._child = _Child(self._home)
        self._child.send(order)
        waited_s = 0.0
        while (line := self._child.line(LOOK_S)) is None:
            waited_s += LOOK_S
            if self._stop_asked():
                raise Stopped
            if waited_s > LIMIT_S:
                raise _EndedError(f"it gave no answer within {LIMIT_S:g} s")
        return verdict_of(json.loads(line))


class _NotStartedError(Exception):
    """There is no process, which is not the device's fault."""


class _EndedError(Exception):
    """The process ended, or is to be ended."""

    def __init__(self, reason: str, details: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.details = details


class _Child:
    """The process, and what it says."""

    def __init__(self, home: Home) -> None:
        try:
            self._said: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - `end` closes it
            self._process = _start(self._said)
        except OSError as error:
            raise _NotStartedError(error) from error
        self._lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, name="opcheck", daemon=True)
        self._reader.start()
        self.send(home)

    def send(self, order: Home | Order) -> None:
        """Hand something over; that the process is gone is found out by reading."""
        assert self._process.stdin is not None
        try:
            pickle.dump(order, self._process.stdin, protocol=5)
            self._process.stdin.flush()
        except OSError:
            return

    def line(self, timeout_s: float) -> bytes | None:
        """Its next line; None when it wrote none meanwhile. _EndedError when it has ended."""
        try:
            line = self._lines.get(timeout=timeout_s)
        except queue.Empty:
            return None
        if line:
            return line
        raise _EndedError(f"it ended the process: {way_to_end(self._process.wait())}", self._tail())

    def end(self) -> None:
        """Kill it, if it is still there, and take its places back."""
        self._process.kill()
        self._process.wait()
        self._reader.join()
        for stream in (self._process.stdin, self._process.stdout, self._said):
            assert stream is not None
            _close(stream)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(b"")

    def _tail(self) -> str:
        """What it wrote last."""
        self._said.seek(0)
        return last_words(self._said.read().decode(errors="replace"), _LONGEST)


def _start(said: IO[bytes]) -> subprocess.Popen[bytes]:
    """The process, whose standard error goes to `said`; that is closed where it cannot start."""
    try:
        return subprocess.Popen(
            child_command(CHILD), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said,
            cwd=paths.repository_dir(),
        )  # fmt: skip
    except OSError:
        said.close()
        raise


def _close(stream: IO[bytes]) -> None:
    try:
        stream.close()
    except OSError:  # What was not sent to a process that is gone.
        return


def verdict_of(values: dict[str, Any]) -> OpVerdict:
    """A verdict as `dataclasses.asdict` and JSON gave it."""
    speed = values.pop("speed")
    state = OpState(values.pop("state"))
    return OpVerdict(state=state, speed=None if speed is None else OpSpeed(**speed), **values)
