"""Arguments of every command; model options come from the options table."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from engine.core.options import OPTION_SPECS, Options, OptionSpec
from engine.errors import UserError

DEMO_TOKENS = 32


def make_parser() -> argparse.ArgumentParser:
    """The parser of `python -m engine`."""
    parser = argparse.ArgumentParser(
        prog="python -m engine",
        description="Where does each operation of a model run, and why? Plans, runs and explains "
        "GGUF models the ggml way.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _fetch(commands)
    _devices(commands)
    for name, text in (
        ("plan", "both plans: nodes, splits, memory"),
        ("splits", "the split table of a plan"),
        ("memory", "bytes by buffer type and kind"),
    ):
        _model_command(commands, name, text)
    why = _model_command(commands, "why", "why a node is where it is")
    why.add_argument("node", metavar="NODE", help="#index, or a name with occurrence: norm-0@1")
    run = _model_command(commands, "run", "generate text and measure every split")
    _run_arguments(run)
    trace = _model_command(commands, "trace", "run and write a trace file")
    _run_arguments(trace)
    trace.add_argument("-o", "--out", type=Path, default=Path("trace.pftrace"), help="trace file")
    _score(commands)
    serve = commands.add_parser("serve", help="serve a window (started by it)")
    serve.set_defaults(json=False)
    return parser


def _fetch(commands: Any) -> None:
    fetch = commands.add_parser("fetch", help="fetch the demo model, once, checked")
    fetch.add_argument("model", choices=("demo",), help="which model")
    fetch.add_argument("--json", action="store_true", help="print JSON")


def _devices(commands: Any) -> None:
    devices = commands.add_parser("devices", help="devices of this machine and those left out")
    devices.add_argument("--json", action="store_true", help="print JSON")
    _virtual(devices)


def _model_command(commands: Any, name: str, text: str) -> argparse.ArgumentParser:
    command: argparse.ArgumentParser = commands.add_parser(name, help=text)
    command.add_argument("model", metavar="MODEL", help="a .gguf file, or demo")
    command.add_argument("--json", action="store_true", help="print JSON")
    command.add_argument(
        "--batch", choices=("prompt", "token"), default="prompt", help="which plan to print"
    )
    _virtual(command)
    for spec in OPTION_SPECS:
        _add_option(command, spec)
    return command


def _add_option(command: argparse.ArgumentParser, spec: OptionSpec) -> None:
    if spec.kind is bool:
        command.add_argument(*spec.flags, dest=spec.field, action="store_false", default=None,
                             help=spec.help)  # fmt: skip
        return
    command.add_argument(
        *spec.flags, dest=spec.field, default=None, type=_typed(spec), metavar=_metavar(spec),
        help=spec.help,
    )  # fmt: skip


def _metavar(spec: OptionSpec) -> str:
    if spec.choices:
        return "|".join(spec.choices)
    return {int: "N", float: "X", tuple: "NAME,.."}.get(spec.kind, "TEXT")


def _typed(spec: OptionSpec) -> Any:
    def parse(text: str) -> Any:
        try:
            return spec.parse(text)
        except UserError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return parse


def _virtual(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--virtual", action="append", default=[], metavar="NAME:TYPE:FREE_MIB[:key=value,..]",
        help="plan for a device on paper; repeat for more",
    )  # fmt: skip


def _run_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("-p", "--prompt", required=True, help="text to continue")
    command.add_argument(
        "-n", "--predict", type=_count, default=DEMO_TOKENS, metavar="N", help="tokens to generate"
    )
    command.add_argument("--chat", action="store_true", help="wrap the prompt as a chat message")
    command.add_argument("--trace", type=Path, default=None, metavar="FILE",
                         help="also write a trace: .json is Chrome's form, else Perfetto's")  # fmt: skip


def _score(commands: Any) -> None:
    score = _model_command(commands, "score", "feed given tokens and compare choices")
    score.add_argument("-p", "--prompt", required=True, help="text before the tokens")
    score.add_argument("--tokens", required=True, type=_ids, metavar="ID,ID,..", help="token ids")
    score.add_argument("--logits", type=Path, default=None, metavar="FILE.npy",
                       help="write f32 logits, one row a step")  # fmt: skip


def _count(text: str) -> int:
    if not text.isdigit() or int(text) > 2**20:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of tokens")
    return int(text)


def _ids(text: str) -> list[int]:
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts or not all(part.isdigit() for part in parts):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of token ids such as 504,3575")
    return [int(part) for part in parts]


def given_options(args: argparse.Namespace) -> dict[str, Any]:
    """The options that were typed."""
    return {
        spec.field: getattr(args, spec.field)
        for spec in OPTION_SPECS
        if getattr(args, spec.field) is not None
    }


def with_given(defaults: Options, args: argparse.Namespace) -> Options:
    """`defaults` with what was typed."""
    from dataclasses import replace

    return replace(defaults, **given_options(args))
