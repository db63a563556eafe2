"""The names that an exported trace needs beside its spans."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.core.options import OPTION_SPECS, Options
from engine.trace.export.meta import CopyMeta, LaneMeta, NodeMeta, PlanMeta, SplitMeta, TraceMeta

if TYPE_CHECKING:
    from collections.abc import Mapping

    from engine.core.table import PlanTable


def trace_meta(plans: Mapping[int, PlanTable], options: Options, model: str) -> TraceMeta:
    """The names that spans refer to by number, for an export."""
    first = next(iter(plans.values()), None)
    lanes = () if first is None else first.devices
    return TraceMeta(
        lanes=tuple(LaneMeta(lane.name, lane.description, lane.type.value) for lane in lanes),
        plans={plan_id: _plan_meta(plan) for plan_id, plan in plans.items()},
        command=" ".join([model, *options.command_args()]),
        options=tuple((spec.flags[0], str(getattr(options, spec.field))) for spec in OPTION_SPECS),
    )


def _plan_meta(plan: PlanTable) -> PlanMeta:
    return PlanMeta(
        splits=tuple(
            SplitMeta(plan.split_name(i), int(row["stop"] - row["start"]))
            for i, row in enumerate(plan.splits)
        ),
        copies=tuple(
            CopyMeta(
                name=plan.copy_name(i),
                consumer=int(row["split"]),
                producer=_producer(plan, int(row["slot"])),
                n_bytes=int(row["bytes"]),
                n_experts=int(row["n_experts"]),
            )
            for i, row in enumerate(plan.copies)
        ),
        nodes=tuple(
            NodeMeta(
                plan.name[plan.slot(i)],
                plan.op[plan.slot(i)],
                int(plan.split[i]),
                plan.tag(plan.slot(i)),
            )
            for i in range(plan.n_nodes)
        ),
    )


def _producer(plan: PlanTable, slot: int) -> int | None:
    """The split that computed a tensor; None for weights and inputs.

    A view counts as what it views: it may stand in the very split that its bytes are copied for.
    """
    while plan.is_view_op[slot]:
        slot = plan.sources(slot)[0]
    node_id = slot - plan.n_leafs
    return int(plan.split[node_id]) if node_id >= 0 else None
