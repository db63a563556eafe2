"""What checking single operations on devices found: a row a case, a verdict a device.

Sent to the window and printed by `python -m engine ops`.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class OpState(enum.StrEnum):
    """What became of one case on one device."""

    OK = "ok"
    WRONG = "wrong"
    """It was computed, and is farther from the reference than allowed."""
    FAILED = "failed"
    """The device says that it can, and could not."""
    NOT_SUPPORTED = "not supported"
    NOT_CHECKED = "not checked"
    """The check ended before it was its turn."""


FAULTS = frozenset({OpState.WRONG, OpState.FAILED})
"""States that are the backend's fault."""


@dataclass(frozen=True, slots=True)
class OpSpeed:
    """How fast a case was computed, over and over: ns of one time, host monotonic clock.

    `median_ns` is the middle of `n_runs` times, `spread` the distance of their quartiles as a part
    of it. `n_bytes` are those of all sources and the result; `n_flops` is 0 where nobody counts.
    """

    median_ns: float
    spread: float
    n_runs: int
    n_bytes: int
    n_flops: int = 0

    @property
    def gb_per_s(self) -> float:
        """10^9 bytes in a second."""
        return self.n_bytes / self.median_ns if self.median_ns else 0.0

    @property
    def gflop_per_s(self) -> float:
        """10^9 operations with floats in a second; 0 where nobody counts."""
        return self.n_flops / self.median_ns if self.median_ns else 0.0


@dataclass(frozen=True, slots=True)
class OpVerdict:
    """One case on one device.

    `error` is the normalised mean squared error against the reference, `bar` the largest that is
    allowed; an `error` of None was not measured, a bar of 0 means: the same values. `reason` says
    in words why it is not `ok`, `details` what a driver or a library said.
    """

    state: OpState
    bar: float
    error: float | None = None
    reason: str = ""
    speed: OpSpeed | None = None
    details: str = ""

    @property
    def is_fault(self) -> bool:
        """Whether the backend is to blame."""
        return self.state in FAULTS


@dataclass(frozen=True, slots=True)
class OpRow:
    """One case. `op` is as ggml describes it (SILU, SWIGLU), `type` of its weights or cache.

    `words` say the shape and what is special. `n_prompt` and `n_token` count the operations of the
    open model's graphs that are like it, 0 for a built-in case. `verdicts` are in the order of the
    matrix's devices.
    """

    op: str
    type: str
    words: str
    verdicts: tuple[OpVerdict, ...]
    n_prompt: int = 0
    n_token: int = 0


@dataclass(frozen=True, slots=True)
class OpMatrix:
    """Every case on every device. `is_stopped` says that a person ended the check early."""

    devices: tuple[str, ...]
    rows: tuple[OpRow, ...]
    is_stopped: bool = False

    def verdicts(self, device: str) -> tuple[OpVerdict, ...]:
        """The column of one device."""
        i_device = self.devices.index(device)
        return tuple(row.verdicts[i_device] for row in self.rows)

    @property
    def n_faults(self) -> int:
        """Cases on devices that are wrong or failed."""
        return sum(verdict.is_fault for row in self.rows for verdict in row.verdicts)

    def sums(self) -> tuple[OpSum, ...]:
        """One line an operation, type and device; devices one after the other."""
        return tuple(
            OpSum.of(device, op, kind, [row.verdicts[i] for row in rows])
            for i, device in enumerate(self.devices)
            for (op, kind), rows in self._rows_by_op().items()
        )

    def _rows_by_op(self) -> dict[tuple[str, str], list[OpRow]]:
        found: dict[tuple[str, str], list[OpRow]] = {}
        for row in self.rows:
            found.setdefault((row.op, row.type), []).append(row)
        return found


@dataclass(frozen=True, slots=True)
class OpSum:
    """The cases of one operation and type on one device: how many, and the worst of them.

    `worst` is the verdict that is nearest to its bar, or beyond it; None when none was computed.
    """

    device: str
    op: str
    type: str
    n_cases: int
    n_supported: int
    n_faults: int
    n_unchecked: int
    worst: OpVerdict | None

    @staticmethod
    def of(device: str, op: str, kind: str, verdicts: Iterable[OpVerdict]) -> OpSum:
        """The sum of these verdicts."""
        found = tuple(verdicts)
        measured = [verdict for verdict in found if verdict.error is not None]
        n_unchecked = sum(verdict.state is OpState.NOT_CHECKED for verdict in found)
        n_refused = sum(verdict.state is OpState.NOT_SUPPORTED for verdict in found)
        return OpSum(
            device=device,
            op=op,
            type=kind,
            n_cases=len(found),
            n_supported=len(found) - n_refused - n_unchecked,
            n_faults=sum(verdict.is_fault for verdict in found),
            n_unchecked=n_unchecked,
            worst=max(measured, key=_share_of_bar, default=None),
        )


def _share_of_bar(verdict: OpVerdict) -> tuple[bool, float]:
    """How much of what is allowed was used; faults come behind everything else."""
    assert verdict.error is not None
    if verdict.bar:
        return verdict.is_fault, verdict.error / verdict.bar
    return verdict.is_fault, verdict.error
