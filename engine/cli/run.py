"""run: generate text and measure every split and copy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine.cli.files import check_writable
from engine.cli.interrupt import stoppable
from engine.cli.measuring import add_trace, announced_setup, say, say_written, write_trace
from engine.cli.output import print_json
from engine.cli.parser import NOT_IN_A_RUN, add_generation, add_model, command_parser
from engine.cli.progress import ProgressLine
from engine.cli.run_words import print_run, run_data
from engine.cli.sessions import opened_session
from engine.core.summary import StopReason
from engine.core.visible import visible
from engine.starting import EXIT_STOPPED

if TYPE_CHECKING:
    import argparse
    from pathlib import Path


def add_to(commands: Any) -> None:
    """Add the command's arguments."""
    parser = command_parser(commands, "run", "generate text and measure every split", execute)
    add_model(parser, idle=NOT_IN_A_RUN)
    add_generation(parser)
    add_trace(parser)


def execute(args: argparse.Namespace) -> int:
    """Generate, print what was measured, write a trace if asked to."""
    return generate(args, args.trace)


def generate(args: argparse.Namespace, trace: Path | None) -> int:
    """Run, print, and write the trace; a run that was stopped is printed too."""
    check_writable(trace)
    line = ProgressLine()
    echo = TextEcho(f"{args.prompt}\n" if args.chat else args.prompt, line)
    listeners = {} if args.json else {"on_text": echo}
    with opened_session(args, line, **listeners) as session:
        setup = announced_setup(session)
        job = session.admit()
        summary = stoppable(
            lambda: session.run(args.prompt, args.predict, chat=args.chat, setup=setup, job=job),
            session.ask_stop,
        )
        line.clear()
        if not args.json:
            # A note that comes before the text has ended would stand on its last line.
            echo.end()
        say(summary.notes)
        write_trace(session, trace)
    if args.json:
        print_json(run_data(summary, setup.paper_note))
    else:
        print_run(summary)
    say_written("Trace", trace, json=args.json)
    return EXIT_STOPPED if summary.stop_reason is StopReason.STOPPED else 0


class TextEcho:
    """Prints the prompt and what is generated as it comes."""

    def __init__(self, prompt: str, line: ProgressLine) -> None:
        self._prompt = prompt
        self._line = line
        self._has_begun = False

    def __call__(self, text: str) -> None:
        """Print a piece of text."""
        self._begin()
        print(visible(text, keeps="\n\t"), end="", flush=True)

    def end(self) -> None:
        """End the line, and keep it apart from what follows."""
        self._begin()
        print("\n")

    def _begin(self) -> None:
        """Print the prompt, once; it stands alone where nothing is generated."""
        if not self._has_begun:
            self._has_begun = True
            self._line.clear()
            print(self._prompt, end="")
