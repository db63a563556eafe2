"""Shard: which part of a tensor each of several devices holds. Facts only.

Devices are counted as members of one that joins them. Source: ggml-backend-meta.cpp (split states).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.core.tensor import Shape, contiguous_strides

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine.core.types import TensorType

WHOLE_AXIS, ONE_AXIS = -1, 4
"""Stand for the axis of a tensor that every member has whole, and that one member has alone."""


@dataclass(frozen=True, slots=True)
class Shard:
    """`sizes[i]` elements along `axis` are on member i, behind those of the members before it.

    `MIRRORED`: each has all of it, and there are no sizes. With ONE_AXIS the sizes are 1 for the
    member that has all of it, and 0.
    """

    axis: int
    sizes: tuple[int, ...] = ()

    @property
    def is_mirrored(self) -> bool:
        """Whether each member has the whole tensor."""
        return self.axis == WHOLE_AXIS

    @property
    def owner(self) -> int | None:
        """The member that alone has the tensor; None where several do."""
        return self.sizes.index(1) if self.axis == ONE_AXIS else None

    def is_on(self, member: int) -> bool:
        """Whether a member has any of it."""
        return self.is_mirrored or self.sizes[member] > 0

    def start(self, member: int) -> int:
        """Where a member's part begins, in elements along the axis."""
        return 0 if self.axis in (WHOLE_AXIS, ONE_AXIS) else sum(self.sizes[:member])

    def ne_on(self, ne: Shape, member: int) -> Shape:
        """The shape of a member's part."""
        if self.axis in (WHOLE_AXIS, ONE_AXIS):
            return ne if self.is_on(member) else (0, 0, 0, 0)
        part = list(ne)
        part[self.axis] = self.sizes[member]
        return (part[0], part[1], part[2], part[3])


MIRRORED = Shard(WHOLE_AXIS)


def one_of(owner: int, n_members: int) -> Shard:
    """A tensor that one member has alone."""
    return Shard(ONE_AXIS, tuple(int(member == owner) for member in range(n_members)))


def shard_along(axis: int, sizes: Sequence[int]) -> Shard:
    """A tensor shared along an axis; by one member alone where it has everything."""
    holders = [member for member, size in enumerate(sizes) if size]
    return one_of(holders[0], len(sizes)) if len(holders) == 1 else Shard(axis, tuple(sizes))


def axis_bytes(tensor_type: TensorType, ne: Shape, axis: int, n_elems: int) -> int:
    """Bytes of `n_elems` whole elements along an axis of a gapless tensor."""
    if axis == 0:
        return tensor_type.row_bytes(n_elems)
    return contiguous_strides(tensor_type, ne)[axis] * n_elems


def share_out(
    n_elems: int, unit: int, shares: Sequence[float], *, rotation: int = 0
) -> tuple[int, ...]:
    """How many of `n_elems` each member gets, in whole units; the last one gets what is left.

    `rotation` is the member that is served first, so that what rounding leaves over is not the same
    one's each time. Source: llama_meta_device_get_split_state, which rounds down where this rounds
    to the nearest unit: shares of free memory then hardly move with it.
    """
    n_members = len(shares)
    order = [(member + rotation) % n_members for member in range(n_members)]
    so_far = list(itertools.accumulate(shares[member] for member in order))
    sizes, low = [0] * n_members, 0
    for member, total in zip(order, so_far, strict=True):
        is_complete = total == so_far[-1]
        n_units = int(n_elems * total / so_far[-1] / unit + 0.5)
        high = n_elems if is_complete else min(n_units * unit, n_elems)
        sizes[member], low = high - low, high
    return tuple(sizes)


@dataclass(frozen=True, slots=True)
class MemberShare:
    """What a member of a joined device holds of weights and caches.

    `asked` and `achieved` are fractions of 1. `whole_bytes`, part of `n_bytes`, are those of
    tensors that each member has whole. `results_bytes`, beside `n_bytes`, are for results, of which
    each member has all, and for what members exchange. `free_bytes` 0: its free memory is unknown.
    """

    device: str
    asked: float
    n_bytes: int
    whole_bytes: int
    achieved: float
    results_bytes: int = 0
    free_bytes: int = 0

    @property
    def needed_bytes(self) -> int:
        """Bytes that the model takes of the member's memory."""
        return self.n_bytes + self.results_bytes

    @property
    def is_over(self) -> bool:
        """Whether a member whose free memory is known has less than that."""
        return 0 < self.free_bytes < self.needed_bytes
