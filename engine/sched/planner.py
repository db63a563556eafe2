"""One frozen Plan from a graph, the backends and the options. Pure: ids come from the caller."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from engine.core.behaviour import CURRENT, Behaviour
from engine.core.devices import DeviceType
from engine.core.plan import Batch, BatchShape, Plan
from engine.errors import PlacementError
from engine.sched.passes.problem import Problem, number_tensors
from engine.sched.run_graph import build_run_graph
from engine.sched.split_graph import split_graph

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from engine.core.devices import BackendView
    from engine.core.graph import Graph
    from engine.core.tensor import Tensor

MAX_BACKENDS = 16
"""Backends that ggml's scheduler takes (GGML_SCHED_MAX_BACKENDS)."""

_LAYER_OF_NAME = re.compile(r"-(\d+)(?: \(|$)|_l(\d+)\b")


@dataclass(frozen=True, slots=True, eq=False)
class KnownGraph:
    """What all plans of one graph for the same backends have in common, however they differ.

    `problem` is the plainest question about it; the predicates it has asked are remembered.
    """

    problem: Problem
    slot_of: Mapping[Tensor, int]
    layers: Mapping[int, int]


def know_graph(graph: Graph, backends: Sequence[BackendView], *, n_layers: int = 0) -> KnownGraph:
    """The graph, ready to be planned; PlacementError for backends that cannot be scheduled."""
    check_backends(backends)
    slots = number_tensors(graph)
    return KnownGraph(
        Problem(graph=slots, backends=tuple(backends)),
        {tensor: slot for slot, tensor in enumerate(slots.tensors)},
        layers_of(graph, n_layers),
    )


def plan_graph(
    graph: Graph,
    backends: Sequence[BackendView],
    *,
    plan_id: int,
    batch: Batch,
    shape: BatchShape,
    op_offload: bool = True,
    pins: Mapping[Tensor, int] | None = None,
    n_layers: int = 0,
    n_copies: int = 1,
    copy_slot: int = 0,
    behaviour: Behaviour = CURRENT,
    known: KnownGraph | None = None,
) -> Plan:
    """Run the passes over `graph`; `pins` are tensors put on a backend beforehand.

    With `n_copies` above 1 as many graphs may be in flight; this one uses slot `copy_slot`.
    `known` (optional) is what `know_graph` gave for this graph, these backends and layers.

    Raises PlacementError for what no backend can run, and for backends that cannot be scheduled.
    """
    known = know_graph(graph, backends, n_layers=n_layers) if known is None else known
    problem = replace(
        known.problem,
        op_offload=op_offload,
        user={known.slot_of[tensor]: backend_id for tensor, backend_id in (pins or {}).items()},
        n_copies=n_copies,
        copy_slot=copy_slot,
        behaviour=behaviour,
    )
    trace = split_graph(problem)
    return Plan(
        plan_id=plan_id,
        batch=batch,
        shape=shape,
        graph=graph,
        backends=problem.backends,
        op_offload=op_offload,
        trace=trace,
        run=build_run_graph(problem, trace),
        n_copies=n_copies,
        copy_slot=copy_slot,
        layers=known.layers,
    )


def check_backends(backends: Sequence[BackendView]) -> None:
    """PlacementError unless ggml's scheduler would take this list. Source: be:1872-1873, 1911."""
    if not 1 <= len(backends) <= MAX_BACKENDS:
        raise PlacementError(
            f"{len(backends)} backends cannot be scheduled.",
            f"The scheduler takes 1 to {MAX_BACKENDS}.",
            "Choose fewer devices (-dev).",
        )
    last = backends[-1]
    if last.device.type is not DeviceType.CPU:
        raise PlacementError(
            f"{last.name} cannot be the last backend.",
            f"It is a device of type {last.device.type}; the last one takes what nothing else can "
            "run, and must be the CPU.",
            "Put the CPU last.",
        )
    for view in backends:
        if not view.rules.supports_buft(view.buft):
            raise PlacementError(
                f"{view.name} cannot work in {view.buft.name} memory.",
                "Its results would be there, and it does not read that memory.",
                "Choose other devices (-dev).",
            )


def layers_of(graph: Graph, n_layers: int) -> dict[int, int]:
    """The layer of each node: from its name, else that of the next node whose name has one.

    Nodes before the first such name are in layer -1, nodes named "result_..." in layer n_layers.
    """
    named = {i: layer_in_name(node.name, n_layers) for i, node in enumerate(graph.nodes)}
    first = next((i for i, layer in named.items() if layer is not None), len(named))
    layers: dict[int, int] = {}
    current = n_layers
    for node_id in reversed(range(len(graph.nodes))):
        found = named[node_id]
        current = current if found is None else found
        layers[node_id] = -1 if node_id < first else current
    return layers


def layer_in_name(name: str, n_layers: int) -> int | None:
    """The layer that a node's name tells, n_layers for results, None where it tells nothing."""
    if name.startswith("result"):
        return n_layers
    found = _LAYER_OF_NAME.search(name)
    return int(found.group(1) or found.group(2)) if found else None
