"""Output files, checked before anything runs."""

from __future__ import annotations

import errno
import tempfile
from typing import TYPE_CHECKING

from engine.trace.export.atomic import export_error, refuse_target

if TYPE_CHECKING:
    from pathlib import Path


def check_writable(path: Path | None) -> None:
    """ExportError when a file could not be written there; better said before a run than after."""
    if path is None:
        return
    try:
        refuse_target(path)
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, "", str(path))
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise export_error(path, error) from error
