"""TraceMeta: the names that spans refer to by number."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from engine.trace.records import placed_lanes

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class LaneMeta:
    """A lane: the backend's name, the device for people, its kind ("CPU", "GPU", ...).

    `members` are the devices that a META device joins, each with a lane of its own.
    """

    name: str
    description: str = ""
    kind: str = ""
    members: tuple[LaneMeta, ...] = ()


@dataclass(frozen=True, slots=True)
class SplitMeta:
    """A split by its id: a name for people such as "ffn_up-8 +1", and how many nodes it has."""

    name: str
    n_nodes: int = 0


@dataclass(frozen=True, slots=True)
class CopyMeta:
    """An input copy by its id: the tensor, the split it feeds, the split that made the tensor.

    `producer` is None for weights and for what the caller wrote. `n_bytes` is all of it; of a
    weight whose used experts alone are copied `n_experts` are there, else 0.
    """

    name: str
    consumer: int
    producer: int | None = None
    n_bytes: int = 0
    n_experts: int = 0


@dataclass(frozen=True, slots=True)
class NodeMeta:
    """A node by its id; `cause` is the tag of the rule that placed it."""

    name: str
    op: str = ""
    split: int | None = None
    cause: str = ""


@dataclass(frozen=True, slots=True)
class PlanMeta:
    """The tables of one plan, each in the order of its ids."""

    splits: tuple[SplitMeta, ...] = ()
    copies: tuple[CopyMeta, ...] = ()
    nodes: tuple[NodeMeta, ...] = ()


@dataclass(frozen=True, slots=True)
class TraceMeta:
    """Everything a trace says besides times. Lanes stand in backend_id order.

    `command` reproduces the run, `options` are (name, value) as a person types them. Spans of
    lanes or plans that are missing here are written with their numbers. `is_predicted`: the times
    are virtual, of a run on paper; whoever opens the file is told so.
    """

    lanes: tuple[LaneMeta, ...] = ()
    plans: Mapping[int, PlanMeta] = field(default_factory=dict)
    command: str = ""
    options: tuple[tuple[str, str], ...] = ()
    is_predicted: bool = False

    def lane(self, lane: int) -> LaneMeta:
        """The lane, or one that is named by its number."""
        return self.known_lanes().get(lane) or LaneMeta(f"lane {lane}")

    def known_lanes(self) -> dict[int, LaneMeta]:
        """Every lane that has a name, in display order: members stand behind what joins them."""
        return {placed.lane: placed.device for placed in placed_lanes(self.lanes)}

    def split(self, plan_id: int, split_id: int) -> SplitMeta:
        """The split, or one that is named by its number."""
        plan = self.plans.get(plan_id)
        if plan is None or split_id >= len(plan.splits):
            return SplitMeta(f"split {split_id}")
        return plan.splits[split_id]

    def copy(self, plan_id: int, copy_id: int) -> CopyMeta | None:
        """The copy, None when it is unknown."""
        plan = self.plans.get(plan_id)
        return plan.copies[copy_id] if plan and copy_id < len(plan.copies) else None

    def node(self, plan_id: int, node_id: int) -> NodeMeta:
        """The node, or one that is named by its number."""
        plan = self.plans.get(plan_id)
        if plan is None or node_id >= len(plan.nodes):
            return NodeMeta(f"node {node_id}")
        return plan.nodes[node_id]
