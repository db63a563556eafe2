"""fetch: the demo model, once, checked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine.cli.output import print_json
from engine.cli.parser import command_parser
from engine.cli.progress import ProgressLine
from engine.model.fetch import fetch_demo
from engine.model.manifest import DEMO

if TYPE_CHECKING:
    import argparse


def add_to(commands: Any) -> None:
    """Add the command's arguments."""
    parser = command_parser(commands, "fetch", "fetch the demo model, once, checked", execute)
    parser.add_argument("model", choices=(DEMO,), help="which model")


def execute(args: argparse.Namespace) -> int:
    """Fetch it and print where it is."""
    line = ProgressLine()
    path = fetch_demo(line)
    line.clear()
    if args.json:
        print_json({"path": path, "bytes": path.stat().st_size})
    else:
        print(path)
    return 0
