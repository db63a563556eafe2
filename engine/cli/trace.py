"""trace: run and write a trace file; on devices on paper, predict a run and write its trace."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.cli.files import check_writable
from engine.cli.interrupt import stoppable
from engine.cli.measuring import is_chrome, say, say_written
from engine.cli.output import print_json
from engine.cli.parser import (
    MOST_TOKENS,
    NOT_IN_A_RUN,
    add_model,
    add_predict,
    command_parser,
    file_path,
)
from engine.cli.plan_words import unfit_lines
from engine.cli.predict_words import prediction_data, print_prediction
from engine.cli.progress import ProgressLine
from engine.cli.run import generate
from engine.cli.sessions import opened_session
from engine.core.visible import shown_word
from engine.errors import UserError

if TYPE_CHECKING:
    from engine.session import Session


def add_to(commands: Any) -> None:
    """Add the command's arguments."""
    text = "run and write a trace file, or predict both on devices on paper (--virtual)"
    parser = command_parser(commands, "trace", text, execute)
    add_model(parser, idle=NOT_IN_A_RUN)
    prompt = parser.add_mutually_exclusive_group(required=True)
    prompt.add_argument("-p", "--prompt", help="text to continue")
    prompt.add_argument(
        "--n-prompt", type=_n_prompt, metavar="N",
        help="tokens of the prompt, whatever they are; with --virtual",
    )  # fmt: skip
    add_predict(parser)
    parser.add_argument(
        "-o", "--out", type=file_path, default=Path("trace.pftrace"), metavar="FILE",
        help="trace file: .json is Chrome's form, any other Perfetto's "
        "(default: trace.pftrace)",
    )  # fmt: skip


def _n_prompt(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= MOST_TOKENS:
        raise argparse.ArgumentTypeError(
            f"--n-prompt cannot be {shown_word(text)}. It must be a number of tokens from 1 to "
            f"{MOST_TOKENS}."
        )
    return int(text)


def execute(args: argparse.Namespace) -> int:
    """Run or predict, print what was measured or predicted, and where the trace is."""
    if args.virtual:
        return _predict(args)
    if args.n_prompt is not None:
        raise UserError(
            "--n-prompt goes with --virtual.",
            "A real run needs a text, since what a model does depends on it.",
            "Give a prompt (-p), or name devices on paper (--virtual).",
        )
    return generate(args, args.out)


def _predict(args: argparse.Namespace) -> int:
    check_writable(args.out)
    line = ProgressLine()
    with opened_session(args, line) as session:
        setup, job = session.paper_setup(), session.admit()
        unfit = unfit_lines(session.plan(session.options))
        n_prompt = _prompt_tokens(session, args)
        predicted = stoppable(
            lambda: session.predict(n_prompt, args.predict, setup=setup, job=job),
            session.ask_stop,
        )
        line.clear()
        say([*unfit, *predicted.figures.notes])
        predicted.write(args.out, chrome=is_chrome(args.out))
    if args.json:
        print_json(prediction_data(predicted.figures))
    else:
        print_prediction(predicted.figures)
    say_written("Predicted trace", args.out, json=args.json)
    return 0


def _prompt_tokens(session: Session, args: argparse.Namespace) -> int:
    if args.prompt is None:
        n_prompt: int = args.n_prompt
        return n_prompt
    return len(session.prompt_tokens(args.prompt, chat=args.chat))
