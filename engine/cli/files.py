"""Output files, checked before anything runs."""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING

from engine.errors import ExportError

if TYPE_CHECKING:
    from pathlib import Path


def check_writable(path: Path | None) -> None:
    """ExportError when a file could not be written there; better said before a run than after."""
    if path is None:
        return
    if path.is_dir():
        raise ExportError(
            f"Cannot write {path.name}.", "There is a folder of that name.", "Choose another name."
        )
    try:
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise ExportError(
            f"Cannot write {path.name}.",
            f"{error.strerror}.",
            f"Choose another folder than {path.parent}",
        ) from error
