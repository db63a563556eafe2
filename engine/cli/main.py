"""Run a command; say errors in words and with an exit code."""

from __future__ import annotations

import errno
import io
import sys
from typing import TYPE_CHECKING

from engine.cli import (
    devices,
    embed,
    fetch,
    memory,
    ops,
    plan,
    run,
    score,
    serve,
    splits,
    tensors,
    trace,
    why,
)
from engine.cli.argv import no_such, refuse_flash_word, spelled, unknown_option
from engine.cli.output import give_up_output, print_json
from engine.cli.parser import Parser
from engine.core.visible import visible
from engine.errors import Stopped, UserError
from engine.running import out_of_memory
from engine.starting import EXIT_STOPPED

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

COMMANDS = (
    fetch,
    devices,
    tensors,
    plan,
    splits,
    memory,
    why,
    run,
    embed,
    score,
    trace,
    ops,
    serve,
)

EXIT_FAILED = 1

VERSION = "0.1.0"
"""That of pyproject.toml: a bundle and a checkout have no metadata to ask."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run `python -m engine ARGV`; the exit code.

    0 done, 1 it could not be done, 130 stopped by Ctrl-C.
    """
    words = spelled(sys.argv[1:] if argv is None else argv)
    if not _has_streams(words):
        return EXIT_FAILED
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        return _run(words)
    except BrokenPipeError:
        # Whoever read our output has seen enough.
        give_up_output()
        return EXIT_FAILED
    except OSError as error:
        if error.errno not in _WRITING or error.filename is not None:  # A stream has no name.
            raise
        give_up_output()
        print(f"Cannot write the output: {error.strerror}.", file=sys.stderr)
        return EXIT_FAILED


_WRITING = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF, errno.ENXIO}
"""What the system says of a standard output that takes no more."""


def _has_streams(words: list[str]) -> bool:
    """Whether output can go anywhere; a window's engine needs none, and others may lack stderr."""
    missing = [name for name in ("stdout", "stderr") if getattr(sys, name) is None]
    if "stdout" in missing and words[:1] != [serve.NAME]:
        if "stderr" not in missing:
            print("Cannot write the output: standard output is closed.", file=sys.stderr)
        return False
    for name in missing:
        setattr(sys, name, io.StringIO())
    return True


def _run(words: list[str]) -> int:
    try:
        return _execute(parse(words))
    except MemoryError:
        return _say(out_of_memory(), EXIT_FAILED, words)
    except UserError as error:
        return _say(error, EXIT_FAILED, words)
    except (Stopped, KeyboardInterrupt):
        return _say(UserError("Stopped."), EXIT_STOPPED, words)
    except Exception as error:
        # Whoever only asks for help does not wait for what loads plug-ins.
        from engine.backends.python_plugin import fault_of

        fault = fault_of(error)
        if fault is None:
            raise
        return _say(fault, EXIT_FAILED, words)


def _execute(args: argparse.Namespace) -> int:
    exit_code: int = args.execute(args)
    sys.stdout.flush()
    return exit_code


def parse(words: list[str]) -> argparse.Namespace:
    """The arguments; UserError names what is wrong, an unknown word first."""
    parser, by_name = make_parser()
    command = words[0] if words else ""
    if command and not command.startswith("-") and command not in by_name:
        raise no_such("command", command, by_name, "")
    known = by_name[command].option_strings if command in by_name else parser.option_strings
    unknown = unknown_option(words, known)
    if unknown is not None:
        raise no_such("option", unknown, known, f"{command} " if command in by_name else "")
    args, left_over = parser.parse_known_args(words)
    if left_over:
        refuse_flash_word(words)
        raise UserError(
            f"{left_over[0]} is one word too many.", hint=f"See: {by_name[command].prog} --help"
        )
    return args


def make_parser() -> tuple[Parser, dict[str, Parser]]:
    """The parser of `python -m engine`, and that of each command by its name."""
    parser = Parser(
        prog="python -m engine",
        description="Where does each operation of a model run, and why? Plans, runs and explains "
        "GGUF models the ggml way.",
    )
    parser.add_argument("--version", action="version", version=f"Splitscope {VERSION}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for command in COMMANDS:
        command.add_to(commands)
    return parser, dict(commands.choices)


def _say(error: UserError, exit_code: int, words: list[str]) -> int:
    """What happened, why, what to do next: on standard error, and as JSON if that was asked for."""
    parts = {part: getattr(error, part) for part in ("title", "sentence", "hint", "details")}
    for part, text in parts.items():
        if text:
            # Details are a driver's or a compiler's own words, in lines.
            print(visible(text, keeps="\n\t" if part == "details" else ""), file=sys.stderr)
    if "--json" in words:
        print_json({"error": parts})
        sys.stdout.flush()
    return exit_code
