"""Which results of a split are read by other splits, be it in place or through a copy."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.core.plan import Plan
    from engine.core.tensor import Tensor


class CrossReads:
    """The reads across the borders of a plan's splits; worked out when first asked for."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def of(self, split_id: int) -> frozenset[Tensor]:
        """The nodes of a split that another one reads."""
        return self._by_split[split_id]

    @cached_property
    def _by_split(self) -> tuple[frozenset[Tensor], ...]:
        plan = self._plan
        nodes, splits = plan.run.nodes, plan.trace.cut.splits
        split_of = {node: split.id for split in splits for node in nodes[split.start : split.stop]}
        read: list[set[Tensor]] = [set() for _ in splits]
        for node, split_id in split_of.items():
            for source in node.src:
                owner = split_of.get(source, split_id)
                if owner != split_id:
                    read[owner].add(source)
        first_node = len(plan.graph.leafs)
        for copy in plan.trace.cut.copies:
            if copy.slot >= first_node:
                source = nodes[copy.slot - first_node]
                read[split_of[source]].add(source)
        return tuple(frozenset(each) for each in read)
