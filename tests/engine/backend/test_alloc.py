"""The graph allocator: hand-made cases for each rule and trap, then what holds for every graph."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from engine.backend.alloc import (
    MAX_CHUNKS,
    ChunkAllocator,
    aligned,
    compute_bytes,
    fits,
    grown,
    needed_chunks,
    pack,
    part_bytes,
    place,
    plan_allocation,
)
from engine.core import build
from engine.core.devices import BufferTypeFacts
from engine.core.ops import INPLACE_OPS, RopeParams
from engine.core.plan import ELSEWHERE, AllocGraph
from engine.core.shards import MIRRORED, one_of, shard_along
from engine.core.tensor import Flag, Tensor
from engine.core.types import TensorType
from engine.errors import PlacementError
from engine.sched.run_graph import build_run_graph
from engine.sched.split_graph import split_graph
from tests.engine.sched.drawn import (
    GPU0_BUFT,
    N,
    constant,
    cpu,
    gpu,
    graph_of,
    matmul,
    named,
    norm,
    solve,
    weight,
)
from tests.engine.sched.drawn import given as graph_input
from tests.engine.sched.random_graphs import problems

BUFT = BufferTypeFacts("CPU", alignment=32, is_host=True)
OTHER = BufferTypeFacts("GPU0", alignment=128)
FULL = 4 * N * N
"""Bytes of an f32 [N, N] tensor."""


def alloc_graph(*outputs: Tensor, ids=None) -> AllocGraph:
    """A graph on one backend, without copies; `ids` by node name puts nodes elsewhere."""
    graph = graph_of(*outputs)
    on = ids or {}
    return AllocGraph(
        graph.nodes, tuple(on.get(node.name, 0) for node in graph.nodes),
        graph.leafs, tuple(on.get(leaf.name, 0) for leaf in graph.leafs),
    )  # fmt: skip


def offsets(*outputs: Tensor, bufts=(BUFT,), ids=None) -> dict[str, int]:
    """Offset of every tensor that owns memory, by name."""
    graph = alloc_graph(*outputs, ids=ids)
    return {t.name: spot.offset for t, spot in place(plan_allocation(graph, bufts), graph).items()}


# In place.


def test_an_elementwise_operation_takes_the_place_of_its_last_read_source():
    """x ──► a (MUL_MAT) ──► b (RMS_NORM)"""
    b = norm("b", matmul("a", weight("w", BUFT), graph_input("x")))

    at = offsets(b)

    assert at == {"x": 0, "a": FULL, "b": FULL}


def test_a_source_with_another_reader_keeps_its_place():
    """a ──► b, a ──► c"""
    a = matmul("a", weight("w", BUFT), graph_input("x"))
    c = named("c", build.add(norm("b", a), a))

    at = offsets(c)

    assert at["b"] != at["a"]
    assert at["c"] == at["b"]


def test_a_source_that_is_viewed_keeps_its_place():
    """a ──► view, then a ──► b; the view is read after b."""
    a = matmul("a", weight("w", BUFT), graph_input("x"))
    view = build.reshape(a, N, N)
    b = norm("b", a)

    at = offsets(view, named("c", build.add(b, view)))

    assert at["b"] != at["a"]


def test_nothing_happens_in_place_through_a_view():
    """T6: a ──► reshape ──► b (ROPE): b gets new memory though nobody else reads a."""
    a = matmul("a", weight("w", BUFT), graph_input("x"))
    heads = build.reshape(a, N, 1, N)
    positions = graph_input("p", N, tensor_type=TensorType.I32)
    b = named("b", build.rope(heads, positions, None, RopeParams(N)))

    at = offsets(b)

    assert at["b"] != at["a"]


def test_an_output_is_not_overwritten_in_place():
    """T8: a (OUTPUT) ──► b"""
    a = matmul("a", weight("w", BUFT), graph_input("x"))
    a.flags |= Flag.OUTPUT

    at = offsets(norm("b", a))

    assert at["b"] != at["a"]


def test_a_source_of_another_layout_is_not_overwritten_in_place():
    """row [N, 1] ──► ADD ◄── full [N, N], both read once: full's place is taken."""
    row = matmul("row", weight("w", BUFT), graph_input("x", N, 1))
    full = matmul("full", weight("w2", BUFT), graph_input("y"))

    at = offsets(named("sum", build.add(full, row)))

    assert at["sum"] == at["full"]
    assert at["sum"] != at["row"]


def test_the_first_source_that_can_be_overwritten_is():
    """a, b ──► ADD, both read once"""
    a = matmul("a", weight("w", BUFT), graph_input("x"))
    b = matmul("b", weight("w2", BUFT), graph_input("y"))

    at = offsets(named("sum", build.add(a, b)))

    assert at["sum"] == at["a"]


def test_a_weight_is_never_overwritten():
    """w ──► b (RMS_NORM): w is not the allocator's."""
    at = offsets(norm("b", weight("w", BUFT)))

    assert at == {"b": 0}


def test_a_node_in_place_keeps_the_buffer_of_its_source():
    """a [backend 0] ──► b (RMS_NORM) [backend 1], which reads backend 0's memory: b stays there."""
    b = norm("b", matmul("a", weight("w", BUFT), graph_input("x")))
    graph = alloc_graph(b, ids={"b": 1})

    plan = plan_allocation(graph, (BUFT, OTHER))

    assert place(plan, graph)[b].buffer_id == 0
    assert plan.chunk_bytes[1] == ()


# Lifetimes.


def test_memory_is_used_again_after_its_last_reader():
    """x ──► a ──► b ──► c, matmuls: c lies where a was."""
    a = matmul("a", weight("w0", BUFT), graph_input("x"))
    c = matmul("c", weight("w2", BUFT), matmul("b", weight("w1", BUFT), a))

    at = offsets(c)

    # x is free once a is computed: b lies there, and c where a was.
    assert at == {"x": 0, "a": FULL, "b": 0, "c": FULL}


def test_a_view_keeps_its_source_alive():
    """a ──► view, then b, c, then view is read."""
    a = matmul("a", weight("w0", BUFT), graph_input("x"))
    view = build.reshape(a, N, N)
    c = matmul("c", weight("w2", BUFT), matmul("b", weight("w1", BUFT), a))

    at = offsets(c, named("d", build.add(c, view)))

    assert at["a"] not in (at["b"], at["c"])


def test_the_last_view_frees_its_source():
    """a ──► view ──► b (MUL_MAT), then c: c lies where a was."""
    a = matmul("a", weight("w0", BUFT), graph_input("x"))
    b = matmul("b", weight("w1", BUFT), build.reshape(a, N, N))

    at = offsets(matmul("c", weight("w2", BUFT), b))

    assert at["c"] == at["a"]


def test_the_last_view_does_not_free_a_source_that_is_read_later():
    """a ──► view ──► b ──► c, then d reads c and a: c does not lie where a is."""
    a = matmul("a", weight("w0", BUFT), graph_input("x"))
    b = matmul("b", weight("w1", BUFT), build.reshape(a, N, N))
    c = matmul("c", weight("w2", BUFT), b)

    at = offsets(named("d", build.add(c, a)))

    assert at["c"] != at["a"]


@pytest.mark.parametrize("flags", [Flag.NONE, Flag.OUTPUT])
def test_outputs_and_unread_nodes_are_never_freed(flags):
    """T8: x ──► a, read by nobody or an output; then b, c, d."""
    a = matmul("a", weight("w0", BUFT), graph_input("x"))
    a.flags |= flags
    b = matmul("b", weight("w1", BUFT), a if flags else graph_input("y"))
    d = matmul("d", weight("w3", BUFT), matmul("c", weight("w2", BUFT), b))

    at = offsets(a, d)

    assert at["a"] not in (at["b"], at["c"], at["d"])


def test_an_input_is_allocated_with_its_own_backend():
    """T9: x (input) [backend 1] ──► a [backend 0]: leafs come first, with the leaf's id."""
    x = graph_input("x")
    graph = alloc_graph(matmul("a", weight("w", BUFT), x), ids={"x": 1})

    plan = plan_allocation(graph, (BUFT, OTHER))

    assert place(plan, graph)[x].buffer_id == 1


def test_a_node_that_is_an_input_is_allocated_before_all_others():
    """x ──► a ──► b (INPUT, as pipeline copies are): b takes memory first, then a."""
    b = matmul("b", weight("w1", BUFT), matmul("a", weight("w0", BUFT), graph_input("x")))
    b.flags |= Flag.INPUT

    at = offsets(b)

    assert at == {"x": 0, "b": FULL, "a": 2 * FULL}


def test_a_helper_keeps_the_source_of_a_copy_until_its_split_reads_it():
    """a [CPU], b [CPU], then c [GPU0] reads a: b does not get a's memory."""
    a = matmul("a", weight("w0", BUFT), graph_input("x"))
    b = matmul("b", weight("w1", BUFT), norm("an", a))
    c = matmul("c", weight("w2", GPU0_BUFT), a)
    solved = solve(b, c, on=(gpu(), cpu()))

    run = build_run_graph(solved.problem, solved.trace)
    at = place(plan_allocation(run.alloc, (GPU0_BUFT, BUFT)), run.alloc)

    names = [node.name for node in run.alloc.nodes]
    assert names[names.index("GPU0#a#0") - 1] == "a (view)"
    by_name = {tensor.name: spot for tensor, spot in at.items()}
    assert by_name["b"].offset != by_name["a"].offset
    assert by_name["GPU0#a#0"].buffer_id == 0


# Reserve and reuse.


def test_backends_of_one_buffer_type_share_its_buffer():
    """a [backend 0] ──► b [backend 1], same type: one allocator, the size told once."""
    b = matmul("b", weight("w1", BUFT), matmul("a", weight("w0", BUFT), graph_input("x")))

    plan = plan_allocation(alloc_graph(b, ids={"b": 1}), (BUFT, BUFT))

    assert compute_bytes(plan, (BUFT, BUFT)) == (2 * FULL, 0)


def test_a_backend_without_tensors_needs_no_memory():
    plan = plan_allocation(alloc_graph(norm("a", graph_input("x"))), (BUFT, OTHER))

    assert compute_bytes(plan, (BUFT, OTHER)) == (FULL, 0)


def chain(n_rows: int, n_nodes: int = 2) -> AllocGraph:
    x = graph_input("x", N, n_rows)
    for i in range(n_nodes):
        x = matmul(f"n{i}", weight(f"w{i}", BUFT), x)
    return alloc_graph(x)


def test_a_plan_fits_a_graph_with_smaller_tensors():
    plan = plan_allocation(chain(N), (BUFT,))

    assert fits(plan, chain(1), (BUFT,))


@pytest.mark.parametrize("other", [chain(2 * N), chain(N, 3)], ids=["larger", "longer"])
def test_a_plan_does_not_fit_a_larger_or_longer_graph(other):
    plan = plan_allocation(chain(N), (BUFT,))

    assert not fits(plan, other, (BUFT,))


def test_a_plan_does_not_fit_a_graph_with_more_leafs():
    more = alloc_graph(*chain(N).nodes[-1:], constant("k"))
    plan = plan_allocation(chain(N), (BUFT,))

    assert not fits(plan, more, (BUFT,))


def test_a_plan_does_not_fit_where_it_had_a_tensor_without_memory():
    """The first graph has a weight where the second has an activation."""
    plan = plan_allocation(alloc_graph(norm("a", weight("w", BUFT))), (BUFT,))

    assert not fits(plan, alloc_graph(norm("a", graph_input("x"))), (BUFT,))


def test_a_plan_does_not_fit_a_node_with_a_source_more():
    plan = plan_allocation(alloc_graph(norm("a", graph_input("x"))), (BUFT,))
    k = graph_input("x")
    other = alloc_graph(named("a", build.add(k, k)))

    assert not fits(plan, other, (BUFT,))


def test_tensors_that_live_elsewhere_are_recorded_so():
    graph = alloc_graph(matmul("a", weight("w", BUFT), graph_input("x")))

    plan = plan_allocation(graph, (BUFT,))

    assert plan.nodes[0][1][0] == ELSEWHERE


@pytest.mark.parametrize(
    ("have", "need", "expected"),
    [
        ((), (64,), (64,)),
        ((64,), (32,), (64,)),
        ((64,), (128,), (128,)),
        ((64, 64), (32, 65), (32, 65)),
        ((64, 64), (32,), (64, 64)),
        ((64,), (), (64,)),
    ],
)
def test_buffers_grow_all_at_once_and_never_shrink(have, need, expected):
    assert grown(have, need) == expected


# The dynamic allocator.


def holed(sizes: list[int], free: list[int]) -> ChunkAllocator:
    """An allocator after `sizes` were taken and those numbered `free` given back."""
    allocator = ChunkAllocator(alignment=1, max_chunk=1000)
    places = [allocator.alloc(size) for size in sizes]
    for i in free:
        allocator.free(*places[i], sizes[i])
    return allocator


def test_the_smallest_block_that_fits_is_taken():
    """blocks: 50 free at 0, 30 free at 60"""
    allocator = holed([50, 10, 30, 10], [0, 2])

    assert allocator.alloc(20) == (0, 60)


def test_among_equal_blocks_the_later_one_is_taken():
    allocator = holed([30, 10, 30, 10], [0, 2])

    assert allocator.alloc(30) == (0, 40)


def test_the_last_block_is_taken_only_when_no_other_fits():
    allocator = holed([30, 10], [0])

    assert [allocator.alloc(31), allocator.alloc(30)] == [(0, 40), (0, 0)]


def test_best_fit_starts_anew_in_every_chunk():
    """T7: 20 free in chunk 0, 60 in chunk 1: the later chunk wins, though its block is larger."""
    allocator = ChunkAllocator(alignment=1, max_chunk=100)
    (a, _, b, _) = [(size, allocator.alloc(size)) for size in (20, 70, 60, 30)]
    allocator.free(*a[1], a[0])
    allocator.free(*b[1], b[0])

    assert allocator.alloc(20) == (1, 0)


def test_a_full_chunk_is_followed_by_a_new_one():
    allocator = ChunkAllocator(alignment=1, max_chunk=100)

    assert [allocator.alloc(80), allocator.alloc(80)] == [(0, 0), (1, 0)]


def test_a_request_above_the_limit_gets_a_chunk_of_its_size():
    allocator = ChunkAllocator(alignment=1, max_chunk=100)

    assert [allocator.alloc(500), allocator.alloc(100)] == [(0, 0), (1, 0)]


def test_a_chunk_that_need_not_grow_is_preferred():
    """Chunk 0 ends at 80 with 20 left; chunk 1 was used up to 90 and is free from 60 on."""
    allocator = ChunkAllocator(alignment=1, max_chunk=100)
    (_, _, c) = [allocator.alloc(size) for size in (80, 60, 30)]
    allocator.free(*c, 30)

    assert allocator.alloc(20) == (1, 60)


def test_the_chunk_that_grows_least_is_preferred_when_all_must_grow():
    """Chunk 0 would grow from 75 to 85, chunk 1 from 90 to 95."""
    allocator = ChunkAllocator(alignment=1, max_chunk=100)
    (_, b, _, d) = [allocator.alloc(size) for size in (50, 25, 60, 30)]
    allocator.free(*b, 25)
    allocator.free(*d, 30)

    assert allocator.alloc(35) == (1, 60)


def test_the_last_chunk_has_no_limit():
    allocator = ChunkAllocator(alignment=1, max_chunk=10)
    for _ in range(MAX_CHUNKS + 3):
        allocator.alloc(10)

    assert len(allocator.chunks) == MAX_CHUNKS
    assert allocator.chunks[-1].high == 40


@pytest.mark.parametrize(
    "order", [(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)]
)
def test_freed_neighbours_merge_in_any_order(order):
    allocator = holed([10, 20, 30, 40], list(order))

    assert allocator.chunks[0].free == [[0, 60], [100, 900]]


def test_freeing_the_end_merges_with_what_was_never_used():
    allocator = holed([10, 20], [1])

    assert allocator.chunks[0].free == [[10, 990]]


def test_freeing_into_a_full_chunk_makes_a_block():
    allocator = ChunkAllocator(alignment=1, max_chunk=30)
    places = [allocator.alloc(10) for _ in range(3)]
    allocator.free(*places[1], 10)

    assert allocator.chunks[0].free == [[10, 10]]


@given(st.lists(st.tuples(st.integers(1, 300), st.booleans(), st.integers(0, 99)), max_size=40))
def test_taken_blocks_never_overlap_and_the_mark_is_the_highest_end(steps):
    allocator = ChunkAllocator(alignment=32, max_chunk=512)
    taken: list[tuple[int, int, int]] = []
    highest: dict[int, int] = {}
    for size, gives_back, which in steps:
        if gives_back and taken:
            allocator.free(*taken.pop(which % len(taken)))
            continue
        chunk, offset = allocator.alloc(size)
        stop = offset + aligned(size, 32)
        assert offset % 32 == 0
        for other, start, other_size in taken:
            overlaps = chunk == other and offset < start + aligned(other_size, 32) and start < stop
            assert not overlaps
        taken.append((chunk, offset, size))
        highest[chunk] = max(highest.get(chunk, 0), stop)

    assert [chunk.high for chunk in allocator.chunks] == [highest[c] for c in sorted(highest)]


# Whole graphs.


@pytest.mark.parametrize(
    ("sizes", "limit", "offsets", "totals"),
    [
        ((), None, (), ()),
        ([10, 20], None, ((0, 0), (0, 10)), (30,)),
        ([10, 20, 5], 30, ((0, 0), (0, 10), (1, 0)), (30, 5)),
        ([50, 10], 30, ((0, 0), (1, 0)), (50, 10)),
    ],
)
def test_sizes_are_packed_into_as_few_buffers_as_the_limit_asks_for(sizes, limit, offsets, totals):
    assert pack(sizes, limit) == (offsets, totals)


@given(st.lists(st.integers(1, 50), max_size=30), st.integers(50, 120))
def test_packed_sizes_follow_one_another(sizes, limit):
    offsets, totals = pack(sizes, limit)

    assert sum(totals) == sum(sizes)
    assert all(total <= limit for total in totals)
    ends = [(i, offset + size) for (i, offset), size in zip(offsets, sizes, strict=True)]
    for spot, end in zip(offsets[1:], ends, strict=False):
        assert spot in (end, (end[0] + 1, 0))


def test_bytes_of_parts_are_those_of_their_blocks_and_what_memory_adds():
    x = Tensor(TensorType.Q4_0, (96, 10, 1, 1))
    plain = BufferTypeFacts("plain", alignment=4)
    padding = BufferTypeFacts("padding", alignment=128, pad_row_elems=512)

    columns, rows = shard_along(0, (32, 64)), shard_along(1, (4, 6))
    assert [part_bytes(plain, x, columns, member) for member in (0, 1)] == [180, 360]
    assert [part_bytes(plain, x, rows, member) for member in (0, 1)] == [216, 324]
    assert part_bytes(plain, x, MIRRORED, 1) == x.n_bytes
    assert [part_bytes(plain, x, one_of(0, 2), member) for member in (0, 1)] == [x.n_bytes, 0]
    # 480 and 448 elements more, of 18 bytes for 32: 450 and 612 bytes.
    assert [part_bytes(padding, x, columns, member) for member in (0, 1)] == [512, 640]


@st.composite
def planned(draw):
    """(alloc graph, its buffer types, its plan) of a random graph after the passes."""
    problem = draw(problems())
    try:
        trace = split_graph(problem)
    except PlacementError:
        assume(False)
    run = build_run_graph(problem, trace)
    bufts = tuple(view.buft for view in problem.backends)
    return run.alloc, bufts, plan_allocation(run.alloc, bufts)


def lifetimes(graph: AllocGraph) -> dict[Tensor, tuple[int, int]]:
    """(first, last) step at which a tensor's bytes must be there; leafs are from the start.

    A view begins nothing: a split may name a view of what it computes later itself.
    """
    end = len(graph.nodes)
    alive = {leaf: [-1, end] for leaf in graph.leafs}
    last_read: dict[Tensor, int] = {}
    for i, node in enumerate(graph.nodes):
        if node.view_src is None:
            alive.setdefault(node, [i, end])
        for source in node.src:
            last_read[source.base] = i
    # A view that is computed later also needs its source, even when nobody reads the view.
    for i, node in enumerate(graph.nodes):
        if node.view_src is not None and node.view_src in last_read:
            last_read[node.view_src] = max(last_read[node.view_src], i)
    for tensor, i in last_read.items():
        if tensor in alive and not tensor.flags & Flag.OUTPUT:
            alive[tensor][1] = i
    return {tensor: (first, last) for tensor, (first, last) in alive.items()}


def is_heir(graph: AllocGraph, heir: Tensor, tensor: Tensor) -> bool:
    """Whether `heir` may take the place of `tensor`, its source, while it is computed."""
    return heir.op in INPLACE_OPS and any(source is tensor for source in heir.src)


@given(planned())
def test_what_a_graph_needs_is_known_without_its_offsets(case):
    graph, bufts, plan = case

    assert needed_chunks(graph, bufts) == plan.chunk_bytes


@given(planned())
def test_no_two_live_tensors_overlap(case):
    graph, bufts, plan = case
    alive = lifetimes(graph)
    spots = [(t, s) for t, s in place(plan, graph).items() if t in alive]

    for i, (a, at_a) in enumerate(spots):
        for b, at_b in spots[:i]:
            same = bufts[at_a.buffer_id] == bufts[at_b.buffer_id] and at_a.chunk == at_b.chunk
            stop_a = at_a.offset + bufts[at_a.buffer_id].alloc_bytes(a)
            stop_b = at_b.offset + bufts[at_b.buffer_id].alloc_bytes(b)
            if not same or at_a.offset >= stop_b or at_b.offset >= stop_a:
                continue
            early, late = sorted((a, b), key=lambda t: alive[t][0])
            ends, begins = alive[early][1], alive[late][0]
            assert ends < begins or (ends == begins and is_heir(graph, late, early)), (a, b)


@given(planned())
def test_every_offset_is_aligned(case):
    graph, bufts, plan = case

    for spot in place(plan, graph).values():
        assert spot.offset % bufts[spot.buffer_id].alignment == 0


@given(planned())
def test_the_high_water_mark_is_the_highest_end(case):
    graph, bufts, plan = case
    highest: dict[tuple[BufferTypeFacts, int], int] = {}
    for tensor, spot in place(plan, graph).items():
        buft = bufts[spot.buffer_id]
        end = spot.offset + aligned(buft.alloc_bytes(tensor), buft.alignment)
        highest[buft, spot.chunk] = max(highest.get((buft, spot.chunk), 0), end)

    for buft, chunks in zip(bufts, plan.chunk_bytes, strict=True):
        assert list(chunks) == [highest[buft, i] for i in range(len(chunks))]


@given(planned())
def test_a_plan_fits_its_own_graph_and_gives_the_same_places(case):
    graph, bufts, plan = case

    assert fits(plan, graph, bufts)
    places = place(plan, graph)
    for node, (own, sources) in zip(graph.nodes, plan.nodes, strict=True):
        assert places.get(node, ELSEWHERE) == own
        assert [places.get(source, ELSEWHERE) for source in node.src] == list(sources)


@given(planned())
def test_planning_twice_gives_the_same_plan(case):
    graph, bufts, plan = case

    again = plan_allocation(graph, bufts)

    assert (again.nodes, again.leafs, again.chunk_bytes) == (
        plan.nodes, plan.leafs, plan.chunk_bytes,
    )  # fmt: skip
