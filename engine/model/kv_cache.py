"""Keys and values of earlier tokens. Source: SCHED.md 8.4, ARCH.md 1.5."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.backend.alloc import aligned, padded_bytes
from engine.core.devices import BufferFacts, BufferTypeFacts, BufferUsage, DeviceFacts
from engine.core.options import FlashAttn, SplitMode
from engine.core.tensor import Tensor
from engine.core.types import TYPE_BY_LABEL, TensorType
from engine.errors import PlacementError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from engine.core.options import Options
    from engine.core.plan import BatchShape
    from engine.model.hparams import Hparams, Window
    from engine.model.placement import ModelPlacement

PAD_CELLS = 256

ROTATION = 64
"""A quantised cache is rotated in blocks of this size, or of a power of two times it."""


@dataclass(frozen=True, slots=True, eq=False)
class CacheBuffer:
    """The cache tensors of one part in one buffer type."""

    device: DeviceFacts
    buft: BufferTypeFacts
    tensors: tuple[Tensor, ...]
    n_bytes: int


@dataclass(frozen=True, slots=True, eq=False)
class CachePart:
    """The cells that some layers share: those that see everything, or those with a window."""

    index: int
    n_cells: int
    window: Window | None
    k_rotation: int = 0
    """Size of the rotation of Q and K; 0 is none."""
    v_rotation: int = 0

    def n_kv(self, n_used: int) -> int:
        """Cells a graph looks at when the last one taken is number `n_used`, counted from 1."""
        return min(self.n_cells, max(PAD_CELLS, padded_cells(n_used)))


@dataclass(frozen=True, slots=True, eq=False)
class KvCache:
    """One K and one V tensor a layer with attention, [n_embd_k, n_cells] and [n_embd_v, n_cells].

    A model with a sliding window has two parts, the full one first. `part_of` has each layer's.
    Layers without keys of their own have those that they read; layers without attention, and the
    values of packed rows, are not there.
    """

    parts: tuple[CachePart, ...]
    part_of: tuple[CachePart, ...]
    keys: Mapping[int, Tensor]
    values: Mapping[int, Tensor]
    buffers: tuple[CacheBuffer, ...]
    """In llama.cpp's order: those of the full part, then those of the sliding one, by name."""
    v_transposed: bool = False
    """Whether element (channel j, cell c) of V lies at j * n_cells + c.

    It follows the option, so flash attention that is turned off by a probe leaves V as it is.
    """

    @property
    def n_cells(self) -> int:
        """Cells of the full part."""
        return self.parts[0].n_cells

    def seen_by(self, part: CachePart, shape: BatchShape) -> int:
        """Cells of a part that the graph of a batch looks at."""
        if part.index == 0:
            return shape.n_kv
        return shape.n_kv_swa or min(part.n_cells, shape.n_kv)


def padded_cells(n_cells: int) -> int:
    """Cells rounded up to the padding."""
    return aligned(n_cells, PAD_CELLS)


def plan_cache(
    hparams: Hparams,
    placement: ModelPlacement,
    options: Options,
    *,
    n_ctx: int,
    n_ubatch: int,
) -> KvCache:
    """Cache tensors on each layer's device, or on the CPU without offload_kqv.

    Raises PlacementError for a type that heads do not fit, or that needs flash attention.
    """
    type_k = _cache_type(options.cache_type_k)
    type_v = _cache_type(options.cache_type_v)
    check_cache_types(hparams, options)
    parts = _parts(hparams, (type_k, type_v), n_ctx=n_ctx, n_ubatch=n_ubatch)
    part_of = tuple(parts[layer.is_swa] for layer in hparams.layers)
    v_transposed = options.flash_attn is FlashAttn.OFF
    store = CacheStore(placement, "KV cache", offload_kqv=options.offload_kqv)
    keys: dict[int, Tensor] = {}
    values: dict[int, Tensor] = {}
    for il in _layers_with_cache(hparams):
        layer, part = hparams.layers[il], part_of[il]
        owner = hparams.cache_layer(il)
        if owner != il:
            keys[il], values[il] = keys[owner], values[owner]
            continue
        # A transposed V has no rows of its own, so the longest row of any layer is every layer's.
        n_embd_v = hparams.n_embd_v_max if v_transposed else layer.n_embd_v
        k_ne, v_ne = (layer.n_embd_k, part.n_cells), (n_embd_v, part.n_cells)
        keys[il] = store.add(f"cache_k_l{il}", type_k, k_ne, il, group=part.index)
        if not hparams.caches_packed_rows:
            values[il] = store.add(f"cache_v_l{il}", type_v, v_ne, il, group=part.index)
    return KvCache(parts, part_of, keys, values, store.buffers(), v_transposed=v_transposed)


def _layers_with_cache(hparams: Hparams) -> list[int]:
    """The layers that look at earlier tokens."""
    if not hparams.has_cache:
        return []
    return [il for il, layer in enumerate(hparams.layers) if layer.attends]


def attention_wish(options: Options) -> FlashAttn:
    """What is asked of flash attention: what needs it turns "auto" into "on", without a probe.

    That is a quantised V, and layers that devices share by heads.
    """
    is_shared = options.split_mode is SplitMode.TENSOR
    is_needed = is_shared or _cache_type(options.cache_type_v).is_quantized
    is_auto = options.flash_attn is FlashAttn.AUTO
    return FlashAttn.ON if is_auto and is_needed else options.flash_attn


def check_cache_types(hparams: Hparams, options: Options) -> None:
    """PlacementError where the types of K and V do not fit heads or attention."""
    type_k, type_v = _cache_type(options.cache_type_k), _cache_type(options.cache_type_v)
    if type_v.is_quantized and options.flash_attn is FlashAttn.OFF:
        raise PlacementError(
            f"A V cache of type {type_v.label} needs flash attention.",
            "Without it V is kept transposed, which blocks of a quantised type do not allow.",
            "Leave -fa off out, or choose another -ctv.",
        )
    for layer in hparams.layers:
        _check_blocks("-ctk", type_k, layer.n_embd_head_k)
        _check_blocks("-ctv", type_v, layer.n_embd_head_v)


def _check_blocks(flag: str, tensor_type: TensorType, n_embd_head: int) -> None:
    if n_embd_head % tensor_type.block_elems:
        raise PlacementError(
            f"{flag} cannot be {tensor_type.label} with this model.",
            f"Its heads have {n_embd_head} elements, which blocks of {tensor_type.block_elems} "
            "do not fit into.",
            f"Choose another {flag}, such as f16.",
        )


def _cache_type(label: str) -> TensorType:
    return TYPE_BY_LABEL[label]


def _parts(
    hparams: Hparams, types: tuple[TensorType, TensorType], *, n_ctx: int, n_ubatch: int
) -> tuple[CachePart, ...]:
    n_cells = padded_cells(n_ctx)
    sizes = [n_cells]
    window = hparams.window
    if window is not None:
        sizes.append(padded_cells(min(n_cells, window.n_swa + n_ubatch)))
    type_k, type_v = types
    parts = []
    for index, size in enumerate(sizes):
        layers = [layer for layer in hparams.layers if int(layer.is_swa) == index]
        parts.append(
            CachePart(
                index,
                size,
                window if index else None,
                k_rotation=_k_rotation(type_k, [layer.n_embd_head_k for layer in layers]),
                v_rotation=_v_rotation(type_v, [layer.n_embd_head_v for layer in layers]),
            )
        )
    return tuple(parts)


def _rotates(tensor_type: TensorType, head_sizes: Sequence[int]) -> bool:
    """Whether quantised rows are rotated, so that large elements are spread over a block."""
    sizes = set(head_sizes)
    # A model without attention has heads of no size.
    one_size = len(sizes) == 1 and 0 not in sizes
    return tensor_type.is_quantized and one_size and head_sizes[0] % ROTATION == 0


def _k_rotation(tensor_type: TensorType, head_sizes: Sequence[int]) -> int:
    """The largest power of two times 64 that divides a head of K."""
    if not _rotates(tensor_type, head_sizes):
        return 0
    size = ROTATION
    while head_sizes[0] % (2 * size) == 0:
        size *= 2
    return size


def _v_rotation(tensor_type: TensorType, head_sizes: Sequence[int]) -> int:
    return ROTATION if _rotates(tensor_type, head_sizes) else 0


class CacheStore:
    """Makes tensors that outlive a batch and gathers them by group and buffer type."""

    def __init__(self, placement: ModelPlacement, label: str, *, offload_kqv: bool) -> None:
        self._placement = placement
        self._label = label
        self._offload = offload_kqv
        self._facts: dict[tuple[int, BufferTypeFacts], BufferFacts] = {}
        self._members: dict[tuple[int, str], tuple[DeviceFacts, list[Tensor]]] = {}

    def add(
        self, name: str, tensor_type: TensorType, ne: tuple[int, int], il: int, *, group: int = 0
    ) -> Tensor:
        """A tensor of layer `il`; groups are kept in buffers of their own."""
        placement = self._placement
        device = placement.layer_devices[il] if self._offload else placement.cpu
        buft = device.buft
        home = self._facts.get((group, buft))
        if home is None:
            home = BufferFacts(buft, BufferUsage.ANY, self._label)
            self._facts[group, buft] = home
        tensor = Tensor(tensor_type, (*ne, 1, 1), name=name, buffer=home)
        self._members.setdefault((group, buft.name), (device, []))[1].append(tensor)
        return tensor

    def buffers(self) -> tuple[CacheBuffer, ...]:
        """By group, then by the name of the buffer type."""
        return tuple(
            _buffer_of(device, tensors)
            for _, (device, tensors) in sorted(self._members.items(), key=lambda item: item[0])
        )


def _buffer_of(device: DeviceFacts, tensors: Sequence[Tensor]) -> CacheBuffer:
    n_bytes = sum(padded_bytes(device.buft, tensor) for tensor in tensors)
    return CacheBuffer(device, device.buft, tuple(tensors), n_bytes)
