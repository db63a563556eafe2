"""score: feed given tokens whatever the model would have chosen, and compare."""

from __future__ import annotations

import argparse
import io
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.cli.files import check_writable
from engine.cli.interrupt import stoppable
from engine.cli.measuring import say_written
from engine.cli.output import print_json, print_table
from engine.cli.parser import NOT_IN_A_RUN, add_model, add_prompt, command_parser, file_path
from engine.cli.sessions import opened_session
from engine.core.visible import shown_word
from engine.trace.export.atomic import write_atomically

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from engine.model.context import Logits


def add_to(commands: Any) -> None:
    """Add the command's arguments."""
    parser = command_parser(commands, "score", "feed given tokens and compare choices", execute)
    add_model(parser, idle=NOT_IN_A_RUN)
    add_prompt(parser, "text before the tokens")
    parser.add_argument(
        "--tokens", required=True, type=_token_ids, metavar="ID,ID,..", help="token ids"
    )
    parser.add_argument(
        "--logits", type=file_path, default=None, metavar="FILE.npy",
        help="write f32 logits, one row a step",
    )  # fmt: skip


def execute(args: argparse.Namespace) -> int:
    """Score, print the steps, write the logits if asked to."""
    check_writable(args.logits)
    with opened_session(args) as session:
        job = session.admit()
        result = stoppable(
            lambda: session.score(args.prompt, args.tokens, job=job), session.ask_stop
        )
    if args.logits is not None:
        save_logits(args.logits, result.logits)
    say_written("Logits", args.logits, json=args.json)
    if args.json:
        print_json({"prompt_tokens": result.prompt_tokens, "steps": result.steps})
        return 0
    print_table(
        ("step", "token", "argmax", "gap"),
        [
            (str(i), str(step.token), str(step.argmax), f"{step.gap:.4f}")
            for i, step in enumerate(result.steps)
        ],
    )
    return 0


def save_logits(path: Path, logits: Sequence[Logits]) -> None:
    """Write f32 [n_steps, n_vocab] in numpy's form; ExportError when that is impossible."""
    packed = io.BytesIO()
    np.save(packed, np.stack(logits), allow_pickle=False)
    write_atomically(path, [packed.getvalue()])


def _token_ids(text: str) -> list[int]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in parts):
        raise argparse.ArgumentTypeError(
            f"--tokens cannot be {shown_word(text)}. It must be a list of token ids such as "
            "504,3575."
        )
    return [int(part) for part in parts]
