"""Pass 3: the rest by their inputs, and upgrades within one memory. Source: be:1204-1263."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.core.placement import UNASSIGNED, Assignment, Cause, CauseKind

if TYPE_CHECKING:
    from engine.sched.passes.problem import Problem


def upgrade(problem: Problem, before: Assignment) -> Assignment:
    """Place free nodes where most inputs are; move others up when the memory is the same."""
    ids, causes = list(before.backend_ids), list(before.causes)
    for slot in problem.graph.node_slots:
        if problem.graph.is_view_op[slot]:
            continue
        if ids[slot] == UNASSIGNED:
            chosen, kind = _best_of_inputs(problem, slot, ids), CauseKind.BEST_OF_INPUTS
        else:
            chosen, kind = _higher_in_same_memory(problem, slot, ids), CauseKind.UPGRADED
        if chosen != UNASSIGNED:
            ids[slot], causes[slot] = chosen, Cause(kind)
    return Assignment(tuple(ids), tuple(causes))


def _best_of_inputs(problem: Problem, slot: int, ids: list[int]) -> int:
    """The backend that can read most of the node's placed inputs; the lowest id on a tie."""
    best, n_best = UNASSIGNED, -1
    for backend_id in range(len(problem.backends)):
        if not problem.supports_op(backend_id, slot):
            continue
        n_readable = sum(
            _is_placed(problem, source, ids) and problem.buffer_supported(source, backend_id, ids)
            for source in problem.graph.src[slot]
        )
        if n_readable > n_best:
            best, n_best = backend_id, n_readable
    return best


def _is_placed(problem: Problem, slot: int, ids: list[int]) -> bool:
    base = problem.graph.view_src[slot]
    return ids[slot] != UNASSIGNED or (base >= 0 and ids[base] != UNASSIGNED)


def _higher_in_same_memory(problem: Problem, slot: int, ids: list[int]) -> int:
    """A backend before the node's own that shares its buffer type and reads every input."""
    current = ids[slot]
    for backend_id in range(current):
        if (
            problem.backends[backend_id].buft == problem.backends[current].buft
            and problem.supports_op(backend_id, slot)
            and all(
                problem.buffer_supported(source, backend_id, ids)
                for source in problem.graph.src[slot]
            )
        ):
            return backend_id
    return UNASSIGNED
