"""Expert copies: of a weight with many experts only those are copied that a split uses. Pure.

They are copied in runs of neighbours: of 8 experts the used 1, 2, 5 and 7 are three pieces, 1-2, 5
and 7. Source: SCHED.md 15.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from engine.core.devices import BufferUsage
from engine.core.ops import Op

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from engine.core.tensor import Tensor

EXPERT_PAD_BYTES = 512
"""Bytes past a run of experts that kernels may read."""

Run = tuple[int, int]
"""First and last of neighbouring experts."""


class Piece(NamedTuple):
    """A run of experts and the bytes [start, stop) of the weight that are copied for it."""

    experts: Run
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class ExpertUse:
    """Expert copies of one or more steps together, measured.

    `n_copies` counts every copy in every step. Of it `n_experts` are the experts that the weights
    have and `n_used` those that were copied, `whole_bytes` what copying all would have moved and
    `copied_bytes` what was moved. `copy_ns` is the time of all pieces, host clock.
    """

    n_steps: int
    n_copies: int
    n_used: int
    n_experts: int
    copied_bytes: int
    whole_bytes: int
    copy_ns: int

    def __add__(self, other: ExpertUse) -> ExpertUse:
        """Those of both, which share no step."""
        mine, others = dataclasses.astuple(self), dataclasses.astuple(other)
        return ExpertUse(*(a + b for a, b in zip(mine, others, strict=True)))

    @property
    def bytes_per_ns(self) -> float:
        """The rate of the pieces, which is GB/s; 0 where no time was measured."""
        return self.copied_bytes / self.copy_ns if self.copy_ns else 0.0

    @property
    def whole_ns(self) -> float:
        """An estimate: how long copying all would have taken at that rate; 0 without a rate."""
        return self.whole_bytes / self.bytes_per_ns if self.bytes_per_ns else 0.0


def is_expert_copy(weight: Tensor, first: Tensor) -> bool:
    """Whether only used experts of `weight` are copied for a split that begins with node `first`.

    Both are tensors of the model's graph, whose sources are not redirected to copies.
    """
    home = weight.home
    if home is None or home.usage is not BufferUsage.WEIGHTS or not home.buft.is_host:
        return False
    return first.op is Op.MUL_MAT_ID and first.src[0] is weight


def pieces(weight: Tensor, used: Iterable[int]) -> list[Piece]:
    """What is copied of `weight` for some experts: ascending numbers, each once.

    A piece ends behind its run's padding, except after the last expert of all.
    """
    expert_bytes, last_of_all = weight.nb[2], weight.ne[2] - 1
    pad = min(expert_bytes, EXPERT_PAD_BYTES)
    return [
        Piece(
            (first, last),
            first * expert_bytes,
            (last + 1) * expert_bytes + (0 if last == last_of_all else pad),
        )
        for first, last in runs(used)
    ]


def runs(numbers: Iterable[int]) -> list[Run]:
    """(first, last) of every maximal run of consecutive numbers; they ascend, each once."""
    found: list[Run] = []
    for number in numbers:
        if found and found[-1][1] == number - 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return found


def runs_text(experts: Sequence[Run]) -> str:
    """Runs for people: "1-2, 5, 7"."""
    return ", ".join(f"{first}-{last}" if last > first else str(first) for first, last in experts)
