"""Every option, once: llama.cpp's name, default, help, and what a change makes anew.

The command line, the window and "copy command" read this table.
"""

from __future__ import annotations

import enum
import re
import warnings
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from engine.core.behaviour import PIPELINE_COPIES
from engine.core.visible import shown_word
from engine.errors import PlacementError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ALL_LAYERS = -1
"""n_gpu_layers that means every layer and the output."""

MOST_SHARE = 1e30
"""The largest share of -ts, so that sums of shares fit in float32."""

MOST_COPIES = 16
"""The most graphs that may be under way at once; each has copies of all inputs of its own."""


class FlashAttn(enum.StrEnum):
    """Whether attention runs as one operation."""

    ON = "on"
    OFF = "off"
    AUTO = "auto"


class SplitMode(enum.StrEnum):
    """How layers are shared among several GPUs."""

    NONE = "none"
    LAYER = "layer"
    ROW = "row"
    """As LAYER, with the rows of each matrix on all of them."""
    TENSOR = "tensor"
    """Every layer on all of them, a share of each tensor on each."""


class LayerRule(enum.StrEnum):
    """Which layers a partial -ngl takes. Source: SCHED.md 7."""

    OUTPUT_FIRST = "output-first"
    """Today's: the output, then the last blocks."""
    OUTPUT_LAST = "output-last"
    """llama.cpp's before December 2025: the last blocks; the output once all of them are there."""


class TensorOverride(NamedTuple):
    """Weights whose name holds `pattern` (a regular expression) go into memory named `buft`."""

    pattern: str
    buft: str

    def __str__(self) -> str:
        return f"{self.pattern}={self.buft}"


CACHE_TYPES = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1")
"""The types that llama.cpp lets a cache have."""


class BlasUse(enum.StrEnum):
    """Which products the BLAS library of this computer takes."""

    OFF = "off"
    AUTO = "auto"
    """Those that it computes faster than the CPU's own kernels."""
    ALL = "all"
    """Those that llama.cpp would give it."""


class PoolingWish(enum.StrEnum):
    """How the embeddings of a text's tokens become one."""

    MODEL = "model"
    """As the file says."""
    NONE = "none"
    """They stay as they are."""
    MEAN = "mean"
    CLS = "cls"
    LAST = "last"


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
    layer_rule: LayerRule = LayerRule.OUTPUT_FIRST
    split_mode: SplitMode = SplitMode.LAYER
    main_gpu: int = 0
    tensor_split: tuple[float, ...] = ()
    n_copies: int = PIPELINE_COPIES
    devices: tuple[str, ...] | None = None
    tensor_overrides: tuple[TensorOverride, ...] = ()
    cpu_moe: bool = False
    n_cpu_moe: int = 0
    offload_kqv: bool = True
    repack: bool = True
    host_buffer: bool = True
    mmap: bool = True
    n_ctx: int = 0
    n_batch: int = 2048
    n_ubatch: int = 512
    flash_attn: FlashAttn = FlashAttn.AUTO
    cache_type_k: str = "f16"
    cache_type_v: str = "f16"
    pooling: PoolingWish = PoolingWish.MODEL
    op_offload: bool = True
    blas: BlasUse = BlasUse.OFF
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
    """One row of the table. `low` and `high` bound numbers; `item` is what a list (tuple) holds."""

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
    item: type = str

    @property
    def is_repeatable(self) -> bool:
        """Whether the flag may be given more than once, each time with more items."""
        return self.item is TensorOverride

    def parse(self, text: str) -> Any:
        """The value that `text` stands for; PlacementError names what is allowed."""
        if self.words and text in self.words:
            return self.words[text]
        if self.kind is tuple:
            return self._parse_list(text)
        if self.choices:
            return self.check(text)
        try:
            value = self.kind(text)
        except ValueError as error:
            raise self._refuse(text, self._number_words) from error
        return self.check(value)

    def _parse_list(self, text: str) -> tuple[Any, ...]:
        separators = "[,/]" if self.item is float else ","
        parts = [part.strip() for part in re.split(separators, text)]
        if self.item is str and parts == ["none"]:
            return ()
        if not all(parts):
            raise self._refuse(text, self._list_words)
        if self.item is TensorOverride:
            return self._checked_list([TensorOverride(*_halves(part)) for part in parts])
        try:
            return self._checked_list([self.item(part) for part in parts])
        except ValueError as error:
            raise self._refuse(text, self._list_words) from error

    def check(self, value: Any) -> Any:
        """`value` as the option holds it; PlacementError unless it is of the type and in bounds."""
        if self.choices:
            return self._checked_choice(value)
        if self.kind is bool:
            if not isinstance(value, bool):
                raise self._refuse(value, "true or false")
            return value
        if self.kind is not tuple:
            return self._checked_number(value)
        return None if value is None and self.item is str else self._checked_list(value)

    def _checked_choice(self, value: Any) -> Any:
        if value in self.choices:
            return self.kind(value)
        raise self._refuse(value, "one of " + ", ".join(self.choices))

    def _checked_list(self, value: Any) -> tuple[Any, ...]:
        if not isinstance(value, tuple | list):
            raise self._refuse(value, self._list_words)
        check = {str: self._is_name, float: self._is_share, TensorOverride: self._is_override}
        if not all(check[self.item](item) for item in value):
            raise self._refuse(value, self._list_words)
        if self.item is TensorOverride:
            self._check_patterns(value)
        return tuple(
            TensorOverride(*v) if self.item is TensorOverride else self.item(v) for v in value
        )

    @staticmethod
    def _is_name(item: Any) -> bool:
        return isinstance(item, str)

    @staticmethod
    def _is_share(item: Any) -> bool:
        return isinstance(item, int | float) and 0 <= item <= MOST_SHARE

    @staticmethod
    def _is_override(item: Any) -> bool:
        """Whether it is a pair that the flag can spell: neither half empty, no comma."""
        is_pair = isinstance(item, tuple | list) and len(item) == 2
        if not is_pair or not all(isinstance(half, str) and half for half in item):
            return False
        return "," not in "".join(item) and "=" not in item[0]

    def _check_patterns(self, overrides: Sequence[tuple[str, str]]) -> None:
        for pattern, _ in overrides:
            fault = _pattern_fault(pattern)
            if fault:
                raise PlacementError(
                    f"{self.flags[0]} cannot look for {pattern}.",
                    f"It cannot be used as a regular expression: {fault}.",
                    "Change the pattern; a backslash before a character takes it as it is.",
                )

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

    @property
    def _list_words(self) -> str:
        return _LIST_WORDS[self.item]

    def to_args(self, value: Any) -> list[str]:
        """The arguments that set this option to `value`, which is not the default."""
        if self.kind is bool:
            return [self.flags[0]]
        if self.kind is tuple:
            return [self.flags[0], ",".join(map(_item_text, value)) or "none"]
        return [self.flags[0], str(value)]

    def _refuse(self, value: Any, allowed: str) -> PlacementError:
        shown = ",".join(map(_item_text, value)) if isinstance(value, tuple | list) else str(value)
        title = f"{self.flags[0]} cannot be {shown_word(shown)}."
        return PlacementError(title, f"It must be {allowed}.", self.help)


_LIST_WORDS = {
    str: "a list of names",
    float: f"shares from 0 to {MOST_SHARE:g} with commas between them",
    TensorOverride: "a pattern, = and a buffer type, with commas between pairs",
}


def _halves(text: str) -> tuple[str, str]:
    """The pattern and the buffer type; both empty parts are refused later."""
    pattern, _, buft = text.partition("=")
    return pattern, buft


def _pattern_fault(text: str) -> str:
    """Why `text` is no regular expression, or one that others read otherwise; empty if it is."""
    try:
        with warnings.catch_warnings():
            # Such as [[:alpha:]], which is a class to llama.cpp and none here.
            warnings.simplefilter("error", FutureWarning)
            re.compile(text)
    except (re.error, OverflowError, FutureWarning) as error:
        return str(error)
    except RecursionError:
        return "too many brackets are in one another"
    return ""


def _item_text(item: Any) -> str:
    """An item as the flag spells it: 3 rather than 3.0, a pair with = between its halves."""
    if isinstance(item, tuple | list):
        return "=".join(map(str, item))
    return str(item).removesuffix(".0") if isinstance(item, float) else str(item)


OPTION_SPECS: tuple[OptionSpec, ...] = (
    OptionSpec(
        "n_gpu_layers", ("-ngl", "--gpu-layers", "--n-gpu-layers"), int,
        "Layers on the GPU, counted from the last: the output is one of them. "
        "all (-2) and auto (-1): every layer.",
        Redo.CONTEXT, low=-2, high=100_000, words={"all": ALL_LAYERS, "auto": ALL_LAYERS},
    ),
    OptionSpec(
        "layer_rule", ("--layer-rule",), LayerRule,
        "Which layers a partial -ngl takes: the output before the last blocks, or after all of "
        "them, as llama.cpp did before December 2025. Only Splitscope has this option.",
        Redo.CONTEXT, choices=tuple(LayerRule),
    ),
    OptionSpec(
        "split_mode", ("-sm", "--split-mode"), SplitMode,
        "How layers are shared among GPUs; none: the main GPU takes all of them; row: as layer, "
        "and the rows of each matrix are on all GPUs; tensor: a share of every layer on each.",
        Redo.CONTEXT, choices=tuple(SplitMode),
    ),
    OptionSpec(
        "main_gpu", ("-mg", "--main-gpu"), int,
        "With -sm none: the GPU to use, counted from 0; -1: the CPU alone.",
        Redo.CONTEXT, low=-1, high=127,
    ),
    OptionSpec(
        "tensor_split", ("-ts", "--tensor-split"), tuple,
        "Shares of the layers, one for each GPU, such as 3,1; else their free memory decides.",
        Redo.CONTEXT, item=float,
    ),
    OptionSpec(
        "n_copies", ("--n-copies",), int,
        "Prompt graphs that may be under way at once when GPUs share the layers; 1: one after the "
        "other. llama.cpp has 4, chosen when it is built (GGML_SCHED_MAX_COPIES).",
        Redo.CONTEXT, low=1, high=MOST_COPIES,
    ),
    OptionSpec(
        "devices", ("-dev", "--device", "--devices"), tuple,
        "Devices to use, in order; the CPU is always there. none: the CPU alone.", Redo.CONTEXT,
    ),
    OptionSpec(
        "tensor_overrides", ("-ot", "--override-tensor"), tuple,
        "Weights whose name holds a pattern go into the memory named: PATTERN=BUFFER_TYPE. The "
        "first pattern that is found counts.", Redo.CONTEXT, item=TensorOverride,
    ),
    OptionSpec(
        "cpu_moe", ("-cmoe", "--cpu-moe"), bool,
        "Keep the experts of every layer in the CPU's memory.", Redo.CONTEXT,
    ),
    OptionSpec(
        "n_cpu_moe", ("-ncmoe", "--n-cpu-moe"), int,
        "Layers, counted from the first, whose experts stay in the CPU's memory.",
        Redo.CONTEXT, low=0, high=512,
    ),
    OptionSpec(
        "offload_kqv", ("-nkvo", "--no-kv-offload"), bool,
        "Keep keys and values where their layer is.", Redo.CONTEXT,
        flag_help="Keep keys and values in the CPU's memory; otherwise they are where their "
        "layer is.",
    ),
    OptionSpec(
        "repack", ("-nr", "--no-repack"), bool,
        "Rearrange weights of the CPU for faster products, where a layout exists.", Redo.CONTEXT,
        flag_help="Leave weights of the CPU as the file has them; otherwise those that a faster "
        "layout exists for are rearranged.",
    ),
    OptionSpec(
        "host_buffer", ("--no-host",), bool,
        "Keep weights of the CPU in a GPU's pinned memory, where the file is not mapped.",
        Redo.CONTEXT,
        flag_help="Keep weights of the CPU out of a GPU's pinned memory; otherwise they may be "
        "there, where the file is not mapped.",
    ),
    OptionSpec(
        "mmap", ("--no-mmap",), bool,
        "Use weights where the file is mapped, without a copy.", Redo.CONTEXT,
        flag_help="Read the file into memory; otherwise it is mapped and the CPU's weights are "
        "used in place.",
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
        "cache_type_k", ("-ctk", "--cache-type-k"), str,
        f"Type of the keys that are kept: {', '.join(CACHE_TYPES)}.",
        Redo.CONTEXT, choices=CACHE_TYPES,
    ),
    OptionSpec(
        "cache_type_v", ("-ctv", "--cache-type-v"), str,
        f"Type of the values that are kept: {', '.join(CACHE_TYPES)}. All but the first three "
        "need flash attention.",
        Redo.CONTEXT, choices=CACHE_TYPES,
    ),
    OptionSpec(
        "pooling", ("--pooling",), PoolingWish,
        "How the embeddings of a text's tokens become one, in models that give embeddings: none, "
        "mean, cls or last; model: as the file says.", Redo.CONTEXT, choices=tuple(PoolingWish),
    ),
    OptionSpec(
        "op_offload", ("--no-op-offload",), bool,
        "Run operations of CPU layers on the GPU when the batch is large; weights are copied in.",
        Redo.PLAN,
        flag_help="Keep operations of CPU layers on the CPU, also when the batch is large; "
        "otherwise the GPU may run them, with their weights copied in.",
    ),
    OptionSpec(
        "blas", ("--blas",), BlasUse,
        "Large products through this computer's BLAS library; auto: those it is faster at (f32 "
        "weights from 256 tokens on, f16 and bf16 from 512); all: every one that a llama.cpp built "
        "with BLAS gives it. Only Splitscope has this option.",
        Redo.CONTEXT, choices=tuple(BlasUse),
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
