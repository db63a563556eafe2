"""What a pass may ask: the graph by slots, the backends, and their predicates, each asked once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from engine.core.behaviour import CURRENT, Behaviour
from engine.core.devices import BackendView, BufferFacts, BufferTypeFacts, BufferUsage
from engine.core.placement import NO_CAUSE, UNASSIGNED, Assignment, Cause, CauseKind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from engine.core.graph import Graph
    from engine.core.tensor import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class SlotGraph:
    """A graph whose tensors have numbers: leafs, then nodes, then unvisited view sources."""

    tensors: tuple[Tensor, ...]
    n_leafs: int
    n_nodes: int
    src: tuple[tuple[int, ...], ...]
    view_src: tuple[int, ...]
    is_view_op: tuple[bool, ...]

    @property
    def node_slots(self) -> range:
        """The slots of the nodes, in order."""
        return range(self.n_leafs, self.n_leafs + self.n_nodes)


def number_tensors(graph: Graph) -> SlotGraph:
    """The slots of a graph."""
    tensors = [*graph.leafs, *graph.nodes]
    slot_of = {id(tensor): slot for slot, tensor in enumerate(tensors)}
    for tensor in list(tensors):
        base = tensor.view_src
        if base is not None and id(base) not in slot_of:
            slot_of[id(base)] = len(tensors)
            tensors.append(base)
    return SlotGraph(
        tensors=tuple(tensors),
        n_leafs=len(graph.leafs),
        n_nodes=len(graph.nodes),
        src=tuple(tuple(slot_of[id(source)] for source in tensor.src) for tensor in tensors),
        view_src=tuple(
            -1 if tensor.view_src is None else slot_of[id(tensor.view_src)] for tensor in tensors
        ),
        is_view_op=tuple(tensor.is_view_op for tensor in tensors),
    )


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """One question to the passes. `user` maps slots to backends a person or llama pinned.

    With `n_copies` above 1 every input copy has one tensor a pipeline slot, and `copy_slot` is the
    slot of this graph.
    """

    graph: SlotGraph
    backends: tuple[BackendView, ...]
    op_offload: bool = True
    user: Mapping[int, int] = field(default_factory=dict)
    n_copies: int = 1
    copy_slot: int = 0
    behaviour: Behaviour = CURRENT
    _op_memo: dict[tuple[int, int], bool] = field(default_factory=dict)
    _buft_memo: dict[tuple[int, BufferTypeFacts], bool] = field(default_factory=dict)

    @property
    def last_backend(self) -> int:
        """The id of the CPU, by position."""
        return len(self.backends) - 1

    def supports_op(self, backend_id: int, slot: int) -> bool:
        """Whether the backend has a kernel for the tensor's operation."""
        key = (backend_id, slot)
        answer = self._op_memo.get(key)
        if answer is None:
            tensor = self.graph.tensors[slot]
            answer = self.backends[backend_id].rules.supports_op(tensor)
            self._op_memo[key] = answer
        return answer

    def supports_buft(self, backend_id: int, buft: BufferTypeFacts) -> bool:
        """Whether the backend reads and writes such memory."""
        key = (backend_id, buft)
        answer = self._buft_memo.get(key)
        if answer is None:
            answer = self.backends[backend_id].rules.supports_buft(buft)
            self._buft_memo[key] = answer
        return answer

    def home(self, slot: int) -> BufferFacts | None:
        """The buffer a tensor is in before planning, its view source's for a view."""
        return self.graph.tensors[slot].home

    def backend_of_home(self, slot: int, op_slot: int) -> int:
        """The first backend that reads the slot's home and runs the operation of `op_slot`."""
        home = self.home(slot)
        if home is None:
            return UNASSIGNED
        for backend_id in range(len(self.backends)):
            if self.supports_buft(backend_id, home.buft) and self.supports_op(backend_id, op_slot):
                return backend_id
        return UNASSIGNED

    def buffer_supported(self, slot: int, backend_id: int, backend_ids: list[int]) -> bool:
        """Whether the backend can read the tensor where it is or will be. Source: SCHED.md 11."""
        home = self.home(slot)
        if home is not None:
            return self.supports_buft(backend_id, home.buft)
        owner = backend_ids[slot]
        if owner == UNASSIGNED and self.graph.view_src[slot] >= 0:
            owner = backend_ids[self.graph.view_src[slot]]
        return owner != UNASSIGNED and self.supports_buft(backend_id, self.backends[owner].buft)

    def is_weight(self, slot: int) -> bool:
        """Whether the tensor itself lies in a buffer of weights."""
        own = self.graph.tensors[slot].buffer
        return own is not None and own.usage is BufferUsage.WEIGHTS

    def start(self) -> Assignment:
        """Nothing assigned but what was pinned."""
        n_slots = len(self.graph.tensors)
        ids = [UNASSIGNED] * n_slots
        causes = [NO_CAUSE] * n_slots
        for slot, backend_id in self.user.items():
            ids[slot] = backend_id
            causes[slot] = Cause(CauseKind.USER)
        return Assignment(tuple(ids), tuple(causes))
