"""PlanTable: a plan as numpy columns, the form that views, the pipe and --json read.

Slots number the tensors of a plan: leafs 0 .. n_leafs-1, then nodes in execution order. Node i is
slot n_leafs + i. All arrays are read-only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from engine.core.devices import BufferTypeFacts, BufferUsage, DeviceFacts, DeviceType
from engine.core.experts import is_expert_copy
from engine.core.placement import Cause, CauseKind, SplitReason, cause_tag
from engine.core.plan import Batch, BatchShape, MemoryLedger, NodeKey, Plan, PlanSet
from engine.core.tensor import Flag
from engine.core.types import TensorType

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from engine.core.options import Options
    from engine.core.plan import DeviceUse
    from engine.core.tensor import Tensor

Ints = npt.NDArray[np.integer[Any]]
Bools = npt.NDArray[np.bool_]

MAX_SRC = 10
"""Most sources a tensor can have (ggml)."""

SPLIT_DTYPE = np.dtype(
    [
        ("backend", "i1"),
        ("reason", "u1"),  # SplitReason
        ("start", "i4"),  # first node
        ("stop", "i4"),  # one past the last node
        ("first_copy", "i4"),
        ("n_copies", "i4"),
        ("bytes", "i8"),  # of its copies
    ]
)

COPY_DTYPE = np.dtype(
    [
        ("split", "i4"),
        ("slot", "i4"),  # what is copied
        ("source", "i1"),  # backend it comes from
        ("target", "i1"),  # backend it goes to
        ("is_weight", "?"),
        ("is_input", "?"),  # written by the caller
        ("bytes", "i8"),  # of all of it
        ("n_experts", "i4"),  # of a weight whose used experts alone are copied; else 0
    ]
)


@dataclass(frozen=True, slots=True, eq=False)
class Strings:
    """Many strings as one blob; indexing decodes one."""

    blob: bytes
    stops: Ints

    def __len__(self) -> int:
        return len(self.stops)

    def __getitem__(self, index: int) -> str:
        start = int(self.stops[index - 1]) if index else 0
        return self.blob[start : int(self.stops[index])].decode()

    def __iter__(self) -> Iterator[str]:
        return (self[index] for index in range(len(self)))


def pack_strings(texts: Iterable[str]) -> Strings:
    """The texts as one blob."""
    encoded = [text.encode() for text in texts]
    stops = np.cumsum([len(text) for text in encoded], dtype=np.int32)
    return Strings(b"".join(encoded), _frozen(stops))


@dataclass(frozen=True, slots=True)
class DeviceRow:
    """A backend of a plan: its device's facts without its rules. The row's index is its id."""

    name: str
    stream: str
    description: str
    type: DeviceType
    buft: str
    memory_free: int
    memory_total: int
    software: str
    shares_memory: bool = False
    members: tuple[DeviceRow, ...] = ()
    """The devices that a META device joins; none of them is a backend of the plan."""


@dataclass(frozen=True, slots=True, eq=False)
class PlanTable:
    """One plan. `op` is what ggml describes (SWIGLU, not GLU)."""

    plan_id: int
    batch: Batch
    shape: BatchShape
    op_offload: bool
    devices: tuple[DeviceRow, ...]
    bufts: tuple[str, ...]
    """Names of the buffer types that tensors have as their home."""
    n_leafs: int
    n_nodes: int
    # Columns over slots.
    name: Strings
    op: Strings
    type: Ints
    ne: Ints
    """[n, 4], ggml order."""
    n_bytes: Ints
    src: Ints
    """[n, MAX_SRC] slots, -1 where there is none."""
    view_src: Ints
    home: Ints
    """Index into `bufts` of the buffer it is in before planning; -1 for none."""
    is_weight: Bools
    is_input: Bools
    is_view_op: Bools
    backend: Ints
    cause_kind: Ints
    cause_src: Ints
    cause_neighbour: Ints
    step_names: tuple[str, ...]
    step_backend: Ints
    """[n_steps, n] backend after each step of the passes, -1 while unassigned."""
    supports_op: Bools
    """[n_devices, n]."""
    offload_op: Bools
    """[n_devices, n]."""
    supports_buft: Bools
    """[n_devices, n_bufts]."""
    # Columns over nodes.
    split: Ints
    layer: Ints
    """-1 before the first layer, n_layers after the last."""
    occurrence: Ints
    """How often the same name came before: NodeKey is (name, occurrence)."""
    # Tables.
    splits: npt.NDArray[np.void]
    copies: npt.NDArray[np.void]
    n_copies: int = 1
    """Graphs that may be under way at once."""

    def slot(self, node_id: int) -> int:
        """The slot of a node."""
        return self.n_leafs + node_id

    def key(self, node_id: int) -> NodeKey:
        """The identity of a node across plans."""
        return NodeKey(self.name[self.slot(node_id)], int(self.occurrence[node_id]))

    def node_ids(self) -> Mapping[NodeKey, int]:
        """Node ids by identity."""
        return {self.key(node_id): node_id for node_id in range(self.n_nodes)}

    def cause(self, slot: int) -> Cause:
        """Why a tensor is where it is."""
        kind = CauseKind(int(self.cause_kind[slot]))
        return Cause(kind, int(self.cause_src[slot]), int(self.cause_neighbour[slot]))

    def tag(self, slot: int) -> str:
        """The tag that ggml prints for that cause."""
        return cause_tag(CauseKind(int(self.cause_kind[slot])), int(self.cause_src[slot]))

    def type_label(self, slot: int) -> str:
        """The name that ggml prints for the tensor's type."""
        return TensorType(int(self.type[slot])).label

    def sources(self, slot: int) -> list[int]:
        """Slots of a tensor's sources, as the model's graph has them (not redirected)."""
        return [int(source) for source in self.src[slot] if source >= 0]

    def readers(self, slot: int) -> list[int]:
        """Node ids that read a tensor."""
        rows = self.src[self.n_leafs : self.n_leafs + self.n_nodes]
        return [int(i) for i in np.flatnonzero((rows == slot).any(axis=1))]

    def split_name(self, split_id: int) -> str:
        """A split's name for people: its first computed node and how many more there are."""
        row = self.splits[split_id]
        nodes = np.arange(row["start"], row["stop"])
        computed = nodes[~self.is_view_op[self.n_leafs + nodes]]
        if not computed.size:
            return "views only"
        first = self.name[self.slot(int(computed[0]))]
        return first if computed.size == 1 else f"{first} +{computed.size - 1}"

    def copy_name(self, copy_id: int) -> str:
        """The name of what a copy copies."""
        return self.name[int(self.copies[copy_id]["slot"])]

    def producer(self, copy_id: int) -> int | None:
        """The split that computed what a copy copies; None for weights and what the caller wrote.

        A view counts as what it views: it may stand in the very split that its bytes are copied
        for.
        """
        slot = int(self.copies[copy_id]["slot"])
        while self.is_view_op[slot]:
            slot = self.sources(slot)[0]
        node_id = slot - self.n_leafs
        return int(self.split[node_id]) if node_id >= 0 else None

    def split_reason(self, split_id: int) -> SplitReason:
        """Why a split begins."""
        return SplitReason(int(self.splits[split_id]["reason"]))

    def nodes_per_device(self) -> tuple[int, ...]:
        """Nodes on each device, views counted."""
        backend = self.backend[self.n_leafs : self.n_leafs + self.n_nodes]
        return tuple(int((backend == i).sum()) for i in range(len(self.devices)))

    @property
    def n_computed(self) -> int:
        """Nodes that compute something."""
        views = self.is_view_op[self.n_leafs : self.n_leafs + self.n_nodes]
        return self.n_nodes - int(views.sum())

    @property
    def copied_bytes(self) -> int:
        """Bytes of all input copies, weights with experts counted whole."""
        return int(self.copies["bytes"].sum())


@dataclass(frozen=True, slots=True, eq=False)
class PlanSetTable:
    """Both plans of one set of options, and the memory they need."""

    options: Options
    prompt: PlanTable
    token: PlanTable
    memory: MemoryLedger
    flash_attn: bool
    n_ctx: int
    n_ubatch: int
    n_layers: int
    layer_devices: tuple[str, ...]
    """Device that holds the input layer, every layer, and the output layer."""
    plan_ns: int = 0
    """How long planning took, host clock."""
    n_copies: int = 1
    """How many prompt graphs may be under way at once; 1: no pipeline."""
    pipeline_obstacle: str = ""
    """Why devices do not work as a pipeline, as a clause; empty where nothing hinders them."""
    device_uses: tuple[DeviceUse, ...] = ()
    """What becomes of every device of the machine, in its order, and why."""

    def plan(self, batch: Batch) -> PlanTable:
        """One of the two."""
        return self.prompt if batch is Batch.PROMPT else self.token


def table_of_set(plans: PlanSet, plan_ns: int = 0) -> PlanSetTable:
    """The columns of a plan set."""
    return PlanSetTable(
        options=plans.options,
        prompt=table_of(plans.plans[Batch.PROMPT]),
        token=table_of(plans.plans[Batch.TOKEN]),
        memory=plans.memory,
        flash_attn=plans.flash_attn,
        n_ctx=plans.n_ctx,
        n_ubatch=plans.n_ubatch,
        n_layers=plans.n_layers,
        layer_devices=plans.layer_devices,
        plan_ns=plan_ns,
        n_copies=plans.n_copies,
        pipeline_obstacle=plans.pipeline_obstacle,
        device_uses=plans.device_uses,
    )


def table_of(plan: Plan) -> PlanTable:
    """The columns of a plan."""
    tensors = (*plan.graph.leafs, *plan.graph.nodes)
    bufts = _home_types(tensors)
    columns: dict[str, Any] = {
        **_facts(tensors, bufts),
        **_links(tensors),
        **_placement(plan),
        **_predicates(plan, tensors, bufts),
        **_node_columns(plan),
    }
    splits, copies = _split_tables(plan)
    return PlanTable(
        plan_id=plan.plan_id,
        batch=plan.batch,
        shape=plan.shape,
        op_offload=plan.op_offload,
        devices=tuple(_device_row(view.device, view.buft) for view in plan.backends),
        bufts=tuple(buft.name for buft in bufts),
        n_leafs=len(plan.graph.leafs),
        n_nodes=len(plan.graph.nodes),
        splits=splits,
        copies=copies,
        n_copies=plan.n_copies,
        **columns,
    )


def _facts(tensors: tuple[Tensor, ...], bufts: tuple[BufferTypeFacts, ...]) -> dict[str, Any]:
    """Columns of what tensors are."""
    return {
        "name": pack_strings(t.name for t in tensors),
        "op": pack_strings(t.op_desc for t in tensors),
        "type": _column([t.type for t in tensors], np.uint8),
        "ne": _column([t.ne for t in tensors], np.int64),
        "n_bytes": _column([t.n_bytes for t in tensors], np.int64),
        "home": _column([_home_index(t, bufts) for t in tensors], np.int16),
        "is_weight": _column([_is_weight(t) for t in tensors], np.bool_),
        "is_input": _column([bool(t.flags & Flag.INPUT) for t in tensors], np.bool_),
        "is_view_op": _column([t.is_view_op for t in tensors], np.bool_),
    }


def _placement(plan: Plan) -> dict[str, Any]:
    """Columns of where tensors are and why; view sources that no node visits are left out."""
    n_slots = len(plan.graph.leafs) + len(plan.graph.nodes)
    final = plan.trace.final
    causes = final.causes[:n_slots]
    steps = [state.backend_ids[:n_slots] for _, state in plan.trace.steps]
    return {
        "backend": _column(final.backend_ids[:n_slots], np.int8),
        "cause_kind": _column([c.kind for c in causes], np.uint8),
        "cause_src": _column([c.i_src for c in causes], np.int8),
        "cause_neighbour": _column([c.neighbour for c in causes], np.int32),
        "step_names": tuple(step for step, _ in plan.trace.steps),
        "step_backend": _column(steps, np.int8),
    }


def _node_columns(plan: Plan) -> dict[str, Ints]:
    """Columns over nodes."""
    n_nodes = len(plan.graph.nodes)
    split = np.zeros(n_nodes, np.int32)
    for row in plan.trace.cut.splits:
        split[row.start : row.stop] = row.id
    return {
        "split": _frozen(split),
        "layer": _column([plan.layers[i] for i in range(n_nodes)], np.int16),
        "occurrence": _occurrences(plan.graph.nodes),
    }


def _home_types(tensors: tuple[Tensor, ...]) -> tuple[BufferTypeFacts, ...]:
    found: dict[BufferTypeFacts, None] = {}
    for tensor in tensors:
        if tensor.home is not None:
            found[tensor.home.buft] = None
    return tuple(found)


def _home_index(tensor: Tensor, bufts: tuple[BufferTypeFacts, ...]) -> int:
    return -1 if tensor.home is None else bufts.index(tensor.home.buft)


def _is_weight(tensor: Tensor) -> bool:
    return tensor.buffer is not None and tensor.buffer.usage is BufferUsage.WEIGHTS


def _device_row(facts: DeviceFacts, buft: BufferTypeFacts) -> DeviceRow:
    return DeviceRow(
        name=facts.name,
        stream=facts.stream_name,
        description=facts.description,
        type=facts.type,
        buft=buft.name,
        memory_free=facts.memory_free,
        memory_total=facts.memory_total,
        software=facts.software,
        shares_memory=facts.shares_memory,
        members=tuple(_device_row(member, member.buft) for member in facts.members),
    )


def _links(tensors: tuple[Tensor, ...]) -> dict[str, Ints]:
    slot_of = {tensor: slot for slot, tensor in enumerate(tensors)}
    src = np.full((len(tensors), MAX_SRC), -1, np.int32)
    view_src = np.full(len(tensors), -1, np.int32)
    for slot, tensor in enumerate(tensors):
        for i_src, source in enumerate(tensor.src):
            src[slot, i_src] = slot_of[source]
        if tensor.view_src is not None:
            view_src[slot] = slot_of.get(tensor.view_src, -1)
    return {"src": _frozen(src), "view_src": _frozen(view_src)}


def _predicates(
    plan: Plan, tensors: tuple[Tensor, ...], bufts: tuple[BufferTypeFacts, ...]
) -> dict[str, Bools]:
    rules = [view.rules for view in plan.backends]
    return {
        "supports_op": _column([[r.supports_op(t) for t in tensors] for r in rules], np.bool_),
        "offload_op": _column([[r.offload_op(t) for t in tensors] for r in rules], np.bool_),
        "supports_buft": _column(
            [[r.supports_buft(b) for b in bufts] for r in rules], np.bool_
        ).reshape(len(rules), len(bufts)),
    }


def _split_tables(plan: Plan) -> tuple[npt.NDArray[np.void], npt.NDArray[np.void]]:
    cut = plan.trace.cut
    tensors = (*plan.graph.leafs, *plan.graph.nodes)
    splits = np.zeros(len(cut.splits), SPLIT_DTYPE)
    copies = np.zeros(len(cut.copies), COPY_DTYPE)
    first_copy = 0
    for i, split in enumerate(cut.splits):
        n_bytes = sum(copy.n_bytes for copy in split.inputs)
        splits[i] = (
            split.backend_id, split.reason, split.start, split.stop, first_copy,
            len(split.inputs), n_bytes,
        )  # fmt: skip
        first_copy += len(split.inputs)
    for i, copy in enumerate(cut.copies):
        source = tensors[copy.slot]
        first = plan.graph.nodes[cut.splits[copy.split_id].start]
        copies[i] = (
            copy.split_id, copy.slot, copy.source_backend_id, copy.backend_id,
            _is_weight(source), bool(source.flags & Flag.INPUT), copy.n_bytes,
            source.ne[2] if is_expert_copy(source, first) else 0,
        )  # fmt: skip
    return _frozen(splits), _frozen(copies)


def _occurrences(nodes: tuple[Tensor, ...]) -> Ints:
    seen: dict[str, int] = {}
    column = []
    for node in nodes:
        column.append(seen.get(node.name, 0))
        seen[node.name] = column[-1] + 1
    return _column(column, np.int32)


def _column(values: Sequence[Any], dtype: Any) -> npt.NDArray[Any]:
    return _frozen(np.array(values, dtype))


def _frozen(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    array.flags.writeable = False
    return array
