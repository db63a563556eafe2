"""A session with the model open and the options set."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from engine.cli.fits import fitting_layers
from engine.cli.parser import with_given
from engine.cli.progress import ProgressLine
from engine.report.models import options_problem
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


@dataclass(frozen=True, slots=True)
class Planned:
    """Plans, and what to say of them.

    `problem` is why the model can be planned, yet not run; `fitting_layers` the number of layers
    that would fit (None: these do, or no number would). `text_faults` are what of tokenizer and
    chat template is wrong and what a run would use instead.
    """

    plans: PlanSetTable
    problem: str
    fitting_layers: int | None = None
    text_faults: tuple[str, ...] = ()

    def problem_data(self) -> dict[str, str | list[str]]:
        """Problem and faults as entries of a JSON object; empty without any."""
        faults = {"text_faults": list(self.text_faults)} if self.text_faults else {}
        return ({"problem": self.problem} if self.problem else {}) | faults


def planned(args: argparse.Namespace) -> Planned:
    """The plans of args.model with the options that were typed; a problem goes to stderr too."""
    line = ProgressLine()
    with opened_session(args, line) as session:
        problem = session.summary.run_problem or options_problem(session.options)
        text_faults = session.summary.text_faults
        plans = session.plan(session.options)
        # For people only: it takes a few plans more.
        layers = None if args.json else fitting_layers(session, plans)
    for said in (problem, *text_faults):
        if said:
            print(said, file=sys.stderr)
    return Planned(plans, " ".join(problem.splitlines()), layers, text_faults)
