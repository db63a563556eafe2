"""Every option, once: llama.cpp's name, default, help, and what a change makes anew.

The command line, the window and "copy command" read this table.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from engine.errors import PlacementError

if TYPE_CHECKING:
    from collections.abc import Mapping

ALL_LAYERS = -1
"""n_gpu_layers that means every layer and the output."""


class FlashAttn(enum.StrEnum):
    """Whether attention runs as one operation."""

    ON = "on"
    OFF = "off"
    AUTO = "auto"


class SplitMode(enum.StrEnum):
    """How layers are shared among several GPUs."""

    LAYER = "layer"


class Redo(enum.StrEnum):
    """What a change of an option makes anew."""

    PLAN = "plan"
    """The plan only; a running generation takes it from the next graph on."""
    CONTEXT = "context"
    """Weights or caches move: it applies at the next run."""
    SAMPLER = "sampler"
    """The choice of tokens only."""
    THREADS = "threads"
    """The number of threads; from the next graph on."""


@dataclass(frozen=True, slots=True)
class Options:
    """One set of options; defaults are llama.cpp's.

    Each value is checked when a set is made: words ("off") become the members they name, and what
    is of another type or out of bounds raises PlacementError, which says what is allowed.
    """

    n_gpu_layers: int = ALL_LAYERS
    split_mode: SplitMode = SplitMode.LAYER
    devices: tuple[str, ...] | None = None
    n_ctx: int = 0
    n_batch: int = 2048
    n_ubatch: int = 512
    flash_attn: FlashAttn = FlashAttn.AUTO
    op_offload: bool = True
    n_threads: int = 0
    seed: int = -1
    temperature: float = 0.8
    top_k: int = 40
    top_p: float = 0.95

    def __post_init__(self) -> None:
        for spec in OPTION_SPECS:
            object.__setattr__(self, spec.field, spec.check(getattr(self, spec.field)))

    def command_args(self) -> list[str]:
        """The llama.cpp arguments that differ from the defaults."""
        args: list[str] = []
        for spec in OPTION_SPECS:
            value = getattr(self, spec.field)
            if value != getattr(DEFAULTS, spec.field):
                args.extend(spec.to_args(value))
        return args


@dataclass(frozen=True, slots=True)
class OptionSpec:
    """One row of the table. `low` and `high` bound numbers; `zero_means` explains a special 0."""

    field: str
    flags: tuple[str, ...]
    kind: type
    help: str
    redo: Redo
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    words: Mapping[str, int] | None = None
    """Words that stand for numbers, such as "all"."""
    flag_help: str = ""
    """What the flag does, where `help` says what the option does and the flag turns it off."""

    def parse(self, text: str) -> Any:
        """The value that `text` stands for; PlacementError names what is allowed."""
        if self.words and text in self.words:
            return self.words[text]
        if self.kind is tuple:
            names = tuple(part.strip() for part in text.split(","))
            if not all(names):
                raise self._refuse(text or "empty", "names with commas between them, or none")
            return () if names == ("none",) else names
        if self.choices:
            return self.check(text)
        try:
            value = self.kind(text)
        except ValueError as error:
            raise self._refuse(text, self._number_words) from error
        return self.check(value)

    def check(self, value: Any) -> Any:
        """`value` as the option holds it; PlacementError unless it is of the type and in bounds."""
        if self.choices:
            if value not in self.choices:
                raise self._refuse(value, "one of " + ", ".join(self.choices))
            return self.kind(value)
        if self.kind is bool:
            if not isinstance(value, bool):
                raise self._refuse(value, "true or false")
            return value
        return self._checked_names(value) if self.kind is tuple else self._checked_number(value)

    def _checked_names(self, value: Any) -> tuple[str, ...] | None:
        if value is None:
            return None
        are_names = isinstance(value, tuple | list) and all(isinstance(v, str) for v in value)
        if not are_names:
            raise self._refuse(value, "a list of names")
        return tuple(value)

    def _checked_number(self, value: Any) -> Any:
        kinds = int if self.kind is int else int | float
        if isinstance(value, bool) or not isinstance(value, kinds):
            raise self._refuse(value, self._number_words)
        if self.low is not None and not self.low <= value:
            raise self._refuse(value, f"at least {self.low}")
        if self.high is not None and not value <= self.high:
            raise self._refuse(value, f"at most {self.high}")
        return self.kind(value)

    @property
    def _number_words(self) -> str:
        number = "a whole number" if self.kind is int else "a number"
        return f"{number}, {' or '.join(self.words)}" if self.words else number

    def to_args(self, value: Any) -> list[str]:
        """The arguments that set this option to `value`."""
        if self.kind is bool:
            return [] if value else [self.flags[0]]
        if self.kind is tuple:
            return [] if value is None else [self.flags[0], ",".join(value) or "none"]
        return [self.flags[0], str(value)]

    def _refuse(self, value: Any, allowed: str) -> PlacementError:
        return PlacementError(
            f"{self.flags[0]} cannot be {value}.",
            f"It must be {allowed}.",
            self.help,
        )


OPTION_SPECS: tuple[OptionSpec, ...] = (
    OptionSpec(
        "n_gpu_layers", ("-ngl", "--gpu-layers", "--n-gpu-layers"), int,
        "Layers on the GPU, counted from the last: the output is one of them. "
        "all (-2) and auto (-1): every layer.",
        Redo.CONTEXT, low=-2, high=100_000, words={"all": ALL_LAYERS, "auto": ALL_LAYERS},
    ),
    OptionSpec(
        "split_mode", ("-sm", "--split-mode"), SplitMode,
        "How layers are shared among GPUs.", Redo.CONTEXT, choices=("layer",),
    ),
    OptionSpec(
        "devices", ("-dev", "--device", "--devices"), tuple,
        "Devices to use, in order; the CPU is always there. none: the CPU alone.", Redo.CONTEXT,
    ),
    OptionSpec(
        "n_ctx", ("-c", "--ctx-size"), int,
        "Tokens the model can look back on; 0 is what the model was trained with.",
        Redo.CONTEXT, low=0, high=2**24,
    ),
    OptionSpec(
        "n_batch", ("-b", "--batch-size"), int,
        "Prompt tokens handed over at once.", Redo.CONTEXT, low=1, high=2**20,
    ),
    OptionSpec(
        "n_ubatch", ("-ub", "--ubatch-size"), int,
        "Prompt tokens in one graph.", Redo.CONTEXT, low=1, high=2**16,
    ),
    OptionSpec(
        "flash_attn", ("-fa", "--flash-attn"), FlashAttn,
        "Attention as one operation; auto uses it where the layer's device can.",
        Redo.CONTEXT, choices=("on", "off", "auto"),
    ),
    OptionSpec(
        "op_offload", ("--no-op-offload",), bool,
        "Run operations of CPU layers on the GPU when the batch is large; weights are copied in.",
        Redo.PLAN,
        flag_help="Keep operations of CPU layers on the CPU, also when the batch is large; "
        "otherwise the GPU may run them, with their weights copied in.",
    ),
    OptionSpec(
        "n_threads", ("-t", "--threads"), int,
        "CPU threads; 0 is one a physical core.", Redo.THREADS, low=0, high=1024,
    ),
    OptionSpec(
        "seed", ("-s", "--seed"), int,
        "Seed of the sampler; -1 is a new one each time.", Redo.SAMPLER, low=-1, high=2**32 - 1,
    ),
    OptionSpec(
        "temperature", ("--temp",), float,
        "Spread of the choice of tokens; 0 always takes the likeliest.", Redo.SAMPLER,
        low=0, high=100,
    ),
    OptionSpec(
        "top_k", ("--top-k",), int,
        "Choose among this many likeliest tokens; 0 is all.", Redo.SAMPLER, low=0, high=2**31,
    ),
    OptionSpec(
        "top_p", ("--top-p",), float,
        "Choose among the likeliest tokens that together have this probability; 1 is all.",
        Redo.SAMPLER, low=0, high=1,
    ),
)  # fmt: skip

DEFAULTS = Options()

SPEC_BY_FIELD: dict[str, OptionSpec] = {spec.field: spec for spec in OPTION_SPECS}


def checked(options: Options, **changes: Any) -> Options:
    """`options` with `changes`; PlacementError for one that its option does not allow."""
    return replace(options, **changes)


def redo_of(before: Options, after: Options) -> frozenset[Redo]:
    """What must be made anew to go from one set of options to another."""
    return frozenset(
        SPEC_BY_FIELD[item.name].redo
        for item in fields(Options)
        if getattr(before, item.name) != getattr(after, item.name)
    )
