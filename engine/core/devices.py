"""What a device is and can do, as facts taken at a moment: all that planning reads."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from engine.core.ops import Op

if TYPE_CHECKING:
    from collections.abc import Mapping

    from engine.core.options import BlasUse
    from engine.core.tensor import Tensor


class DeviceType(enum.StrEnum):
    """The kind of a device, in ggml's words."""

    CPU = "CPU"
    GPU = "GPU"
    IGPU = "IGPU"
    ACCEL = "ACCEL"
    META = "META"


HOST_TYPES = (DeviceType.CPU, DeviceType.ACCEL)
"""Devices that compute on the host's thread; they are there beside any others."""


class BufferUsage(enum.StrEnum):
    """What a buffer is for; the scheduler follows WEIGHTS only."""

    ANY = "any"
    WEIGHTS = "weights"
    COMPUTE = "compute"


@dataclass(frozen=True, slots=True)
class RowShares:
    """Devices that hold the rows of one tensor in turn, the first rows first.

    `shares[i]` is what `devices[i]` takes, in any unit; 0 is nothing. At least one is above 0.
    """

    devices: tuple[str, ...]
    shares: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class BufferTypeFacts:
    """A kind of memory: where, how aligned, how large one buffer may be.

    `alignment` is a power of two in bytes; `max_bytes` None means no limit. `pad_row_elems` N:
    rows of quantised tensors whose length is not a multiple of N take the bytes of the next
    multiple once (CUDA's rule); 0 means no padding. `row_shares` is there for split memory (-sm
    row), whose tensors have their rows on several devices.
    """

    name: str
    alignment: int = 32
    max_bytes: int | None = None
    is_host: bool = False
    pad_row_elems: int = 0
    row_shares: RowShares | None = None

    def alloc_bytes(self, tensor: Tensor) -> int:
        """Bytes that a tensor takes in a buffer of this type, before alignment."""
        n_bytes = tensor.n_bytes
        if self.pad_row_elems and tensor.type.is_quantized:
            rest = tensor.ne[0] % self.pad_row_elems
            if rest:
                n_bytes += tensor.type.row_bytes(self.pad_row_elems - rest)
        return n_bytes


CPU_BUFT = BufferTypeFacts("CPU", alignment=32, is_host=True)
"""Ordinary memory: the CPU's, and that of accelerators which work in it."""

MAPPED = "_Mapped"
"""Ends the name of a buffer's type where the buffer is a mapped file."""


def mapped(buft: BufferTypeFacts) -> BufferTypeFacts:
    """The type of a buffer that is a mapped file: another name, the same memory."""
    return replace(buft, name=f"{buft.name}{MAPPED}")


@dataclass(frozen=True, slots=True)
class BufferFacts:
    """A buffer that exists before planning: its type, what it is for, and a label for people."""

    buft: BufferTypeFacts
    usage: BufferUsage = BufferUsage.ANY
    label: str = ""


@dataclass(frozen=True, slots=True)
class DeviceCaps:
    """What ggml calls caps, and whether a mapped file may serve as a buffer."""

    asynchronous: bool = False
    host_buffer: bool = False
    buffer_from_host_ptr: bool = False
    events: bool = False
    mmap_support: bool = True


class DeviceRules(Protocol):
    """Pure predicates of a device: same question, same answer, no device touched."""

    def supports_op(self, tensor: Tensor) -> bool:
        """Whether a kernel exists for this operation with these types and shapes."""
        ...

    def supports_buft(self, buft: BufferTypeFacts) -> bool:
        """Whether kernels read and write tensors in such memory directly."""
        ...

    def offload_op(self, tensor: Tensor) -> bool:
        """Whether the device wants this operation even if its weights must be copied in."""
        ...


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """A device at a moment. Memory in bytes; free and total 0 mean nothing is reported.

    `memory_source` says how free memory was obtained. `reg` names the backend family; `device_id`
    is the bus address, so that one card seen by two backends is used once. `features` are CPU
    features by the names that ggml prints, such as AVX2 (see repack.py). `software` is set for a
    device that computes on the CPU (PoCL), with the words to show. `stream` names its backend where
    that differs from the device (RPC). `copies_async`: it queues copies from another device that
    does so too. `extra_bufts` are further kinds of memory for weights, best first, such as the
    CPU's CPU_REPACK. `rules_by_use` is there for a device that is used by choice: its rules in
    place of `rules`, by what the option asks; see `in_use`. `layer_rules` is there for an
    accelerator that can take layers as a GPU does: its rules then; see `taking_layers`.
    `extra_bufts_first`: weights go there before they go into its own memory. `splits_rows`: its
    family has split memory (ggml_backend_split_buffer_type), which `-sm row` needs.
    `shares_memory`: it works in the computer's memory and has none of its own. `members` are the
    devices that a META device joins.
    """

    name: str
    description: str
    type: DeviceType
    reg: str
    buft: BufferTypeFacts
    rules: DeviceRules = field(repr=False, compare=False)
    memory_free: int = 0
    memory_total: int = 0
    device_id: str | None = None
    caps: DeviceCaps = DeviceCaps()
    host_buft: BufferTypeFacts | None = None
    features: frozenset[str] = frozenset()
    software: str = ""
    stream: str = ""
    copies_async: bool = False
    extra_bufts: tuple[BufferTypeFacts, ...] = ()
    rules_by_use: Mapping[BlasUse, DeviceRules] | None = field(
        default=None, repr=False, compare=False
    )
    memory_source: str = ""
    layer_rules: DeviceRules | None = field(default=None, repr=False, compare=False)
    extra_bufts_first: bool = False
    splits_rows: bool = False
    shares_memory: bool = False
    members: tuple[DeviceFacts, ...] = ()

    def taking_layers(self) -> DeviceFacts:
        """The device as one that layers are given to, since it is named for that (-dev)."""
        if self.layer_rules is None:
            return self
        return replace(self, type=DeviceType.GPU, rules=self.layer_rules, extra_bufts_first=True)

    def in_use(self, use: BlasUse) -> DeviceFacts | None:
        """The device as it is used when the option `blas` asks for `use`; None: not at all."""
        if self.rules_by_use is None:
            return self
        rules = self.rules_by_use.get(use)
        return None if rules is None else replace(self, rules=rules)

    @property
    def stream_name(self) -> str:
        """The name of this device's backend, as it stands in split lines and copy names."""
        return self.stream or self.name


@dataclass(frozen=True, slots=True)
class Unavailable:
    """A device or backend that cannot be used, and why. `hidden` marks one left out on purpose."""

    name: str
    reason: str
    hint: str = ""
    hidden: bool = False


@dataclass(frozen=True, slots=True)
class BackendView:
    """What a pass may know of one backend. Its place in the list is its priority, 0 first.

    `name` is the stream's name as it stands in copy names; `buft` the type of its compute buffer.
    """

    name: str
    device: DeviceFacts
    buft: BufferTypeFacts

    @property
    def rules(self) -> DeviceRules:
        """The device's predicates."""
        return self.device.rules


CUDA_MIN_BATCH = 32
"""The batch from which devices with CUDA's rule want operations of the host (SCHED.md 4)."""


def offload_batch(tensor: Tensor) -> int:
    """Batch size in the sense of CUDA's offload rule. Source: SCHED.md 4."""
    if tensor.op is Op.GET_ROWS:
        return 0
    if tensor.op is Op.MUL_MAT:
        return tensor.ne[1]
    if tensor.op in (Op.MUL_MAT_ID, Op.ROPE):
        return tensor.ne[2]
    return tensor.n_rows


@dataclass(frozen=True, slots=True)
class TableRules:
    """Rules written as tables; enough for devices that exist only on paper and for simple ones.

    `ops` None means every operation; names are those of `Tensor.op_desc`. `bufts` are names of
    buffer types; `host_bufts` adds every host type. `offload_min_batch` None: never offload.
    """

    ops: frozenset[str] | None = None
    not_ops: frozenset[str] = frozenset()
    bufts: frozenset[str] = frozenset()
    host_bufts: bool = False
    offload_min_batch: int | None = None

    def supports_op(self, tensor: Tensor) -> bool:
        """Whether the tables allow it; NONE and view operations always are."""
        if tensor.op is Op.NONE or tensor.is_view_op:
            return True
        desc = tensor.op_desc
        return desc not in self.not_ops and (self.ops is None or desc in self.ops)

    def supports_buft(self, buft: BufferTypeFacts) -> bool:
        """Whether the type is listed, or is host memory and that is enough."""
        return buft.name in self.bufts or (self.host_bufts and buft.is_host)

    def offload_op(self, tensor: Tensor) -> bool:
        """CUDA's batch rule with this threshold."""
        threshold = self.offload_min_batch
        return threshold is not None and offload_batch(tensor) >= threshold
