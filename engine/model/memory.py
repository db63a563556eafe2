"""The ledger: bytes by buffer type and kind, in the order llama.cpp prints them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.backend.alloc import grown, plan_allocation
from engine.core.plan import MemoryKind, MemoryLedger, MemoryRow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine.core.devices import BackendView
    from engine.core.plan import Plan
    from engine.model.hparams import Hparams
    from engine.model.kv_cache import KvCache
    from engine.model.placement import ModelPlacement
    from engine.model.weights import WeightSet

LOGIT_BYTES = 4


def ledger(
    hparams: Hparams,
    placement: ModelPlacement,
    weights: WeightSet,
    cache: KvCache,
    backends: Sequence[BackendView],
    reserved: Sequence[Plan],
) -> MemoryLedger:
    """What weights, cache, output and compute buffers take; `reserved` are the worst cases."""
    rows = [
        MemoryRow(buffer.buft, buffer.device.name, MemoryKind.MODEL, buffer.n_bytes)
        for buffer in weights.buffers
    ]
    rows.append(_output_row(hparams, placement))
    rows.extend(
        MemoryRow(buffer.buft, buffer.device.name, MemoryKind.KV, buffer.n_bytes)
        for buffer in cache.buffers
    )
    rows.extend(_compute_rows(backends, reserved))
    return MemoryLedger(tuple(rows))


def _output_row(hparams: Hparams, placement: ModelPlacement) -> MemoryRow:
    """Logits of one row: one sequence, one output at a time (SCHED.md 8.5)."""
    device = placement.layer_devices[-1]
    buft = device.host_buft or placement.cpu.buft
    n_bytes = hparams.n_vocab * LOGIT_BYTES
    return MemoryRow(buft, placement.cpu.name, MemoryKind.OUTPUT, n_bytes)


def _compute_rows(backends: Sequence[BackendView], reserved: Sequence[Plan]) -> list[MemoryRow]:
    bufts = [view.buft for view in backends]
    sizes: list[tuple[int, ...]] = [()] * len(bufts)
    for plan in reserved:
        needed = plan_allocation(plan.run.alloc, bufts).chunk_bytes
        sizes = [grown(have, need) for have, need in zip(sizes, needed, strict=True)]
    rows = []
    for backend_id, view in enumerate(backends):
        n_bytes = 0 if view.buft in bufts[:backend_id] else sum(sizes[backend_id])
        if n_bytes:
            rows.append(MemoryRow(view.buft, view.device.name, MemoryKind.COMPUTE, n_bytes))
    return rows
