"""Keys and values of earlier tokens. Source: SCHED.md 8.4, ARCH.md 1.5."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.backend.alloc import aligned
from engine.core.devices import BufferFacts, BufferTypeFacts, BufferUsage, DeviceFacts
from engine.core.tensor import Tensor
from engine.core.types import TensorType

if TYPE_CHECKING:
    from engine.model.hparams import Hparams
    from engine.model.placement import ModelPlacement

PAD_CELLS = 256


@dataclass(frozen=True, slots=True, eq=False)
class CacheBuffer:
    """The cache tensors of one buffer type."""

    device: DeviceFacts
    buft: BufferTypeFacts
    tensors: tuple[Tensor, ...]
    n_bytes: int


@dataclass(frozen=True, slots=True, eq=False)
class KvCache:
    """One K and one V tensor a layer, f16 [n_embd_kv, n_cells]."""

    n_cells: int
    keys: tuple[Tensor, ...]
    values: tuple[Tensor, ...]
    buffers: tuple[CacheBuffer, ...]

    def n_kv(self, n_used: int) -> int:
        """Cells a graph looks at when `n_used` are taken."""
        return min(self.n_cells, max(PAD_CELLS, padded_cells(n_used)))


def padded_cells(n_cells: int) -> int:
    """Cells rounded up to the padding."""
    return aligned(n_cells, PAD_CELLS)


def plan_cache(hparams: Hparams, placement: ModelPlacement, n_ctx: int) -> KvCache:
    """Cache tensors on each layer's device; buffers in the order of their type's name."""
    n_cells = padded_cells(n_ctx)
    ne = (hparams.n_embd_kv, n_cells, 1, 1)
    facts: dict[BufferTypeFacts, BufferFacts] = {}
    members: dict[BufferTypeFacts, list[Tensor]] = {}
    owners: dict[BufferTypeFacts, DeviceFacts] = {}
    keys, values = [], []
    for il in range(hparams.n_layer):
        device = placement.layer_devices[il]
        home = facts.setdefault(device.buft, BufferFacts(device.buft, BufferUsage.ANY, "KV cache"))
        key = Tensor(TensorType.F16, ne, name=f"cache_k_l{il}", buffer=home)
        value = Tensor(TensorType.F16, ne, name=f"cache_v_l{il}", buffer=home)
        keys.append(key)
        values.append(value)
        members.setdefault(device.buft, []).extend((key, value))
        owners[device.buft] = device
    buffers = [
        CacheBuffer(
            owners[buft],
            buft,
            tuple(tensors),
            sum(aligned(buft.alloc_bytes(t), buft.alignment) for t in tensors),
        )
        for buft, tensors in sorted(members.items(), key=lambda item: item[0].name)
    ]
    return KvCache(n_cells, tuple(keys), tuple(values), tuple(buffers))
