"""Values of every node of a real run, kept because nothing may take a node's memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from engine.core.options import FlashAttn, Options
from engine.core.quants import dequantize
from engine.core.tensor import Flag, Tensor
from engine.core.types import TensorType
from engine.session import Session
from engine.trace.records import StepKind

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@dataclass(frozen=True)
class NodeValue:
    """A node of ours and what it computed, float32, shape (ne3, ne2, ne1, ne0)."""

    node_id: int
    tensor: Tensor
    values: np.ndarray


def run_nodes(
    model: Path, tokens: list[int], *, devices: tuple[str, ...], flash_attn: bool, ngl: int = -1
) -> Iterator[NodeValue]:
    """Compute `tokens` in one batch and give every node's values, views too."""
    session = Session()
    session.open(str(model))
    session.options = Options(
        devices=devices, n_gpu_layers=ngl, n_ctx=512,
        flash_attn=FlashAttn.ON if flash_attn else FlashAttn.OFF,
    )  # fmt: skip
    context = session.prepare()
    keep_all_nodes(context.planner)
    # The reserved places would fit this graph too, and they use memory again.
    assert context._scheduler is not None
    context._scheduler._record = None
    context.decode(tokens, StepKind.PROMPT)
    assert context._ready is not None
    plan = context._ready.planned.plan
    for node_id, tensor in enumerate(plan.run.nodes):
        yield NodeValue(node_id, tensor, read(context, node_id, tensor))
    session.close()


def keep_all_nodes(planner) -> None:
    """Make every node an output, so that the allocator frees none of them."""
    plan_of = planner.plan

    def plan(batch, shape):
        planned = plan_of(batch, shape)
        for node in planned.plan.run.nodes:
            node.flags |= Flag.OUTPUT
        return planned

    planner.plan = plan


def read(context, node_id: int, tensor: Tensor) -> np.ndarray:
    """A node's values as float32, strides followed."""
    raw = context.node_values(node_id)
    kinds = {TensorType.F32: np.float32, TensorType.F16: np.float16, TensorType.I32: np.int32}
    if tensor.type not in kinds:
        flat = dequantize(tensor.type, raw, tensor.n_elems)
        return flat.reshape(tensor.ne[::-1])
    view = np.ndarray(tensor.ne[::-1], kinds[tensor.type], raw.data, strides=tensor.nb[::-1])
    return view.astype(np.float32)


def nmse(ours: np.ndarray, theirs: np.ndarray) -> float:
    """Mean squared error over the mean square of the recorded values."""
    ours, theirs = ours.astype(np.float64), theirs.astype(np.float64)
    error, power = float(((ours - theirs) ** 2).sum()), float((theirs**2).sum())
    return error / power if power else error
