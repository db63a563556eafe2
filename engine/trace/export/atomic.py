"""A file that is there whole or not at all."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from engine.errors import ExportError
from engine.gguf.limits import MAGIC

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_BUFFER_BYTES = 1 << 20


def write_atomically(path: Path, parts: Iterable[bytes]) -> None:
    """Write `parts` to `path`; a file that was there stays until the new one is complete.

    Raises:
        ExportError: the folder cannot be written, the disk is full, or `path` is what nobody wants
            to lose: a device, a pipe or a model.
    """
    refuse_target(path)
    try:
        _write_beside(path, parts)
    except OSError as error:
        raise export_error(path, error) from error


def refuse_target(path: Path) -> None:
    """ExportError when `path` is a device, a pipe or a model."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise ExportError(
            f"Cannot write {path.name}",
            f"It is a device or a pipe, and a trace would take its place: {path}",
            "Choose another name.",
        )
    if _is_model(path):
        raise ExportError(
            f"Cannot write {path.name}",
            f"It is a model, which would be lost: {path}",
            "Choose another name.",
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
    unknown = (error.strerror or str(error), _ELSEWHERE)
    sentence, hint = _REASONS.get(error.errno or 0, unknown)
    if error.errno == errno.ENOENT and path.parent.is_dir():
        # What the system's own folders, such as /proc, say of a new file.
        sentence, hint = "This folder takes no files", _ELSEWHERE
    return ExportError(
        f"Cannot write {path.name}", f"{sentence}: {path.parent}", hint, details=str(error)
    )


_ELSEWHERE = "Choose another folder."
_REASONS = {
    errno.ENOSPC: ("The disk is full", "Free some space or choose another disk."),
    errno.EDQUOT: ("Your disk quota is used up", "Free some space or choose another disk."),
    errno.EACCES: ("You may not write to this folder", _ELSEWHERE),
    errno.EPERM: ("You may not write to this folder", _ELSEWHERE),
    errno.EROFS: ("This disk is read-only", _ELSEWHERE),
    errno.ENOENT: ("This folder does not exist", "Create it or choose another folder."),
    errno.ENOTDIR: ("This is not a folder", _ELSEWHERE),
    errno.EISDIR: ("There is a folder of that name", "Choose another name."),
}
