"""Scheduler: buffers for planned graphs, and their execution. Thin; see SCHED.md 10 and 13."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from engine.backend.alloc import compute_bytes, fits, grown, place, plan_allocation
from engine.backend.interface import (
    Backend,
    Buffer,
    BufferType,
    Event,
    Place,
    SplitGraph,
    locate,
)
from engine.backend.memory_refusal import WHOLE_WORDS, Wanted, asking
from engine.backend.release import release_all
from engine.core.behaviour import CURRENT, Behaviour
from engine.core.devices import BufferUsage
from engine.errors import ModelError, Stopped
from engine.sched.cross_reads import CrossReads
from engine.sched.execute import EvalCallback, SplitRunner
from engine.sched.pipeline import Pipeline

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from engine.core.plan import AllocationPlan, AllocGraph, Plan
    from engine.core.tensor import Tensor
    from engine.trace.recorder import Recorder


@dataclass(frozen=True, slots=True, eq=False)
class AllocatedGraph:
    """A plan whose tensors have places: ready to take inputs and to compute, again and again.

    `generation` counts how often the scheduler had laid out its buffers when it was allocated.
    """

    plan: Plan
    places: Mapping[Tensor, Place]
    splits: tuple[SplitGraph, ...]
    generation: int

    def place_of(self, tensor: Tensor) -> Place:
        """Where a leaf of the plan, or a tensor of its run graph, is."""
        return locate(tensor, self.places)


class Scheduler:
    """Owns the compute buffers of a set of backends; one thread uses it.

    `bufts[b]` is the live buffer type of backend b's compute buffer; equal types share buffers.
    `n_copies` graphs may be in flight. `eval_callback` (optional) is asked about every node of
    what is computed from then on, see `EvalCallback`.
    """

    def __init__(
        self,
        backends: Sequence[Backend],
        bufts: Sequence[BufferType],
        recorder: Recorder,
        *,
        n_copies: int = 1,
        behaviour: Behaviour = CURRENT,
    ) -> None:
        self.backends = tuple(backends)
        self.pipeline = Pipeline(self.backends, n_copies)
        self.eval_callback: EvalCallback | None = None
        self._behaviour = behaviour
        self._is_allocated = False
        self._generation = 0
        self._bufts = tuple(bufts)
        self._facts = tuple(buft.facts for buft in bufts)
        self._recorder = recorder
        self._record: AllocationPlan | None = None
        self._previous_ids: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())
        self._buffers: list[list[Buffer] | None] = [None] * len(bufts)

    def reserve(self, plan: Plan) -> None:
        """Make the buffers large enough for `plan`, which is typically the worst case."""
        self.synchronize()
        self._remember_ids(plan.run.alloc)
        self._reserve(plan.run.alloc)
        self.reset()

    def reserve_size(self, plan: Plan) -> tuple[int, ...]:
        """Bytes that each backend's compute buffer would take for `plan`; nothing is allocated.

        What is reserved stays as it is, so the next graph is compared with that. (ggml's function
        drops buffers that are too small.)
        """
        self.reset()
        self.synchronize()
        return compute_bytes(self._plan_allocation(plan.run.alloc), self._facts)

    def reset(self) -> None:
        """Give up the allocated graph: the next one may be allocated."""
        self._is_allocated = False

    def alloc_graph(self, plan: Plan, resident: Mapping[Tensor, Place]) -> AllocatedGraph:
        """Give every tensor of `plan` a place; `resident` are those that have one already.

        The plan was made for the pipeline's `next_slot`, and `reset` came after the last graph.
        """
        assert not self._is_allocated, "reset() comes before another graph is allocated"
        assert plan.copy_slot == self.pipeline.next_slot, (plan.copy_slot, self.pipeline.next_slot)
        self.pipeline.advance()
        graph = plan.run.alloc
        changed = self._ids_changed(graph)
        self._remember_ids(graph)
        record = self._record
        if changed or record is None or not fits(record, graph, self._facts):
            # Queued work may still use the buffers that are about to move.
            self._synchronize_all()
            record = self._reserve(graph)
        places = dict(resident)
        for tensor, spot in place(record, graph).items():
            places[tensor] = Place(self._chunks(spot.buffer_id)[spot.chunk], spot.offset)
        for leaf, run_leaf in zip(plan.graph.leafs, plan.run.leafs, strict=True):
            if leaf is not run_leaf:
                places[leaf] = places[run_leaf]
        self._is_allocated = True
        return AllocatedGraph(plan, places, self._split_graphs(plan, places), self._generation)

    def take_again(self, graph: AllocatedGraph) -> bool:
        """Let a graph that was allocated before be the one again, as if it were allocated now.

        False where that would take other memory than it has; `reset` came after the last graph.
        """
        assert not self._is_allocated, "reset() comes before another graph is allocated"
        alloc = graph.plan.run.alloc
        if graph.generation != self._generation or self._ids_changed(alloc):
            return False
        assert graph.plan.copy_slot == self.pipeline.next_slot, graph.plan.copy_slot
        self.pipeline.advance()
        self._remember_ids(alloc)
        self._is_allocated = True
        return True

    def compute(self, graph: AllocatedGraph, step: int) -> Event | None:
        """Compute every split in order; returns when the last one is queued, with its event.

        Raises: Stopped, or ModelError for an expert that does not exist, after what was queued
        before it is done: the caller may write inputs and plan anew at once. DeviceError as it
        comes: that backend is lost.
        """
        runner = self._runner(graph, step)
        try:
            runner.run()
        except (Stopped, ModelError):
            self._synchronize_all()
            raise
        return runner.last

    def wait_for_slot(self, graph: AllocatedGraph, step: int) -> None:
        """Block until what was under way in the graph's slot is done; then inputs may be written.

        Other slots may be under way. Without a pipeline nothing is.
        """
        self._runner(graph, step).wait_for_slot()

    def _runner(self, graph: AllocatedGraph, step: int) -> SplitRunner:
        return SplitRunner(
            graph, self.backends, self.pipeline, self._recorder, step,
            behaviour=self._behaviour, callback=self.eval_callback,
        )  # fmt: skip

    def synchronize(self) -> None:
        """Block until every backend is done; without an allocated graph the slots begin anew."""
        self._synchronize_all()
        if not self._is_allocated:
            self.pipeline.rewind()

    def buffer_bytes(self) -> tuple[int, ...]:
        """Bytes of each backend's compute buffer; 0 for one that shares an earlier one's."""
        if self._record is None:
            return (0,) * len(self.backends)
        shared = compute_bytes(self._record, self._facts)
        return tuple(
            sum(buffer.size for buffer in self._buffers[i] or ()) if self._owns(i) else shared[i]
            for i in range(len(self.backends))
        )

    def dispose(self) -> None:
        """Release the compute buffers."""
        buffers = [buffer for chunks in self._buffers for buffer in chunks or ()]
        self._buffers = [None] * len(self._bufts)
        self._record = None
        release_all(buffer.release for buffer in buffers)

    def _owns(self, backend_id: int) -> bool:
        return self._facts.index(self._facts[backend_id]) == backend_id

    def _chunks(self, backend_id: int) -> list[Buffer]:
        return self._buffers[self._facts.index(self._facts[backend_id])] or []

    def _reserve(self, graph: AllocGraph) -> AllocationPlan:
        record = self._plan_allocation(graph)
        # Without memory for all of it there is no record: the next graph is reserved anew.
        self._record = None
        self._generation += 1
        for backend_id, sizes in enumerate(record.chunk_bytes):
            if self._owns(backend_id):
                self._grow(graph, backend_id, sizes)
        self._record = record
        return record

    def _wanted(self, graph: AllocGraph, backend_id: int, sizes: Sequence[int]) -> Wanted:
        """What a compute buffer is for: the largest result in it stands for all of them."""
        facts, ids = self._facts, zip(graph.nodes, graph.node_ids, strict=True)
        nodes = [node for node, i in ids if facts[i] == facts[backend_id] and not node.is_view_op]
        largest = max(nodes, key=lambda node: node.n_bytes, default=None)
        shown = [] if largest is None else [largest]
        names, its_sizes = [node.name for node in shown], [node.n_bytes for node in shown]
        return Wanted(WHOLE_WORDS[BufferUsage.COMPUTE], sum(sizes), names, its_sizes)

    def _plan_allocation(self, graph: AllocGraph) -> AllocationPlan:
        return plan_allocation(graph, self._facts, inplace_ops=self._behaviour.inplace_ops)

    def _grow(self, graph: AllocGraph, backend_id: int, sizes: tuple[int, ...]) -> None:
        """Allocate anew for `graph` when any chunk is too small; buffers never shrink."""
        current = self._buffers[backend_id]
        have = tuple(buffer.size for buffer in current or ())
        if current is not None and grown(have, sizes) == have:
            return
        buft, chunks = self._bufts[backend_id], list[Buffer]()
        # Known from the start: each that there is memory for is released in the end.
        self._buffers[backend_id] = chunks
        device, wanted = self.backends[backend_id].device, self._wanted(graph, backend_id, sizes)
        with asking(device, wanted):
            release_all(buffer.release for buffer in current or ())
            for size in sizes:
                chunks.append(buft.alloc_buffer(size, BufferUsage.COMPUTE))

    def _ids_changed(self, graph: AllocGraph) -> bool:
        """Whether a node or leaf moved to another buffer type, compared by index (trap T14)."""
        return any(
            self._moved(new, old)
            for new, old in zip((graph.node_ids, graph.leaf_ids), self._previous_ids, strict=True)
        )

    def _moved(self, new_ids: tuple[int, ...], old_ids: tuple[int, ...]) -> bool:
        padded = old_ids + (0,) * (len(new_ids) - len(old_ids))
        return any(
            new != old and self._facts[new] != self._facts[old]
            for new, old in zip(new_ids, padded, strict=False)
        )

    def _remember_ids(self, graph: AllocGraph) -> None:
        self._previous_ids = (graph.node_ids, graph.leaf_ids)

    def _split_graphs(self, plan: Plan, places: Mapping[Tensor, Place]) -> tuple[SplitGraph, ...]:
        graphs = []
        reads = CrossReads(plan)
        for split in plan.trace.cut.splits:
            nodes = plan.run.nodes[split.start : split.stop]
            graphs.append(SplitGraph(nodes, places, outside=partial(reads.of, split.id)))
        return tuple(graphs)

    def _synchronize_all(self) -> None:
        for backend in self.backends:
            backend.synchronize()
