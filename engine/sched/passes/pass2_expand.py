"""Pass 2: spread assignments to neighbours in four sweeps. Source: SCHED.md 11, be:1124-1202."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.core.placement import UNASSIGNED, Assignment, Cause, CauseKind

if TYPE_CHECKING:
    from collections.abc import Iterable

    from engine.sched.passes.problem import Problem


def expand_gpu_down(problem: Problem, before: Assignment) -> Assignment:
    """Sweep 2a: from each GPU node to the free nodes after it; the CPU stops a sweep."""
    return _sweep(problem, before, CauseKind.GPU_DOWN)


def expand_gpu_up(problem: Problem, before: Assignment) -> Assignment:
    """Sweep 2b: from each GPU node to the free nodes before it."""
    return _sweep(problem, before, CauseKind.GPU_UP)


def expand_rest_down(problem: Problem, before: Assignment) -> Assignment:
    """Sweep 2c: from any node to the free nodes after it."""
    return _sweep(problem, before, CauseKind.REST_DOWN)


def expand_rest_up(problem: Problem, before: Assignment) -> Assignment:
    """Sweep 2d: from any node to the free nodes before it."""
    return _sweep(problem, before, CauseKind.REST_UP)


def _sweep(problem: Problem, before: Assignment, kind: CauseKind) -> Assignment:
    gpu_only = kind in (CauseKind.GPU_DOWN, CauseKind.GPU_UP)
    upward = kind in (CauseKind.GPU_UP, CauseKind.REST_UP)
    slots: Iterable[int] = problem.graph.node_slots
    if upward:
        slots = reversed(problem.graph.node_slots)
    ids, causes = list(before.backend_ids), list(before.causes)
    current, neighbour = UNASSIGNED, -1
    for slot in slots:
        if problem.graph.is_view_op[slot]:
            continue
        if ids[slot] != UNASSIGNED:
            stops = gpu_only and ids[slot] == problem.last_backend
            current, neighbour = (UNASSIGNED, -1) if stops else (ids[slot], slot)
        elif current != UNASSIGNED and problem.supports_op(current, slot):
            ids[slot], causes[slot] = current, Cause(kind, neighbour=neighbour)
            neighbour = slot
    return Assignment(tuple(ids), tuple(causes))
