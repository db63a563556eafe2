"""trace: run and write a trace file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.cli.parser import (
    NOT_IN_A_RUN,
    add_generation,
    add_model,
    command_parser,
    file_path,
)
from engine.cli.run import generate

if TYPE_CHECKING:
    import argparse


def add_to(commands: Any) -> None:
    """Add the command's arguments."""
    parser = command_parser(commands, "trace", "run and write a trace file", execute)
    add_model(parser, idle=NOT_IN_A_RUN)
    add_generation(parser)
    parser.add_argument(
        "-o", "--out", type=file_path, default=Path("trace.pftrace"), metavar="FILE",
        help="trace file: .json is Chrome's form, any other Perfetto's "
        "(default: trace.pftrace)",
    )  # fmt: skip


def execute(args: argparse.Namespace) -> int:
    """Run, print what was measured and where the trace is."""
    return generate(args, args.out)
