"""plan: both plans, with their splits and memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine.cli.output import print_json
from engine.cli.parser import add_model, command_parser
from engine.cli.plan_data import plan_data
from engine.cli.plan_words import (
    print_devices,
    print_headline,
    print_memory,
    print_splits,
)
from engine.cli.sessions import planned
from engine.core.plan import Batch

if TYPE_CHECKING:
    import argparse


def add_to(commands: Any) -> None:
    """Add the command's arguments."""
    add_model(command_parser(commands, "plan", "both plans: nodes, splits, memory", execute))


def execute(args: argparse.Namespace) -> int:
    """Print them; as JSON all of both, for people one table of splits."""
    planning = planned(args)
    plans = planning.plans
    if args.json:
        note = planning.problem_data()
        print_json({batch.value: plan_data(plans, batch) | note for batch in Batch})
        return 0
    batch = Batch(args.batch)
    print_headline(plans, batch, planning.fitting_layers, makes_tokens=planning.makes_tokens)
    print_devices(plans)
    print()
    print_splits(plans.plan(batch))
    print()
    print_memory(plans)
    return 0
