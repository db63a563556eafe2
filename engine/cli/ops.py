"""ops: single operations checked on devices, against a reference in numpy."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from engine.cli.interrupt import stoppable
from engine.cli.measuring import say
from engine.cli.op_words import print_matrix
from engine.cli.output import print_json
from engine.cli.parser import add_model, command_parser, with_given
from engine.cli.progress import ProgressLine
from engine.cli.sessions import machine_session
from engine.core.options import OPTION_SPECS
from engine.running import Listeners
from engine.starting import EXIT_STOPPED

if TYPE_CHECKING:
    import argparse

    from engine.core.op_matrix import OpMatrix
    from engine.session import Session

EXIT_FAULTS = 1

SHAPING = frozenset(
    {"n_ctx", "n_batch", "n_ubatch", "flash_attn", "cache_type_k", "cache_type_v", "pooling"}
    | {"n_threads"}
)
"""Options that decide which operations a model's graphs have, and on how many threads they run."""

IDLE = tuple(spec.field for spec in OPTION_SPECS if spec.field not in SHAPING)


def add_to(commands: Any) -> None:
    """Add the command's arguments."""
    text = "check single operations on devices against a reference: right, and how fast"
    parser = command_parser(commands, "ops", text, execute)
    add_model(
        parser, idle=("batch", *IDLE), nargs="?",
        text="check the operations of this model, a .gguf file or demo (default: built-in cases "
        "of every operation that is known)",
    )  # fmt: skip
    parser.add_argument(
        "--backend", action="append", default=[], metavar="DEVICE",
        help="check this device; repeat for more (default: all)",
    )  # fmt: skip
    parser.add_argument("--op", default="", metavar="OP", help="only this one, such as MUL_MAT")
    parser.add_argument("--type", default="", metavar="TYPE", help="only this one, such as q4_K")
    parser.add_argument("--perf", action="store_true", help="time each case too")
    parser.add_argument(
        "--in-process", action="store_true",
        help="check loaded backends in this process, not in one of their own that they may end",
    )  # fmt: skip


def execute(args: argparse.Namespace) -> int:
    """Check and print; 1 when anything is wrong, 130 when it was stopped before that."""
    line = ProgressLine()
    session = machine_session(args, Listeners(on_progress=line))
    with contextlib.closing(session):
        matrix = _checked(session, args)
        line.clear()
    if args.json:
        print_json(matrix)
    else:
        print_matrix(matrix, with_speed=args.perf, of_model=args.model is not None)
    if matrix.is_stopped:
        say(["Stopped: what was found by then is told."])
    if matrix.n_faults:
        return EXIT_FAULTS
    return EXIT_STOPPED if matrix.is_stopped else 0


def _checked(session: Session, args: argparse.Namespace) -> OpMatrix:
    session.check_loaded()
    if args.model is not None:
        session.open(args.model)
        session.options = session.default_options()
    session.options = with_given(session.options, args)
    cases = session.op_cases(of_model=args.model is not None, op=args.op, kind=args.type)
    job = session.admit()
    return stoppable(
        lambda: session.check_ops(
            cases, args.backend, with_speed=args.perf, in_process=args.in_process, job=job
        ),
        session.ask_stop,
    )
