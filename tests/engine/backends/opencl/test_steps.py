"""Many launches as steps of one: which ones, the table, and that the device computes the same."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.backend.host_buffer import HostBufferType
from engine.backend.interface import Place
from engine.backends.opencl.arguments import KernelCall, floats, ints, longs, pair
from engine.backends.opencl.families import FAMILIES
from engine.backends.opencl.split import encode_split
from engine.backends.opencl.steps import (
    FIRST_STEP,
    HEAD_WORDS,
    MAX_BUFFERS,
    MIN_STEPS,
    is_suitable,
    runs_of,
    step_kernel,
    table_of,
)
from engine.backends.opencl.tuning import POCL, tuning_for
from engine.backends.opencl.warmup import sample_nodes
from engine.core import build
from engine.core.devices import BufferTypeFacts
from engine.core.ops import FlashAttnParams, GluOp, Op, RopeParams
from engine.core.types import TensorType
from tests.engine.backends.opencl.conftest import Bench
from tests.engine.backends.opencl.numbers import rand

F32, F16, I32, I64 = TensorType.F32, TensorType.F16, TensorType.I32, TensorType.I64
Q8_0, Q4_1, Q5_0 = TensorType.Q8_0, TensorType.Q4_1, TensorType.Q5_0
Q4_K, Q6_K = TensorType.Q4_K, TensorType.Q6_K
HOST = HostBufferType(BufferTypeFacts("host", is_host=True))
SOMEWHERE = Place(HOST.alloc_buffer(64), 8)
LENGTH, NUMBER, FIRST, PER_PART, N_ITEMS = 0, 1, 2, 3, 7
"""Words of a step's head, as steps.cl names them."""


def test_only_cpus_whose_driver_is_known_take_steps():
    assert tuning_for(POCL, is_cpu=True).steps
    assert not tuning_for("another", is_cpu=True).steps
    assert not tuning_for(POCL, is_cpu=False).steps


def call(kernel="add", *, place=SOMEWHERE, items=(1, 1, 1)):
    args = (*pair(place), *ints(7, -3), *longs(1 << 40), *floats(0.1))
    return KernelCall(("elementwise", ""), kernel, args, items)


def lengths(calls):
    return [len(run) for run in runs_of(calls)]


def test_many_launches_in_a_row_become_steps_of_one():
    assert lengths([call()] * (MIN_STEPS + 3)) == [MIN_STEPS + 3]


def test_a_few_launches_stay_by_themselves():
    assert lengths([call()] * (MIN_STEPS - 1)) == [1] * (MIN_STEPS - 1)


@pytest.mark.parametrize("kernel", ["mul_mat_tile", "mul_mat_id_tile", "flash_attn"])
def test_a_kernel_for_many_columns_is_launched_by_itself(kernel):
    some = [call()] * MIN_STEPS

    runs = list(runs_of([*some, call(kernel), *some]))

    assert runs == [tuple(some), (call(kernel),), tuple(some)]


def test_steps_of_one_launch_share_the_buffers_that_it_takes():
    places = [Place(HOST.alloc_buffer(64), 0) for _ in range(MAX_BUFFERS + 1)]
    calls = [call(place=place) for place in places for _ in range(MIN_STEPS)]

    runs = list(runs_of(calls))

    assert [len(run) for run in runs] == [MAX_BUFFERS * MIN_STEPS, MIN_STEPS]
    assert [step for run in runs for step in run] == calls


def heads(words):
    """The head and arguments of every step but the last, which has no items."""
    at = FIRST_STEP
    while at + HEAD_WORDS < len(words):
        length = int(words[at])
        yield words[at : at + HEAD_WORDS], words[at + HEAD_WORDS : at + length]
        at += length


def test_arguments_keep_their_bits():
    one = call()

    table = table_of([one], {step_kernel(one): 5}, 2)

    ((head, arguments),) = heads(table.words)
    place, offset, *counts, stride, factor = arguments
    assert head[NUMBER] == 5
    assert table.buffers[int(place)] is SOMEWHERE.buffer
    assert offset == SOMEWHERE.offset
    assert [int(np.array(n).view(np.int64)) for n in counts] == [7, -3]
    assert stride == 1 << 40
    assert np.array([factor]).view(np.float32)[0] == np.float32(0.1)


def test_a_buffer_has_one_number_in_all_steps():
    other = Place(HOST.alloc_buffer(64), 0)
    calls = [call(place=place) for place in (SOMEWHERE, other, SOMEWHERE)]

    table = table_of(calls, {step_kernel(calls[0]): 0}, 2)

    assert [int(arguments[0]) for _, arguments in heads(table.words)] == [0, 1, 0]
    assert table.buffers == (SOMEWHERE.buffer, other.buffer)


shapes = st.lists(st.tuples(*[st.integers(1, 40)] * 3), min_size=1, max_size=9)


@given(shapes, st.integers(1, 64))
def test_parts_are_numbered_through_and_cover_every_item_once(items, n_units):
    calls = [call(items=shape) for shape in items]

    table = table_of(calls, {step_kernel(calls[0]): 0}, n_units)

    found = [head for head, _ in heads(table.words)]
    ends = [*(int(head[FIRST]) for head in found[1:]), table.n_parts]
    assert [int(head[N_ITEMS]) for head in found] == [int(np.prod(shape)) for shape in items]
    for head, end in zip(found, ends, strict=True):
        n_parts, per_part = end - int(head[FIRST]), int(head[PER_PART])
        assert (n_parts - 1) * per_part < head[N_ITEMS] <= n_parts * per_part
    assert int(table.words[-HEAD_WORDS + FIRST]) == table.n_parts


def layer(bench, x, cache, mask, ids, weights):
    """A layer of a token: attention over a cache and a gated unit, with weights of many types."""
    k_cache, v_cache = cache
    q_weight, k_weight, v_weight, out_weight, gate_weight, up_weight, down_weight = weights
    norm = build.rms_norm(x, 1e-5)
    product = build.binary(Op.MUL, norm, bench.leaf(F32, rand(256)))
    q, k, v = (build.mul_mat(w, product) for w in (q_weight, k_weight, v_weight))
    params = RopeParams(n_dims=64)
    q_rope = build.rope(build.reshape(q, 64, 4, 1), ids, None, params)
    k_rope = build.rope(build.reshape(k, 64, 2, 1), ids, None, params)
    k_set = build.set_rows(k_cache, build.reshape(k_rope, 128, 1), ids)
    v_set = build.set_rows(v_cache, v, ids)
    views = [
        build.permute(build.view(c, (64, 2, 40), (row // 2, row)), (0, 2, 1, 3))
        for c, row in ((k_cache, k_cache.nb[1]), (v_cache, v_cache.nb[1]))
    ]
    query = build.permute(q_rope, (0, 2, 1, 3))
    attention = build.flash_attn_ext(query, *views, mask, FlashAttnParams(scale=0.125))
    out = build.mul_mat(out_weight, build.reshape(attention, 256, 1))
    total = build.binary(Op.ADD, out, x)
    second = build.rms_norm(total, 1e-5)
    second_product = build.binary(Op.MUL, second, bench.leaf(F32, rand(256)))
    gate, up = (build.mul_mat(w, second_product) for w in (gate_weight, up_weight))
    glu = build.glu_split(gate, up, GluOp.SWIGLU)
    down = build.mul_mat(down_weight, glu)
    last = build.binary(Op.ADD, down, total)
    return (
        *(norm, product, q, k, v, q_rope, k_rope, k_set, v_set, attention, out),
        *(total, second, second_product, gate, up, glu, down, last),
    )


def token(bench):
    """Two layers; the caches and weights are of different types."""
    types = [(Q4_1, Q8_0, F16, Q5_0, Q4_K, Q4_K, Q6_K), (Q4_1, Q4_1, Q8_0, Q8_0, F32, Q5_0, Q4_1)]
    shapes = [(256, 256), (128, 256), (128, 256), (256, 256), (512, 256), (512, 256), (256, 512)]
    x = bench.leaf(F32, rand(1, 256))
    mask = bench.leaf(F16, np.where(np.arange(40) < 30, 0.0, -np.inf).reshape(1, 40))
    ids = bench.leaf(I32, np.array([29]))
    nodes = ()
    for layer_types, cache_types in zip(types, ((F16, F16), (F16, Q8_0)), strict=True):
        weights = [
            bench.leaf(t, rand(*shape, scale=0.1))
            for t, shape in zip(layer_types, shapes, strict=True)
        ]
        cache = [bench.leaf(t, rand(40, 128)) for t in cache_types]
        nodes += layer(bench, x, cache, mask, ids, weights)
        x = nodes[-1]
    return nodes


def bytes_of(bench, nodes):
    """What the nodes hold, tables that rows are set in included."""
    return [bench.read(node.base).tobytes() for node in nodes]


@pytest.fixture
def one_by_one(as_a_device_of_its_own):
    """The device without steps: every launch by itself."""
    as_a_device_of_its_own.tuning = replace(as_a_device_of_its_own.tuning, steps=False)
    stream = as_a_device_of_its_own.init_backend()
    made = Bench(as_a_device_of_its_own, stream)
    yield made
    for buffer in made.buffers:
        buffer.release()
    stream.dispose()


@pytest.fixture
def with_steps(bench, device):
    if not device.tuning.steps:
        pytest.skip("no CPU device: launches are cheap")
    return bench


@pytest.mark.gpu
def test_steps_leave_the_same_bytes_as_launches_one_by_one(with_steps, one_by_one):
    bench = with_steps
    nodes = token(bench)
    one_by_one.values = bench.values
    one_by_one.run(*nodes)
    want = bytes_of(one_by_one, nodes)

    bench.run(*nodes)

    assert len(bench.split.program.launches) == 1
    assert len(one_by_one.split.program.launches) > MIN_STEPS
    assert bytes_of(bench, nodes) == want


@pytest.mark.gpu
def test_kernels_of_every_type_can_be_steps_of_one_program(as_a_device_of_its_own, with_steps):
    device = as_a_device_of_its_own
    # Each pair of cache types is a choice of types; one pair stands for them all.
    nodes = [
        node
        for node in sample_nodes()
        if node.op is not Op.FLASH_ATTN_EXT or node.src[1].type is node.src[2].type is F16
    ]
    calls = [
        made
        for together in (*([node] for node in nodes), token(with_steps))
        for made in encode_split(together, lambda _: SOMEWHERE, device.tuning, lambda _: SOMEWHERE)
    ]
    kernels = {step_kernel(made) for made in calls if is_suitable(made)}

    program = device.programs.steps(kernels)

    assert {kernel.program[0] for kernel in kernels} == FAMILIES.keys()
    assert program.numbers.keys() == kernels


@pytest.mark.gpu
def test_steps_run_again_with_other_inputs(with_steps):
    bench = with_steps
    x = bench.leaf(F32, rand(20_000))
    nodes = [build.scale(x, 1.0, 1.0)]
    for _ in range(MIN_STEPS):
        nodes.append(build.binary(Op.ADD, nodes[-1], x))
    graph = bench.graph(*nodes)
    place = graph.place_of(x)

    for start in range(50):
        values = np.arange(start, start + 20_000, dtype=np.float32)
        place.buffer.set_tensor(place.offset, values.view(np.uint8))
        bench.backend.graph_compute(graph)
        bench.backend.synchronize()

        assert np.array_equal(bench.read(nodes[-1])[0, 0, 0], values * (MIN_STEPS + 1) + 1)


@pytest.mark.gpu
@pytest.mark.parametrize("n_units", [1, 3, 40])
def test_every_part_is_computed_however_many_units_there_are(with_steps, monkeypatch, n_units):
    monkeypatch.setattr("engine.backends.opencl.binding._n_units", lambda _: n_units)
    bench = with_steps
    x = bench.leaf(F32, rand(77_777))
    nodes = [build.scale(x, 2.0, 0.0)]
    for _ in range(MIN_STEPS):
        nodes.append(build.binary(Op.SUB, nodes[-1], x))

    got = bench.compute(*nodes)

    want = 2 * bench.values[x]
    for _ in range(MIN_STEPS):
        want = want - bench.values[x]
    assert np.array_equal(got[0, 0, 0], want)


@pytest.mark.gpu
def test_a_step_sees_all_that_steps_before_it_wrote(with_steps):
    bench = with_steps
    x = bench.leaf(F32, rand(64, 2048))
    nodes = [x]
    for _ in range(101):
        # Every row of a transposed copy is of elements that all groups wrote.
        nodes.append(build.cont(build.transpose(nodes[-1])))

    got = bench.compute(*nodes[1:])

    assert np.array_equal(got[0, 0], bench.values[x].T)


@pytest.mark.gpu
def test_preparing_for_a_token_builds_what_each_part_of_it_needs(
    as_a_device_of_its_own, with_steps
):
    device = as_a_device_of_its_own
    nodes = token(with_steps)
    stream = device.init_backend()
    told = []

    stream.prepare_for(nodes, lambda done, total, label: told.append(label))

    built = device.programs.built()
    for part in (nodes, nodes[:19], nodes[19:]):
        own = Bench(device, stream, with_steps.values)
        own.run(*part)
        own.buffers[0].release()
    stream.dispose()
    assert "the operations of a token together" in told
    assert device.programs.built() == built
    assert device.programs.n_step_programs == 1
