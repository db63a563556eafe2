"""serve: the engine of a window, which starts it itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine.cli.parser import command_parser

if TYPE_CHECKING:
    import argparse


NAME = "serve"


def add_to(commands: Any) -> None:
    """Add the command's arguments."""
    command_parser(commands, NAME, "the engine of a window, which starts it itself", execute)


def execute(_args: argparse.Namespace) -> int:
    """Serve until the window goes away."""
    # Pipes and processes take a moment to import, and no other command needs them.
    from engine.service.serve import serve_from_environment

    serve_from_environment()
    return 0
