"""memory: bytes by buffer type and kind, and what does not fit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine.cli.fits import fits_data
from engine.cli.output import print_json
from engine.cli.parser import add_model, command_parser
from engine.cli.plan_data import memory_data, shares_data
from engine.cli.plan_words import mapped_lines, print_fits, print_memory
from engine.cli.sessions import planned

if TYPE_CHECKING:
    import argparse


def add_to(commands: Any) -> None:
    """Add the command's arguments."""
    add_model(command_parser(commands, "memory", "bytes by buffer type and kind", execute))


def execute(args: argparse.Namespace) -> int:
    """Print the ledger."""
    planning = planned(args)
    plans = planning.plans
    if args.json:
        data = memory_data(plans) | {"shares": shares_data(plans), "fits": fits_data(plans)}
        print_json(data | planning.problem_data())
        return 0
    print_fits(plans, planning.fitting_layers)
    print_memory(plans)
    for line in mapped_lines(plans):
        print(line)
    return 0
