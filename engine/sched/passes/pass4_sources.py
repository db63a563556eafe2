"""Pass 4: views, sources without a home, and the last resort. Source: be:1265-1295."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.core.placement import UNASSIGNED, Assignment, Cause, CauseKind
from engine.errors import PlacementError

if TYPE_CHECKING:
    from engine.sched.passes.problem import Problem


def assign_sources(problem: Problem, before: Assignment) -> Assignment:
    """Give every node and every source a backend."""
    ids, causes = list(before.backend_ids), list(before.causes)
    view_src = problem.graph.view_src
    for slot in problem.graph.node_slots:
        base = view_src[slot]
        if base >= 0 and ids[slot] == UNASSIGNED:
            ids[slot], causes[slot] = ids[base], Cause(CauseKind.VIEW_SOURCE, neighbour=base)
        for source in problem.graph.src[slot]:
            if ids[source] != UNASSIGNED:
                continue
            source_base = view_src[source]
            if source_base >= 0:
                ids[source] = ids[source_base]
                causes[source] = Cause(CauseKind.VIEW_SOURCE, neighbour=source_base)
            else:
                ids[source] = ids[slot]
                causes[source] = Cause(CauseKind.FROM_CONSUMER, neighbour=slot)
        if ids[slot] == UNASSIGNED:
            ids[slot] = _first_supported(problem, slot)
            causes[slot] = Cause(CauseKind.FIRST_SUPPORTED)
    return Assignment(tuple(ids), tuple(causes))


def _first_supported(problem: Problem, slot: int) -> int:
    for backend_id in range(len(problem.backends)):
        if problem.supports_op(backend_id, slot):
            return backend_id
    tensor = problem.graph.tensors[slot]
    sources = ", ".join(f"{source.type.label} {list(source.ne)}" for source in tensor.src)
    raise PlacementError(
        f"No device can run {tensor.op_desc} ({tensor.name}).",
        f"No backend has a kernel for {tensor.op_desc} of {sources}.",
        "Choose other devices or another quantisation of the model.",
    )
