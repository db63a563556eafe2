"""Pass 1: tensors that already have a home. Source: SCHED.md 11, be:921-985."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.core.devices import MAPPED, BufferUsage
from engine.core.ops import Op
from engine.core.placement import UNASSIGNED, Assignment, Cause, CauseKind
from engine.core.tensor import Flag
from engine.errors import PlacementError

if TYPE_CHECKING:
    from engine.core.devices import BufferTypeFacts, DeviceFacts
    from engine.sched.passes.problem import Problem


def place_preallocated(problem: Problem, before: Assignment) -> Assignment:
    """Assign leafs, then nodes, that have a buffer, are inputs, or read a weight."""
    ids, causes = list(before.backend_ids), list(before.causes)
    n_visited = problem.graph.n_leafs + problem.graph.n_nodes
    for slot in range(n_visited):
        if ids[slot] == UNASSIGNED:
            backend_id, cause = home_of(problem, slot)
            if cause is not None:
                ids[slot], causes[slot] = backend_id, cause
    return Assignment(tuple(ids), tuple(causes))


def home_of(problem: Problem, slot: int) -> tuple[int, Cause | None]:
    """Where a tensor belongs by its own buffer, its input flag or its first weight."""
    tensor = problem.graph.tensors[slot]
    backend_id = problem.backend_of_home(slot, slot)
    if backend_id != UNASSIGNED:
        return backend_id, Cause(CauseKind.PREALLOCATED)
    if tensor.home is not None:
        raise _nobody_runs_it_there(problem, slot, tensor.home.buft)
    if tensor.flags & Flag.INPUT:
        return problem.last_backend, Cause(CauseKind.GRAPH_INPUT)
    if tensor.op in problem.behaviour.skip_weight_rule:
        return UNASSIGNED, None
    return _follow_weight(problem, slot)


def _nobody_runs_it_there(problem: Problem, slot: int, buft: BufferTypeFacts) -> PlacementError:
    tensor = problem.graph.tensors[slot]
    if tensor.op is Op.NONE:
        joined = _joined_with(problem, buft)
        if joined is not None:
            return _only_as_a_part(tensor.name, buft, joined)
        names = ", ".join(view.name for view in problem.backends)
        return PlacementError(
            f"No device of the model works in {buft.name} memory.",
            f"{tensor.name} lies there, and the model uses {names}.",
            "Use the device of that memory too (-dev), or other memory (-ot).",
        )
    backends = [
        f"{view.name}: {_can(problem.supports_buft(i, buft))} read {buft.name} memory, "
        f"{_can(problem.supports_op(i, slot))} run {tensor.op_desc}"
        for i, view in enumerate(problem.backends)
    ]
    return PlacementError(
        f"No device can run {tensor.op_desc} on {tensor.name}.",
        f"The tensor lies in {buft.name} memory, and no backend both reads that memory and has a "
        f"kernel for {tensor.op_desc} of type {tensor.type.label}.",
        "Move it with another -ngl, or choose other devices.",
        "\n".join(backends),
    )


def _joined_with(problem: Problem, buft: BufferTypeFacts) -> DeviceFacts | None:
    """The device that joins the one whose own memory this is."""
    own = buft.name.removesuffix(MAPPED)
    joined = (view.device for view in problem.backends)
    return next((d for d in joined if own in [m.buft.name for m in d.members]), None)


def _only_as_a_part(tensor: str, buft: BufferTypeFacts, joined: DeviceFacts) -> PlacementError:
    return PlacementError(
        f"No device of the model works in {buft.name} memory.",
        f"{tensor} is to lie there (-ot). That device is a part of {joined.name} (-sm tensor), "
        f"which reads memory that its members share, and that of none alone.",
        "Choose CPU memory (-ot), or -sm layer.",
    )


def _can(answer: bool) -> str:
    return "can" if answer else "cannot"


def _follow_weight(problem: Problem, slot: int) -> tuple[int, Cause | None]:
    """The weights rule: the first source in a buffer of weights decides and ends the search."""
    tensors = problem.graph.tensors
    for i_src, source in enumerate(problem.graph.src[slot]):
        own = tensors[source].buffer
        if own is None or own.usage is not BufferUsage.WEIGHTS:
            continue
        backend_id = problem.backend_of_home(source, slot)
        if problem.op_offload and backend_id == problem.last_backend and own.buft.is_host:
            for candidate in range(backend_id):
                if _wants(problem, candidate, slot):
                    return candidate, Cause(CauseKind.OFFLOADED, i_src, source)
        return backend_id, Cause(CauseKind.WEIGHT, i_src, source)
    return UNASSIGNED, None


def _wants(problem: Problem, backend_id: int, slot: int) -> bool:
    tensor = problem.graph.tensors[slot]
    rules = problem.backends[backend_id].rules
    return problem.supports_op(backend_id, slot) and rules.offload_op(tensor)
