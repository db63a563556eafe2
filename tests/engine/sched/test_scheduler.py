"""The scheduler and execution on devices that compute nothing: waits, copies, reuse."""

import dataclasses

import numpy as np
import pytest

from engine.backend.host_buffer import HostBufferType
from engine.backend.interface import Place
from engine.core import build
from engine.core.devices import BufferUsage
from engine.core.graph import Graph
from engine.core.plan import Batch, BatchShape
from engine.core.tensor import Flag, Tensor
from engine.core.types import TensorType
from engine.errors import DeviceError, ModelError, PlacementError, Stopped
from engine.sched.planner import layers_of, plan_graph
from engine.trace.records import SpanFlag, SpanKind
from tests.engine.sched.bench import FULL, Bench, on_cpu, on_gpu
from tests.engine.sched.drawn import (
    CPU_BUFT,
    GPU0_BUFT,
    GPU1_BUFT,
    N,
    blas,
    cache,
    cpu,
    given,
    gpu,
    graph_of,
    matmul,
    named,
    norm,
    weight,
)

# Waits and copies.


def test_a_user_input_waits_for_the_backend_that_reads_it():
    """x (input) ──► a [GPU0]"""
    calls = Bench(gpu(), cpu()).run(on_gpu("a", given("x")))

    assert calls == ["synchronize GPU0", f"set_tensor GPU0 n={FULL}", "graph_compute GPU0 n=1:a"]


def test_an_activation_waits_for_both_sides_before_a_blocking_copy():
    """a [CPU] ──► b [GPU0]"""
    calls = Bench(gpu(), cpu()).run(on_gpu("b", on_cpu("a", given("x"))))

    assert calls == [
        "graph_compute CPU n=1:a",
        "synchronize GPU0",
        "synchronize CPU",
        "synchronize GPU0",
        f"set_tensor GPU0 n={FULL}",
        "graph_compute GPU0 n=1:b",
    ]


def test_a_copy_to_the_host_is_read_from_the_device():
    """a [GPU0] ──► b [CPU]"""
    calls = Bench(gpu(), cpu()).run(on_cpu("b", on_gpu("a", given("x"))))

    assert f"get_tensor GPU0 n={FULL}" in calls


def test_devices_that_queue_copies_do_not_block_the_host():
    """a [GPU0] ──► b [GPU1]"""
    bench = Bench(gpu("GPU0"), gpu("GPU1"), cpu(), asynchronous=True, cpyasync=True)

    calls = bench.run(on_gpu("b", on_gpu("a", given("x")), GPU1_BUFT))

    assert calls[-3:] == [
        "synchronize GPU1",
        "cpy_tensor_async GPU0->GPU1 ok",
        "graph_compute GPU1 n=1:b",
    ]


def test_a_refused_queued_copy_becomes_a_blocking_one():
    """a [CPU] ──► b [GPU0]: the CPU queues nothing."""
    bench = Bench(gpu(), cpu(), asynchronous=True, cpyasync=True)

    calls = bench.run(on_gpu("b", on_cpu("a", given("x"))))

    assert "cpy_tensor_async CPU->GPU0 refused" in calls
    assert calls[-2] == f"set_tensor GPU0 n={FULL}"


def test_two_devices_without_a_common_way_bounce_through_the_host():
    """a [GPU0] ──► b [GPU1]"""
    calls = Bench(gpu("GPU0"), gpu("GPU1"), cpu()).run(
        on_gpu("b", on_gpu("a", given("x")), GPU1_BUFT)
    )

    assert calls[-4:-1] == [
        "cpy_tensor GPU1 refused", f"get_tensor GPU0 n={FULL}", f"set_tensor GPU1 n={FULL}",
    ]  # fmt: skip


def test_a_split_without_inputs_waits_for_the_backend_before_it():
    """a [GPU0], then b [CPU], which reads nothing of a: a's memory may be used again."""
    b = on_cpu("b", given("y"))

    calls = Bench(gpu(), cpu()).run(on_gpu("a", given("x")), b)

    assert calls[-2:] == ["synchronize GPU0", "graph_compute CPU n=1:b"]


def test_the_first_split_waits_for_nobody():
    """a [CPU]"""
    calls = Bench(gpu(), cpu()).run(on_cpu("a", given("x")))

    assert calls == ["graph_compute CPU n=1:a"]


def test_a_stop_leaves_nothing_queued(monkeypatch):
    """a [GPU0] ──► b [CPU], where somebody asks to stop before b."""
    bench = Bench(gpu(), cpu(), asynchronous=True)
    allocated = bench.alloc(on_cpu("b", on_gpu("a", given("x"))))
    bench.calls.clear()

    def stop(graph):
        raise Stopped

    monkeypatch.setattr(bench.backends[1], "graph_compute", stop)
    with pytest.raises(Stopped):
        bench.scheduler.compute(allocated, step=0)

    assert bench.calls[-2:] == ["synchronize GPU0", "synchronize CPU"]


def test_a_source_the_graph_does_not_visit_cannot_be_copied():
    """x ──► a [GPU0], with the copy's source set to a slot behind the last node."""
    bench = Bench(gpu(), cpu())
    allocated = bench.alloc(on_gpu("a", given("x")))
    copy = dataclasses.replace(allocated.plan.trace.cut.copies[0], slot=99)
    split = dataclasses.replace(allocated.plan.trace.cut.splits[0], inputs=(copy,))
    cut = dataclasses.replace(allocated.plan.trace.cut, splits=(split,))
    trace = dataclasses.replace(allocated.plan.trace, cut=cut)
    broken = dataclasses.replace(allocated, plan=dataclasses.replace(allocated.plan, trace=trace))

    with pytest.raises(AssertionError, match="does not visit"):
        bench.scheduler.compute(broken, step=0)


# Experts.


def experts(bench: Bench, used: list[int], n_expert: int = 8) -> list[int]:
    """Sizes of the pieces of the experts' weight that were copied to GPU0."""
    experts_weight = weight("experts", CPU_BUFT, N, N, n_expert)
    ids = cache("ids", CPU_BUFT, len(used), 1)
    ids.type, ids.nb = TensorType.I32, (4, 4 * len(used), 4 * len(used), 4 * len(used))
    host = HostBufferType(CPU_BUFT).alloc_buffer(ids.n_bytes or 1)
    bench.resident[ids] = Place(host, 0)
    if used:
        host.set_tensor(0, np.array(used, np.int32).view(np.uint8))
    picked = named("a", build.mul_mat_id(experts_weight, given("x", N, 1), ids))
    calls = bench.run(picked)
    return [int(c.rpartition("n=")[2]) for c in calls if c.startswith("set_tensor_async")]


EXPERT = 4 * N * N
PAD = 512


def test_only_runs_of_used_experts_are_copied():
    """Experts 1, 2, 5, 7 of 8: three pieces, padded except after the last expert."""
    bench = Bench(gpu(offload=1), cpu(), asynchronous=True)

    assert experts(bench, [7, 1, 5, 2, 1]) == [2 * EXPERT + PAD, EXPERT + PAD, EXPERT]


def test_all_experts_are_one_piece():
    bench = Bench(gpu(offload=1), cpu(), asynchronous=True)

    assert experts(bench, [0, 1, 2, 3], n_expert=4) == [4 * EXPERT]


def test_no_ids_copy_no_expert():
    bench = Bench(gpu(offload=1), cpu(), asynchronous=True)

    assert experts(bench, []) == []


@pytest.mark.parametrize("expert", [8, -1])
def test_an_expert_that_does_not_exist_is_named_with_the_tensor_that_asks_for_it(expert):
    bench = Bench(gpu(offload=1), cpu(), asynchronous=True)

    with pytest.raises(ModelError, match=f"ids names expert {expert}, and the layer has 8"):
        experts(bench, [expert])

    assert bench.calls[-2:] == ["synchronize GPU0", "synchronize CPU"]


def test_experts_that_are_not_the_splits_first_operation_are_copied_whole():
    """a [GPU0] ──► b (MUL_MAT_ID) ◄── experts [CPU memory]: b joins a's split."""
    bench = Bench(gpu(offload=1), cpu())
    a = matmul("a", weight("w", GPU0_BUFT), weight("v", GPU0_BUFT))
    ids = cache("ids", GPU0_BUFT, 2, N)
    ids.type = TensorType.I32
    shaped = build.reshape(a, N, 1, N)
    b = named("b", build.mul_mat_id(weight("experts", CPU_BUFT, N, N, 4), shaped, ids))

    calls = bench.run(b)

    assert f"set_tensor GPU0 n={4 * EXPERT}" in calls


def test_experts_seen_through_a_view_are_copied_as_those_of_the_weight_itself():
    """a [CPU], stack (view of the 4 last of 8 experts in CPU memory) ──► picked [GPU0]"""
    bench = Bench(gpu(), cpu(), asynchronous=True)
    exps = weight("experts", CPU_BUFT, N, N, 8)
    host = HostBufferType(CPU_BUFT).alloc_buffer(exps.n_bytes)
    bench.resident[exps] = Place(host, 0)
    stack = named("stack", build.view(exps, (N, N, 4), exps.nb[1:3], 4 * exps.nb[2]))
    ids = cache("ids", CPU_BUFT, 2, 1)
    ids.type, ids.nb = TensorType.I32, (4, 8, 8, 8)
    ids_home = HostBufferType(CPU_BUFT).alloc_buffer(ids.n_bytes)
    ids_home.set_tensor(0, np.array([1, 2], np.int32).view(np.uint8))
    bench.resident[ids] = Place(ids_home, 0)
    picked = named("picked", build.mul_mat_id(stack, given("x", N, 1), ids))

    calls = bench.run(on_cpu("a", given("y")), picked, pins={picked: 0})

    pieces = [c for c in calls if c.startswith("set_tensor_async")]
    assert [c.rpartition("n=")[2] for c in pieces] == [str(2 * EXPERT + PAD)]


def test_ids_are_read_again_only_when_another_tensor_holds_them():
    """up, gate, down ◄── ids [CPU]: the original, then its copy on GPU0, which serves twice."""
    bench = Bench(gpu(offload=1), cpu(), asynchronous=True)
    x, ids = given("x", N, 1), cache("ids", CPU_BUFT, 2, 1)
    ids.type = TensorType.I32
    up = named("up", build.mul_mat_id(weight("w_up", CPU_BUFT, N, N, 4), x, ids))
    gate = named("gate", build.mul_mat_id(weight("w_gate", CPU_BUFT, N, N, 4), x, ids))
    down = named("down", build.mul_mat_id(weight("w_down", CPU_BUFT, N, N, 4), x, ids))

    calls = bench.run(up, gate, down)

    assert sum(call.startswith("get_tensor") and call.endswith("n=8") for call in calls) == 2
    assert sum(call.startswith("set_tensor_async") for call in calls) == 3


# op_offload.


@pytest.mark.parametrize(
    ("op_offload", "copied"), [(True, ["w_a", "x", "w_b"]), (False, [])], ids=["on", "off"]
)
def test_op_offload_decides_whether_weights_are_copied_in(op_offload, copied):
    """x ──► a ──► b, weights in CPU memory, GPU0 willing."""
    bench = Bench(gpu(offload=N), cpu())
    b = on_cpu("b", on_cpu("a", given("x")))

    plan = bench.plan(b, op_offload=op_offload)

    names = [t.name for t in (*plan.graph.leafs, *plan.graph.nodes)]
    assert [names[copy.slot] for copy in plan.trace.cut.copies] == copied


def test_flipping_op_offload_moves_the_next_graph_only():
    bench = Bench(gpu(offload=N), cpu())
    b = on_cpu("b", on_cpu("a", given("x")))
    before = bench.alloc(b)

    after = bench.run(b, op_offload=False)
    bench.calls.clear()
    bench.scheduler.compute(before, step=1)

    assert after == ["graph_compute CPU n=2:a,b"]
    assert [c for c in bench.calls if c.startswith("graph_compute")] == [
        "graph_compute GPU0 n=1:a", "graph_compute GPU0 n=1:b",
    ]  # fmt: skip


# Buffers and places.


def test_an_allocated_graph_can_be_computed_again():
    bench = Bench(gpu(), cpu())
    allocated = bench.alloc(on_gpu("a", given("x")))
    bench.calls.clear()

    bench.scheduler.compute(allocated, step=0)
    first = list(bench.calls)
    bench.calls.clear()
    bench.scheduler.compute(allocated, step=1)

    assert bench.calls == first
    assert bench.spans(SpanKind.SPLIT)["step"].tolist() == [0, 1]


def test_every_split_of_every_graph_has_its_own_uid():
    bench = Bench(gpu(), cpu())
    first = bench.alloc(on_cpu("b", on_gpu("a", given("x"))))
    second = bench.alloc(on_cpu("b", on_gpu("a", given("x"))))

    uids = [split.uid for graph in (first, second) for split in graph.splits]

    assert len(set(uids)) == 4


def test_a_smaller_graph_of_the_same_form_keeps_the_buffers():
    bench = Bench(gpu(), cpu())
    bench.scheduler.reserve(bench.plan(on_gpu("a", given("x"))))
    bench.calls.clear()

    bench.alloc(on_gpu("a", given("x", N, 1)))

    assert [c for c in bench.calls if c.startswith("alloc_buffer")] == [f"alloc_buffer GPU0 {FULL}"]


def test_a_larger_graph_waits_for_everybody_and_grows_the_buffers():
    bench = Bench(gpu(), cpu())
    bench.alloc(on_gpu("a", given("x", N, 1)))
    sizes = bench.scheduler.buffer_bytes()
    bench.calls.clear()

    bench.alloc(on_gpu("b", on_gpu("a", given("x"))))

    assert bench.calls[2:4] == ["synchronize GPU0", "synchronize CPU"]
    assert all(new > old for new, old in zip(bench.scheduler.buffer_bytes(), sizes, strict=True))


def test_buffers_never_shrink():
    bench = Bench(gpu(), cpu())
    bench.alloc(on_gpu("b", on_gpu("a", given("x"))))
    sizes = bench.scheduler.buffer_bytes()

    bench.alloc(on_gpu("a", given("x", N, 1)))

    assert bench.scheduler.buffer_bytes() == sizes


def test_a_node_in_other_memory_at_the_same_index_reserves_anew():
    """T14: a on GPU0, then on the CPU; both read its weights: same counts, same sizes."""
    bench = Bench(gpu(bufts=("CPU",)), cpu())
    a = matmul("a", weight("w0", CPU_BUFT), weight("w1", CPU_BUFT))
    bench.alloc(a, pins={a: 0})
    bench.calls.clear()

    allocated = bench.alloc(a, pins={a: 1})

    assert bench.calls[:2] == ["synchronize GPU0", "synchronize CPU"]
    assert allocated.place_of(allocated.plan.run.nodes[0]).buffer.buft == CPU_BUFT


def test_backends_of_one_buffer_type_share_one_buffer():
    """a [BLAS] and b [CPU]"""
    bench = Bench(blas(), cpu())

    allocated = bench.alloc(norm("b", on_cpu("a", given("x"))))

    assert bench.scheduler.buffer_bytes()[1] == 0
    assert len({id(place.buffer) for t, place in allocated.places.items() if not t.buffer}) == 1


def test_nothing_is_reserved_before_the_first_graph():
    assert Bench(gpu(), cpu()).scheduler.buffer_bytes() == (0, 0)


def test_a_disposed_scheduler_has_no_buffers():
    bench = Bench(gpu(), cpu())
    bench.alloc(on_gpu("a", given("x")))

    bench.scheduler.dispose()

    assert bench.scheduler.buffer_bytes() == (0, 0)


def test_synchronize_asks_every_backend():
    bench = Bench(gpu("GPU0"), gpu("GPU1"), cpu())

    bench.scheduler.synchronize()

    assert bench.calls == ["synchronize GPU0", "synchronize GPU1", "synchronize CPU"]


def test_a_view_is_placed_inside_what_it_views():
    bench = Bench(gpu(), cpu())
    a = on_gpu("a", given("x"))
    view = named("view", build.view(a, (N, N // 2), (4 * N,), 4 * N))

    allocated = bench.alloc(norm("b", view))

    run_a, run_view, _ = allocated.plan.run.nodes
    assert allocated.place_of(run_view).offset == allocated.place_of(run_a).offset + 4 * N
    assert allocated.splits[0].place_of(run_view) == allocated.place_of(run_view)


# What is recorded.


def test_copies_are_recorded_with_what_they_moved():
    """a ◄── w [CPU memory, offloaded], x (input)"""
    bench = Bench(gpu(offload=N), cpu())

    bench.run(on_cpu("a", given("x")))

    spans = bench.spans(SpanKind.COPY)
    assert spans["bytes"].tolist() == [FULL, FULL]
    assert spans["flags"].tolist() == [SpanFlag.WEIGHT, SpanFlag.USER_INPUT]
    assert (spans["lane"].tolist(), spans["peer"].tolist()) == ([0, 0], [1, 1])
    assert set(spans["plan_id"]) == {7}


def test_each_piece_of_an_expert_copy_is_recorded_with_its_experts():
    """The weight's pieces, then x and nothing else, which are no experts."""
    bench = Bench(gpu(offload=1), cpu(), asynchronous=True)

    sizes = experts(bench, [7, 1, 5, 2, 1])

    spans = bench.spans(SpanKind.COPY)
    numbers = list(zip(spans["first_expert"].tolist(), spans["last_expert"].tolist(), strict=True))
    assert numbers == [(1, 2), (5, 5), (7, 7), (-1, -1), (-1, -1)]
    assert spans["bytes"].tolist()[:3] == sizes
    assert len(set(spans["index"][:3].tolist())) == 1
    assert bench.recorder.is_settled


def test_a_copied_activation_has_no_flag():
    bench = Bench(gpu(), cpu())

    bench.run(on_gpu("b", on_cpu("a", given("x"))))

    assert bench.spans(SpanKind.COPY)["flags"].tolist() == [SpanFlag.NONE]


def test_split_spans_follow_the_virtual_clock():
    bench = Bench(gpu(), cpu())

    bench.run(on_cpu("b", on_gpu("a", given("x"))))

    first, second = bench.spans(SpanKind.SPLIT)
    assert first["end_ns"] <= second["start_ns"]
    assert first["end_ns"] > first["start_ns"]


# Layers.


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["embd", "norm-0", "attn_norm-0", "norm-1", "node_9"], [-1, 0, 0, 1, 4]),
        (["cache_k_l3 (view)", "Qcur-2 (reshaped)"], [3, 2]),
        (["l_out-1", "norm", "result_norm", "result_output"], [1, 4, 4, 4]),
        (["norm", "Q4-K"], [-1, -1]),
    ],
)
def test_a_nodes_layer_is_in_its_name_or_the_next_name_that_tells_one(names, expected):
    nodes = tuple(Tensor(TensorType.F32, (1, 1, 1, 1), name=name) for name in names)

    layers = layers_of(Graph(nodes, ()), n_layers=4)

    assert [layers[i] for i in range(len(names))] == expected


def test_the_planned_graph_is_left_as_it_was():
    a = on_gpu("a", given("x"))
    sources = a.src

    Bench(gpu(), cpu()).run(a)

    assert a.src is sources
    assert a.flags == Flag.COMPUTE


# What cannot be scheduled.


def test_the_size_of_buffers_can_be_asked_without_allocating():
    bench = Bench(gpu(), cpu())
    plan = bench.plan(on_gpu("b", on_cpu("a", given("x"))))
    bench.calls.clear()

    sizes = bench.scheduler.reserve_size(plan)

    assert not any(call.startswith("alloc_buffer") for call in bench.calls)
    bench.scheduler.reserve(plan)
    assert sizes == bench.scheduler.buffer_bytes()


def test_asking_for_a_size_leaves_the_next_graph_where_its_nodes_are():
    """a on GPU0 is reserved, a on the CPU only asked about, and then allocated."""
    bench = Bench(gpu(bufts=("CPU",)), cpu())
    a = matmul("a", weight("w0", CPU_BUFT), weight("w1", CPU_BUFT))
    bench.alloc(a, pins={a: 0})

    bench.scheduler.reserve_size(bench.plan(a, pins={a: 1}))
    allocated = bench.alloc(a, pins={a: 1})

    assert allocated.place_of(allocated.plan.run.nodes[0]).buffer.buft == CPU_BUFT


def test_a_graph_without_memory_leaves_nothing_that_the_next_one_could_take(monkeypatch):
    """A larger graph gets no memory on GPU0; then a small one is allocated, and all is released."""
    bench = Bench(gpu(), cpu())
    bench.alloc(on_gpu("a", given("x", N, 1)))
    buft, released = bench.bufts[0], list[int]()
    alloc_buffer = buft.alloc_buffer

    def kept(size, usage=BufferUsage.ANY):
        buffer = alloc_buffer(size, usage)
        monkeypatch.setattr(buffer, "release", lambda: released.append(id(buffer)))
        return buffer

    def refused(size, usage=BufferUsage.ANY):
        raise DeviceError("GPU0 has no memory.")

    larger = bench.plan(on_gpu("b", on_gpu("a", given("x"))), copy_slot=0)
    bench.scheduler.reset()
    monkeypatch.setattr(buft, "alloc_buffer", refused)
    with pytest.raises(DeviceError):
        bench.scheduler.alloc_graph(larger, bench.resident)
    monkeypatch.setattr(buft, "alloc_buffer", kept)
    allocated = bench.alloc(on_gpu("b", on_gpu("a", given("x"))))
    bench.scheduler.dispose()

    own = {id(p.buffer) for t, p in allocated.places.items() if not t.buffer} & set(released)
    assert len(own) == len(released) == 1


def test_a_graph_is_given_up_before_the_next_is_allocated():
    bench = Bench(gpu(), cpu())
    bench.alloc(on_gpu("a", given("x")))

    with pytest.raises(AssertionError, match="reset"):
        bench.scheduler.alloc_graph(bench.plan(on_gpu("a", given("x"))), bench.resident)


@pytest.mark.parametrize(
    ("views", "message"),
    [
        ((cpu(), gpu()), "GPU0 cannot be the last backend.*type GPU"),
        ((*[gpu()] * 16, cpu()), "17 backends cannot be scheduled"),
        (
            (dataclasses.replace(gpu(), buft=CPU_BUFT), cpu()),
            "GPU0 cannot work in CPU memory",
        ),
    ],
)
def test_backends_that_ggml_refuses_are_refused_by_name(views, message):
    with pytest.raises(PlacementError, match=message):
        plan_graph(
            graph_of(norm("a", given("x"))), views, plan_id=1, batch=Batch.PROMPT,
            shape=BatchShape(N, 256, N),
        )  # fmt: skip


def test_a_tensor_in_memory_where_nobody_runs_it_is_named_with_what_each_backend_can_do():
    """k [GPU0 memory] ◄── a (SET_ROWS), which GPU0 does not have."""
    ids = given("ids", N, tensor_type=TensorType.I64)
    a = named("a", build.set_rows(cache("k", GPU0_BUFT), given("rows"), ids))

    with pytest.raises(PlacementError, match="No device can run SET_ROWS on a") as raised:
        Bench(gpu(ops=("MUL_MAT",)), cpu()).plan(a)

    assert raised.value.details.splitlines() == [
        "GPU0: can read GPU0 memory, cannot run SET_ROWS",
        "CPU: cannot read GPU0 memory, can run SET_ROWS",
    ]
