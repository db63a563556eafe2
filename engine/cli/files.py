"""Output files, checked before anything runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.trace.export.atomic import check_target

if TYPE_CHECKING:
    from pathlib import Path


def check_writable(path: Path | None) -> None:
    """ExportError when a file could not be written there; better said before a run than after."""
    if path is not None:
        check_target(path)
