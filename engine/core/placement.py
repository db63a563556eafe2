"""Where tensors run and why: Assignment, Cause, Split, InputCopy, and the trace of the passes.

Tensors are named by slot: leafs first, then nodes, then view sources that the graph does not visit.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.core.tensor import Tensor

UNASSIGNED = -1
"""The backend id of a tensor that no pass has placed yet."""


class CauseKind(enum.IntEnum):
    """Why a tensor is where it is; one value for every rule that can decide."""

    NONE = 0
    USER = 1
    PREALLOCATED = 2
    PREALLOCATED_VIEW = 3
    GRAPH_INPUT = 4
    OFFLOADED = 5
    WEIGHT = 6
    GPU_DOWN = 7
    GPU_UP = 8
    REST_DOWN = 9
    REST_UP = 10
    BEST_OF_INPUTS = 11
    UPGRADED = 12
    VIEW_SOURCE = 13
    FROM_CONSUMER = 14
    FIRST_SUPPORTED = 15
    INPUT_COPY = 16
    PIPELINE_COPY = 17

    @property
    def step(self) -> str:
        """The pass, or sweep of pass 2, that decides so: "1", "2a" .. "2d", "3", "4", "5", "6"."""
        return _STEP[self]


_TAG = {
    CauseKind.NONE: "",
    CauseKind.USER: "usr",
    CauseKind.PREALLOCATED: "1.dst",
    CauseKind.PREALLOCATED_VIEW: "1.vsrc",
    CauseKind.GRAPH_INPUT: "1.inp",
    CauseKind.OFFLOADED: "1.off",
    CauseKind.WEIGHT: "1.wgt",
    CauseKind.GPU_DOWN: "2.sup",
    CauseKind.GPU_UP: "2.sup",
    CauseKind.REST_DOWN: "2.sup",
    CauseKind.REST_UP: "2.sup",
    CauseKind.BEST_OF_INPUTS: "3.best",
    CauseKind.UPGRADED: "3.upg",
    CauseKind.VIEW_SOURCE: "4.vsrc",
    CauseKind.FROM_CONSUMER: "4.cur",
    CauseKind.FIRST_SUPPORTED: "2.sup",
    CauseKind.INPUT_COPY: "4.cpy",
    CauseKind.PIPELINE_COPY: "6.cpy",
}

_STEP = {
    CauseKind.NONE: "",
    CauseKind.USER: "0",
    CauseKind.PREALLOCATED: "1",
    CauseKind.PREALLOCATED_VIEW: "1",
    CauseKind.GRAPH_INPUT: "1",
    CauseKind.OFFLOADED: "1",
    CauseKind.WEIGHT: "1",
    CauseKind.GPU_DOWN: "2a",
    CauseKind.GPU_UP: "2b",
    CauseKind.REST_DOWN: "2c",
    CauseKind.REST_UP: "2d",
    CauseKind.BEST_OF_INPUTS: "3",
    CauseKind.UPGRADED: "3",
    CauseKind.VIEW_SOURCE: "4",
    CauseKind.FROM_CONSUMER: "4",
    CauseKind.FIRST_SUPPORTED: "4",
    CauseKind.INPUT_COPY: "5",
    CauseKind.PIPELINE_COPY: "6",
}

PASS_STEPS = ("1", "2a", "2b", "2c", "2d", "3", "4", "5")
"""The steps of the pass row, in order."""


@dataclass(frozen=True, slots=True)
class Cause:
    """The rule that decided, and what it looked at.

    `i_src` is the source that decided (WEIGHT, OFFLOADED), `neighbour` the slot a sweep came from,
    the view source, or the consumer; -1 where the rule has none.
    """

    kind: CauseKind
    i_src: int = -1
    neighbour: int = -1

    @property
    def tag(self) -> str:
        """The tag that ggml prints, such as `1.wgt0`."""
        return cause_tag(self.kind, self.i_src)


NO_CAUSE = Cause(CauseKind.NONE)


def cause_tag(kind: CauseKind, i_src: int = -1) -> str:
    """The tag that ggml prints for a cause."""
    return f"1.wgt{i_src}" if kind is CauseKind.WEIGHT else _TAG[kind]


@dataclass(frozen=True, slots=True)
class Assignment:
    """A backend id and a cause for every slot, after some pass."""

    backend_ids: tuple[int, ...]
    causes: tuple[Cause, ...]


class SplitReason(enum.IntEnum):
    """Why a split begins."""

    FIRST = 0
    BACKEND_CHANGED = 1
    WEIGHT_ELSEWHERE = 2
    """Another weight must be copied in; a new split lets the last copy's memory be reused."""
    TOO_MANY_INPUTS = 3
    """Only in the older version (SCHED.md 1, difference b)."""


@dataclass(frozen=True, slots=True)
class InputCopy:
    """A tensor copied to a backend before a split runs. Made once per (tensor, backend).

    `tensors` has one copy a pipeline slot; `slot` is the source's slot.
    """

    id: int
    split_id: int
    slot: int
    source_backend_id: int
    backend_id: int
    tensors: tuple[Tensor, ...]

    @property
    def n_bytes(self) -> int:
        """Bytes that one copy moves."""
        return self.tensors[0].n_bytes


@dataclass(frozen=True, slots=True)
class Split:
    """Consecutive nodes [start, stop) on one backend, and the copies made before they run."""

    id: int
    backend_id: int
    start: int
    stop: int
    inputs: tuple[InputCopy, ...]
    reason: SplitReason


@dataclass(frozen=True, slots=True)
class Cut:
    """What pass 5 gives: splits, copies, and which sources are replaced by which copy.

    `redirects` maps (node id, source index) to a copy id.
    """

    assignment: Assignment
    splits: tuple[Split, ...]
    copies: tuple[InputCopy, ...]
    redirects: dict[tuple[int, int], int]


@dataclass(frozen=True, slots=True)
class PipelineInput:
    """A user input with one tensor a pipeline slot, so that the next graph may be filled early.

    `tensors` has None at the current slot: there the input itself is used.
    """

    slot: int
    backend_id: int
    tensors: tuple[Tensor | None, ...]


@dataclass(frozen=True, slots=True)
class SplitTrace:
    """The assignment after every step of the passes, in order, and the cut they led to.

    `pipeline_inputs` is empty without pipeline copies.
    """

    steps: tuple[tuple[str, Assignment], ...]
    cut: Cut
    pipeline_inputs: tuple[PipelineInput, ...] = ()

    @property
    def final(self) -> Assignment:
        """The assignment the cut was made from."""
        return self.cut.assignment
