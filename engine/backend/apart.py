"""A library tried in a process of its own: what it does there to the process is a result.

    python -m MODULE PATH     prints a line of JSON for each step that went well (a Probe)

What starts such processes and says how they ended serves others too: `child_command`,
`way_to_end`, `last_words`.

The last line counts: each but the final one goes through `step`, and says what is to be thought if
nothing follows. When the process did not end by itself, the Probe says how it did.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from engine import paths
from engine.core.load_report import Probe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

LIMIT_S = 60
"""Longer than a library needs to be loaded, cold, on a busy machine."""

_ENDED = "it ended the process that tried it"

_LONGEST = 500
"""Characters of what a process wrote that are worth keeping."""


def child_command(module: str, *arguments: str) -> list[str]:
    """What runs `python -m module arguments..`, to be started in the repository's folder.

    Raises: OSError in a bundle, whose executable is the window and runs no modules.
    """
    if paths.bundle_dir() is not None:
        raise OSError("a bundle of Splitscope cannot start one, a checkout can")
    return [sys.executable, "-m", module, *arguments]


def way_to_end(code: int) -> str:
    """How a process ended, in a word or two: "SIGABRT", "status 3"."""
    if code >= 0:
        return f"status {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def last_words(text: str, most: int = _LONGEST) -> str:
    """What a process wrote last, at most so many characters."""
    return text.strip()[-most:].strip()


def end_of(code: int, said: str) -> str:
    """How a process ended and what it wrote last, as one line."""
    line = last_words(" ".join(said.split()))
    return f"{way_to_end(code)}; it said: {line}" if line else way_to_end(code)


def probe_apart(module: str, path: Path, *arguments: str) -> Probe:
    """What `python -m module path arguments..` found out; never raises."""
    try:
        command = child_command(module, str(path.absolute()), *arguments)
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=LIMIT_S, check=False,
            errors="replace", cwd=paths.repository_dir(), stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except subprocess.TimeoutExpired as expired:
        return _ended(_output(expired.stdout), f"it was not loaded within {LIMIT_S} s")
    except OSError as error:
        return Probe(opened=False, error=f"no process to try it in can be started: {error}")
    if not done.returncode:
        return _ended(done.stdout, "")
    return _ended(done.stdout, f"{_ENDED}: {end_of(done.returncode, done.stderr)}")


@contextlib.contextmanager
def telling() -> Iterator[Callable[[Probe], None]]:
    """For the process that tries: a function that tells a Probe.

    What a library prints itself goes to standard error meanwhile, so that it is not read as ours.
    """
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as ours:
        os.dup2(2, 1)

        def tell(probe: Probe) -> None:
            ours.write(json.dumps(probe.to_json()) + "\n")
            ours.flush()

        yield tell


def step(probe: Probe) -> Probe:
    """What is known so far, in case that the next thing ends the process."""
    return replace(probe, error=_ENDED)


def _ended(output: str, error: str) -> Probe:
    lines = [line for line in output.splitlines() if line.strip()]
    try:
        probe = Probe.from_json(json.loads(lines[-1])) if lines else step(Probe(opened=False))
    except (ValueError, TypeError):
        probe = Probe(opened=False, error="the process that tried it wrote nothing that is known")
    return replace(probe, error=error) if error else probe


def _output(text: str | bytes | None) -> str:
    return text.decode(errors="replace") if isinstance(text, bytes) else text or ""
