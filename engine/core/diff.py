"""What a change of options changed, plan against plan. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.core.plan import Batch, MemoryKind, NodeKey

if TYPE_CHECKING:
    from engine.core.table import PlanSetTable, PlanTable


@dataclass(frozen=True, slots=True)
class MovedNode:
    """A node on another device than before; ids are those of the two plans."""

    key: NodeKey
    was_node_id: int
    now_node_id: int
    was_device: str
    now_device: str
    was_tag: str
    now_tag: str


@dataclass(frozen=True, slots=True)
class PlanDiff:
    """Two plans of one batch: `*_was` and `*_now` are totals, `moved` the nodes that moved."""

    batch: Batch
    splits_was: int
    splits_now: int
    copies_was: int
    copies_now: int
    copied_bytes_was: int
    copied_bytes_now: int
    nodes_was: dict[str, int]
    nodes_now: dict[str, int]
    moved: tuple[MovedNode, ...]

    @property
    def is_empty(self) -> bool:
        """Whether nothing changed that a plan shows."""
        return (
            not self.moved
            and self.splits_was == self.splits_now
            and self.copies_was == self.copies_now
            and self.copied_bytes_was == self.copied_bytes_now
        )


@dataclass(frozen=True, slots=True)
class MemoryDiff:
    """Bytes of one kind on one device, before and after."""

    device: str
    kind: MemoryKind
    was_bytes: int
    now_bytes: int


@dataclass(frozen=True, slots=True)
class SetDiff:
    """Both batches and the memory."""

    prompt: PlanDiff
    token: PlanDiff
    memory: tuple[MemoryDiff, ...]

    def plan(self, batch: Batch) -> PlanDiff:
        """One of the two."""
        return self.prompt if batch is Batch.PROMPT else self.token


def diff_sets(was: PlanSetTable, now: PlanSetTable) -> SetDiff:
    """What changed between two plan sets of one model."""
    return SetDiff(
        diff_plans(was.prompt, now.prompt),
        diff_plans(was.token, now.token),
        _diff_memory(was, now),
    )


def diff_plans(was: PlanTable, now: PlanTable) -> PlanDiff:
    """What changed between two plans of one graph."""
    return PlanDiff(
        batch=now.batch,
        splits_was=len(was.splits),
        splits_now=len(now.splits),
        copies_was=len(was.copies),
        copies_now=len(now.copies),
        copied_bytes_was=was.copied_bytes,
        copied_bytes_now=now.copied_bytes,
        nodes_was=_counts(was),
        nodes_now=_counts(now),
        moved=_moved(was, now),
    )


def _counts(table: PlanTable) -> dict[str, int]:
    names = [device.name for device in table.devices]
    return dict(zip(names, table.nodes_per_device(), strict=True))


def _moved(was: PlanTable, now: PlanTable) -> tuple[MovedNode, ...]:
    before = was.node_ids()
    moved = []
    for key, now_id in now.node_ids().items():
        was_id = before.get(key)
        if was_id is None:
            continue
        was_slot, now_slot = was.slot(was_id), now.slot(now_id)
        was_device = was.devices[int(was.backend[was_slot])].name
        now_device = now.devices[int(now.backend[now_slot])].name
        if was_device != now_device:
            moved.append(
                MovedNode(
                    key, was_id, now_id, was_device, now_device,
                    was.tag(was_slot), now.tag(now_slot),
                )
            )  # fmt: skip
    return tuple(moved)


def _diff_memory(was: PlanSetTable, now: PlanSetTable) -> tuple[MemoryDiff, ...]:
    before = _by_kind(was)
    after = _by_kind(now)
    keys = list(dict.fromkeys((*before, *after)))
    return tuple(
        MemoryDiff(device, kind, before.get((device, kind), 0), after.get((device, kind), 0))
        for device, kind in keys
    )


def _by_kind(plans: PlanSetTable) -> dict[tuple[str, MemoryKind], int]:
    totals: dict[tuple[str, MemoryKind], int] = {}
    for row in plans.memory.rows:
        key = (row.device, row.kind)
        totals[key] = totals.get(key, 0) + row.n_bytes
    return totals
