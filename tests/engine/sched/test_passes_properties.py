"""What holds for every graph, every support table and every order of priorities."""

import itertools

from hypothesis import given

from engine.core.devices import BufferUsage
from engine.core.graph import Graph
from engine.core.placement import NO_CAUSE, PASS_STEPS, UNASSIGNED, CauseKind
from engine.errors import PlacementError
from engine.sched.split_graph import STEPS, split_graph
from tests.engine.sched.literal import CannotPlaceError, Literal
from tests.engine.sched.random_graphs import problems


def solved(problem):
    """The trace, or None where no device can take a tensor from its home."""
    try:
        return split_graph(problem)
    except PlacementError:
        return None


def literal_of(problem) -> Literal:
    graph = problem.graph
    first = graph.n_leafs
    leafs, nodes = graph.tensors[:first], graph.tensors[first : first + graph.n_nodes]
    pins = {graph.tensors[slot]: backend_id for slot, backend_id in problem.user.items()}
    return Literal(Graph(nodes, leafs), list(problem.backends), problem.op_offload, pins)


@given(problems())
def test_the_passes_equal_a_literal_port(problem):
    trace = solved(problem)
    port = literal_of(problem)
    try:
        port.run()
    except CannotPlaceError:
        assert trace is None
        return

    assert trace is not None
    tensors = problem.graph.tensors
    for slot, tensor in enumerate(tensors):
        assert trace.final.backend_ids[slot] == port.id(tensor), tensor
        assert trace.final.causes[slot].tag == port.causes.get(tensor, ""), tensor
    assert [
        (s.backend_id, s.start, s.stop, [tensors[c.slot] for c in s.inputs])
        for s in trace.cut.splits
    ] == [(s["backend"], s["start"], s["stop"], s["inputs"]) for s in port.splits]
    assert {
        key: (tensors[trace.cut.copies[i].slot], trace.cut.copies[i].backend_id)
        for key, i in trace.cut.redirects.items()
    } == port.redirected


@given(problems())
def test_every_node_is_assigned_to_a_backend_that_has_its_operation(problem):
    trace = solved(problem)
    if trace is None:
        return

    for slot in problem.graph.node_slots:
        backend_id = trace.final.backend_ids[slot]
        assert backend_id != UNASSIGNED
        pinned = trace.final.causes[slot].kind is CauseKind.USER
        assert pinned or problem.supports_op(backend_id, slot)


@given(problems())
def test_splits_partition_the_nodes_in_order(problem):
    trace = solved(problem)
    if trace is None:
        return

    splits = trace.cut.splits
    assert splits[0].start == 0
    assert splits[-1].stop == problem.graph.n_nodes
    assert all(a.stop == b.start for a, b in itertools.pairwise(splits))
    assert all(split.start < split.stop for split in splits)
    first = problem.graph.n_leafs
    for split in splits:
        for slot in range(first + split.start, first + split.stop):
            if not problem.graph.is_view_op[slot]:
                assert trace.final.backend_ids[slot] == split.backend_id


@given(problems())
def test_exactly_what_a_split_cannot_read_is_redirected_to_a_copy_on_its_backend(problem):
    trace = solved(problem)
    if trace is None:
        return

    ids, first = list(trace.final.backend_ids), problem.graph.n_leafs
    for split in trace.cut.splits:
        for node_id in range(split.start, split.stop):
            if problem.graph.is_view_op[first + node_id]:
                continue
            for i_src, source in enumerate(problem.graph.src[first + node_id]):
                readable = ids[source] == split.backend_id or problem.buffer_supported(
                    source, split.backend_id, ids
                )
                copy_id = trace.cut.redirects.get((node_id, i_src))
                assert (copy_id is None) == readable
                if copy_id is not None:
                    copy = trace.cut.copies[copy_id]
                    assert (copy.slot, copy.backend_id) == (source, split.backend_id)
                    assert copy.split_id <= split.id
                    assert copy.tensors[0].same_layout(problem.graph.tensors[source])


@given(problems())
def test_a_copy_is_made_once_a_tensor_and_backend(problem):
    trace = solved(problem)
    if trace is None:
        return

    copies = trace.cut.copies
    assert len({(copy.slot, copy.backend_id) for copy in copies}) == len(copies)
    assert tuple(copy for split in trace.cut.splits for copy in split.inputs) == copies
    assert set(trace.cut.redirects.values()) == set(range(len(copies)))


@given(problems())
def test_no_pass_changes_what_an_earlier_one_decided_but_for_upgrades(problem):
    trace = solved(problem)
    if trace is None:
        return

    states = [problem.start(), *(state for _, state in trace.steps)]
    for before, after in itertools.pairwise(states):
        for old, new, cause in zip(
            before.backend_ids, after.backend_ids, after.causes, strict=True
        ):
            assert old in (UNASSIGNED, new) or cause.kind is CauseKind.UPGRADED


@given(problems())
def test_running_a_pass_again_changes_nothing(problem):
    if solved(problem) is None:
        return

    state = problem.start()
    for _, run_pass in STEPS:
        state = run_pass(problem, state)
        assert run_pass(problem, state) == state


@given(problems())
def test_replaying_the_causes_yields_the_assignment(problem):
    trace = solved(problem)
    if trace is None:
        return

    ids = [UNASSIGNED] * len(problem.graph.tensors)
    before = (NO_CAUSE,) * len(ids)
    for state in (problem.start(), *(state for _, state in trace.steps)):
        replay(problem, ids, state.causes, before)
        before = state.causes

    assert tuple(ids) == trace.final.backend_ids


def replay(problem, ids, causes, before):
    """Set the id of every slot whose cause is new, from its cause and the facts alone."""
    new = [slot for slot, cause in enumerate(causes) if cause != before[slot]]
    upward = any(causes[s].kind in (CauseKind.GPU_UP, CauseKind.REST_UP) for s in new)
    order = reading_order(problem, new, causes)
    for slot in reversed(order) if upward else order:
        ids[slot] = decided_by(problem, slot, causes[slot], ids)


def reading_order(problem, slots, causes):
    """Nodes in order, each followed by the sources it pulled along in pass 4."""
    late = [slot for slot in slots if causes[slot].kind is CauseKind.FROM_CONSUMER]
    return [*(slot for slot in slots if slot not in late), *late]


def decided_by(problem, slot, cause, ids):
    """The backend that one cause names."""
    n_backends = len(problem.backends)
    kind = cause.kind
    if kind is CauseKind.USER:
        return problem.user[slot]
    if kind is CauseKind.GRAPH_INPUT:
        return n_backends - 1
    if kind in (CauseKind.PREALLOCATED, CauseKind.WEIGHT):
        home = problem.home(slot if kind is CauseKind.PREALLOCATED else cause.neighbour)
        able = (
            b
            for b in range(n_backends)
            if problem.supports_buft(b, home.buft) and problem.supports_op(b, slot)
        )
        return next(able, UNASSIGNED)
    if kind is CauseKind.OFFLOADED:
        weight = problem.graph.tensors[cause.neighbour]
        assert weight.buffer.usage is BufferUsage.WEIGHTS
        tensor = problem.graph.tensors[slot]
        return next(
            b
            for b in range(n_backends)
            if problem.supports_op(b, slot) and problem.backends[b].rules.offload_op(tensor)
        )
    if kind is CauseKind.BEST_OF_INPUTS:
        able = [b for b in range(n_backends) if problem.supports_op(b, slot)]
        return max(able, key=lambda b: (readable_inputs(problem, slot, b, ids), -b))
    if kind is CauseKind.UPGRADED:
        return next(b for b in range(ids[slot]) if takes_over(problem, slot, b, ids))
    if kind is CauseKind.FIRST_SUPPORTED:
        return next(b for b in range(n_backends) if problem.supports_op(b, slot))
    return ids[cause.neighbour]


def readable_inputs(problem, slot, backend_id, ids):
    """How many placed inputs a backend can read."""
    bases = problem.graph.view_src
    return sum(
        (ids[s] != UNASSIGNED or (bases[s] >= 0 and ids[bases[s]] != UNASSIGNED))
        and problem.buffer_supported(s, backend_id, ids)
        for s in problem.graph.src[slot]
    )


def takes_over(problem, slot, backend_id, ids):
    """Whether a backend shares the memory of the node's own and reads all it needs."""
    return (
        problem.backends[backend_id].buft == problem.backends[ids[slot]].buft
        and problem.supports_op(backend_id, slot)
        and all(problem.buffer_supported(s, backend_id, ids) for s in problem.graph.src[slot])
    )


@given(problems())
def test_the_trace_holds_every_step_in_order(problem):
    trace = solved(problem)
    if trace is None:
        return

    assert (*(step for step, _ in trace.steps), "5") == PASS_STEPS
    assert trace.steps[-1][1] == trace.final
