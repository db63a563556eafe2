"""The names that an exported trace needs beside its spans."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.core.options import OPTION_SPECS, Options
from engine.trace.export.meta import CopyMeta, LaneMeta, NodeMeta, PlanMeta, SplitMeta, TraceMeta

if TYPE_CHECKING:
    from collections.abc import Mapping

    from engine.core.table import DeviceRow, PlanTable


def trace_meta(plans: Mapping[int, PlanTable], options: Options, model: str) -> TraceMeta:
    """The names that spans refer to by number, for an export."""
    first = next(iter(plans.values()), None)
    lanes = () if first is None else first.devices
    return TraceMeta(
        lanes=tuple(_lane_meta(lane) for lane in lanes),
        plans={plan_id: _plan_meta(plan) for plan_id, plan in plans.items()},
        command=" ".join([model, *options.command_args()]),
        options=tuple((spec.flags[0], str(getattr(options, spec.field))) for spec in OPTION_SPECS),
    )


def _lane_meta(row: DeviceRow) -> LaneMeta:
    members = tuple(_lane_meta(member) for member in row.members)
    return LaneMeta(row.name, row.description, row.type.value, members)


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
                producer=plan.producer(i),
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
