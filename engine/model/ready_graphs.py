"""ReadyGraphs: graphs that were planned and allocated, kept for when their shape comes again.

A prompt and the tokens after it take turns from run to run, and planning one anew takes as long as
several tokens.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from engine.model.token_inputs import TokenInputs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from engine.backend.interface import Place
    from engine.core.plan import BatchShape
    from engine.core.tensor import Tensor
    from engine.model.blocks.graph_context import InputKey
    from engine.model.cells import CacheCells
    from engine.model.planning import PlannedGraph
    from engine.sched.scheduler import AllocatedGraph

MOST_KEPT = 4
"""Graphs kept at once, for each pipeline slot; one takes a few MB."""


@dataclass(frozen=True, slots=True, eq=False)
class ReadyGraph:
    """A planned and allocated graph, with the places of what the host writes and reads."""

    planned: PlannedGraph
    allocated: AllocatedGraph
    inputs: Mapping[InputKey, Tensor]
    input_places: Mapping[InputKey, Place]
    logits_backend_id: int
    logits_place: Place
    seen_logits: npt.NDArray[np.float32] | None
    """The logits where they are, if the host can read them there."""
    token_inputs: TokenInputs | None
    """What writes the inputs, for a graph of one token where that can be done so."""


def ready_graph(
    planned: PlannedGraph, allocated: AllocatedGraph, parts: Sequence[CacheCells]
) -> ReadyGraph:
    """The graph with the places of inputs and logits, looked up once and not for every token."""
    plan, inputs = planned.plan, planned.built.inputs
    node_id = plan.graph.nodes.index(planned.built.logits)
    places = {key: allocated.place_of(tensor) for key, tensor in inputs.items()}
    logits_place = allocated.place_of(plan.run.nodes[node_id])
    is_token = plan.shape.n_tokens == 1
    return ReadyGraph(
        planned,
        allocated,
        inputs,
        places,
        logits_backend_id=plan.trace.final.backend_ids[len(plan.graph.leafs) + node_id],
        logits_place=logits_place,
        seen_logits=_seen(logits_place, planned.built.logits.n_elems),
        token_inputs=TokenInputs.of(inputs, places, parts) if is_token else None,
    )


def _seen(place: Place, n_elems: int) -> npt.NDArray[np.float32] | None:
    host = place.buffer.host
    if host is None or not host.flags.c_contiguous:  # On paper every byte is the same one.
        return None
    return host[place.offset :][: 4 * n_elems].view(np.float32)


class ReadyGraphs:
    """The graphs used last, by shape, op_offload and pipeline slot.

    One thread uses it: the engine's.
    """

    def __init__(self) -> None:
        self._graphs: OrderedDict[tuple[BatchShape, bool, int], ReadyGraph] = OrderedDict()

    def get(self, shape: BatchShape, *, op_offload: bool, copy_slot: int) -> ReadyGraph | None:
        """The graph of such batches, if it is still there."""
        key = (shape, op_offload, copy_slot)
        if key in self._graphs:
            self._graphs.move_to_end(key)
        return self._graphs.get(key)

    def put(self, graph: ReadyGraph) -> None:
        """Keep a graph; the one that was not used for longest may go."""
        plan = graph.planned.plan
        key = (plan.shape, plan.op_offload, plan.copy_slot)
        self._graphs[key] = graph
        self._graphs.move_to_end(key)
        while len(self._graphs) > MOST_KEPT * plan.n_copies:
            self._graphs.popitem(last=False)

    def clear(self) -> None:
        """Forget all."""
        self._graphs.clear()
