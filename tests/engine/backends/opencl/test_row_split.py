"""Products in split memory on two devices, compared bit by bit with one device."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from engine.backend.interface import Place, SplitGraph
from engine.backends.opencl.device import OpenClDevice
from engine.backends.opencl.row_split import RowSplit
from engine.core import build
from engine.core.ops import Op
from engine.core.quants import quantize
from engine.core.tensor import Tensor, shape4
from engine.core.types import TensorType
from tests.engine.backends.opencl.numbers import WRITTEN_TYPES, rand, random_blocks
from tests.engine.backends.opencl.pair import matrix, split_type, two_devices

pytestmark = pytest.mark.gpu

F32, F16 = TensorType.F32, TensorType.F16
K, N_ROWS = 256, 80
CLOCK_NS = 20_000
"""How far apart two readings of the offset between two clocks may be."""


@pytest.fixture(scope="module", params=["own kind", "as GPUs"])
def two(request, opencl, found):
    devices = two_devices(opencl, found)
    if request.param == "own kind":
        return devices
    return tuple(
        OpenClDevice(
            opencl,
            f"OpenCL{5 + i}",
            replace(found, is_cpu=False, handle=device.handle),
            device.context,
            offload_min_batch=32,
        )
        for i, device in enumerate(devices)
    )


@pytest.fixture(scope="module")
def streams(two):
    streams = [device.init_backend() for device in two]
    yield streams
    for stream in streams:
        stream.dispose()


def bytes_of(tensor_type, n_elems):
    if tensor_type not in WRITTEN_TYPES:
        return random_blocks(tensor_type, n_elems).reshape(-1).view(np.uint8)
    return quantize(tensor_type, rand(n_elems)).reshape(-1).view(np.uint8)


def leaf(tensor_type, *ne):
    return Tensor(tensor_type, shape4(*ne))


class Memory:
    """Places on a device for whatever a graph reads and writes, weights where they are told."""

    def __init__(self, device):
        self.device = device
        self.places = {}
        self.buffers = []

    def put(self, tensor, data=None):
        self.buffers.append(self.device.buffer_type().alloc_buffer(tensor.n_bytes))
        self.places[tensor] = Place(self.buffers[-1], 0)
        self.buffers[-1].clear(0xFF)  # NaN, so that reading what nobody wrote shows
        if data is not None:
            self.buffers[-1].set_tensor(0, data)

    def put_split(self, buft, tensors, values):
        for tensor, place in zip(tensors, buft.alloc_tensors(tensors), strict=True):
            place.buffer.set_tensor(place.offset, values[tensor])
            self.places[tensor] = place
            self.buffers.append(place.buffer)

    def read(self, tensor):
        place = self.places[tensor]
        raw = np.empty(tensor.n_bytes, np.uint8)
        place.buffer.get_tensor(place.offset, raw).synchronize()
        return raw.view(np.float32)

    def release(self):
        for buffer in dict.fromkeys(self.buffers):
            buffer.release()


def run(streams, nodes, values, *, shares=None, main=0, times=1):
    """What the nodes give, and the completion; weights in split memory if there are shares."""
    stream = streams[main]
    memory = Memory(stream.device)
    leafs = [t for node in nodes for t in node.src if t.op is Op.NONE]
    split = [t for t in dict.fromkeys(leafs) if t.buffer is not None and shares is not None]
    for tensor in dict.fromkeys((*leafs, *nodes)):
        if tensor not in split and tensor.view_src is None:
            memory.put(tensor, values.get(tensor))
    if split:
        buft = split_type(*(s.device for s in streams), shares=shares, main=main)
        memory.put_split(buft, split, values)
    graph = SplitGraph(tuple(nodes), memory.places)
    told = []
    for _ in range(times):
        stream.graph_compute(graph).on_complete(told.append)
    stream.synchronize()
    results = [memory.read(node) for node in nodes if node.view_src is None]
    assert isinstance(graph.program, RowSplit) is bool(split)
    memory.release()
    return results, told[-1]


def weight(streams, tensor_type, k=K, n_rows=N_ROWS):
    buft = split_type(*(s.device for s in streams), shares=(1, 1))
    return matrix(buft, tensor_type, k, n_rows)


def layer(streams, tensor_type, n_columns):
    """A norm, three products of it with something between, one product of a product.

    The last nodes and the first ones are computed by the main device alone.
    """
    x, scale = leaf(F32, K, n_columns), leaf(F32, K)
    norm = build.rms_norm(x, 1e-5)
    h = build.binary(Op.MUL, norm, scale)
    wq, wk, wv = (weight(streams, tensor_type) for _ in range(3))
    wo = weight(streams, F32, k=N_ROWS, n_rows=K)
    q = build.mul_mat(wq, h)
    doubled = build.scale(q, 2.0)
    k, v = build.mul_mat(wk, h), build.mul_mat(wv, h)
    o = build.mul_mat(wo, doubled)
    out = build.binary(Op.ADD, o, x)
    nodes = (norm, h, q, doubled, k, v, o, out)
    values = {w: bytes_of(tensor_type, w.n_elems) for w in (wq, wk, wv)}
    values |= {t: bytes_of(F32, t.n_elems) for t in (wo, x, scale)}
    return nodes, values


def assert_same(got, want):
    for ours, theirs in zip(got, want, strict=True):
        assert np.isfinite(theirs).all()
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("n_columns", [1, 7])
@pytest.mark.parametrize(
    "tensor_type",
    [F32, F16, TensorType.Q8_0, TensorType.Q4_1, TensorType.Q4_K, TensorType.Q6_K],
    ids=lambda t: t.label,
)
def test_two_devices_give_what_one_gives(streams, tensor_type, n_columns):
    nodes, values = layer(streams, tensor_type, n_columns)
    want, alone = run(streams, nodes, values)

    got, shared = run(streams, nodes, values, shares=(1, 1), times=3)

    assert_same(got, want)
    assert alone.shards == ()
    assert len(shared.shards) == 16


def test_a_completion_tells_all_that_the_main_device_computes_and_none_of_its_waits(streams, two):
    nodes, values = layer(streams, TensorType.Q8_0, 7)

    _, done = run(streams, nodes, values, shares=(1, 1))

    main = two[0].name
    queue = sorted(
        (s for s in done.shards if s.source or s.device == main), key=lambda s: s.start_ns
    )
    assert (queue[0].start_ns, queue[-1].end_ns) == pytest.approx(
        (done.start_ns, done.end_ns), rel=0, abs=CLOCK_NS
    )
    kinds = [bool(shard.source) for shard in queue]
    assert (kinds[0], kinds[-1]) == (False, False)
    assert (False, False) not in itertools.pairwise(kinds)
    own_ns = sum(shard.end_ns - shard.start_ns for shard in queue if not shard.source)
    assert own_ns < done.end_ns - done.start_ns


@pytest.mark.parametrize(("shares", "main"), [((3, 1), 0), ((3, 1), 1), ((1, 0), 0), ((0, 1), 1)])
def test_whatever_the_shares_and_the_device_that_computes(streams, shares, main):
    nodes, values = layer(streams, TensorType.Q8_0, 5)
    want, _ = run(streams, nodes, values, main=main)

    got, _ = run(streams, nodes, values, shares=shares, main=main)

    assert_same(got, want)


def test_several_matrices_of_activations_share_one_of_weights(streams):
    w, x = weight(streams, TensorType.Q8_0), leaf(F32, K, 3, 2, 2)
    node = build.mul_mat(w, x)
    values = {w: bytes_of(TensorType.Q8_0, w.n_elems), x: bytes_of(F32, x.n_elems)}

    want, _ = run(streams, [node], values)
    got, _ = run(streams, [node], values, shares=(1, 1))

    assert_same(got, want)


def test_activations_with_gaps_are_read_as_they_lie(streams):
    w, wide = weight(streams, F32, k=64), leaf(F32, K, 3)
    x = build.view(wide, (64, 3), (wide.nb[1],), 256)
    node = build.mul_mat(w, x)
    values = {w: bytes_of(F32, w.n_elems), wide: bytes_of(F32, wide.n_elems)}
    nodes = [build.scale(wide, 1.0), node]

    want, _ = run(streams, nodes, values)
    got, _ = run(streams, nodes, values, shares=(1, 1))

    assert_same(got, want)


def test_a_completion_tells_who_computed_and_what_was_handed_over(streams, two):
    w, x = weight(streams, F32), leaf(F32, K, 3)
    values = {w: bytes_of(F32, w.n_elems), x: bytes_of(F32, x.n_elems)}

    _, done = run(streams, [build.mul_mat(w, x)], values, shares=(1, 1))

    one, other = (device.name for device in two)
    assert [(s.device, s.source, s.n_bytes) for s in done.shards] == [
        (other, one, K * 3 * 4),
        (other, "", 0),
        (one, "", 0),
        (one, other, 48 * 3 * 4),
    ]
    sent, theirs, own, taken = done.shards
    assert all(shard.start_ns <= shard.end_ns for shard in done.shards)
    assert sent.end_ns <= theirs.start_ns + CLOCK_NS
    assert max(theirs.end_ns, own.end_ns) <= taken.start_ns + CLOCK_NS
    assert done.start_ns == pytest.approx(sent.start_ns, rel=0, abs=CLOCK_NS)
    assert done.end_ns == pytest.approx(taken.end_ns, rel=0, abs=CLOCK_NS)


def test_memory_that_devices_compute_through_is_given_back(opencl, found):
    devices = two_devices(opencl, found)
    streams = [device.init_backend() for device in devices]
    nodes, values = layer(streams, TensorType.Q8_0, 2)

    run(streams, nodes, values, shares=(1, 1))
    held = [device._held_bytes for device in devices]
    for stream in streams:
        stream.dispose()

    assert min(held) > 0
    assert [device._held_bytes for device in devices] == [0, 0]


def test_a_mate_has_its_memory_before_the_first_split(opencl, found, monkeypatch):
    """For what it multiplies its rows with, and for the three results of one input."""
    main, mate = two_devices(opencl, found)
    monkeypatch.setattr(opencl, "_devices", (main, mate))
    streams = [device.init_backend() for device in (main, mate)]
    nodes, values = layer(streams, F32, 7)

    streams[0].prepare_for(nodes)
    reserved = mate._held_bytes
    run(streams, nodes, values, shares=(1, 1))
    held = mate._held_bytes
    for stream in streams:
        stream.dispose()

    assert reserved == held > 0
    assert [device._held_bytes for device in (main, mate)] == [0, 0]


def test_a_split_without_such_products_is_computed_as_before(streams):
    x = leaf(F32, K)

    (got,), done = run(streams, [build.scale(x, 2.0)], {x: bytes_of(F32, K)})

    assert done.shards == ()
    np.testing.assert_array_equal(got, 2 * bytes_of(F32, K).view(np.float32))
