"""Whether members can share a plan, found out before anything is loaded. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.backends.meta.spread import Exchange, spread
from engine.errors import PlacementError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from engine.core.devices import DeviceFacts
    from engine.core.plan import Plan
    from engine.core.shards import Shard
    from engine.core.tensor import Tensor


def check_shared(
    plan: Plan,
    joined: DeviceFacts,
    shards: Mapping[Tensor, Shard],
    *,
    read_outside: Callable[[int], Collection[Tensor]],
) -> int:
    """Bytes of each member's memory that exchanges go through while the plan is computed.

    `read_outside` gives the nodes of a split that another one reads.

    Raises: PlacementError for a node of the plan that the members of `joined` cannot share: it
    needs whole what is divided, or a member has no kernel for its part.
    """
    n_bytes = 0
    for split in plan.trace.cut.splits:
        if plan.backends[split.backend_id].device.name != joined.name:
            continue
        nodes = plan.run.nodes[split.start : split.stop]
        made = spread(nodes, len(joined.members), shards, read_outside=read_outside(split.id))
        n_bytes = max(n_bytes, made.scratch_bytes)
        for step in made.steps:
            if isinstance(step, Exchange):
                continue
            for member, own in zip(joined.members, step.nodes, strict=True):
                _check_kernels(member, own)
    return n_bytes


def _check_kernels(member: DeviceFacts, nodes: Sequence[Tensor]) -> None:
    for node in nodes:
        if not member.rules.supports_op(node):
            raise PlacementError(
                f"{member.name} cannot compute its part of {node.name}.",
                f"It has no kernel for {node.op_desc} of shape {list(node.ne)} with these sources.",
                "Choose other shares (-ts), other devices (-dev), or -sm layer.",
            )
