"""Pass 6: user inputs with a tensor for each graph in flight. Source: be:1407-1445.

The input itself serves the current slot, so what the caller writes to moves with the slot.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.core.placement import PipelineInput
from engine.core.tensor import Flag
from engine.sched.passes.pass5_split import copy_tensor

if TYPE_CHECKING:
    from collections.abc import Iterable

    from engine.core.placement import Assignment
    from engine.sched.passes.problem import Problem


def copy_inputs(problem: Problem, assignment: Assignment) -> tuple[PipelineInput, ...]:
    """The inputs that get copies, in order; none without pipeline copies."""
    if problem.n_copies == 1:
        return ()
    first_read = problem.behaviour.inputs_copied_when_read
    slots = _inputs_as_read(problem) if first_read else range(problem.graph.n_leafs)
    return tuple(
        _with_copies(problem, slot, assignment.backend_ids[slot])
        for slot in slots
        if problem.graph.tensors[slot].flags & Flag.INPUT
    )


def _inputs_as_read(problem: Problem) -> Iterable[int]:
    """Every source that a computing node reads, once, in the order of the first readers."""
    graph = problem.graph
    return dict.fromkeys(
        source
        for slot in graph.node_slots
        if not graph.is_view_op[slot]
        for source in graph.src[slot]
    )


def _with_copies(problem: Problem, slot: int, backend_id: int) -> PipelineInput:
    tensors = tuple(
        None if i == problem.copy_slot else copy_tensor(problem, slot, backend_id, i)
        for i in range(problem.n_copies)
    )
    return PipelineInput(slot, backend_id, tensors)
