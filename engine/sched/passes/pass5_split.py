"""Pass 5: cut the node list into splits and copy what a split cannot read. Source: be:1297-1401."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from engine.core.placement import Assignment, Cut, InputCopy, Split, SplitReason
from engine.core.tensor import MAX_NAME, Flag, Tensor
from engine.errors import PlacementError

if TYPE_CHECKING:
    from engine.sched.passes.problem import Problem


def cut(problem: Problem, assignment: Assignment) -> Cut:
    """Splits, the copies each needs, and the sources they replace. Nothing is rewritten."""
    cutter = _Cutter(problem, list(assignment.backend_ids))
    cutter.run()
    return Cut(assignment, tuple(cutter.splits), tuple(cutter.copies), cutter.redirects)


@dataclass(slots=True)
class _Cutter:
    """State of one walk over the nodes."""

    problem: Problem
    ids: list[int]
    splits: list[Split] = field(default_factory=list)
    copies: list[InputCopy] = field(default_factory=list)
    redirects: dict[tuple[int, int], int] = field(default_factory=dict)
    copy_of: dict[tuple[int, int], InputCopy] = field(default_factory=dict)
    backend_id: int = -1
    start: int = 0
    reason: SplitReason = SplitReason.FIRST
    inputs: list[InputCopy] = field(default_factory=list)

    def run(self) -> None:
        graph = self.problem.graph
        for node_id, slot in enumerate(graph.node_slots):
            if graph.is_view_op[slot]:
                continue
            if self.backend_id < 0:
                self.backend_id = self.ids[slot]
            reason = self._new_split_reason(slot)
            if reason is not None:
                self._close(node_id)
                self.start, self.backend_id, self.reason = node_id, self.ids[slot], reason
            self._copy_sources(node_id, slot)
        if graph.n_nodes:
            # A graph of views only has no backend of its own; its first node's stands for it.
            if self.backend_id < 0:
                self.backend_id = self.ids[graph.n_leafs]
            self._close(graph.n_nodes)

    def _new_split_reason(self, slot: int) -> SplitReason | None:
        if self.ids[slot] != self.backend_id:
            return SplitReason.BACKEND_CHANGED
        if not self.inputs:
            return None
        sources = self.problem.graph.src[slot]
        if any(
            self.problem.is_weight(source) and self._is_unreadable(source) for source in sources
        ):
            return SplitReason.WEIGHT_ELSEWHERE
        limit = self.problem.behaviour.max_split_inputs
        if limit and len(self.inputs) == limit and any(map(self._needs_copy, sources)):
            return SplitReason.TOO_MANY_INPUTS
        return None

    def _is_unreadable(self, source: int) -> bool:
        return self.ids[source] != self.backend_id and not self.problem.buffer_supported(
            source, self.backend_id, self.ids
        )

    def _needs_copy(self, source: int) -> bool:
        return (source, self.backend_id) not in self.copy_of and self._is_unreadable(source)

    def _copy_sources(self, node_id: int, slot: int) -> None:
        for i_src, source in enumerate(self.problem.graph.src[slot]):
            if self._is_unreadable(source):
                self.redirects[node_id, i_src] = self._copy(source).id

    def _copy(self, source: int) -> InputCopy:
        key = (source, self.backend_id)
        known = self.copy_of.get(key)
        if known is None:
            self._refuse_too_many(source)
            known = InputCopy(
                id=len(self.copies),
                split_id=len(self.splits),
                slot=source,
                source_backend_id=self.ids[source],
                backend_id=self.backend_id,
                tensors=copy_tensors(self.problem, source, self.backend_id),
            )
            self.copy_of[key] = known
            self.copies.append(known)
            self.inputs.append(known)
        return known

    def _refuse_too_many(self, source: int) -> None:
        limit = self.problem.behaviour.max_split_inputs
        if not limit or len(self.inputs) < limit:
            return
        tensor = self.problem.graph.tensors[source]
        raise PlacementError(
            f"{self.problem.backends[self.backend_id].name} cannot take a copy of {tensor.name}.",
            f"Split {len(self.splits)} has {limit} inputs already, and this version of the "
            "scheduler allows no more.",
            "Choose fewer devices, or the current version of the scheduler.",
        )

    def _close(self, stop: int) -> None:
        self.splits.append(
            Split(
                id=len(self.splits),
                backend_id=self.backend_id,
                start=self.start,
                stop=stop,
                inputs=tuple(self.inputs),
                reason=self.reason,
            )
        )
        self.inputs = []


def copy_tensors(problem: Problem, slot: int, backend_id: int) -> tuple[Tensor, ...]:
    """One tensor a pipeline slot."""
    return tuple(copy_tensor(problem, slot, backend_id, i) for i in range(problem.n_copies))


def copy_tensor(problem: Problem, slot: int, backend_id: int, copy_slot: int) -> Tensor:
    """A tensor of the source's type, ne and nb, named after the backend and the pipeline slot.

    With several slots it is flagged so that the allocator never takes its memory back.
    """
    source = problem.graph.tensors[slot]
    name = problem.backends[backend_id].name
    return Tensor(
        source.type,
        source.ne,
        nb=source.nb,
        name=f"{name}#{source.name}#{copy_slot}"[:MAX_NAME],
        flags=Flag.INPUT | Flag.OUTPUT if problem.n_copies > 1 else Flag.NONE,
    )
