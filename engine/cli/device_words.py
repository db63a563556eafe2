"""A device with all that is known of it, and what was tried to load backends, for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.cli.output import NONE, counted, print_table
from engine.core.device_text import device_text
from engine.core.load_report import Outcome
from engine.core.visible import visible

if TYPE_CHECKING:
    from engine.core.load_report import Attempt, LoadReport
    from engine.core.summary import DeviceSummary


def print_device(device: DeviceSummary) -> None:
    """Every fact of it, a line each."""
    print(visible(device_text(device), keeps="\n"))


def print_load_report(report: LoadReport) -> None:
    """Every path that has something, and how many have nothing."""
    found = [attempt for attempt in report.attempts if attempt.outcome is not Outcome.NOT_FOUND]
    n_missing = len(report.attempts) - len(found)
    if found:
        print()
        heads = ("outcome", "backend", "variant", "kind", "API", "score", "path", "why", "reason")
        print_table(heads, [_row(attempt) for attempt in found])
    if n_missing:
        print()
        print(f"Tried too, and nothing there: {counted(n_missing, 'path')} (see --json).")


def _row(attempt: Attempt) -> tuple[str, ...]:
    numbers = (NONE if n is None else str(n) for n in (attempt.api_version, attempt.score))
    return (
        attempt.outcome.value,
        attempt.backend,
        attempt.variant or NONE,
        attempt.kind,
        *numbers,
        attempt.path,
        attempt.why,
        attempt.reason,
    )
