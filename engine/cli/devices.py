"""devices: those of this machine in priority order, and those left out with reasons."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine.cli.output import mib, print_json, print_table
from engine.cli.parser import add_virtual, command_parser
from engine.session import Session

if TYPE_CHECKING:
    import argparse

    from engine.core.summary import DeviceSummary


def add_to(commands: Any) -> None:
    """Add the command's arguments."""
    text = "devices of this machine and those left out"
    add_virtual(command_parser(commands, "devices", text, execute))


def execute(args: argparse.Namespace) -> int:
    """Print both lists."""
    session = Session(virtual=args.virtual)
    found, left_out = session.devices(), session.unavailable()
    if args.json:
        print_json({"devices": found, "unavailable": left_out})
        return 0
    print_table(
        ("device", "type", "free MiB", "total MiB", "description"),
        [
            (d.name, d.type.value, mib(d.memory_free), mib(d.memory_total), _description(d))
            for d in found
        ],
    )
    for item in left_out:
        state = "hidden" if item.hidden else "not available"
        print(f"{item.name}: {state}, {item.reason}. {item.hint}".rstrip())
    return 0


def _description(device: DeviceSummary) -> str:
    return f"{device.description} ({device.software})" if device.software else device.description
