"""A session with the model open and the options set."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from engine.cli.parser import with_given
from engine.cli.progress import ProgressLine
from engine.running import Listeners
from engine.session import Session

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from engine.core.table import PlanSetTable


@contextmanager
def opened_session(
    args: argparse.Namespace, line: ProgressLine | None = None, **listeners: Any
) -> Iterator[Session]:
    """A session on args.model, closed at the end; `listeners` are fields of Listeners."""
    line = line or ProgressLine()
    session = Session(virtual=args.virtual, listeners=Listeners(on_progress=line, **listeners))
    try:
        session.open(args.model)
        session.options = with_given(session.default_options(), args)
        line.clear()
        yield session
    finally:
        line.clear()
        session.close()


def planned(args: argparse.Namespace) -> PlanSetTable:
    """The plans of args.model with the options that were typed."""
    with opened_session(args) as session:
        return session.plan(session.options)
