"""The graph that is allocated and computed: sources redirected to copies, helpers added.

Source: SCHED.md 12. The planned graph is left as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.core.plan import AllocGraph, RunGraph
from engine.core.tensor import Flag, Tensor

if TYPE_CHECKING:
    from engine.core.placement import SplitTrace
    from engine.sched.passes.problem import Problem


def build_run_graph(problem: Problem, trace: SplitTrace) -> RunGraph:
    """New nodes that read copies where pass 5 says so, and the allocator's view of them."""
    return _Builder(problem, trace, {p.slot for p in trace.pipeline_inputs}).build()


@dataclass(slots=True)
class _Builder:
    """One rewriting of a graph. `kept` are the slots of inputs with pipeline copies."""

    problem: Problem
    trace: SplitTrace
    kept: set[int]

    def build(self) -> RunGraph:
        graph = self.problem.graph
        leafs = graph.tensors[: graph.n_leafs]
        if self.kept:
            leafs = tuple(
                self._rewritten(leaf, leaf.src, None, slot) if slot in self.kept else leaf
                for slot, leaf in enumerate(leafs)
            )
        nodes = self._redirect(leafs)
        return RunGraph(nodes, leafs, self._alloc_graph((*leafs, *nodes)))

    def _redirect(self, leafs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """The nodes anew, in order, each reading what stands for its sources."""
        graph, copies = self.problem.graph, self.trace.cut.copies
        redirects, copy_slot = self.trace.cut.redirects, self.problem.copy_slot
        # Unvisited view sources stand for themselves.
        stands_for = list(leafs) + list(graph.tensors[graph.n_leafs :])
        for node_id, slot in enumerate(graph.node_slots):
            sources = tuple(
                stands_for[source]
                if (copy_id := redirects.get((node_id, i_src))) is None
                else copies[copy_id].tensors[copy_slot]
                for i_src, source in enumerate(graph.src[slot])
            )
            base = graph.view_src[slot]
            view_src = stands_for[base] if base >= 0 else None
            node = self._rewritten(graph.tensors[slot], sources, view_src, slot)
            if slot in graph.src[slot]:
                # A cast is its own source.
                old = stands_for[slot]
                node.src = tuple(node if source is old else source for source in sources)
            stands_for[slot] = node
        return tuple(stands_for[graph.n_leafs : graph.n_leafs + graph.n_nodes])

    def _rewritten(
        self, old: Tensor, sources: tuple[Tensor, ...], view_src: Tensor | None, slot: int
    ) -> Tensor:
        return Tensor(
            old.type,
            old.ne,
            nb=old.nb,
            op=old.op,
            params=old.params,
            src=sources,
            view_src=view_src,
            view_offs=old.view_offs,
            name=old.name,
            buffer=old.buffer,
            flags=old.flags | Flag.OUTPUT if slot in self.kept else old.flags,
        )

    def _alloc_graph(self, run: tuple[Tensor, ...]) -> AllocGraph:
        """The allocator's nodes and leafs; `run` are the tensors by slot."""
        cut, graph = self.trace.cut, self.problem.graph
        ids, n_leafs = cut.assignment.backend_ids, graph.n_leafs
        nodes: list[Tensor] = []
        node_ids: list[int] = []
        for split in cut.splits:
            for copy in split.inputs:
                nodes += (_keep_alive(run[copy.slot]), copy.tensors[self.problem.copy_slot])
                node_ids += (copy.source_backend_id, split.backend_id)
            first, stop = n_leafs + split.start, n_leafs + split.stop
            nodes += run[first:stop]
            node_ids += ids[first:stop]
        copies, copy_ids = self._copies_as_leafs(run)
        leafs, leaf_ids = (*copies, *run[:n_leafs]), (*copy_ids, *ids[:n_leafs])
        return AllocGraph(tuple(nodes), tuple(node_ids), leafs, leaf_ids)

    def _copies_as_leafs(self, run: tuple[Tensor, ...]) -> tuple[list[Tensor], list[int]]:
        """With pipelining every copy of every slot has its place from the start."""
        leafs: list[Tensor] = []
        leaf_ids: list[int] = []
        for given in self.trace.pipeline_inputs:
            leafs += (run[given.slot] if tensor is None else tensor for tensor in given.tensors)
            leaf_ids += [given.backend_id] * len(given.tensors)
        if self.problem.n_copies > 1:
            for copy in self.trace.cut.copies:
                leafs += copy.tensors
                leaf_ids += [copy.backend_id] * len(copy.tensors)
        return leafs, leaf_ids


def _keep_alive(source: Tensor) -> Tensor:
    """A node that reads `source` and computes nothing, so that it is not freed before its copy."""
    return Tensor(
        source.type,
        source.ne,
        nb=source.nb,
        src=(source,),
        view_src=source.base,
        view_offs=source.view_offs,
        name=f"{source.name} (view)",
    )
