"""Plan: everything that is decided before a byte is computed. Frozen; a function of facts.

Plan     graph of one batch shape, backends, trace of the passes, run graph
PlanSet  the plans of one model with one set of options, and the memory they need
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from engine.core.devices import MAPPED

if TYPE_CHECKING:
    from collections.abc import Mapping

    from engine.core.devices import BackendView, BufferTypeFacts
    from engine.core.graph import Graph
    from engine.core.options import Options
    from engine.core.placement import SplitTrace
    from engine.core.shards import MemberShare
    from engine.core.tensor import Tensor


class NodeKey(NamedTuple):
    """A node's identity across plans: names repeat, so the occurrence counts from 0."""

    name: str
    occurrence: int

    def __str__(self) -> str:
        return f"{self.name}@{self.occurrence}" if self.occurrence else self.name


class Batch(enum.StrEnum):
    """Which of the two plans a screen shows."""

    PROMPT = "prompt"
    TOKEN = "token"


@dataclass(frozen=True, slots=True)
class BatchShape:
    """What a graph is built for: tokens in it, cache cells it sees, rows of logits it gives."""

    n_tokens: int
    n_kv: int
    n_outputs: int
    n_kv_swa: int = 0
    """Cells seen of the cache of sliding layers; 0: as many of n_kv as it has."""
    n_seqs: int = 1
    """Texts in it; where embeddings are pooled, each gives one."""
    clears_state: bool = False
    """Whether recurrent states begin at zero: a text's first tokens, in a model that has states."""


class Allocation(NamedTuple):
    """Where the allocator put a tensor: which backend's buffer, which chunk, at what byte.

    `size_max` is what the record allows at this place; buffer_id -1 means it lives elsewhere.
    """

    buffer_id: int
    chunk: int
    offset: int
    size_max: int


ELSEWHERE = Allocation(-1, -1, -1, 0)


@dataclass(frozen=True, slots=True, eq=False)
class AllocGraph:
    """The graph as the allocator sees it, with a backend id per node and per leaf (SCHED.md 12).

    It holds helper nodes that keep the sources of copies alive, and the copies themselves.
    """

    nodes: tuple[Tensor, ...]
    node_ids: tuple[int, ...]
    leafs: tuple[Tensor, ...]
    leaf_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class AllocationPlan:
    """Offsets by index, and how large each buffer must be.

    `nodes[i]` holds the node's own allocation and those of its sources. `chunk_bytes[b]` are the
    sizes of backend b's buffers; backends that share a buffer type share the first one's.
    """

    nodes: tuple[tuple[Allocation, tuple[Allocation, ...]], ...]
    leafs: tuple[Allocation, ...]
    chunk_bytes: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True, eq=False)
class RunGraph:
    """The graph with sources redirected to copies: what is allocated and computed.

    `nodes[i]` stands for node i of the plan's graph, `leafs[i]` for leaf i: the same tensor but
    for inputs with pipeline copies, whose memory must be kept.
    """

    nodes: tuple[Tensor, ...]
    leafs: tuple[Tensor, ...]
    alloc: AllocGraph


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """One batch shape, planned."""

    plan_id: int
    batch: Batch
    shape: BatchShape
    graph: Graph
    backends: tuple[BackendView, ...]
    op_offload: bool
    trace: SplitTrace
    run: RunGraph
    n_copies: int
    copy_slot: int
    layers: Mapping[int, int]
    """Layer of each node id: the index in its name; -1 before the first, n_layer after the last."""


class MemoryKind(enum.StrEnum):
    """What a byte is for."""

    MODEL = "model"
    KV = "kv"
    STATE = "state"
    COMPUTE = "compute"
    OUTPUT = "output"


@dataclass(frozen=True, slots=True)
class MemoryRow:
    """Bytes of one kind in one buffer type; `device` owns the memory.

    Rows stand in the order llama.cpp prints them.
    """

    buft: BufferTypeFacts
    device: str
    kind: MemoryKind
    n_bytes: int

    @property
    def is_mapped(self) -> bool:
        """Whether the bytes are those of a mapped file."""
        return self.buft.name.endswith(MAPPED)


@dataclass(frozen=True, slots=True)
class MemoryLedger:
    """What a plan set needs, by buffer type and kind.

    `shares` are there for devices that are joined (-sm tensor): what each holds of weights and
    caches.
    """

    rows: tuple[MemoryRow, ...]
    shares: tuple[MemberShare, ...] = ()

    def total(self, device: str) -> int:
        """Bytes on one device."""
        return sum(row.n_bytes for row in self.rows if row.device == device)


class DeviceRole(enum.StrEnum):
    """What becomes of a device when a model is placed."""

    LAYERS = "layers"
    """Layers are for it, as many as are asked onto devices."""
    BESIDE = "beside"
    """It has a backend of its own, whatever devices the layers are for: the CPU, accelerators."""
    LEFT_OUT = "left out"
    OFF = "off"
    """It is used by choice only, and was not chosen."""


class DeviceUse(NamedTuple):
    """What becomes of a device by its name, and why where layers are not for it."""

    device: str
    role: DeviceRole
    reason: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class PlanSet:
    """The plans of one model with one set of options."""

    options: Options
    plans: Mapping[Batch, Plan]
    memory: MemoryLedger
    flash_attn: bool
    n_ctx: int
    n_ubatch: int
    n_layers: int
    layer_devices: tuple[str, ...]
    """Device of the input layer, of every layer, and of the output layer."""
    n_copies: int = 1
    """How many prompt graphs may be under way at once; 1: no pipeline."""
    pipeline_obstacle: str = ""
    """Why devices do not work as a pipeline, as a clause; empty where nothing hinders them."""
    device_uses: tuple[DeviceUse, ...] = ()
    """What becomes of every device of the machine, in its order."""
