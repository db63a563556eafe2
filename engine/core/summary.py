"""What is said of a model, a run and an engine; sent to the window and printed with --json."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from engine.core.devices import DeviceCaps

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from engine.core.devices import DeviceType
    from engine.core.experts import ExpertUse, Run
    from engine.core.load_report import Origin


@dataclass(frozen=True, slots=True)
class TensorSummary:
    """A tensor of a file; `ne` in ggml order."""

    name: str
    type: str
    ne: tuple[int, ...]
    n_bytes: int


@dataclass(frozen=True, slots=True)
class ModelSummary:
    """An opened model. `plan_problem` and `run_problem` say why it cannot be planned or run.

    `text_faults` are sentences: what of its tokenizer and chat template is wrong, and what is used
    instead. They touch neither plan nor times.
    """

    path: str
    name: str
    arch: str
    quantization: str
    """The type most bytes are in, such as `q4_1`."""
    file_bytes: int
    weight_bytes: int
    n_layers: int
    n_embd: int
    n_head: int
    n_head_kv: int
    n_vocab: int
    n_ctx_train: int
    tensors: tuple[TensorSummary, ...]
    has_chat_template: bool
    plan_problem: str = ""
    run_problem: str = ""
    n_expert: int = 0
    """Experts in a layer; 0 for a model without any."""
    text_faults: tuple[str, ...] = ()
    gives_embeddings: bool = False
    """Whether it is an encoder, which writes no text."""


@dataclass(frozen=True, slots=True)
class BufferTypeSummary:
    """A kind of memory of a device; bytes. `max_bytes`, of one allocation, is None without limit.

    `use` is "default", "host" (pinned) or "extra" (for weights).
    """

    name: str
    use: str
    alignment: int
    max_bytes: int | None
    is_host: bool


@dataclass(frozen=True, slots=True)
class DeviceSummary:
    """A device of this machine. Bytes; 0 where nothing is reported.

    `memory_source` says how free memory was obtained; `reg_index` is the place of its family among
    those registered, -1 on paper; `origin` says how that got here. `features` are pairs of name and
    value.
    """

    name: str
    description: str
    type: DeviceType
    memory_free: int
    memory_total: int
    software: str = ""
    virtual: bool = False
    memory_source: str = ""
    reg: str = ""
    reg_index: int = -1
    device_id: str | None = None
    caps: DeviceCaps = field(default_factory=DeviceCaps)
    bufts: tuple[BufferTypeSummary, ...] = ()
    features: tuple[tuple[str, str], ...] = ()
    origin: Origin | None = None


class RunState(enum.StrEnum):
    """What the engine is doing."""

    IDLE = "idle"
    PREPARING = "preparing"
    PROMPT = "prompt"
    GENERATING = "generating"


@dataclass(frozen=True, slots=True)
class SplitTiming:
    """One split of a plan that a run met: `time_ns` has a time for every step with that plan.

    What was done in pieces in a step counts as their sum. `plan` is the plan_id, which (plan, id)
    needs to name a split. `batch` is the plan's: "token" for one token a graph, else "prompt".
    """

    plan: int
    batch: str
    id: int
    backend: str
    start: int
    stop: int
    n_nodes: int
    time_ns: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CopyTiming:
    """One input copy of a plan that a run met, as `SplitTiming`; `n_bytes` is all that it holds.

    `n_experts` is 0 but for a weight with experts of which only used ones are copied. Of such a
    copy `copied_bytes` and `experts` say for every step what was moved, the experts as runs.
    """

    plan: int
    batch: str
    id: int
    name: str
    n_bytes: int
    time_ns: tuple[int, ...]
    n_experts: int = 0
    copied_bytes: tuple[int, ...] = ()
    experts: tuple[tuple[Run, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class ExchangeSum:
    """What shares of splits handed over in the last step with a plan: rows, or partial sums."""

    plan: int
    n_exchanges: int
    n_bytes: int


@dataclass(frozen=True, slots=True)
class IdleTime:
    """How long a device was idle for one cause: "copy", "device", "host" or "nothing" to do.

    `worst` says what was at fault for the most of it, over all steps, and `worst_ns` for how long;
    empty where there is nobody to blame.
    """

    cause: str
    time_ns: int
    worst: str = ""
    worst_ns: int = 0


@dataclass(frozen=True, slots=True)
class DeviceTime:
    """How a device spent a run: `busy_ns` and the times of `idle` add up to the whole of it."""

    name: str
    type: DeviceType
    busy_ns: int
    idle: tuple[IdleTime, ...]


@dataclass(frozen=True, slots=True)
class LinkTime:
    """What was moved from one device to another. `busy_ns`: at least one copy is under way."""

    source: str
    target: str
    n_transfers: int
    n_bytes: int
    busy_ns: int
    p50_ns: float
    p95_ns: float

    @property
    def gb_per_s(self) -> float:
        """Bytes over busy time, in units of 1e9 bytes; 0 where no time was measured."""
        return self.n_bytes / self.busy_ns if self.busy_ns else 0.0


@dataclass(frozen=True, slots=True)
class OverlapTime:
    """How long two devices computed at once."""

    devices: tuple[str, str]
    time_ns: int


@dataclass(frozen=True, slots=True)
class Together:
    """How several devices worked together, from the first step's start to the last one's end.

    It covers the last `n_steps` of the run's `n_run_steps`: all but those of a very long run.
    `overlap_ns`: at least two of them computed; `overlaps` says which. `n_copies` prompt graphs
    may be under way at once; `pipeline_obstacle` says why no more than one, as a clause.
    """

    wall_ns: int
    devices: tuple[DeviceTime, ...]
    links: tuple[LinkTime, ...]
    overlap_ns: int
    overlaps: tuple[OverlapTime, ...]
    n_copies: int
    pipeline_obstacle: str
    n_steps: int
    n_run_steps: int


class StopReason(enum.StrEnum):
    """Why a generation ended."""

    LENGTH = "length"
    END_OF_TEXT = "end of text"
    CONTEXT_FULL = "context full"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class RunSummary:
    """A finished or stopped run. Speeds in tokens per second; 0 when nothing was measured.

    `splits` and `copies` are those of every plan the run met, in that order: a long prompt meets
    one for each size of its batches and each length of the cache. `exchanges` has those plans that
    had any. `prompt_plan_id` and
    `token_plan_id` are the last of the prompt and of the generated tokens; -1 for none.
    `prompt_experts` and `token_experts` sum up the copies of used experts, where there were any.
    `notes` say what was not as asked for: of the model's tokenizer and chat template, of a
    pipeline. `n_unread` tokens of the prompt were not read, as the run was stopped in it.
    `together` is there where several devices beside the CPU computed.
    """

    prompt: str
    prompt_tokens: tuple[int, ...]
    tokens: tuple[int, ...]
    text: str
    stop_reason: StopReason
    prefill_tokens_per_s: float
    decode_tokens_per_s: float
    prefill_ns: int
    decode_step_ns: tuple[int, ...]
    prompt_plan_id: int
    token_plan_id: int
    splits: tuple[SplitTiming, ...]
    copies: tuple[CopyTiming, ...]
    prompt_experts: ExpertUse | None = None
    token_experts: ExpertUse | None = None
    notes: tuple[str, ...] = ()
    together: Together | None = None
    n_unread: int = 0
    exchanges: tuple[ExchangeSum, ...] = ()

    @property
    def n_prompt_read(self) -> int:
        """Tokens of the prompt that were read."""
        return len(self.prompt_tokens) - self.n_unread


@dataclass(frozen=True, slots=True, eq=False)
class Embedded:
    """A text's embeddings, f32 [rows, n_embd]: one a token, or one that `pooling` made.

    `summary` is of the run that gave them: one prompt, no generated token.
    """

    pooling: str
    rows: NDArray[np.float32]
    summary: RunSummary

    @property
    def tokens(self) -> tuple[int, ...]:
        """The text's tokens."""
        return self.summary.prompt_tokens


@dataclass(frozen=True, slots=True)
class ScoreStep:
    """One forced token: `argmax` is our choice, `gap` our highest logit minus the token's."""

    token: int
    argmax: int
    gap: float


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a job is: `done` of `total` things called `label`; total 0 means unknown."""

    label: str
    done: int
    total: int


OnProgress: TypeAlias = Callable[[Progress], None]
"""Told on the thread that works."""

StopAsked: TypeAlias = Callable[[], bool]
"""Asked again and again whether a person wants to stop."""
