"""Run a command; say errors in words and with an exit code."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any

from engine.cli import commands
from engine.cli.parser import make_parser
from engine.errors import Stopped, UserError
from engine.service.serve import serve_from_environment

COMMANDS: dict[str, Callable[[Any], None]] = {
    "fetch": commands.fetch,
    "devices": commands.devices,
    "plan": commands.plan,
    "splits": commands.splits,
    "memory": commands.memory,
    "why": commands.why,
    "run": commands.run,
    "score": commands.score,
    "trace": commands.trace,
    "serve": lambda _args: serve_from_environment(),
}

EXIT_FAILED = 1
EXIT_STOPPED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run `python -m engine ARGV`; the exit code."""
    args = make_parser().parse_args(argv)
    try:
        COMMANDS[args.command](args)
    except UserError as error:
        print_error(error)
        return EXIT_FAILED
    except (Stopped, KeyboardInterrupt):
        print("Stopped.", file=sys.stderr)
        return EXIT_STOPPED
    except BrokenPipeError:
        # Whoever read our output has seen enough.
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        return EXIT_FAILED
    return 0


def print_error(error: UserError) -> None:
    """What happened, why, what to do next, on standard error."""
    for part in (error.title, error.sentence, error.hint, error.details):
        if part:
            print(part, file=sys.stderr)
