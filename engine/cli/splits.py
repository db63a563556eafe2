"""splits: the split table of one plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine.cli.output import print_json
from engine.cli.parser import add_model, command_parser
from engine.cli.plan_data import splits_data
from engine.cli.plan_words import print_splits
from engine.cli.sessions import planned
from engine.core.plan import Batch

if TYPE_CHECKING:
    import argparse


def add_to(commands: Any) -> None:
    """Add the command's arguments."""
    add_model(command_parser(commands, "splits", "the split table of a plan", execute))


def execute(args: argparse.Namespace) -> int:
    """Print it."""
    table = planned(args).plans.plan(Batch(args.batch))
    if args.json:
        print_json(splits_data(table))
    else:
        print_splits(table)
    return 0
