"""fetch: one of the known models, once, checked."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from engine.cli.output import mib, print_json
from engine.cli.parser import command_parser
from engine.cli.progress import ProgressLine
from engine.model.fetch import fetch_known
from engine.model.manifest import load_manifest

if TYPE_CHECKING:
    import argparse


def add_to(commands: Any) -> None:
    """Add the command's arguments."""
    known = load_manifest()
    parser = command_parser(commands, "fetch", "fetch a known model, once, checked", execute)
    listed = "; ".join(f"{name}: {entry.display_name}" for name, entry in known.items())
    parser.add_argument("model", choices=tuple(known), help=f"which model ({listed})")


def execute(args: argparse.Namespace) -> int:
    """Fetch it and print where it is; whose licence it has is said first."""
    entry = load_manifest()[args.model]
    if not args.json:
        size = f"{mib(entry.size_bytes)} MiB"
        print(f"{entry.display_name}, {size}. Licence: {entry.licence}", file=sys.stderr)
    line = ProgressLine()
    path = fetch_known(args.model, line)
    line.clear()
    if args.json:
        print_json({"path": path, "bytes": path.stat().st_size, "licence": entry.licence})
    else:
        print(path)
    return 0
