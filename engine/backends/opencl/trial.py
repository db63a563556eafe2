"""The self check in a process of its own: a driver that cannot compile may end its process.

    python -m engine.backends.opencl.trial N WHAT     tries it on the N-th device of the drivers

WHAT is one of CHECKS. Prints why the device cannot do that, or nothing. A device that can be used
is remembered beside the compiled kernels, with why its driver refuses mapped files if it does, so
that a start does not compile and run the trial again. A trial that could not start, or did not end
in time, says nothing about the device and is not remembered.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyopencl as cl

from engine import paths
from engine.backend.apart import child_command, end_of
from engine.backends.opencl.discovery import Verdict
from engine.backends.opencl.platforms import find_devices
from engine.backends.opencl.selfcheck import check_device, check_mapping

if TYPE_CHECKING:
    from pathlib import Path

    from engine.backends.opencl.discovery import FoundDevice

LIMIT_S = 120
"""Longer than any driver needs for its first kernel, cold, on a busy machine."""

KERNEL, MAPPING = "a small kernel", "a mapped file"

CHECKS = {KERNEL: check_device, MAPPING: check_mapping}


@dataclass(frozen=True, slots=True)
class _Outcome:
    """Why a device cannot do something, or ""; `is_final`: another trial would say the same."""

    problem: str
    is_final: bool = True


def check_apart(found: FoundDevice, index: int) -> Verdict:
    """What can be said of the device, the `index`-th of `find_devices`."""
    passed = _passed()
    known = passed.get(_identity(found))
    if known is not None:
        return Verdict(no_mapping=known)
    kernel = _try(index, KERNEL)
    if kernel.problem:
        return Verdict(kernel.problem)
    mapping = _try(index, MAPPING) if found.shares_memory else _Outcome("")
    if mapping.is_final:
        _remember(passed | {_identity(found): mapping.problem})
    return Verdict(no_mapping=mapping.problem)


def _try(index: int, what: str) -> _Outcome:
    try:
        command = child_command("engine.backends.opencl.trial", str(index), what)
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=LIMIT_S, check=False,
            errors="replace", cwd=paths.repository_dir(),
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        late = f"its driver did not finish {what} within {LIMIT_S} s"
        return _Outcome(late, is_final=False)
    except OSError as error:
        return _Outcome(f"its check could not be started: {error}", is_final=False)
    if done.returncode:
        end = end_of(done.returncode, done.stderr)
        return _Outcome(f"its driver ended the process that tried {what}: {end}")
    return _Outcome(done.stdout.strip())


def _identity(found: FoundDevice) -> str:
    """What the verdict holds for: another driver, device or binding is tried again."""
    version = found.handle.driver_version.strip()
    return " | ".join((found.version_text, found.device_name, version, cl.VERSION_TEXT))


def _passed() -> dict[str, str]:
    """Devices that can be used, by identity, and why one cannot read a mapped file."""
    try:
        verdicts = json.loads(_file().read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    if not isinstance(verdicts, dict):
        return {}
    return {identity: text for identity, text in verdicts.items() if isinstance(text, str)}


def _remember(passed: dict[str, str]) -> None:
    """Best effort: without it the next start tries again."""
    newest = dict(list(passed.items())[-64:])
    file = _file()
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(newest), encoding="utf-8")
    except OSError:
        return


def _file() -> Path:
    return paths.compiled_dir() / "opencl-checked.json"


def _main() -> int:
    found, _ = find_devices()
    index, what = int(sys.argv[1]), sys.argv[2]
    if index >= len(found):
        sys.stdout.write("it is gone")
        return 0
    sys.stdout.write(CHECKS[what](found[index]))
    return 0


if __name__ == "__main__":
    sys.exit(_main())
