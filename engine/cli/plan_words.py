"""Plans for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.cli.output import kib, mib, print_table
from engine.cli.plan_data import memory_data
from engine.core.placement import SplitReason
from engine.core.plan import MemoryKind

if TYPE_CHECKING:
    from engine.core.table import PlanSetTable, PlanTable

REASONS = {
    SplitReason.FIRST: "first",
    SplitReason.BACKEND_CHANGED: "other device",
    SplitReason.WEIGHT_ELSEWHERE: "another weight",
    SplitReason.TOO_MANY_INPUTS: "too many inputs",
}


def print_headline(plans: PlanSetTable) -> None:
    """How many nodes where, how many splits, how much is copied, and for what batch."""
    prompt, token, shape = plans.prompt, plans.token, plans.prompt.shape
    where = ", ".join(
        f"{count} on {device.name}"
        for device, count in zip(prompt.devices, prompt.nodes_per_device(), strict=True)
        if count
    )
    print(
        f"{prompt.n_nodes} nodes: {where} · {len(prompt.splits)} splits for the prompt, "
        f"{len(token.splits)} for a token · {mib(prompt.copied_bytes)} MiB copied per prompt batch"
    )
    print(
        f"planned for {shape.n_tokens} tokens at full context ({shape.n_kv} cells), "
        f"flash attention {'on' if plans.flash_attn else 'off'}"
    )
    for device in prompt.devices:
        if "on paper" in device.description:
            print(f"{device.name}: {device.description}")


def print_splits(table: PlanTable) -> None:
    """The split table."""
    print_table(
        ("#", "device", "first node", "nodes", "copies", "in KiB", "begins because"),
        [
            (
                str(split_id),
                table.devices[int(row["backend"])].name,
                table.split_name(split_id),
                str(int(row["stop"] - row["start"])),
                str(int(row["n_copies"])),
                kib(int(row["bytes"])),
                REASONS[table.split_reason(split_id)],
            )
            for split_id, row in enumerate(table.splits)
        ],
    )


def print_memory(plans: PlanSetTable) -> None:
    """The ledger, and which devices it does not fit."""
    kinds = [kind.value for kind in MemoryKind]
    print_table(
        ("buffer type", *kinds, "sum MiB"),
        [
            (name, *(mib(row[kind]) for kind in kinds), mib(sum(row.values())))
            for name, row in memory_data(plans).items()
        ],
    )
    for device in plans.prompt.devices:
        needed = plans.memory.total(device.name)
        if device.memory_free and needed > device.memory_free:
            over = mib(needed - device.memory_free)
            print(f"Does not fit: {device.name} needs {mib(needed)} MiB, over by {over} MiB.")
