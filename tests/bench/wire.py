"""Two processes that talk in lines of JSON: one asks, the other computes and answers.

The engines that are compared live in processes of their own, and only one of them is asked at a
time, so they never compute at once.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType

    Handlers = Mapping[str, Callable[..., dict[str, Any]]]

ROOT = Path(__file__).parents[2]
REST_S = 0.03
"""Before each request: threads that spin after the last one have gone to sleep by then."""
END_S = 10.0
LOG_LINES = 12


class ChildError(Exception):
    """A process ended, or could not do what it was asked for; the text says why."""


class Child:
    """A process that runs a module of this folder; what it prints goes into `log`."""

    def __init__(
        self,
        module: str,
        words: Sequence[str],
        log: Path,
        *,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = module.rpartition(".")[2]
        self._log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as stream:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, *words],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stream,
                cwd=ROOT, env={**os.environ, **(environment or {})}, text=True,
            )  # fmt: skip

    def __enter__(self) -> Child:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def ask(self, what: str, **values: object) -> dict[str, Any]:
        """The answer to one request; ChildError when there is none."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        time.sleep(REST_S)
        try:
            self._process.stdin.write(json.dumps({"what": what, **values}) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._ended() from None
        line = self._process.stdout.readline()
        if not line:
            raise self._ended()
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise ChildError(f"{self.name}: {answer['error']}")
        return answer

    def _ended(self) -> ChildError:
        status = self._process.wait()
        text = self._log.read_text(encoding="utf-8", errors="replace")
        last = "\n".join(text.splitlines()[-LOG_LINES:])
        return ChildError(f"{self.name} ended with status {status}. Its last words:\n{last}")

    def close(self) -> None:
        """End the process."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


def serve(handlers: Handlers) -> None:
    """Answer requests until there are no more.

    What anything else here prints to standard output goes to standard error.
    """
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        request = json.loads(line)
        answer = answer_of(handlers, request.pop("what"), request)
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def answer_of(handlers: Handlers, what: str, values: dict[str, Any]) -> dict[str, Any]:
    """What the handler gives, or what went wrong in it."""
    if what not in handlers:
        return {"error": f"there is no request {what}"}
    try:
        return handlers[what](**values)
    except Exception as error:  # noqa: BLE001 - whatever it is, the other process tells a person
        return {"error": f"{type(error).__name__}: {error}"}
