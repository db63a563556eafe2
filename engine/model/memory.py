"""The ledger: what weights, cache, output and compute buffers take. Source: SCHED.md 8, 9.3."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from engine.backend.alloc import grown
from engine.core.plan import MemoryKind, MemoryLedger, MemoryRow
from engine.core.rows import row_bytes_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine.core.devices import BufferTypeFacts, DeviceFacts
    from engine.core.shards import MemberShare
    from engine.model.planned_model import PlannedModel
    from engine.model.weights import WeightBuffer

LOGIT_BYTES = 4

Chunks = tuple[tuple[int, ...], ...]
"""Bytes of each chunk of each backend's compute buffer."""


def ledger(
    model: PlannedModel, reserved: Sequence[Chunks], *, exchange_bytes: int = 0
) -> MemoryLedger:
    """What the model needs; `reserved` is what its worst cases need, in order of reservation.

    Each member of a joined device needs `exchange_bytes` more.
    """
    rows = [row for buffer in model.weights.buffers for row in _weight_rows(model, buffer)]
    rows.append(_output_row(model))
    rows.extend(
        _row(model, buffer.buft, buffer.device, MemoryKind.KV, buffer.n_bytes)
        for buffer in model.cache.buffers
    )
    rows.extend(
        _row(model, buffer.buft, buffer.device, MemoryKind.STATE, buffer.n_bytes)
        for buffer in model.state.buffers
    )
    rows.extend(_compute_rows(model, reserved))
    return MemoryLedger(tuple(rows), _member_shares(model, rows, exchange_bytes))


def _member_shares(
    model: PlannedModel, rows: Sequence[MemoryRow], exchange_bytes: int
) -> tuple[MemberShare, ...]:
    """What members of a joined device hold; each has room for whole results and the exchange."""
    joined = model.joined
    if joined is None:
        return ()
    results = sum(
        row.n_bytes for row in rows if row.kind is MemoryKind.COMPUTE and row.device == joined.name
    )
    n_bytes = results + exchange_bytes
    return tuple(replace(share, results_bytes=n_bytes) for share in model.member_shares)


def _weight_rows(model: PlannedModel, buffer: WeightBuffer) -> list[MemoryRow]:
    """One row; of split memory one a device, for the matrix rows that it holds."""
    kind = MemoryKind.MODEL
    if buffer.buft.row_shares is None:
        return [_row(model, buffer.buft, buffer.device, kind, buffer.n_bytes)]
    held = row_bytes_of([weight.tensor for weight in buffer.weights], buffer.buft)
    return [MemoryRow(buffer.buft, device, kind, n_bytes) for device, n_bytes in held.items()]


def _row(
    model: PlannedModel, buft: BufferTypeFacts, device: DeviceFacts, kind: MemoryKind, n_bytes: int
) -> MemoryRow:
    """Host memory is the computer's, also where a GPU pinned it or an accelerator works in it."""
    owner = model.placement.cpu if buft.is_host else device
    return MemoryRow(buft, owner.name, kind, n_bytes)


def _output_row(model: PlannedModel) -> MemoryRow:
    """Logits of one row: one sequence, one output at a time (SCHED.md 8.5).

    Where embeddings are wanted there is room for those and the logits of every text.
    """
    placement = model.placement
    buft = placement.layer_devices[-1].host_buft or placement.cpu.buft
    hparams = model.facts.hparams
    n_values = hparams.n_vocab
    if model.pooling is not None:
        n_values = (hparams.n_vocab + hparams.n_embd) * model.n_texts
    n_bytes = n_values * LOGIT_BYTES
    return _row(model, buft, placement.cpu, MemoryKind.OUTPUT, n_bytes)


def _compute_rows(model: PlannedModel, reserved: Sequence[Chunks]) -> list[MemoryRow]:
    """The buffers after each graph was reserved; backends in one memory share the first's."""
    bufts = [view.buft for view in model.backends]
    sizes: list[tuple[int, ...]] = [()] * len(bufts)
    for needed in reserved:
        sizes = [grown(have, need) for have, need in zip(sizes, needed, strict=True)]
    rows = []
    for backend_id, view in enumerate(model.backends):
        n_bytes = 0 if view.buft in bufts[:backend_id] else sum(sizes[backend_id])
        if n_bytes:
            rows.append(_row(model, view.buft, view.device, MemoryKind.COMPUTE, n_bytes))
    return rows
