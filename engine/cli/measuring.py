"""What commands that compute say besides their results, and the trace they write."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from engine.cli.parser import file_path
from engine.cli.plan_words import unfit_lines
from engine.core.visible import visible

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from engine.cli.parser import Parser
    from engine.planning import RunSetup
    from engine.session import Session

CHROME_SUFFIX = ".json"


def add_trace(parser: Parser) -> None:
    """--trace."""
    parser.add_argument(
        "--trace", type=file_path, default=None, metavar="FILE",
        help="also write a trace: .json is Chrome's form, any other Perfetto's",
    )  # fmt: skip


def announced_setup(session: Session) -> RunSetup:
    """What is to be computed; says first where that differs from the plan or does not fit.

    It is tried nevertheless: free memory is what a driver reports, not what it can give.
    """
    setup = session.setup()
    if setup.paper_note:
        say([f"{setup.paper_note}."])
    else:
        # A plan with devices on paper says nothing of the memory that is here.
        say(unfit_lines(session.plan(session.options)))
    return setup


def say(lines: Iterable[str]) -> None:
    """Lines for people on standard error, which standard output is told apart from."""
    sys.stdout.flush()
    for line in lines:
        print(visible(line), file=sys.stderr)


def is_chrome(path: Path) -> bool:
    """Whether a trace of that name is in Chrome's form."""
    return path.suffix.lower() == CHROME_SUFFIX


def write_trace(session: Session, path: Path | None) -> None:
    """Write the trace of what was computed, if asked to."""
    if path is not None:
        session.export_trace(path, chrome=is_chrome(path))


def say_written(what: str, path: Path | None, *, json: bool) -> None:
    """Say where a file is that was asked for; beside JSON on standard error."""
    if path is not None:
        print(f"{what} in {path}", file=sys.stderr if json else sys.stdout)
