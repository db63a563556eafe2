"""The self check in a process of its own: a driver that cannot compile may end its process.

    python -m engine.backends.opencl.trial N       checks the N-th device that the drivers offer

Prints why the device cannot be used, or nothing. What came out right is remembered beside the
compiled kernels, so that a start does not compile and run the trial again.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pyopencl as cl

from engine import paths
from engine.backends.opencl.platforms import find_devices
from engine.backends.opencl.selfcheck import check_device

if TYPE_CHECKING:
    from pathlib import Path

    from engine.backends.opencl.discovery import FoundDevice

LIMIT_S = 120
"""Longer than any driver needs for its first kernel, cold, on a busy machine."""

_WORDS = 300


def check_apart(found: FoundDevice, index: int) -> str:
    """Why the device, the `index`-th of `find_devices`, cannot be used; "" when it can."""
    passed = _passed()
    if _identity(found) in passed:
        return ""
    problem = _try(index)
    if not problem:
        _remember([*passed, _identity(found)])
    return problem


def _try(index: int) -> str:
    command = [sys.executable, "-m", "engine.backends.opencl.trial", str(index)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=LIMIT_S, check=False,
            errors="replace", cwd=paths.repository_dir(),
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"its driver did not finish a small kernel within {LIMIT_S} s"
    except OSError as error:
        return f"its check could not be started: {error.strerror}"
    if done.returncode:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        said = lines[0][:_WORDS] if lines else f"status {done.returncode}"
        return f"its driver ended the process that tried a small kernel: {said}"
    return done.stdout.strip()


def _identity(found: FoundDevice) -> str:
    """What the verdict holds for: another driver, device or binding is tried again."""
    version = found.handle.driver_version.strip()
    return " | ".join((found.version_text, found.device_name, version, cl.VERSION_TEXT))


def _passed() -> list[str]:
    try:
        verdicts = json.loads(_file().read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return []
    return (
        [text for text in verdicts if isinstance(text, str)] if isinstance(verdicts, list) else []
    )


def _remember(passed: list[str]) -> None:
    """Best effort: without it the next start tries again."""
    file = _file()
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(passed[-64:]), encoding="utf-8")
    except OSError:
        return


def _file() -> Path:
    return paths.compiled_dir() / "opencl-checked.json"


def _main() -> int:
    found, _ = find_devices()
    index = int(sys.argv[1])
    if index >= len(found):
        sys.stdout.write("it is gone")
        return 0
    sys.stdout.write(check_device(found[index]))
    return 0


if __name__ == "__main__":
    sys.exit(_main())
