"""Plans for programs."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from engine.cli.fits import fits_data
from engine.core.plan import MemoryKind

if TYPE_CHECKING:
    from engine.core.plan import Batch
    from engine.core.table import PlanSetTable, PlanTable


def plan_data(plans: PlanSetTable, batch: Batch) -> dict[str, Any]:
    """One plan: its shape, nodes, splits; of both, memory and where it fits, pipeline, devices.

    `pipeline_obstacle` is empty where there is a pipeline of `n_copies` prompt graphs.
    """
    table = plans.plan(batch)
    return {
        "n_tokens": table.shape.n_tokens,
        "n_kv": table.shape.n_kv,
        "n_outputs": table.shape.n_outputs,
        "flash_attn": plans.flash_attn,
        "nodes": [_node_data(table, node_id) for node_id in range(table.n_nodes)],
        "splits": splits_data(table),
        "memory": memory_data(plans),
        "shares": shares_data(plans),
        "fits": fits_data(plans),
        "n_copies": plans.n_copies,
        "pipeline_obstacle": plans.pipeline_obstacle,
        "devices": [use._asdict() for use in plans.device_uses],
    }


def _node_data(table: PlanTable, node_id: int) -> dict[str, Any]:
    slot = table.slot(node_id)
    return {
        "id": node_id,
        "op": table.op[slot],
        "name": table.name[slot],
        "ne": [int(n) for n in table.ne[slot]],
        "type": table.type_label(slot),
        "backend": table.devices[int(table.backend[slot])].stream,
        "cause": table.tag(slot),
        "pass": table.cause(slot).kind.step,
        "split": int(table.split[node_id]),
    }


def splits_data(table: PlanTable) -> list[dict[str, Any]]:
    """The splits with their inputs."""
    return [
        {
            "id": split_id,
            "backend": table.devices[int(row["backend"])].stream,
            "start": int(row["start"]),
            "stop": int(row["stop"]),
            "reason": table.split_reason(split_id).name.lower(),
            "inputs": [
                {"name": table.copy_name(copy_id), "bytes": int(table.copies[copy_id]["bytes"])}
                for copy_id in range(row["first_copy"], row["first_copy"] + row["n_copies"])
            ],
        }
        for split_id, row in enumerate(table.splits)
    ]


def shares_data(plans: PlanSetTable) -> list[dict[str, Any]]:
    """What each of several joined devices holds of weights and caches; empty without -sm tensor."""
    return [
        {
            "device": share.device,
            "asked": round(share.asked, 6),
            "achieved": round(share.achieved, 6),
            "bytes": share.n_bytes,
            "bytes_on_each": share.whole_bytes,
            "result_bytes": share.results_bytes,
        }
        for share in plans.memory.shares
    ]


def memory_data(plans: PlanSetTable) -> dict[str, dict[str, int]]:
    """Bytes by buffer type and kind; two devices' own types of one name are told apart by device.

    Host memory is one, whichever device pinned it.
    """
    rows = plans.memory.rows
    owners = {(row.buft.name, row.device) for row in rows if not row.buft.is_host}
    n_owners = Counter(name for name, _ in owners)
    by_type: dict[str, dict[str, int]] = {}
    for row in rows:
        name = row.buft.name
        label = f"{name} ({row.device})" if n_owners[name] > 1 else name
        kinds = by_type.setdefault(label, {kind.value: 0 for kind in MemoryKind})
        kinds[row.kind.value] += row.n_bytes
    return by_type
