"""embed: the embeddings of a text, by a model that gives them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from engine.cli.files import check_writable
from engine.cli.interrupt import stoppable
from engine.cli.measuring import add_trace, announced_setup, say, say_written, write_trace
from engine.cli.output import counted, print_json
from engine.cli.parser import add_model, command_parser, file_path
from engine.cli.run_words import embed_lines, timing_data
from engine.cli.sessions import opened_session
from engine.report.embeddings import embedded_data, write_rows

if TYPE_CHECKING:
    import argparse

    from engine.core.summary import Embedded

IDLE = ("batch", "temperature", "top_k", "top_p", "seed")
"""Options that say nothing here: there is one batch, and no token is chosen."""

N_SHOWN = 3
"""Numbers of either end of a row that people are shown."""


def add_to(commands: Any) -> None:
    """Add the command's arguments."""
    parser = command_parser(commands, "embed", "give the embeddings of a text", execute)
    add_model(parser, idle=IDLE)
    parser.add_argument("text", metavar="TEXT", help="the text")
    parser.add_argument(
        "-o", "--output", type=file_path, default=None, metavar="FILE.npy",
        help="also write the f32 rows",
    )  # fmt: skip
    add_trace(parser)


def execute(args: argparse.Namespace) -> int:
    """Embed, print the rows and what was measured, write the files that were asked for."""
    for path in (args.output, args.trace):
        check_writable(path)
    with opened_session(args) as session:
        setup = announced_setup(session)
        job = session.admit()
        result = stoppable(lambda: session.embed(args.text, setup=setup, job=job), session.ask_stop)
        write_trace(session, args.trace)
    if args.output is not None:
        write_rows(args.output, result)
    if args.json:
        print_json(embedded_data(result) | timing_data(result.summary))
    else:
        print_rows(result)
    say([*result.summary.notes, *embed_lines(result.summary)])
    say_written("Rows", args.output, json=args.json)
    say_written("Trace", args.trace, json=args.json)
    return 0


def print_rows(result: Embedded) -> None:
    """Embeddings for people: both ends of each row."""
    n_rows, n_embd = result.rows.shape
    what = "a row a token" if result.pooling == "none" else f"one row, pooling {result.pooling}"
    print(f"{counted(len(result.tokens), 'token')}, {n_embd} numbers a row, {what}.")
    for i, row in enumerate(result.rows):
        label = f"{i:>{len(str(n_rows - 1))}}  " if n_rows > 1 else ""
        print(f"{label}{_ends_of(row)}  length {np.linalg.norm(row):.4f}")


def _ends_of(row: np.ndarray) -> str:
    numbers = [f"{value:9.6f}" for value in row]
    if len(numbers) > 2 * N_SHOWN:
        numbers[N_SHOWN:-N_SHOWN] = [".."]
    return " ".join(numbers)
