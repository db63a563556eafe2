"""Arguments that commands share; those of models and devices come from the options table."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from engine.backends import OPTIONS
from engine.backends.choice import VARIABLE
from engine.core.options import ALL_LAYERS, DEFAULTS, OPTION_SPECS, Options, OptionSpec
from engine.core.plan import Batch
from engine.core.visible import shown_word
from engine.errors import UserError
from engine.planning import DEMO_GPU_LAYERS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

DEMO_TOKENS = 32
NOT_IN_A_RUN = ("batch", "pooling")
"""Options that say nothing to what generates text."""

MOST_CHOICES = 4
"""Choices that stand in the place of a value; more are told by the help."""

MOST_TOKENS = 2**20
UNTIL_END = -1
"""The number of tokens to generate that means: until the text ends or the context is full."""


class Parser(argparse.ArgumentParser):
    """A parser whose refusals are errors for people; options are never abbreviated."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs, allow_abbrev=False)

    @property
    def option_strings(self) -> frozenset[str]:
        """Every spelling of every option."""
        return frozenset(self._option_string_actions)

    def error(self, message: str) -> NoReturn:
        """Raise UserError instead of ending the process."""
        raise UserError(_refusal(message), hint=f"See: {self.prog} --help")


def _refusal(message: str) -> str:
    """What argparse says, as a sentence that begins with the option it is about.

    argparse puts every spelling of an option in front: "argument -ngl/--gpu-layers: ...".
    """
    subject, _, rest = message.removeprefix("argument ").partition(": ")
    if not message.startswith("argument -"):
        return f"{message[0].upper()}{message[1:]}"
    option = subject.partition("/")[0]
    if rest.startswith("-"):
        return rest  # Ours, which names the option as it was typed.
    return f"{option} {rest.replace('expected one argument', 'needs a value')}."


def command_parser(
    commands: Any, name: str, text: str, execute: Callable[[argparse.Namespace], int]
) -> Parser:
    """The parser of one command, with --json."""
    parser: Parser = commands.add_parser(name, help=text, description=text.capitalize() + ".")
    parser.set_defaults(execute=execute)
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


def add_model(
    parser: Parser,
    *,
    idle: Collection[str] = (),
    nargs: Literal["?"] | None = None,
    text: str = "a .gguf file, or demo",
) -> None:
    """MODEL, --batch, the devices and every option of the table.

    `idle` are the fields of options that the command takes, as they may come from the command line
    of another, and has no use for: its help leaves them out. `nargs` "?" lets MODEL be left out;
    `text` is its help.
    """
    parser.add_argument("model", metavar="MODEL", nargs=nargs, help=text)
    words = f"which plan to print (default: {Batch.PROMPT.value})"
    parser.add_argument(
        "--batch", choices=[batch.value for batch in Batch], default=Batch.PROMPT.value,
        help=argparse.SUPPRESS if "batch" in idle else words,
    )  # fmt: skip
    add_machine(parser)
    for spec in OPTION_SPECS:
        _add_option(parser, spec, argparse.SUPPRESS if spec.field in idle else _help(spec))


def add_machine(parser: Parser) -> None:
    """What devices there are: --backends, --load, --rpc and --virtual."""
    built_in = ",".join(OPTIONS)
    parser.add_argument(
        "--backends", metavar="NAME,..",
        help=f"built-in backends to use, such as {built_in} (default: "
        f"{VARIABLE} in the environment, else the settings, else all)",
    )  # fmt: skip
    parser.add_argument(
        "--load", action="append", default=[], type=_some_path, metavar="FILE_OR_FOLDER",
        help="load backends from there and search nowhere else; repeat for more",
    )  # fmt: skip
    parser.add_argument(
        "--rpc", default=[], type=_addresses, metavar="HOST:PORT,..",
        help="use the devices of ggml RPC servers there; libggml-rpc has to be loaded",
    )  # fmt: skip
    parser.add_argument(
        "--virtual", action="append", default=[], metavar="NAME:TYPE:FREE_MIB[:key=value,..]",
        help="plan for a device on paper, or predict a run there (trace); FREE_MIB 0: it does "
        "not say how much; repeat for more",
    )  # fmt: skip


def add_prompt(parser: Parser, text: str) -> None:
    """-p, which is required."""
    parser.add_argument("-p", "--prompt", required=True, help=text)


def add_generation(parser: Parser) -> None:
    """What `run` takes beside the model."""
    add_prompt(parser, "text to continue")
    add_predict(parser)


def add_predict(parser: Parser) -> None:
    """What `run` and `trace` share: -n and --chat."""
    parser.add_argument(
        "-n", "--predict", type=_n_tokens, default=DEMO_TOKENS, metavar="N",
        help=f"tokens to generate; {UNTIL_END}: until the text ends (default: {DEMO_TOKENS})",
    )  # fmt: skip
    parser.add_argument("--chat", action="store_true", help="wrap the prompt as a chat message")


def _addresses(text: str) -> list[str]:
    return [address for address in text.split(",") if address]


def _some_path(text: str) -> Path:
    if not text:
        raise argparse.ArgumentTypeError("needs the name of a file or a folder")
    return Path(text).expanduser()


def file_path(text: str) -> Path:
    """The path of a file to write, with `~` spelled out."""
    if text in ("", "-"):
        raise argparse.ArgumentTypeError("needs the name of a file; standard output is for text")
    return Path(text).expanduser()


def _n_tokens(text: str) -> int:
    try:
        count = int(text)
    except ValueError:
        count = UNTIL_END - 1
    if not UNTIL_END <= count <= MOST_TOKENS:
        raise argparse.ArgumentTypeError(
            f"-n cannot be {shown_word(text)}. It must be a number of tokens up to {MOST_TOKENS}, "
            f"or {UNTIL_END}."
        )
    return MOST_TOKENS if count == UNTIL_END else count


def _add_option(parser: Parser, spec: OptionSpec, words: str) -> None:
    if spec.kind is bool:
        action = "store_false" if getattr(DEFAULTS, spec.field) else "store_true"
        parser.add_argument(*spec.flags, dest=spec.field, action=action, default=None, help=words)
        return
    parser.add_argument(
        *spec.flags, dest=spec.field, default=None, type=_typed(spec), metavar=_metavar(spec),
        action="extend" if spec.is_repeatable else "store", help=words,
    )  # fmt: skip


def _help(spec: OptionSpec) -> str:
    """What the option does, and what holds without it."""
    default = getattr(DEFAULTS, spec.field)
    if spec.kind is bool:
        words = "off"
    elif spec.kind is tuple:
        words = "llama.cpp's choice of this machine's" if default is None else "none"
    else:
        words = "auto" if default == ALL_LAYERS and spec.words else str(default)
    demo = f", for demo {DEMO_GPU_LAYERS}" if spec.words else ""
    return f"{spec.flag_help or spec.help} (default: {words}{demo})".replace("%", "%%")


def _metavar(spec: OptionSpec) -> str:
    if spec.choices:
        return "|".join(spec.choices) if len(spec.choices) <= MOST_CHOICES else "TYPE"
    if spec.kind is tuple:
        return {str: "NAME,..", float: "X,.."}.get(spec.item, "PATTERN=BUFFER,..")
    return {int: "N", float: "X"}.get(spec.kind, "TEXT")


def _typed(spec: OptionSpec) -> Callable[[str], Any]:
    def parse(text: str) -> Any:
        try:
            return spec.parse(text)
        except UserError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return parse


def with_given(defaults: Options, args: argparse.Namespace) -> Options:
    """`defaults` with what was typed."""
    given = {spec.field: getattr(args, spec.field) for spec in OPTION_SPECS}
    return replace(defaults, **{name: v for name, v in given.items() if v is not None})
