"""Splits on a real ggml CPU: results, views, memory of others, stopping."""

import numpy as np
import pytest

from engine.backend.host_buffer import HostBufferType
from engine.backend.interface import Place, SplitGraph
from engine.backends.ggml.split_graph import SplitProgram
from engine.core import build
from engine.core.devices import CPU_BUFT, BufferUsage
from engine.core.ops import GluOp, Op
from engine.core.tensor import Tensor
from engine.core.types import TensorType
from engine.errors import DeviceError, Stopped

RNG = np.random.default_rng(5)


def floats(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def test_a_product_is_computed(bench):
    weight, x = floats(48, 64), floats(5, 64)

    result = bench.compute(build.mul_mat(bench.leaf(weight), bench.leaf(x)))

    np.testing.assert_allclose(result[0, 0], x @ weight.T, rtol=1e-5, atol=1e-5)


def test_strides_and_offsets_of_views_are_kept(bench):
    x = floats(6, 8, 16)
    leaf = bench.leaf(x)
    window = build.view(leaf, (4, 6), (leaf.nb[2],), leaf.nb[1] * 3 + 8)

    result = bench.compute(window, build.cont(window))

    np.testing.assert_array_equal(result[0, 0], x[:, 3, 2:6])


def test_a_permuted_source_is_read_in_its_own_order(bench):
    x = floats(3, 5, 8)
    turned = build.permute(bench.leaf(x), (0, 2, 1, 3))

    result = bench.compute(turned, build.cont(turned))

    np.testing.assert_array_equal(result[0], x.transpose(1, 0, 2))


def test_rows_are_written_into_a_table_that_is_a_source_too(bench):
    table, rows = np.zeros((8, 32), np.float32), floats(2, 32)
    ids = bench.leaf(np.array([6, 1]), TensorType.I64)
    node = build.set_rows(bench.leaf(table), bench.leaf(rows), ids)
    split = bench.split(node)

    bench.backend.graph_compute(split)

    written = bench.read(split, node.view_src)[0, 0]
    np.testing.assert_array_equal(written[[6, 1]], rows)
    assert not written[[0, 2, 3, 4, 5, 7]].any()


def test_a_cast_is_its_own_second_source(bench):
    x = floats(2, 32)
    node = build.cast(bench.leaf(x), TensorType.F16)

    result = bench.compute(node)

    assert node.src[1] is node
    np.testing.assert_array_equal(result[0, 0], x.astype(np.float16))


def test_a_split_is_built_once_and_computed_again(bench):
    x = bench.leaf(floats(4, 64))
    node = build.scale(x, 2.0)
    split = bench.split(node)

    bench.backend.graph_compute(split)
    program = split.program
    place = split.place_of(x)
    ones = np.ones(256, np.float32)
    place.buffer.set_tensor(place.offset, ones.view(np.uint8))
    bench.backend.graph_compute(split)

    assert isinstance(program, SplitProgram)
    assert split.program is program
    np.testing.assert_array_equal(bench.read(split, node).reshape(-1), 2 * ones)


def norm_and_product(bench):
    """Two nodes that the CPU computes at once, without writing the first."""
    norm = build.rms_norm(bench.leaf(floats(4, 64)), 1e-6)
    return norm, build.mul(norm, bench.leaf(floats(64)))


def test_a_result_that_is_read_outside_is_written_though_kernels_fuse(bench):
    norm, product = norm_and_product(bench)
    split = bench.split(norm, product, outside=lambda: frozenset({norm}))

    bench.backend.graph_compute(split)

    assert np.isfinite(bench.read(split, norm)).all()


def test_a_result_that_nobody_else_reads_may_be_left_out(bench):
    norm, product = norm_and_product(bench)
    split = bench.split(norm, product, outside=frozenset)

    bench.backend.graph_compute(split)

    assert np.isnan(bench.read(split, norm)).all()
    assert np.isfinite(bench.read(split, product)).all()


def test_every_result_is_written_where_nobody_says_who_reads(bench):
    norm, product = norm_and_product(bench)
    split = bench.split(norm, product)

    bench.backend.graph_compute(split)

    assert np.isfinite(bench.read(split, norm)).all()


def test_a_result_of_another_split_is_read_and_not_computed(bench):
    x = bench.leaf(floats(1, 32))
    before = build.scale(x, 5.0)
    node = build.scale(before, 3.0)
    split = bench.split(before, node)
    place = split.place_of(before)
    twos = np.full(32, 2, np.float32)
    place.buffer.set_tensor(place.offset, twos.view(np.uint8))

    bench.backend.graph_compute(SplitGraph((node,), split.places))

    np.testing.assert_array_equal(bench.read(split, node).reshape(-1), 3 * twos)


def test_memory_of_the_built_in_cpu_is_used_as_it_is(bench):
    x = floats(3, 64)
    node = build.glu_split(bench.leaf(x), bench.leaf(x), GluOp.SWIGLU)
    split = bench.split(node, buft=HostBufferType(CPU_BUFT))

    bench.backend.graph_compute(split)

    np.testing.assert_allclose(bench.read(split, node)[0, 0], x * x / (1 + np.exp(-x)), rtol=1e-4)


def test_a_wrapped_buffer_is_wrapped_once(bench, device):
    buffer = HostBufferType(CPU_BUFT).alloc_buffer(4096)

    first, second = (device.memory.resolve(Place(buffer, offset)) for offset in (0, 64))

    assert first[0] == second[0]
    assert second[1] - first[1] == 64


def test_memory_that_nobody_can_reach_is_refused(backend, unreachable_buffer):
    x = Tensor(TensorType.F32, (8, 1, 1, 1), name="far away")
    node = build.scale(x, 2.0)
    places = {tensor: Place(unreachable_buffer, 0) for tensor in (x, node)}

    with pytest.raises(DeviceError, match="cannot reach far away"):
        backend.graph_compute(SplitGraph((node,), places))


@pytest.fixture
def unreachable_buffer():
    from engine.backends.cpu.repack import RepackBufferType

    return RepackBufferType().alloc_buffer(4096)


def test_views_alone_compute_nothing(bench):
    view = build.view(bench.leaf(floats(4, 8)), (4,))
    split = bench.split(view)

    bench.backend.graph_compute(split)

    assert split.program.address is None


def test_a_stop_before_a_split_is_seen(bench):
    word = np.ones(1, np.int64)
    bench.backend.set_stop_word(int(word.ctypes.data))

    with pytest.raises(Stopped):
        bench.compute(build.scale(bench.leaf(floats(1, 32)), 2.0))


def test_a_stop_between_two_operations_is_seen_by_the_library(bench, device):
    word = np.ones(1, np.int64)
    device.watch_stop_word(bench.backend.handle, int(word.ctypes.data))
    first = build.scale(bench.leaf(floats(1, 32)), 2.0)
    second = build.scale(first, 2.0)
    split = bench.split(first, second)

    with pytest.raises(Stopped):
        bench.backend.graph_compute(split)
    assert np.isnan(bench.read(split, second)).all()

    word[0] = 0
    bench.backend.graph_compute(split)
    assert np.isfinite(bench.read(split, second)).all()


def test_a_completion_has_times_and_no_nodes(bench):
    split = bench.split(build.scale(bench.leaf(floats(1, 32)), 2.0))
    told = []

    bench.backend.graph_compute(split).on_complete(told.append)

    assert told[0].nodes is None
    assert told[0].end_ns >= told[0].start_ns > 0


def test_any_number_of_threads_may_be_asked_for(bench, reg):
    set_n_threads = reg.get_proc_address("ggml_backend_set_n_threads")
    weight, x = floats(48, 64), floats(5, 64)
    node = build.mul_mat(bench.leaf(weight), bench.leaf(x))
    results = []

    for n_threads in (1, 2, 3):
        set_n_threads(bench.backend, n_threads)
        results.append(bench.compute(node))

    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])


def test_weights_in_an_interleaved_layout_give_the_same_product(bench, device):
    repack = next(b for b in device.extra_buffer_types() if "REPACK" in b.facts.name)
    weight = Tensor(TensorType.Q4_0, (64, 16, 1, 1))
    x = bench.leaf(floats(3, 64))
    node = build.mul_mat(weight, x)
    raw = RNG.integers(0, 256, weight.n_bytes, np.uint8).reshape(-1, 18)
    raw[:, :2] = np.full(len(raw), 0.5, np.float16).view(np.uint8).reshape(-1, 2)
    bench.values[weight] = raw.reshape(-1)
    plain = bench.compute(node)

    buffer = repack.alloc_buffer(weight.n_bytes, BufferUsage.WEIGHTS)
    buffer.init_tensor(0, weight)
    buffer.set_tensor(0, raw.reshape(-1))
    split = bench.split(node)
    places = dict(split.places) | {weight: Place(buffer, 0)}
    bench.backend.graph_compute(SplitGraph((node,), places))

    np.testing.assert_allclose(bench.read(split, node), plain, rtol=1e-4, atol=1e-3)
    assert node.op is Op.MUL_MAT


def test_a_stream_that_has_ended_ends_once(device):
    backend = device.init_backend()

    backend.dispose()
    backend.dispose()
    backend.synchronize()

    assert backend.handle is None
