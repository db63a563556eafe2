"""Whether members can share a plan, found out before anything is loaded. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.backends.meta.spread import Exchange, spread
from engine.errors import PlacementError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from engine.core.devices import DeviceFacts
    from engine.core.plan import Plan
    from engine.core.shards import Shard
    from engine.core.tensor import Tensor


def check_shared(plan: Plan, joined: DeviceFacts, shards: Mapping[Tensor, Shard]) -> None:
    """PlacementError for a node of the plan that the members of `joined` cannot share.

    Either it needs whole what is divided, or a member has no kernel for its part.
    """
    for split in plan.trace.cut.splits:
        if plan.backends[split.backend_id].device.name != joined.name:
            continue
        nodes = plan.run.nodes[split.start : split.stop]
        made = spread(nodes, len(joined.members), shards, read_outside=())
        for step in made.steps:
            if isinstance(step, Exchange):
                continue
            for member, own in zip(joined.members, step.nodes, strict=True):
                _check_kernels(member, own)


def _check_kernels(member: DeviceFacts, nodes: Sequence[Tensor]) -> None:
    for node in nodes:
        if not member.rules.supports_op(node):
            raise PlacementError(
                f"{member.name} cannot compute its part of {node.name}.",
                f"It has no kernel for {node.op_desc} of shape {list(node.ne)} with these sources.",
                "Choose other shares (-ts), other devices (-dev), or -sm layer.",
            )
