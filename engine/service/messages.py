"""What crosses the pipe between the window and the engine: frozen values, pickled by us for us.

The window sends requests; the engine sends answers, some unasked. `request_id` ties an answer to
its request. A plan crosses once a run, by plan_id; spans cross once, by
seq.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from engine.core.load_report import LoadReport
from engine.model.manifest import DEMO as DEMO  # A path that `OpenModel` takes.

if TYPE_CHECKING:
    from pathlib import Path

    from engine.core.devices import Unavailable
    from engine.core.op_matrix import OpMatrix
    from engine.core.options import Options
    from engine.core.summary import (
        DeviceSummary,
        Embedded,
        ModelSummary,
        Progress,
        RunState,
        RunSummary,
    )
    from engine.core.table import PlanSetTable, PlanTable
    from engine.trace.snapshot import TraceSnapshot

PROTOCOL = 4
"""Raised when a message changes; the window refuses an engine of another number."""


class TraceFormat(enum.StrEnum):
    """A file a trace can be written as."""

    PERFETTO = "perfetto"
    CHROME = "chrome"


# Requests.


@dataclass(frozen=True, slots=True)
class OpenModel:
    """Open a GGUF file, or `DEMO`, and plan it with `options` (None: the model's defaults)."""

    request_id: int
    path: str
    options: Options | None = None


@dataclass(frozen=True, slots=True)
class Replan:
    """Plan the open model with other options; during a run op_offload acts from the next graph."""

    request_id: int
    options: Options


@dataclass(frozen=True, slots=True)
class StartRun:
    """Generate from a prompt; `chat` wraps it in the model's chat template."""

    request_id: int
    prompt: str
    n_predict: int
    chat: bool = True


@dataclass(frozen=True, slots=True)
class StartEmbed:
    """Compute the embeddings of a text."""

    request_id: int
    text: str


@dataclass(frozen=True, slots=True)
class StopRun:
    """Stop everything asked for so far: a fetch, a load, a generation, a run that still waits."""

    request_id: int


@dataclass(frozen=True, slots=True)
class ExportTrace:
    """Write the trace of the last run."""

    request_id: int
    path: Path
    format: TraceFormat = TraceFormat.PERFETTO


@dataclass(frozen=True, slots=True)
class LoadBackend:
    """Load a backend from a file, or all of a folder.

    With `must_be_own` nobody asks for it now, as at a start: what others may write is refused.
    """

    request_id: int
    path: Path
    must_be_own: bool = False


@dataclass(frozen=True, slots=True)
class UnloadBackend:
    """Take out a loaded backend by its name, that of a device of it, or its file.

    It waits for the end of a run; what is loaded on its devices is released.
    """

    request_id: int
    name: str


@dataclass(frozen=True, slots=True)
class CheckOps:
    """Check single operations on devices against a reference; answered by OpsChecked.

    `devices` are names, () means all. `of_model` takes the operations of the open model's graphs,
    else the built-in cases. `op` and `type` narrow them down. With `speed` each is timed too, which
    takes longer. A wish to stop ends it: what was found by then is the answer.
    """

    request_id: int
    devices: tuple[str, ...] = ()
    of_model: bool = True
    op: str = ""
    type: str = ""
    speed: bool = False


@dataclass(frozen=True, slots=True)
class Poll:
    """Ask for spans newer than `trace_seq`."""

    trace_seq: int


@dataclass(frozen=True, slots=True)
class Shutdown:
    """End the engine's process."""


Request = (
    OpenModel
    | Replan
    | StartRun
    | StartEmbed
    | StopRun
    | ExportTrace
    | LoadBackend
    | UnloadBackend
    | CheckOps
    | Poll
    | Shutdown
)
REQUESTS = (
    OpenModel,
    Replan,
    StartRun,
    StartEmbed,
    StopRun,
    ExportTrace,
    LoadBackend,
    UnloadBackend,
    CheckOps,
    Poll,
    Shutdown,
)


# Answers.


@dataclass(frozen=True, slots=True)
class EngineReady:
    """The engine is up. `hidden` and unusable devices carry their reasons.

    `load_report` is what was tried to load backends.
    """

    protocol: int
    devices: tuple[DeviceSummary, ...]
    unavailable: tuple[Unavailable, ...]
    load_report: LoadReport = field(default_factory=LoadReport)


@dataclass(frozen=True, slots=True)
class BackendsChanged:
    """What became of loading or unloading: `report` is about this request, the rest about all.

    Nothing may have been loaded: then `report` says why. Plans made before know the devices of
    before; a Replan makes one for those of now.
    """

    request_id: int
    report: LoadReport
    devices: tuple[DeviceSummary, ...]
    unavailable: tuple[Unavailable, ...]
    load_report: LoadReport


@dataclass(frozen=True, slots=True)
class ModelOpened:
    """A file was read; a Planned answer with the same id follows unless `plan_problem` is set."""

    request_id: int
    model: ModelSummary


@dataclass(frozen=True, slots=True)
class Planned:
    """The plans of the options asked for; it answers every older Replan as well."""

    request_id: int
    plans: PlanSetTable


@dataclass(frozen=True, slots=True)
class JobProgress:
    """How far something over a second is: a fetch, compiling kernels, loading weights."""

    request_id: int
    progress: Progress


@dataclass(frozen=True, slots=True)
class RunStateChanged:
    """What the engine is doing now. `prefill_tokens_per_s` is 0 until the prompt was read."""

    state: RunState
    n_prompt_tokens: int = 0
    n_tokens: int = 0
    prefill_tokens_per_s: float = 0.0
    decode_tokens_per_s: float = 0.0


@dataclass(frozen=True, slots=True)
class TextEmitted:
    """Generated text since the last such answer, whole characters only."""

    text: str


@dataclass(frozen=True, slots=True)
class PlanMet:
    """A batch shape the run met; spans name its plan_id."""

    plan: PlanTable


@dataclass(frozen=True, slots=True)
class RunEnded:
    """A run is over, or was stopped."""

    request_id: int
    summary: RunSummary


@dataclass(frozen=True, slots=True)
class EmbedEnded:
    """The embeddings of a text, with the sums of the run that gave them."""

    request_id: int
    embedded: Embedded


@dataclass(frozen=True, slots=True)
class OpsChecked:
    """What checking operations found, stopped or not."""

    request_id: int
    matrix: OpMatrix


@dataclass(frozen=True, slots=True)
class TraceArrived:
    """Spans newer than the poll asked for."""

    snapshot: TraceSnapshot


@dataclass(frozen=True, slots=True)
class Exported:
    """A trace file was written."""

    request_id: int
    path: Path
    n_bytes: int


@dataclass(frozen=True, slots=True)
class Failed:
    """A request could not be done; the words are for people."""

    request_id: int
    title: str
    sentence: str = ""
    hint: str = ""
    details: str = ""


@dataclass(frozen=True, slots=True)
class EngineDied:
    """The engine's process ended by itself; made by the window's side, never sent.

    `doing` says what it was doing in words; `details` holds its last output.
    """

    exit_code: int
    doing: str = ""
    details: str = field(default="", repr=False)


Answer = (
    EngineReady
    | BackendsChanged
    | ModelOpened
    | Planned
    | JobProgress
    | RunStateChanged
    | TextEmitted
    | PlanMet
    | RunEnded
    | EmbedEnded
    | OpsChecked
    | TraceArrived
    | Exported
    | Failed
    | EngineDied
)
