"""The passes on graphs drawn by hand: one rule, or one trap of SCHED.md 17, a test.

In the drawings time runs down. [GPU0] marks what is placed when the rule is asked.
"""

import pytest

from engine.core import build
from engine.core.behaviour import CURRENT, GGML_0_13, Behaviour
from engine.core.devices import BackendView, BufferTypeFacts, mapped, offload_batch
from engine.core.ops import RopeParams
from engine.core.placement import CauseKind, SplitReason
from engine.core.tensor import Flag
from engine.core.types import TensorType
from engine.errors import PlacementError
from engine.model.meta_device import join
from engine.sched.passes.pass5_split import cut
from tests.engine.sched.drawn import (
    CPU_BUFT,
    GPU0_BUFT,
    GPU1_BUFT,
    REPACK_BUFT,
    N,
    blas,
    cache,
    constant,
    cpu,
    given,
    gpu,
    matmul,
    named,
    norm,
    solve,
    weight,
)

BOTH = (gpu(), cpu())


# Pass 1: tensors that already have a home.


def test_a_weight_is_where_its_memory_is():
    """w [GPU0 memory] ──► a"""
    solved = solve(matmul("a", weight("w", GPU0_BUFT), given("x")), on=BOTH)

    assert (solved.backend("w"), solved.tag("w")) == ("GPU0", "1.dst")


def test_a_graph_input_is_on_the_last_backend():
    """x (input) ──► a"""
    solved = solve(norm("a", given("x")), on=BOTH)

    assert (solved.backend("x"), solved.tag("x")) == ("CPU", "1.inp")


def test_the_last_backend_takes_inputs_whatever_its_type_is():
    """T10: the last backend is "the CPU" by position only.    x (input) ──► a"""
    solved = solve(norm("a", given("x")), on=(cpu(), gpu()))

    assert solved.backend("x") == "GPU0"


def test_an_operation_follows_its_weight():
    """x ──► a ◄── w [GPU0 memory]"""
    solved = solve(matmul("a", weight("w", GPU0_BUFT), given("x")), on=BOTH)

    assert (solved.backend("a"), solved.tag("a")) == ("GPU0", "1.wgt0")


def test_the_source_that_decided_is_told():
    """x ──► a (MUL) ◄── w [GPU0 memory], its second source"""
    scaled = named("a", build.mul(given("x"), weight("w", GPU0_BUFT, N)))

    solved = solve(scaled, on=BOTH)

    assert solved.tag("a") == "1.wgt1"
    assert solved.neighbour("a") == "w"


def test_the_first_weight_decides_and_ends_the_search():
    """T3: a ◄── w0 [GPU0 memory, which cannot MUL_MAT], w1 [CPU memory]: w1 is unasked."""
    a = matmul("a", weight("w0", GPU0_BUFT), weight("w1", CPU_BUFT))

    solved = solve(a, on=(gpu(not_ops=("MUL_MAT",)), cpu()))

    assert solved.at("1", "a") == ""


def test_a_weight_whose_device_lacks_the_operation_is_copied_back():
    """T1: x ──► a ◄── w [GPU0 memory], and GPU0 has no MUL_MAT: a on the CPU, w copied to it."""
    a = matmul("a", weight("w", GPU0_BUFT), given("x"))

    solved = solve(a, on=(gpu(not_ops=("MUL_MAT",)), cpu()))

    assert (solved.backend("a"), solved.tag("a")) == ("CPU", "3.best")
    assert solved.splits() == [("CPU", ["w"], ["a"])]


def test_a_view_of_a_weight_is_not_a_weight():
    """T2: w [GPU0 memory] ──► view ──► a ◄── x: the view is at home, a does not follow it."""
    view = build.view(weight("w", GPU0_BUFT), (N, N), (4 * N,))
    a = matmul("a", named("view", view), given("x"))

    solved = solve(a, on=BOTH)

    assert (solved.backend("view"), solved.tag("view")) == ("GPU0", "1.dst")
    assert solved.at("1", "a") == ""
    assert solved.tag("a") == "3.best"


def test_a_view_of_a_weight_does_not_begin_a_split():
    """T2: a (offloaded, w0 copied), then b reads a view of w1: still one split."""
    a = matmul("a", weight("w0", CPU_BUFT), given("x"))
    view = named("view", build.view(weight("w1", CPU_BUFT), (N, N), (4 * N,)))
    b = named("b", build.add(a, view))

    solved = solve(b, on=(gpu(offload=N), cpu()))

    assert solved.splits()[-1] == ("GPU0", ["w0", "x", "view"], ["a", "view", "b"])


@pytest.mark.parametrize("skipped", [True, False])
def test_rope_does_not_follow_its_factors(skipped):
    """x, positions, freqs [GPU0 memory] ──► a (ROPE): too small a weight to choose by."""
    freqs = weight("freqs", GPU0_BUFT, N // 2)
    positions = given("positions", N, tensor_type=TensorType.I32)
    a = named("a", build.rope(given("x", N, 1, N), positions, freqs, RopeParams(N)))
    behaviour = CURRENT if skipped else Behaviour(skip_weight_rule=frozenset())

    solved = solve(a, on=BOTH, behaviour=behaviour)

    assert solved.at("1", "a") == ("" if skipped else "GPU0")


def test_writing_into_the_cache_happens_where_the_cache_is():
    """T4: rows, ids ──► a (SET_ROWS) ◄── k [GPU0 memory]: not a view operation, an anchor."""
    ids = given("ids", N, tensor_type=TensorType.I64)
    a = named("a", build.set_rows(cache("k", GPU0_BUFT), given("rows"), ids))

    solved = solve(a, on=BOTH)

    assert (solved.backend("a"), solved.tag("a")) == ("GPU0", "1.dst")


def test_a_home_that_nobody_can_work_in_is_refused_by_name():
    """rows ──► a (SET_ROWS) ◄── k [GPU0 memory], and GPU0 has no SET_ROWS."""
    ids = given("ids", N, tensor_type=TensorType.I64)
    a = build.set_rows(cache("k", GPU0_BUFT), given("rows"), ids)

    with pytest.raises(PlacementError, match=r"SET_ROWS on k \(view\).*lies in GPU0 memory"):
        solve(a, on=(gpu(not_ops=("SET_ROWS",)), cpu()))


def test_a_weight_in_memory_that_no_backend_reads_is_named_without_an_operation():
    """a ◄── w [GPU1 memory], and the model uses GPU0 and the CPU."""
    with pytest.raises(PlacementError) as raised:
        solve(matmul("a", weight("w", GPU1_BUFT), given("x")), on=BOTH)

    assert raised.value.title == "No device of the model works in GPU1 memory."
    assert raised.value.sentence == "w lies there, and the model uses GPU0, CPU."


@pytest.mark.parametrize("buft", [GPU1_BUFT, mapped(GPU1_BUFT)])
def test_memory_of_a_device_that_is_joined_with_others_is_told_as_that(buft):
    """a ◄── w [GPU1 memory], and the model uses GPU0 and GPU1 as one, and the CPU."""
    joined = join([gpu().device, gpu("GPU1").device])

    with pytest.raises(PlacementError) as raised:
        solve(
            matmul("a", weight("w", buft), given("x")),
            on=(BackendView("M", joined, joined.buft), cpu()),
        )

    assert raised.value.title == f"No device of the model works in {buft.name} memory."
    assert "That device is a part of Meta() (-sm tensor)" in raised.value.sentence
    assert raised.value.hint == "Choose CPU memory (-ot), or -sm layer."


# op_offload.


def offloadable(batch=N, buft=CPU_BUFT):
    return matmul("a", weight("w", buft), given("x", N, batch))


def test_a_large_batch_is_offloaded_from_host_memory():
    """x [N, 32] ──► a ◄── w [CPU memory]; GPU0 wants 32 and more."""
    solved = solve(offloadable(), on=(gpu(offload=N), cpu()))

    assert (solved.backend("a"), solved.tag("a")) == ("GPU0", "1.off")
    assert solved.splits() == [("GPU0", ["w", "x"], ["a"])]


@pytest.mark.parametrize(
    ("settings", "views", "batch", "buft"),
    [
        pytest.param(
            {"op_offload": False}, (gpu(offload=N), cpu()), N, CPU_BUFT, id="switched off"
        ),
        pytest.param({}, (gpu(offload=N), cpu()), N - 1, CPU_BUFT, id="small batch"),
        pytest.param({}, BOTH, N, CPU_BUFT, id="device without the rule"),
        pytest.param({}, (gpu(offload=N, ops=()), cpu()), N, CPU_BUFT, id="no kernel"),
        pytest.param({}, (gpu(offload=N), cpu()), N, REPACK_BUFT, id="T19: not host memory"),
    ],
)
def test_an_operation_stays_with_its_weight(settings, views, batch, buft):
    """x ──► a ◄── w [CPU memory]: each of the four conditions is needed."""
    solved = solve(offloadable(batch, buft), on=views, **settings)

    assert (solved.backend("a"), solved.tag("a")) == ("CPU", "1.wgt0")


def test_repacked_weights_are_out_of_reach_of_blas():
    """T19: x ──► a ◄── w [CPU_REPACK memory]: BLAS reads host memory only."""
    solved = solve(offloadable(buft=REPACK_BUFT), on=(blas(), cpu()))

    assert solved.backend("a") == "CPU"


def test_offload_goes_to_the_first_willing_device():
    """T12: w1 [GPU1] ──► a ──► b ◄── w [CPU memory]: GPU0 takes b though its source is on GPU1."""
    a = matmul("a", weight("w1", GPU1_BUFT), given("x"))
    b = matmul("b", weight("w", CPU_BUFT), a)

    solved = solve(b, on=(gpu("GPU0", offload=N), gpu("GPU1", offload=N), cpu()))

    assert [solved.backend(name) for name in "ab"] == ["GPU1", "GPU0"]


def test_a_device_between_that_reads_host_weights_keeps_them_from_being_offloaded():
    """x ──► a ◄── w [CPU memory], BLAS before the CPU: the weight's device is not last."""
    solved = solve(offloadable(), on=(gpu(offload=N), blas(), cpu()))

    assert (solved.backend("a"), solved.tag("a")) == ("BLAS", "1.wgt0")


def test_a_table_look_up_is_never_offloaded():
    """T20: ids ──► a (GET_ROWS) ◄── w [CPU memory]: its batch counts as 0."""
    ids = given("ids", 512, tensor_type=TensorType.I32)
    a = named("a", build.get_rows(weight("w", CPU_BUFT), ids))

    solved = solve(a, on=(gpu(offload=N), cpu()))

    assert offload_batch(a) == 0
    assert solved.backend("a") == "CPU"


# Pass 2: neighbours.


def test_free_nodes_below_a_gpu_node_go_to_it():
    """w [GPU0] ──► a [GPU0] ──► b ──► c"""
    a = matmul("a", weight("w", GPU0_BUFT), given("x"))
    c = norm("c", norm("b", a))

    solved = solve(c, on=BOTH)

    assert [solved.backend(name) for name in "bc"] == ["GPU0", "GPU0"]
    assert solved.cause("b").kind is CauseKind.GPU_DOWN
    assert [solved.neighbour(name) for name in "bc"] == ["a", "b"]


def test_free_nodes_above_a_gpu_node_go_to_it():
    """a ──► b [GPU0] ◄── w [GPU0]"""
    b = matmul("b", weight("w", GPU0_BUFT), norm("a", given("x")))

    solved = solve(b, on=BOTH)

    assert (solved.backend("a"), solved.cause("a").kind) == ("GPU0", CauseKind.GPU_UP)
    assert solved.neighbour("a") == "b"


def test_cpu_is_skipped_when_expanding_gpu_down():
    """a [GPU0] ──► b [CPU] ──► c ──► d [CPU]: the sweep does not leap over b, c goes to the CPU."""
    a = matmul("a", weight("w0", GPU0_BUFT), given("x"))
    b = matmul("b", weight("w1", CPU_BUFT), a)
    d = matmul("d", weight("w2", CPU_BUFT), norm("c", b))

    solved = solve(d, on=BOTH)

    assert (solved.backend("c"), solved.cause("c").kind) == ("CPU", CauseKind.REST_DOWN)
    assert solved.neighbour("c") == "b"


def test_a_free_node_between_two_gpus_takes_the_upper_one():
    """a [GPU1] ──► b ──► c [GPU0]: the downward sweep comes first."""
    a = matmul("a", weight("w0", GPU1_BUFT), given("x"))
    c = matmul("c", weight("w1", GPU0_BUFT), norm("b", a))

    solved = solve(c, on=(gpu("GPU0"), gpu("GPU1"), cpu()))

    assert solved.backend("b") == "GPU1"


def test_gpus_spread_upwards_before_the_cpu_spreads_downwards():
    """a [CPU] ──► b ──► c [GPU0]"""
    a = matmul("a", weight("w0", CPU_BUFT), given("x"))
    c = matmul("c", weight("w1", GPU0_BUFT), norm("b", a))

    solved = solve(c, on=BOTH)

    assert (solved.backend("b"), solved.cause("b").kind) == ("GPU0", CauseKind.GPU_UP)


def test_the_cpu_spreads_upwards_last():
    """a ──► b [CPU]"""
    b = matmul("b", weight("w", CPU_BUFT), norm("a", given("x")))

    solved = solve(b, on=BOTH)

    assert (solved.backend("a"), solved.cause("a").kind) == ("CPU", CauseKind.REST_UP)


def test_a_sweep_passes_by_an_operation_it_cannot_run():
    """a [GPU0] ──► b (RMS_NORM) ──► c (SCALE): GPU0 has no RMS_NORM, and goes on to c."""
    a = matmul("a", weight("w", GPU0_BUFT), given("x"))
    c = named("c", build.scale(norm("b", a), 2.0))

    solved = solve(c, on=(gpu(not_ops=("RMS_NORM",)), cpu()))

    assert [solved.at("2a", name) for name in "abc"] == ["GPU0", "", "GPU0"]
    assert solved.neighbour("c") == "a"


def test_views_neither_take_part_in_a_sweep_nor_stop_it():
    """T4: a [GPU0] ──► view ──► b"""
    a = matmul("a", weight("w", GPU0_BUFT), given("x"))
    view = named("view", build.reshape(a, N * N))
    b = norm("b", view)

    solved = solve(b, on=BOTH)

    assert (solved.at("2d", "view"), solved.at("2a", "b")) == ("", "GPU0")
    assert (solved.backend("view"), solved.tag("view")) == ("GPU0", "4.vsrc")


def test_a_cache_on_the_cpu_breaks_a_gpu_region():
    """T4: a [GPU0] ──► set [CPU cache]    then b, free: the CPU stands between."""
    a = matmul("a", weight("w", GPU0_BUFT), given("x"))
    ids = given("ids", N, tensor_type=TensorType.I64)
    stored = named("set", build.set_rows(cache("k", CPU_BUFT), a, ids))
    b = norm("b", given("y"))

    solved = solve(stored, b, on=BOTH)

    assert solved.backend("b") == "CPU"
    assert [split[0] for split in solved.splits()] == ["GPU0", "CPU"]


# Pass 3: by inputs, and upgrades.


def test_a_node_no_neighbour_can_run_goes_where_most_inputs_are():
    """a [GPU0] ──► c (ADD) ◄── b [GPU0]; GPU0 cannot ADD; GPU1 can, and reads GPU0 memory."""
    a = matmul("a", weight("w0", GPU0_BUFT), given("x"))
    b = matmul("b", weight("w1", GPU0_BUFT), given("x2"))
    c = named("c", build.add(a, b))
    views = (gpu("GPU0", not_ops=("ADD",)), gpu("GPU1", bufts=("GPU0",)), cpu())

    solved = solve(c, on=views)

    assert (solved.backend("c"), solved.tag("c")) == ("GPU1", "3.best")


def test_most_inputs_ties_go_to_the_lowest_id():
    """c (ADD) ◄── two constants, placed nowhere: every backend reads none of them."""
    c = named("c", build.add(constant("k0"), constant("k1")))

    solved = solve(c, on=(gpu("GPU0", not_ops=("ADD",)), gpu("GPU1"), cpu()))

    assert (solved.backend("c"), solved.tag("c")) == ("GPU1", "3.best")


def test_a_view_counts_as_placed_where_its_source_is():
    """a [GPU0] ──► view ──► b, which GPU0 cannot run; GPU1 reads GPU0 memory."""
    a = matmul("a", weight("w", GPU0_BUFT), given("x"))
    b = norm("b", named("view", build.reshape(a, N * N)))
    no_norm = ("RMS_NORM",)

    solved = solve(b, on=(gpu("GPU0", not_ops=no_norm), gpu("GPU1", bufts=("GPU0",)), cpu()))

    assert (solved.backend("b"), solved.tag("b")) == ("GPU1", "3.best")


def activations():
    """a [CPU] and b [CPU] ──► c (MUL_MAT of two activations)."""
    a = matmul("a", weight("w0", CPU_BUFT), given("x"))
    b = matmul("b", weight("w1", CPU_BUFT), given("y"))
    return matmul("c", norm("an", a), norm("bn", b))


def test_a_matmul_without_weights_is_upgraded_within_one_memory():
    """an [CPU] ──► c ◄── bn [CPU]: BLAS shares the CPU's memory and comes before it."""
    views = (blas(), cpu())

    solved = solve(activations(), on=views, pins={"c": 1})

    assert (solved.at("2d", "c"), solved.backend("c"), solved.tag("c")) == ("CPU", "BLAS", "3.upg")


def test_upgrading_compares_the_types_of_compute_buffers():
    """T13: the same graph, but the CPU computes in a GPU's pinned memory: not BLAS's type."""
    pinned = BufferTypeFacts("GPU_Host", alignment=64, is_host=True)
    last = BackendView("CPU", cpu().device, pinned)

    solved = solve(activations(), on=(blas(), last), pins={"c": 1})

    assert solved.backend("c") == "CPU"


def test_upgrading_needs_every_input_to_be_readable():
    """an ──► c ◄── w [CPU_REPACK]: the CPU reads both, BLAS does not read w."""
    c = matmul("c", weight("w", REPACK_BUFT), norm("an", given("x")))

    solved = solve(c, on=(blas(), cpu()))

    assert solved.backend("c") == "CPU"


# Pass 4: the rest.


def test_a_constant_goes_to_its_first_reader():
    """k ──► a (ADD) [GPU0] ◄── b [GPU0]"""
    b = matmul("b", weight("w", GPU0_BUFT), given("x"))

    solved = solve(named("a", build.add(b, constant("k"))), on=BOTH)

    assert (solved.backend("k"), solved.tag("k")) == ("GPU0", "4.cur")
    assert solved.neighbour("k") == "a"


def test_a_source_that_is_a_view_of_an_unvisited_tensor_follows_it():
    """base ──► view, given as a leaf; a reads the view before any node placed it."""
    base = given("base")
    view = constant("view")
    view.view_src = base

    solved = solve(norm("a", view), on=BOTH, pins={"base": 0})

    assert (solved.backend("view"), solved.tag("view")) == ("GPU0", "4.vsrc")


def test_a_graph_that_nothing_decides_goes_to_the_first_device():
    """k ──► view: a view of a constant that nobody placed."""
    view = named("view", build.view(constant("k"), (N,)))

    solved = solve(view, on=BOTH)

    assert solved.cause("view").kind is CauseKind.FIRST_SUPPORTED
    assert solved.tag("view") == "2.sup"
    assert solved.splits() == [("GPU0", [], ["view"])]


def test_an_operation_nobody_has_is_refused_with_its_types():
    """x ──► a (RMS_NORM), and neither device has it."""
    none = ("RMS_NORM",)

    with pytest.raises(PlacementError, match=r"No device can run RMS_NORM \(a\)") as caught:
        solve(norm("a", given("x")), on=(gpu(not_ops=none), cpu(not_ops=none)))

    assert caught.value.sentence == f"No backend has a kernel for RMS_NORM of f32 [{N}, {N}, 1, 1]."


# Pins.


def test_a_pinned_node_stays_where_it_was_put():
    """w [GPU0] ──► a, pinned to the CPU"""
    solved = solve(matmul("a", weight("w", GPU0_BUFT), given("x")), on=BOTH, pins={"a": 1})

    assert (solved.backend("a"), solved.tag("a")) == ("CPU", "usr")


# Pass 5: splits and copies.


def test_a_split_begins_where_the_backend_changes():
    """a [GPU0] ──► b [CPU]"""
    a = matmul("a", weight("w0", GPU0_BUFT), given("x"))
    b = matmul("b", weight("w1", CPU_BUFT), a)

    solved = solve(b, on=BOTH)

    assert solved.splits() == [("GPU0", ["x"], ["a"]), ("CPU", ["a"], ["b"])]
    reasons = [split.reason for split in solved.trace.cut.splits]
    assert reasons == [SplitReason.FIRST, SplitReason.BACKEND_CHANGED]


def test_a_second_offloaded_weight_begins_a_split():
    """x ──► a ◄── w0 [CPU memory], a ──► b ◄── w1 [CPU memory], both offloaded."""
    a = matmul("a", weight("w0", CPU_BUFT), given("x"))
    b = matmul("b", weight("w1", CPU_BUFT), a)

    solved = solve(b, on=(gpu(offload=N), cpu()))

    assert solved.splits() == [("GPU0", ["w0", "x"], ["a"]), ("GPU0", ["w1"], ["b"])]
    assert solved.trace.cut.splits[1].reason is SplitReason.WEIGHT_ELSEWHERE


def test_the_first_weight_copy_joins_a_split_without_inputs():
    """T11: a [GPU0, reads nothing foreign] ──► b ◄── w [CPU memory], offloaded: one split."""
    a = matmul("a", weight("w0", GPU0_BUFT), weight("w1", GPU0_BUFT))
    b = matmul("b", weight("w", CPU_BUFT), a)

    solved = solve(b, on=(gpu(offload=N), cpu()))

    assert solved.splits() == [("GPU0", ["w"], ["a", "b"])]


def test_a_foreign_activation_does_not_begin_a_split():
    """T11: a [GPU0] reads input x, then b [GPU0] reads input y: only weights are looked at."""
    a = matmul("a", weight("w0", GPU0_BUFT), given("x"))
    b = named("b", build.add(a, given("y")))

    solved = solve(b, on=BOTH)

    assert solved.splits() == [("GPU0", ["x", "y"], ["a", "b"])]


def test_an_input_of_any_kind_makes_a_later_weight_begin_a_split():
    """T11: a [GPU0] reads input x, then b ◄── w [CPU memory], offloaded."""
    a = matmul("a", weight("w0", GPU0_BUFT), given("x"))
    b = matmul("b", weight("w", CPU_BUFT), a)

    solved = solve(b, on=(gpu(offload=N), cpu()))

    assert solved.splits() == [("GPU0", ["x"], ["a"]), ("GPU0", ["w"], ["b"])]


def test_a_copy_is_made_once_a_backend():
    """T5: x ──► a [GPU0], x ──► b [CPU], x ──► c [GPU0]: c reads the copy that a's split made."""
    x = given("x")
    a = matmul("a", weight("w0", GPU0_BUFT), x)
    b = matmul("b", weight("w1", CPU_BUFT), x)
    c = matmul("c", weight("w2", GPU0_BUFT), x)

    solved = solve(a, b, c, on=BOTH)

    assert solved.splits() == [("GPU0", ["x"], ["a"]), ("CPU", [], ["b"]), ("GPU0", [], ["c"])]
    assert solved.trace.cut.redirects == {(0, 1): 0, (2, 1): 0}


def test_a_weight_that_was_copied_before_begins_a_split_all_the_same():
    """T5, T11: a and b read w [CPU memory], offloaded; one copy, two splits."""
    w = weight("w", CPU_BUFT)
    b = matmul("b", w, matmul("a", w, given("x")))

    solved = solve(b, on=(gpu(offload=N), cpu()))

    assert solved.splits() == [("GPU0", ["w", "x"], ["a"]), ("GPU0", [], ["b"])]


def test_the_view_is_copied_and_not_what_it_views():
    """a [CPU] ──► view ──► b [GPU0]"""
    a = matmul("a", weight("w0", CPU_BUFT), given("x"))
    view = named("view", build.view(a, (N, N // 2), (4 * N,)))
    b = matmul("b", weight("w1", GPU0_BUFT), view)

    solved = solve(b, on=BOTH)

    (copy,) = solved.trace.cut.copies
    assert solved.splits()[1] == ("GPU0", ["view"], ["b"])
    assert (copy.n_bytes, copy.tensors[0].ne) == (4 * N * N // 2, (N, N // 2, 1, 1))


def test_a_copy_is_named_after_its_backend_and_its_slot():
    """x ──► a [GPU0]"""
    solved = solve(matmul("a", weight("w", GPU0_BUFT), given("x")), on=BOTH)

    (copy,) = solved.trace.cut.copies
    assert [t.name for t in copy.tensors] == ["GPU0#x#0"]
    assert copy.tensors[0].view_src is None
    assert copy.tensors[0].flags == Flag.NONE


def test_pipeline_copies_are_kept_by_the_allocator():
    """T8: x ──► a [GPU0] with four slots: each copy is an input and an output of the graph."""
    solved = solve(matmul("a", weight("w", GPU0_BUFT), given("x")), on=BOTH, n_copies=4)

    (copy,) = solved.trace.cut.copies
    assert [t.name for t in copy.tensors] == [f"GPU0#x#{i}" for i in range(4)]
    assert all(t.flags == Flag.INPUT | Flag.OUTPUT for t in copy.tensors)


def test_leading_views_belong_to_the_first_computed_node():
    """w [GPU0] ──► view;  a [CPU] first computes."""
    view = named("view", build.view(weight("w", GPU0_BUFT), (N,)))
    a = matmul("a", weight("w1", CPU_BUFT), given("x"))

    solved = solve(view, a, on=BOTH)

    assert solved.splits() == [("CPU", [], ["view", "a"])]


def test_a_graph_without_nodes_has_no_splits():
    """x, alone"""
    solved = solve(given("x"), on=BOTH)

    assert solved.splits() == []


@pytest.mark.parametrize(("limit", "n_splits"), [(2, 2), (3, 1), (0, 1)])
def test_the_older_version_begins_a_split_when_its_inputs_are_full(limit, n_splits):
    """a ◄── x ;  b ◄── y ;  c ◄── z: three copies on GPU0; 0 is no limit."""
    a = matmul("a", weight("w", GPU0_BUFT), given("x"))
    c = named("c", build.add(named("b", build.add(a, given("y"))), given("z")))

    solved = solve(c, on=BOTH, behaviour=Behaviour(max_split_inputs=limit))

    assert len(solved.splits()) == n_splits
    if n_splits == 2:
        assert solved.trace.cut.splits[1].reason is SplitReason.TOO_MANY_INPUTS


def test_a_full_split_goes_on_while_nothing_new_must_be_copied():
    """a ◄── x ;  b ◄── x, with room for one input."""
    x = given("x")
    a = matmul("a", weight("w", GPU0_BUFT), x)

    behaviour = Behaviour(max_split_inputs=1)
    solved = solve(named("b", build.add(a, x)), on=BOTH, behaviour=behaviour)

    assert solved.splits() == [("GPU0", ["x"], ["a", "b"])]


def test_one_operation_with_more_inputs_than_the_older_version_takes_is_named():
    """x, y ──► a (ADD) [GPU0 by hand], with room for one input."""
    a = named("a", build.add(given("x"), given("y")))

    with pytest.raises(PlacementError, match="GPU0 cannot take a copy of y"):
        solve(a, on=BOTH, pins={"a": 0}, behaviour=Behaviour(max_split_inputs=1))


# Pass 6.


def test_every_input_has_a_tensor_for_each_graph_in_flight_also_one_that_nobody_reads():
    """x ──► a [GPU0];  y is an output of its own. Slot 1 is the current one."""
    solved = solve(
        matmul("a", weight("w", GPU0_BUFT), given("x")), given("y"), on=BOTH,
        n_copies=4, copy_slot=1,
    )  # fmt: skip

    names = [[t and t.name for t in p.tensors] for p in solved.trace.pipeline_inputs]
    assert names == [[f"CPU#{n}#0", None, f"CPU#{n}#2", f"CPU#{n}#3"] for n in ("x", "y")]


def test_the_older_version_copies_inputs_as_they_are_read():
    """y, then x are read; z is an output of its own and read by nobody."""
    w = weight("w", GPU0_BUFT)
    a, b = matmul("a", w, given("y")), matmul("b", w, given("x"))

    solved = solve(given("z"), a, b, on=BOTH, n_copies=4, behaviour=GGML_0_13)

    tensors = solved.problem.graph.tensors
    assert [tensors[p.slot].name for p in solved.trace.pipeline_inputs] == ["y", "x"]


def test_without_pipelining_inputs_have_no_further_tensors():
    solved = solve(matmul("a", weight("w", GPU0_BUFT), given("x")), on=BOTH)

    assert solved.trace.pipeline_inputs == ()


def test_cutting_leaves_the_graph_as_it_is():
    """x ──► a [GPU0]: the redirect is a table, not a rewritten source."""
    a = matmul("a", weight("w", GPU0_BUFT), given("x"))
    solved = solve(a, on=BOTH)

    cut(solved.problem, solved.trace.final)

    assert [source.name for source in a.src] == ["w", "x"]
