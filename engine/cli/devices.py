"""devices: those of this machine in priority order, those left out, and what was loaded."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from engine.cli.device_words import print_device, print_load_report
from engine.cli.output import mib, print_json, print_table
from engine.cli.parser import add_machine, command_parser
from engine.cli.sessions import machine_session
from engine.core.visible import visible
from engine.errors import DeviceError

if TYPE_CHECKING:
    import argparse

    from engine.core.summary import DeviceSummary
    from engine.session import Session

EXIT_NOTHING_LOADED = 1


def add_to(commands: Any) -> None:
    """Add the command's arguments."""
    text = "devices of this machine, those left out, and how each got here"
    add_machine(command_parser(commands, "devices", text, execute))


def execute(args: argparse.Namespace) -> int:
    """Print all of them; 1 when nothing could be loaded from a path that was named."""
    session = machine_session(args)
    if args.json:
        print_json(
            {
                "devices": session.devices(),
                "unavailable": session.unavailable(),
                "load_report": session.load_report(),
            }
        )
    else:
        _print(session)
    try:
        session.check_loaded()
    except DeviceError as error:
        # The report has the rest.
        print(f"{error.title} {error.sentence}".rstrip(), file=sys.stderr)
        return EXIT_NOTHING_LOADED
    return 0


def _print(session: Session) -> None:
    found = session.devices()
    print_table(
        ("device", "type", "free MiB", "total MiB", "description"),
        [
            (d.name, d.type.value, mib(d.memory_free), mib(d.memory_total), _description(d))
            for d in found
        ],
    )
    for item in session.unavailable():
        state = "hidden" if item.hidden else "not available"
        print(visible(f"{item.name}: {state}, {item.reason}. {item.hint}".rstrip()))
    for device in found:
        print()
        print_device(device)
    print_load_report(session.load_report())


def _description(device: DeviceSummary) -> str:
    return f"{device.description} ({device.software})" if device.software else device.description
