"""Values of every node of a real run, each read right after it was computed.

The graph is computed in pieces of one node, as the recordings were made: a view of a cache shows
what was there before the batch wrote into it.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from engine.core.options import FlashAttn
from engine.core.quants import dequantize
from engine.core.types import TensorType
from engine.session import Session
from engine.trace.records import StepKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from engine.core.options import Options
    from engine.core.tensor import Tensor
    from engine.model.context import ModelContext

NUMPY_TYPES = {
    TensorType.F32: np.float32,
    TensorType.F16: np.float16,
    TensorType.I32: np.int32,
    TensorType.I64: np.int64,
}


@dataclass(frozen=True)
class NodeValue:
    """A node of ours and what it computed, float32, shape (ne3, ne2, ne1, ne0)."""

    node_id: int
    tensor: Tensor
    values: np.ndarray


@contextmanager
def loaded(model: Path, options: Options) -> Iterator[ModelContext]:
    """The model on its devices, with empty caches."""
    session = Session()
    try:
        session.open(str(model))
        session.options = options
        yield session.prepare()
    finally:
        session.close()


def run_nodes(
    model: Path,
    tokens: list[int],
    options: Options,
    *,
    flash_attn: bool,
    given: Sequence[NodeValue] = (),
) -> list[NodeValue]:
    """Compute `tokens` in one batch and give every node's values, views too.

    `given` (optional) are the nodes of another run: each node is computed from these.
    """
    wish = FlashAttn.ON if flash_attn else FlashAttn.OFF
    with loaded(model, replace(options, n_ctx=512, flash_attn=wish)) as context:
        found: list[NodeValue] = []

        def on_node(node: NodeValue) -> None:
            found.append(node)
            tensor = node.tensor
            if given and tensor.view_src is None and tensor.type is TensorType.F32:
                overwrite(context, node.node_id, tensor, given[node.node_id].values)

        watch_nodes(context, on_node)
        context.decode(tokens, StepKind.PROMPT)
    return found


def watch_nodes(context: ModelContext, on_node: Callable[[NodeValue], None]) -> None:
    """Show each node of what is computed from now on, before the next one is computed."""

    def callback(node_id: int, ask: bool) -> bool:
        if not ask:
            tensor = context.last_plan.run.nodes[node_id]
            on_node(NodeValue(node_id, tensor, floats(tensor, context.node_values(node_id))))
        return True

    context.watch(callback)


def floats(tensor: Tensor, raw: np.ndarray) -> np.ndarray:
    """Bytes of a tensor as float32, strides followed."""
    if tensor.type not in NUMPY_TYPES:
        return dequantize(tensor.type, raw, tensor.n_elems).reshape(tensor.ne[::-1])
    return strided(tensor, raw).astype(np.float32)


def overwrite(context: ModelContext, node_id: int, tensor: Tensor, values: np.ndarray) -> None:
    """Let later nodes see `values` in place of what the node computed."""
    raw = context.node_values(node_id)
    strided(tensor, raw)[...] = values.reshape(tensor.ne[::-1])
    context.set_node_values(node_id, raw)


def strided(tensor: Tensor, raw: np.ndarray) -> np.ndarray:
    """Bytes as the elements of a tensor, numpy's order of dimensions."""
    return np.ndarray(tensor.ne[::-1], NUMPY_TYPES[tensor.type], raw.data, strides=tensor.nb[::-1])


def nmse(ours: np.ndarray, theirs: np.ndarray) -> float:
    """Mean squared error over the mean square of the recorded values."""
    ours, theirs = ours.astype(np.float64), theirs.astype(np.float64)
    error, power = float(((ours - theirs) ** 2).sum()), float((theirs**2).sum())
    return error / power if power else error
