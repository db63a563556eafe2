"""The graph that is allocated and computed: sources redirected to copies, helpers added.

Source: SCHED.md 12. The planned graph is left as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.core.plan import AllocGraph, RunGraph
from engine.core.tensor import Tensor

if TYPE_CHECKING:
    from engine.core.placement import Cut
    from engine.sched.passes.problem import Problem


def build_run_graph(problem: Problem, cut: Cut) -> RunGraph:
    """New nodes that read copies where pass 5 says so, and the allocator's view of them."""
    nodes = _redirect(problem, cut)
    return RunGraph(nodes, _alloc_graph(problem, cut, nodes))


def _redirect(problem: Problem, cut: Cut) -> tuple[Tensor, ...]:
    graph = problem.graph
    replaced: dict[Tensor, Tensor] = {}
    nodes = []
    for node_id, slot in enumerate(graph.node_slots):
        old = graph.tensors[slot]
        sources = []
        for i_src, source in enumerate(old.src):
            copy_id = cut.redirects.get((node_id, i_src))
            if copy_id is None:
                sources.append(replaced.get(source, source))
            else:
                sources.append(cut.copies[copy_id].tensors[problem.copy_slot])
        base = None if old.view_src is None else replaced.get(old.view_src, old.view_src)
        new = Tensor(
            old.type,
            old.ne,
            nb=old.nb,
            op=old.op,
            params=old.params,
            src=tuple(sources),
            view_src=base,
            view_offs=old.view_offs,
            name=old.name,
            buffer=old.buffer,
            flags=old.flags,
        )
        replaced[old] = new
        nodes.append(new)
    return tuple(nodes)


def _alloc_graph(problem: Problem, cut: Cut, run_nodes: tuple[Tensor, ...]) -> AllocGraph:
    ids = cut.assignment.backend_ids
    graph = problem.graph
    nodes: list[Tensor] = []
    node_ids: list[int] = []
    for split in cut.splits:
        for copy in split.inputs:
            nodes.append(_keep_alive(_run_tensor(problem, run_nodes, copy.slot)))
            node_ids.append(copy.source_backend_id)
            nodes.append(copy.tensors[problem.copy_slot])
            node_ids.append(split.backend_id)
        nodes.extend(run_nodes[split.start : split.stop])
        first = graph.n_leafs
        node_ids.extend(ids[first + split.start : first + split.stop])
    leafs = graph.tensors[: graph.n_leafs]
    return AllocGraph(tuple(nodes), tuple(node_ids), leafs, ids[: graph.n_leafs])


def _run_tensor(problem: Problem, run_nodes: tuple[Tensor, ...], slot: int) -> Tensor:
    node_id = slot - problem.graph.n_leafs
    if 0 <= node_id < len(run_nodes):
        return run_nodes[node_id]
    return problem.graph.tensors[slot]


def _keep_alive(source: Tensor) -> Tensor:
    """A node that reads `source` and computes nothing, so that it is not freed before its copy."""
    base = source if source.view_src is None else source.view_src
    return Tensor(
        source.type,
        source.ne,
        nb=source.nb,
        src=(source,),
        view_src=base,
        view_offs=source.view_offs,
        name=f"{source.name} (view)",
    )
