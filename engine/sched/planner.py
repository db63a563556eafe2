"""One frozen Plan from a graph, the backends and the options. Pure: ids come from the caller."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from engine.core.plan import Batch, BatchShape, Plan
from engine.sched.passes.problem import Problem, number_tensors
from engine.sched.run_graph import build_run_graph
from engine.sched.split_graph import split_graph

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from engine.core.devices import BackendView
    from engine.core.graph import Graph
    from engine.core.tensor import Tensor

_LAYER_OF_NAME = re.compile(r"-(\d+)(?: \(|$)|_l(\d+)\b")


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
) -> Plan:
    """Run the passes over `graph`; `pins` are tensors put on a backend beforehand."""
    slots = number_tensors(graph)
    slot_of = {tensor: slot for slot, tensor in enumerate(slots.tensors)}
    problem = Problem(
        graph=slots,
        backends=tuple(backends),
        op_offload=op_offload,
        user={slot_of[tensor]: backend_id for tensor, backend_id in (pins or {}).items()},
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
        run=build_run_graph(problem, trace.cut),
        layers=layers_of(graph, n_layers),
    )


def layers_of(graph: Graph, n_layers: int) -> dict[int, int]:
    """The layer of each node: from its name, else that of the node before it.

    Nodes before the first layer are in layer -1, nodes named "result_..." in layer n_layers.
    """
    layers: dict[int, int] = {}
    current = -1
    for node_id, node in enumerate(graph.nodes):
        found = _LAYER_OF_NAME.search(node.name)
        if found:
            current = int(found.group(1) or found.group(2))
        elif node_id and (node.name.startswith("result") or node.name == "norm"):
            current = n_layers
        layers[node_id] = current
    return layers
