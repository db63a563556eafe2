"""A session with the model open and the options set."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from engine.cli.fits import fitting_layers
from engine.cli.parser import with_given
from engine.cli.progress import ProgressLine
from engine.core.options import PoolingWish
from engine.core.visible import visible
from engine.running import Listeners
from engine.session import Session

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from engine.core.table import PlanSetTable
    from engine.report.weight_places import WeightPlace


def machine_session(args: argparse.Namespace, listeners: Listeners | None = None) -> Session:
    """A session on the devices that were asked for."""
    return Session(
        virtual=args.virtual, backends=args.backends, load=args.load, rpc=args.rpc,
        listeners=listeners,
    )  # fmt: skip


@contextmanager
def opened_session(
    args: argparse.Namespace, line: ProgressLine | None = None, **listeners: Any
) -> Iterator[Session]:
    """A session on args.model, closed at the end; `listeners` are fields of Listeners."""
    line = line or ProgressLine()
    session = machine_session(args, Listeners(on_progress=line, **listeners))
    try:
        session.check_loaded()
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
    chat template is wrong and what a run would use instead. `weights` are the file's tensors, and
    `places` where the one that was asked for is.
    """

    plans: PlanSetTable
    problem: str
    fitting_layers: int | None = None
    text_faults: tuple[str, ...] = ()
    weights: tuple[str, ...] = ()
    places: tuple[WeightPlace, ...] = ()
    makes_tokens: bool = True

    def problem_data(self) -> dict[str, str | list[str]]:
        """Problem and faults as entries of a JSON object; empty without any."""
        faults = {"text_faults": list(self.text_faults)} if self.text_faults else {}
        return ({"problem": self.problem} if self.problem else {}) | faults


def planned(args: argparse.Namespace, weight: str = "") -> Planned:
    """The plans of args.model with the options that were typed; a problem goes to stderr too.

    `weight` (optional) is the tensor whose places are asked for.
    """
    line = ProgressLine()
    with opened_session(args, line) as session:
        summary = session.summary
        problem = summary.run_problem
        plans = session.plan(session.options)
        places = session.weight_places(weight)
        pools = session.options.pooling is not PoolingWish.MODEL
        # For people only: it takes a few plans more.
        layers = None if args.json else fitting_layers(session, plans)
    for said in (problem, *summary.text_faults):
        if said:
            print(visible(said, keeps="\n"), file=sys.stderr)
    return Planned(
        plans,
        problem=" ".join(problem.splitlines()),
        fitting_layers=layers,
        text_faults=summary.text_faults,
        weights=tuple(tensor.name for tensor in summary.tensors),
        places=places,
        makes_tokens=not (summary.gives_embeddings or pools),
    )
