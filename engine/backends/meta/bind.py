"""A spread split bound to memory: the members' split graphs, and from where to where bytes go."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from engine.backend.interface import Place, SplitGraph
from engine.backends.meta.buffer import MirroredBuffer, SharedBuffer
from engine.backends.meta.spread import Exchange, spread

if TYPE_CHECKING:
    from collections.abc import Mapping

    from engine.backends.meta.spread import Move, Spread, Stage
    from engine.core.shards import Shard
    from engine.core.tensor import Tensor


class BoundMove(NamedTuple):
    """Bytes that member `target` gets from member `source`."""

    source: int
    target: int
    sent: Place
    received: Place
    n_bytes: int


BoundStep = tuple[SplitGraph | None, ...] | list[BoundMove]
"""A split graph for each member, None where it has nothing to do; or what is exchanged."""

ScratchOf = Callable[[int], Sequence[Place]]
"""Room for so many bytes in each member's scratch."""


def bind(
    graph: SplitGraph, n_members: int, shards: Mapping[Tensor, Shard], scratch_of: ScratchOf
) -> list[BoundStep]:
    """The steps of a split, in order.

    Raises: what `spread` does, and DeviceError when there is no memory for the exchange.
    """
    made = spread(
        graph.nodes, n_members, shards, read_outside=graph.read_outside(),
        are_one=_Overlaps(graph).ask,
    )  # fmt: skip
    scratch = scratch_of(made.scratch_bytes) if made.scratch_bytes else ()
    return _Binder(graph, made, scratch, n_members).steps()


@dataclass(frozen=True, slots=True)
class _Overlaps:
    graph: SplitGraph

    def ask(self, node: Tensor, source: Tensor) -> bool:
        """Whether two tensors share bytes."""
        a, b = self.graph.place_of(node), self.graph.place_of(source)
        is_apart = a.offset + node.n_bytes <= b.offset or b.offset + source.n_bytes <= a.offset
        return a.buffer is b.buffer and not is_apart


@dataclass(slots=True)
class _Binder:
    graph: SplitGraph
    spread: Spread
    scratch: Sequence[Place]
    n_members: int

    def steps(self) -> list[BoundStep]:
        return [
            self._moves(step.moves) if isinstance(step, Exchange) else self._graphs(step)
            for step in self.spread.steps
        ]

    def _moves(self, moves: Sequence[Move]) -> list[BoundMove]:
        return [
            BoundMove(
                move.source, move.target, self._place(move.source, move.sent),
                self._place(move.target, move.received), move.n_bytes,
            )
            for move in moves
        ]  # fmt: skip

    def _graphs(self, stage: Stage) -> tuple[SplitGraph | None, ...]:
        return tuple(
            self._split_graph(member, nodes) if nodes else None
            for member, nodes in enumerate(stage.nodes)
        )

    def _split_graph(self, member: int, nodes: Sequence[Tensor]) -> SplitGraph:
        places: dict[Tensor, Place] = {}
        for node in nodes:
            for tensor in (node, *node.src):
                if tensor.base not in places:
                    places[tensor.base] = self._place(member, tensor.base)
        return SplitGraph(tuple(nodes), places)

    def _place(self, member: int, tensor: Tensor) -> Place:
        offset = self.spread.scratch.get(tensor)
        if offset is not None:
            scratch = self.scratch[member]
            return Place(scratch.buffer, scratch.offset + offset)
        whole = self.graph.place_of(self.spread.home_of.get(tensor, tensor))
        assert isinstance(whole.buffer, MirroredBuffer | SharedBuffer), tensor
        return whole.buffer.place_on(member, whole.offset)
