"""Graph allocator: where each tensor of a graph goes, with memory used again once it is free.

`plan_allocation` is pure. `fits` and `place` say whether and where another graph of the same
length can use a plan. Source: SCHED.md 13 and 14 (ggml-alloc.c).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from engine.core.ops import INPLACE_OPS, Op
from engine.core.plan import ELSEWHERE, Allocation, AllocationPlan, AllocGraph
from engine.core.tensor import Flag, Tensor

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from engine.core.devices import BufferTypeFacts
    from engine.core.shards import Shard

MAX_CHUNKS = 16
UNLIMITED = 2**62


def aligned(size: int, alignment: int) -> int:
    """`size` rounded up to a multiple of `alignment`."""
    return (size + alignment - 1) // alignment * alignment


def padded_bytes(buft: BufferTypeFacts, tensor: Tensor) -> int:
    """Bytes that a tensor takes where tensors stand one behind another. Source: SCHED.md 14.7."""
    return aligned(buft.alloc_bytes(tensor), buft.alignment)


def part_bytes(buft: BufferTypeFacts, tensor: Tensor, shard: Shard, member: int) -> int:
    """The same for a member's part of a tensor, in the member's memory; 0 where it has none."""
    ne = shard.ne_on(tensor.ne, member)
    return 0 if 0 in ne else padded_bytes(buft, Tensor(tensor.type, ne))


def pack(
    sizes: Sequence[int], max_bytes: int | None
) -> tuple[tuple[tuple[int, int], ...], tuple[int, ...]]:
    """(buffer, offset) of each size, and each buffer's total; a new buffer where one is full."""
    spots: list[tuple[int, int]] = []
    totals: list[int] = []
    for size in sizes:
        is_full = max_bytes is not None and bool(totals) and totals[-1] + size > max_bytes
        if not totals or is_full:
            totals.append(0)
        spots.append((len(totals) - 1, totals[-1]))
        totals[-1] += size
    return tuple(spots), tuple(totals)


@dataclass(slots=True)
class _Chunk:
    """Free blocks [offset, size], sorted by offset, and the high-water mark."""

    free: list[list[int]]
    high: int = 0


@dataclass(slots=True)
class ChunkAllocator:
    """The dynamic allocator of one buffer type: best fit, merging frees, up to 16 chunks."""

    alignment: int
    max_chunk: int
    chunks: list[_Chunk] = field(default_factory=list)

    def alloc(self, size: int) -> tuple[int, int]:
        """(chunk, offset) of `size` bytes."""
        size = aligned(size, self.alignment)
        place = self._best_fit(size) or self._last_block(size) or self._new_chunk(size)
        i_chunk, i_block = place
        chunk = self.chunks[i_chunk]
        block = chunk.free[i_block]
        offset = block[0]
        block[0] += size
        block[1] -= size
        if block[1] == 0:
            del chunk.free[i_block]
        chunk.high = max(chunk.high, offset + size)
        return i_chunk, offset

    def _best_fit(self, size: int) -> tuple[int, int] | None:
        """The smallest fitting block but the last of a chunk; a later chunk wins (trap T7)."""
        best = None
        for i_chunk, chunk in enumerate(self.chunks):
            best_size = UNLIMITED * 2
            for i_block in range(len(chunk.free) - 1):
                if size <= chunk.free[i_block][1] <= best_size:
                    best, best_size = (i_chunk, i_block), chunk.free[i_block][1]
        return best

    def _last_block(self, size: int) -> tuple[int, int] | None:
        """The last block of the chunk that grows least, or wastes least without growing."""
        best, best_reuse = None, -(2**63)
        for i_chunk, chunk in enumerate(self.chunks):
            if not chunk.free or chunk.free[-1][1] < size:
                continue
            reuse = chunk.high - chunk.free[-1][0] - size
            if (best_reuse < 0 and reuse > best_reuse) or 0 <= reuse < best_reuse:
                best, best_reuse = (i_chunk, len(chunk.free) - 1), reuse
        return best

    def _new_chunk(self, size: int) -> tuple[int, int]:
        limit = max(size, self.max_chunk)
        if len(self.chunks) == MAX_CHUNKS - 1:
            limit = UNLIMITED
        self.chunks.append(_Chunk([[0, limit]]))
        return len(self.chunks) - 1, 0

    def free(self, i_chunk: int, offset: int, size: int) -> None:
        """Give [offset, offset + size) back; touching blocks merge."""
        size = aligned(size, self.alignment)
        blocks = self.chunks[i_chunk].free
        for i_block, block in enumerate(blocks):
            if block[0] + block[1] == offset:
                block[1] += size
                if i_block + 1 < len(blocks) and block[0] + block[1] == blocks[i_block + 1][0]:
                    block[1] += blocks.pop(i_block + 1)[1]
                return
            if offset + size == block[0]:
                block[0], block[1] = offset, block[1] + size
                return
            if block[0] > offset:
                blocks.insert(i_block, [offset, size])
                return
        blocks.append([offset, size])


@dataclass(slots=True)
class _State:
    """What the planner knows of one tensor while it walks the graph."""

    n_children: int = 0
    n_views: int = 0
    buffer_id: int = 0
    chunk: int = 0
    offset: int = 0
    allocated: bool = False


class _Planner:
    """One walk over a graph. Source: SCHED.md 14.2, 14.3."""

    def __init__(self, bufts: Sequence[BufferTypeFacts], inplace_ops: frozenset[Op]) -> None:
        self.bufts = bufts
        self.inplace_ops = inplace_ops
        by_type: dict[BufferTypeFacts, ChunkAllocator] = {}
        self.allocators = [
            by_type.setdefault(
                buft,
                ChunkAllocator(
                    buft.alignment, UNLIMITED if buft.max_bytes is None else buft.max_bytes
                ),
            )
            for buft in bufts
        ]
        self.states: dict[Tensor, _State] = {}

    def state(self, tensor: Tensor) -> _State:
        found = self.states.get(tensor)
        if found is None:
            found = self.states[tensor] = _State()
        return found

    def run(self, graph: AllocGraph) -> None:
        for leaf, backend_id in zip(graph.leafs, graph.leaf_ids, strict=True):
            self.allocate(leaf, backend_id)
        self._count_readers(graph)
        for node, backend_id in zip(graph.nodes, graph.node_ids, strict=True):
            for source in node.src:
                self.allocate(source, backend_id)
            self.allocate(node, backend_id)
            for source in node.src:
                if source.buffer is None:
                    self._forget_reader(source)

    def _count_readers(self, graph: AllocGraph) -> None:
        for node, backend_id in zip(graph.nodes, graph.node_ids, strict=True):
            # Helper nodes are views with op NONE: they count as readers of their source only.
            if node.view_src is not None and node.op is not Op.NONE:
                self.state(node.view_src).n_views += 1
            if node.flags & Flag.INPUT:
                self.allocate(node, backend_id)
            for source in node.src:
                if source.buffer is not None:
                    continue  # Weights and caches are never given memory, nor is it taken back.
                self.state(source).n_children += 1
                if source.flags & Flag.INPUT:
                    self.allocate(source, backend_id)

    def allocate(self, tensor: Tensor, backend_id: int) -> None:
        if tensor.view_src is not None or tensor.buffer is not None:
            return
        state = self.state(tensor)
        if state.allocated:
            return
        state.allocated = True
        if tensor.op in self.inplace_ops and self._take_parents_place(tensor, state):
            return
        state.buffer_id = backend_id
        n_bytes = self.bufts[backend_id].alloc_bytes(tensor)
        state.chunk, state.offset = self.allocators[backend_id].alloc(n_bytes)

    def _take_parents_place(self, tensor: Tensor, state: _State) -> bool:
        """In-place: the first source that nobody else reads and that has the same layout.

        Equal layouts take equal bytes here, so the parent leaves nothing over to free.
        """
        for parent in tensor.src:
            known = self.state(parent)
            # A view never owns memory, so in-place through a view does not happen (trap T6).
            if not known.allocated or parent.flags & Flag.OUTPUT:
                continue
            if not tensor.same_layout(parent) or known.n_children != 1 or known.n_views != 0:
                continue
            state.buffer_id, state.chunk, state.offset = (
                known.buffer_id, known.chunk, known.offset
            )  # fmt: skip
            known.allocated = False
            return True
        return False

    def _forget_reader(self, source: Tensor) -> None:
        state = self.state(source)
        state.n_children -= 1
        if state.n_children or state.n_views:
            return
        if source.view_src is not None:
            base = self.state(source.view_src)
            base.n_views -= 1
            if base.n_views == 0 and base.n_children == 0 and base.allocated:
                self._free(source.view_src, base)
        elif state.allocated:
            self._free(source, state)

    def _free(self, tensor: Tensor, state: _State) -> None:
        if tensor.flags & Flag.OUTPUT:
            return
        n_bytes = self.bufts[state.buffer_id].alloc_bytes(tensor)
        self.allocators[state.buffer_id].free(state.chunk, state.offset, n_bytes)
        state.allocated = False

    def chunk_bytes(self) -> tuple[tuple[int, ...], ...]:
        return tuple(
            tuple(chunk.high for chunk in allocator.chunks) for allocator in self.allocators
        )

    def record(self, tensor: Tensor) -> Allocation:
        if tensor.view_src is not None or tensor.buffer is not None:
            return ELSEWHERE
        state = self.state(tensor)
        size_max = self.bufts[state.buffer_id].alloc_bytes(tensor)
        return Allocation(state.buffer_id, state.chunk, state.offset, size_max)


def plan_allocation(
    graph: AllocGraph,
    bufts: Sequence[BufferTypeFacts],
    *,
    inplace_ops: frozenset[Op] = INPLACE_OPS,
) -> AllocationPlan:
    """Offsets for every tensor of `graph`; `bufts[b]` is backend b's compute buffer type.

    `inplace_ops` are operations whose result may take a source's memory.
    """
    planner = _Planner(bufts, inplace_ops)
    planner.run(graph)
    return AllocationPlan(
        nodes=tuple(
            (planner.record(node), tuple(planner.record(source) for source in node.src))
            for node in graph.nodes
        ),
        leafs=tuple(planner.record(leaf) for leaf in graph.leafs),
        chunk_bytes=planner.chunk_bytes(),
    )


def needed_chunks(
    graph: AllocGraph, bufts: Sequence[BufferTypeFacts]
) -> tuple[tuple[int, ...], ...]:
    """The `chunk_bytes` of the plan of `graph`: what it needs, without where anything goes."""
    planner = _Planner(bufts, INPLACE_OPS)
    planner.run(graph)
    return planner.chunk_bytes()


def compute_bytes(plan: AllocationPlan, bufts: Sequence[BufferTypeFacts]) -> tuple[int, ...]:
    """Bytes of each backend's compute buffer; 0 for one that shares an earlier one's type."""
    return tuple(
        0 if bufts[backend_id] in bufts[:backend_id] else sum(chunks)
        for backend_id, chunks in enumerate(plan.chunk_bytes)
    )


def grown(have: tuple[int, ...], need: tuple[int, ...]) -> tuple[int, ...]:
    """Chunk sizes of a buffer once `need` fits: all anew when any is too small, else as before."""
    padded = have + (0,) * (len(need) - len(have))
    return have if all(n <= h for n, h in zip(need, padded, strict=False)) else need


def fits(plan: AllocationPlan, graph: AllocGraph, bufts: Sequence[BufferTypeFacts]) -> bool:
    """Whether another graph can use the plan's places: same counts, no tensor larger, by index."""
    if len(plan.nodes) != len(graph.nodes) or len(plan.leafs) != len(graph.leafs):
        return False
    for node, (own, sources) in zip(graph.nodes, plan.nodes, strict=True):
        if not _fits_one(node, own, bufts):
            return False
        for i_src, source in enumerate(node.src):
            record = sources[i_src] if i_src < len(sources) else ELSEWHERE
            if not _fits_one(source, record, bufts):
                return False
    return True


def _fits_one(tensor: Tensor, record: Allocation, bufts: Sequence[BufferTypeFacts]) -> bool:
    if tensor.buffer is not None or tensor.view_src is not None:
        return True
    if record.buffer_id < 0:
        return False
    return record.size_max >= bufts[record.buffer_id].alloc_bytes(tensor)


def place(plan: AllocationPlan, graph: AllocGraph) -> dict[Tensor, Allocation]:
    """The allocation of every tensor of `graph` that owns memory of the plan's buffers."""
    places: dict[Tensor, Allocation] = {}
    _place_all(places, graph.leafs, plan.leafs)
    for node, (own, sources) in zip(graph.nodes, plan.nodes, strict=True):
        _place_all(places, node.src, sources)
        _place_all(places, (node,), (own,))
    return places


def _place_all(
    places: dict[Tensor, Allocation], tensors: Iterable[Tensor], records: Iterable[Allocation]
) -> None:
    for tensor, record in zip(tensors, records, strict=False):
        if tensor.buffer is None and tensor.view_src is None and record.buffer_id >= 0:
            places.setdefault(tensor, record)
