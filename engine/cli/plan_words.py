"""Plans for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.cli.fits import is_over
from engine.cli.output import counted, kib, mib, print_table
from engine.cli.plan_data import memory_data
from engine.cli.together_words import pipeline_words
from engine.core.devices import DeviceType
from engine.core.memory_pool import memory_pool
from engine.core.placement import SplitReason
from engine.core.plan import Batch, DeviceRole, MemoryKind
from engine.model.kv_cache import PAD_CELLS

if TYPE_CHECKING:
    from engine.core.table import PlanSetTable, PlanTable

REASONS = {
    SplitReason.FIRST: "first",
    SplitReason.BACKEND_CHANGED: "other device",
    SplitReason.WEIGHT_ELSEWHERE: "another weight",
    SplitReason.TOO_MANY_INPUTS: "too many inputs",
}


def print_headline(
    plans: PlanSetTable,
    batch: Batch = Batch.PROMPT,
    fitting_layers: int | None = None,
    *,
    makes_tokens: bool = True,
) -> None:
    """How many nodes where, splits, bytes copied, whether it fits, and for what batch."""
    table = plans.plan(batch)
    where = ", ".join(
        f"{count} on {device.name}"
        for device, count in zip(table.devices, table.nodes_per_device(), strict=True)
        if count
    )
    nodes = f"{table.n_nodes} nodes: {where}" if where else "no node is planned"
    print(f"{nodes} · {_cut_words(plans, batch, makes_tokens=makes_tokens)}")
    print_fits(plans, fitting_layers)
    shape = table.shape
    # An encoder keeps nothing of a text: it has no cells.
    context = f" at full context ({shape.n_kv} cells)" if makes_tokens else " at once"
    print(
        f"planned for {counted(shape.n_tokens, 'token')}{context}, "
        f"flash attention {'on' if plans.flash_attn else 'off'}"
    )
    asked = plans.options.n_ctx
    if asked and asked != plans.n_ctx:
        print(f"context {plans.n_ctx} ({asked} asked, padded to blocks of {PAD_CELLS})")
    for device in table.devices:
        if "on paper" in device.description or device.members:
            print(f"{device.name}: {device.description}")


def print_devices(plans: PlanSetTable) -> None:
    """Whether devices work as a pipeline, or why not, and which of them are left out, and why."""
    print(pipeline_words(plans.n_copies, plans.pipeline_obstacle))
    for use in plans.device_uses:
        if use.role is DeviceRole.LEFT_OUT:
            print(f"{use.device} is left out: {use.reason}")


def _cut_words(plans: PlanSetTable, batch: Batch, *, makes_tokens: bool) -> str:
    """Splits of both batches and what is copied for one; an encoder has one kind of batch."""
    prompt, token = (counted(len(p.splits), "split") for p in (plans.prompt, plans.token))
    copied = f"{mib(plans.plan(batch).copied_bytes)} MiB copied per"
    if not makes_tokens:
        return f"{prompt if batch is Batch.PROMPT else token} · {copied} batch"
    per_batch = "prompt batch" if batch is Batch.PROMPT else "token"
    return f"{prompt} for the prompt, {len(plans.token.splits)} for a token · {copied} {per_batch}"


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
    """The ledger."""
    data = memory_data(plans)
    has_state = any(row[MemoryKind.STATE.value] for row in data.values())
    kinds = [kind.value for kind in MemoryKind if has_state or kind is not MemoryKind.STATE]
    print_table(
        ("buffer type", *kinds, "sum MiB"),
        [
            (name, *(mib(row[kind]) for kind in kinds), mib(sum(row.values())))
            for name, row in data.items()
        ],
    )
    print_shares(plans)


def mapped_lines(plans: PlanSetTable) -> list[str]:
    """How the bytes of a mapped file are counted, and which of them a run gives back."""
    weights = [row for row in plans.memory.rows if row.kind is MemoryKind.MODEL]
    mapped = [row for row in weights if row.is_mapped]
    copied = [row for row in weights if not row.is_mapped]
    names = " and ".join(row.buft.name for row in mapped)
    lines = []
    if len(mapped) > 1:
        lines.append(f"{names}: parts of the file that both count are in memory once.")
    if mapped and copied:
        what = " and ".join(row.buft.name for row in copied)
        most = mib(sum(row.n_bytes for row in copied))
        lines.append(
            f"What {what} holds is copied from the file, whose pages are then let go where they "
            f"hold nothing else: up to {most} MiB of {names}."
        )
    return lines


def print_shares(plans: PlanSetTable) -> None:
    """What each of several joined devices holds, against what was asked for."""
    shares = plans.memory.shares
    if not shares:
        return
    print("weights and caches of each device; what cannot be divided, and results, are on all;")
    print("with the results counts what they exchange")
    print_table(
        ("device", "asked", "has", "MiB", "of these on each", "results MiB"),
        [
            (
                share.device,
                f"{share.asked:.1%}",
                f"{share.achieved:.1%}",
                mib(share.n_bytes),
                mib(share.whole_bytes),
                mib(share.results_bytes),
            )
            for share in shares
        ],
    )


def unfit_lines(plans: PlanSetTable) -> list[str]:
    """Which devices the ledger does not fit, a sentence each."""
    lines = []
    for device in plans.prompt.devices:
        if is_over(plans, device) and device.type is not DeviceType.META:
            needed = plans.memory.total(device.name)
            lines.append(_unfit_line(device.name, needed, device.memory_free))
    lines += [
        _unfit_line(share.device, share.needed_bytes, share.free_bytes)
        for share in plans.memory.shares
        if share.is_over
    ]
    pool = memory_pool(plans.memory, plans.prompt.devices)
    if pool.is_over:
        lines.append(
            f"Does not fit: {', '.join(pool.devices)} work in the same memory, and need "
            f"{mib(pool.needed_bytes)} MiB of it together; it has {mib(pool.free_bytes)} free, "
            f"over by {mib(pool.needed_bytes - pool.free_bytes)} MiB."
        )
    return lines


def _unfit_line(device: str, needed: int, free: int) -> str:
    return (
        f"Does not fit: {device} needs {mib(needed)} MiB and has {mib(free)} free, over by "
        f"{mib(needed - free)} MiB."
    )


def print_fits(plans: PlanSetTable, fitting_layers: int | None = None) -> None:
    """Which devices the ledger does not fit, and what to try; nothing when all is well."""
    lines = unfit_lines(plans)
    if not lines:
        return
    print(*lines, sep="\n")
    smaller = "a shorter context (-c), a smaller batch (-ub) or fewer layers on the GPU (-ngl)"
    way_out = f"-ngl {fitting_layers} fits" if fitting_layers is not None else smaller
    print(f"Try: {way_out}.")
    if plans.options.n_gpu_layers < 0:
        print("-ngl auto takes every layer; unlike llama.cpp's, it is not fitted to the memory.")
