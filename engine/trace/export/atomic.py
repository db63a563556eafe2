"""A file that is there whole or not at all."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from engine.errors import ExportError
from engine.gguf.limits import MAGIC

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_BUFFER_BYTES = 1 << 20
_MOST_LINKS = 40
"""Links from one to the next that are followed: as many as Linux does."""

SYSTEM_FOLDERS = tuple(map(Path, ("/dev", "/proc", "/sys")))
"""What is here stands for devices and for the system's state: no place for a file."""


def write_atomically(path: Path, parts: Iterable[bytes]) -> None:
    """Write `parts` to `path`; a file that was there stays until the new one is complete.

    A link stays: the file that it leads to is written.

    Raises:
        ExportError: as `check_target`, or the disk is full.
    """
    target = check_target(path)
    try:
        _write_beside(target, parts)
    except OSError as error:
        raise export_error(path, error) from error


def check_target(path: Path) -> Path:
    """The file to write when a person says `path`: that, or what a link of that name leads to.

    Raises:
        ExportError: it cannot be written there, or is what nobody wants to lose: one of the
            system's own, a device, a pipe, a folder or a model.
    """
    try:
        *_, target = steps = list(_steps(path))
        _refuse_system(path, steps)
        if target.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        _refuse_kind(path, target)
        with tempfile.TemporaryFile(dir=target.parent):
            pass
    except OSError as error:
        raise export_error(path, error) from error
    return target


def _steps(path: Path) -> Iterator[Path]:
    """`path` and what it leads to, link by link, each in its real folder."""
    for _ in range(_MOST_LINKS):
        path = Path(os.path.realpath(path.parent)) / path.name
        yield path
        if not path.is_symlink():
            return
        path = path.parent / path.readlink()
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))


def _refuse_system(path: Path, steps: Sequence[Path]) -> None:
    """ExportError when a step is in a folder of the system, also where it leads out of it again.

    Standard output's name leads to whatever file that goes to.
    """
    for step in steps:
        folder = next((f for f in SYSTEM_FOLDERS if f in (step, *step.parents)), None)
        if folder is not None:
            raise ExportError(
                f"Cannot write {path.name}", f"It is in {folder}, the system's own: {step}", _OTHER
            )


def _refuse_kind(path: Path, target: Path) -> None:
    """ExportError when the target is a device, a pipe or a model."""
    if target.exists() and not target.is_file():
        raise ExportError(
            f"Cannot write {path.name}",
            f"It is a device or a pipe, and a file would take its place: {target}",
            _OTHER,
        )
    if _is_model(target):
        raise ExportError(
            f"Cannot write {path.name}", f"It is a model, which would be lost: {target}", _OTHER
        )


def _is_model(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def _write_beside(path: Path, parts: Iterable[bytes]) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with temporary.open("wb", buffering=_BUFFER_BYTES) as file:
            for part in parts:
                file.write(part)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def export_error(path: Path, error: OSError) -> ExportError:
    """What the system says about writing to `path`, in words."""
    code = error.errno or 0
    said = error.strerror or (os.strerror(code) if code else str(error))
    sentence, hint = _REASONS.get(code, (said, _ELSEWHERE))
    target = Path(os.path.realpath(path))
    if code == errno.ENOENT and target.parent.is_dir():
        # What folders of the system say of a new file.
        sentence, hint = "This folder takes no files", _ELSEWHERE
    where = target if code == errno.EISDIR else path if code == errno.ELOOP else target.parent
    # Not str(error): it names the file that the writer works on, which nobody asked for.
    return ExportError(
        f"Cannot write {path.name or path}",
        f"{sentence}: {where}",
        hint,
        details=f"[Errno {code}] {said}: '{path}'" if code else said,
    )


_ELSEWHERE = "Choose another folder."
_OTHER = "Choose another name."
_REASONS = {
    errno.ENOSPC: ("The disk is full", "Free some space or choose another disk."),
    errno.EDQUOT: ("Your disk quota is used up", "Free some space or choose another disk."),
    errno.EACCES: ("You may not write to this folder", _ELSEWHERE),
    errno.EPERM: ("You may not write to this folder", _ELSEWHERE),
    errno.EROFS: ("This disk is read-only", _ELSEWHERE),
    errno.ENOENT: ("This folder does not exist", "Create it or choose another folder."),
    errno.ENOTDIR: ("This is not a folder", _ELSEWHERE),
    errno.EISDIR: ("There is a folder of that name", _OTHER),
    errno.ELOOP: ("This link leads nowhere", _OTHER),
}
