"""CPU_REPACK on the CPU: bytes come back as they went in, products are equal bit by bit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.backend.interface import Bytes, Place, SplitGraph
from engine.backends.cpu.kernels.traits import TRAITS
from engine.backends.cpu.reg import create
from engine.backends.cpu.repack import RepackBuffer, RepackBufferType
from engine.backends.cpu.rules import CpuRules
from engine.core import build
from engine.core.devices import BufferFacts, BufferUsage
from engine.core.repack import CPU_REPACK, LAYOUTS
from engine.core.tensor import Tensor, shape4
from engine.core.types import TensorType

if TYPE_CHECKING:
    from engine.backends.cpu.backend import CpuBackend

T = TensorType
REPACKED = sorted(LAYOUTS)
SCALES = {
    T.Q4_0: (0,),
    T.Q4_K: (0, 2),
    T.Q2_K: (80, 82),
    T.Q5_K: (0, 2),
    T.Q6_K: (208,),
    T.IQ4_NL: (0,),
    T.Q8_0: (0,),
}
"""Where the f16 scales of a block are, so that random bits make no infinities."""


def random_weight(kind: TensorType, *ne: int) -> tuple[Tensor, Bytes]:
    """A weight and random bits for it, with scales that are ordinary numbers."""
    weight = Tensor(kind, shape4(*ne), name="w")
    rng = np.random.default_rng(sum(ne))
    blocks = rng.integers(0, 256, (weight.n_bytes // kind.block_bytes, kind.block_bytes), np.uint8)
    for at in SCALES.get(kind, ()):
        scales = rng.uniform(0.001, 0.1, (len(blocks), 1)).astype(np.float16)
        blocks[:, at : at + 2] = scales.view(np.uint8)
    if kind is T.MXFP4:
        blocks[:, 0] = rng.integers(118, 134, len(blocks))
    return weight, blocks.reshape(-1)


def interleaved(weight: Tensor, raw: Bytes) -> RepackBuffer:
    """A buffer that holds this weight alone."""
    buffer = RepackBufferType().alloc_buffer(weight.n_bytes, BufferUsage.WEIGHTS)
    buffer.init_tensor(0, weight)
    buffer.set_tensor(0, raw)
    return buffer


class Product:
    """One product with a weight that lies plainly or interleaved; `others` hold their values."""

    def __init__(self, weight: Tensor, raw: Bytes, node: Tensor, others: list[Bytes]) -> None:
        self.weight, self.raw, self.node, self.others = weight, raw, node, others

    def plain(self, backend: CpuBackend) -> Bytes:
        """The result's bytes with the weight in ordinary memory."""
        buffer = create().devices()[0].buffer_type().alloc_buffer(self.weight.n_bytes)
        buffer.set_tensor(0, self.raw)
        return self._result(backend, Place(buffer, 0))

    def interleaved(self, backend: CpuBackend) -> Bytes:
        """The result's bytes with the weight in CPU_REPACK."""
        return self._result(backend, Place(interleaved(self.weight, self.raw), 0))

    def _result(self, backend: CpuBackend, place: Place) -> Bytes:
        places = {self.weight: place}
        for tensor, raw in zip(self.node.src[1:], self.others, strict=True):
            places[tensor] = Place(create().devices()[0].buffer_type().alloc_buffer(raw.size), 0)
            places[tensor].buffer.set_tensor(0, raw)
        buffer = create().devices()[0].buffer_type().alloc_buffer(self.node.n_bytes)
        places[self.node] = Place(buffer, 0)
        backend.graph_compute(SplitGraph((self.node,), places))
        result = np.empty(self.node.n_bytes, np.uint8)
        buffer.get_tensor(0, result)
        assert np.isfinite(result.view(np.float32)).all()
        assert result.any()
        return result


def random_floats(*ne: int) -> tuple[Tensor, Bytes]:
    """Activations and normal values for them."""
    x = Tensor(T.F32, shape4(*ne), name="x")
    values = np.random.default_rng(sum(ne)).standard_normal(x.n_elems, dtype=np.float32)
    return x, values.view(np.uint8)


@pytest.mark.parametrize("n_columns", [1, 2, 3, 9, 40])
@pytest.mark.parametrize("n_rows", [4, 8, 24, 136])
@pytest.mark.parametrize("kind", REPACKED, ids=lambda kind: kind.label)
def test_products_are_bit_equal_in_both_layouts(backend, kind, n_rows, n_columns):
    weight, raw = random_weight(kind, 768, n_rows)
    x, values = random_floats(768, n_columns)
    product = Product(weight, raw, build.mul_mat(weight, x), [values])

    plain, interleaved = product.plain(backend), product.interleaved(backend)

    np.testing.assert_array_equal(interleaved, plain)


@pytest.mark.parametrize(("n_used", "n_tokens"), [(1, 1), (2, 1), (2, 5), (3, 40)])
@pytest.mark.parametrize("kind", REPACKED, ids=lambda kind: kind.label)
def test_experts_are_bit_equal_in_both_layouts(backend, kind, n_used, n_tokens):
    weight, raw = random_weight(kind, 512, 24, 5)
    x, values = random_floats(512, n_used, n_tokens)
    ids = Tensor(T.I32, shape4(n_used, n_tokens), name="ids")
    chosen = np.random.default_rng(n_tokens).permuted(np.tile(np.arange(5), (n_tokens, 1)), axis=1)
    picks = np.ascontiguousarray(chosen[:, :n_used], np.int32).view(np.uint8).reshape(-1)
    product = Product(weight, raw, build.mul_mat_id(weight, x, ids), [values, picks])

    plain, interleaved = product.plain(backend), product.interleaved(backend)

    np.testing.assert_array_equal(interleaved, plain)


@pytest.mark.parametrize("kind", REPACKED, ids=lambda kind: kind.label)
@pytest.mark.parametrize("ne", [(256, 4), (768, 24), (512, 8, 3)])
def test_a_weight_comes_back_as_it_was_written(kind, ne):
    weight, raw = random_weight(kind, *ne)
    out = np.empty_like(raw)

    interleaved(weight, raw).get_tensor(0, out)

    np.testing.assert_array_equal(out, raw)


@given(st.data())
def test_any_part_of_any_weight_can_be_read(data):
    kind = data.draw(st.sampled_from(REPACKED))
    (first, first_raw), (second, second_raw) = (
        random_weight(kind, 512, 12),
        random_weight(kind, 256, 8),
    )
    buffer = RepackBufferType().alloc_buffer(first.n_bytes + second.n_bytes)
    buffer.init_tensor(0, first)
    buffer.init_tensor(first.n_bytes, second)
    buffer.set_tensor(0, first_raw)
    buffer.set_tensor(first.n_bytes, second_raw)
    start, raw = data.draw(st.sampled_from([(0, first_raw), (first.n_bytes, second_raw)]))
    begin = data.draw(st.integers(0, raw.size))
    out = np.empty(data.draw(st.integers(0, raw.size - begin)), np.uint8)

    buffer.get_tensor(start + begin, out)

    np.testing.assert_array_equal(out, raw[begin : begin + out.size])


def test_blocks_of_four_rows_lie_side_by_side():
    weight = Tensor(T.Q4_0, shape4(64, 8))
    numbered = np.repeat(np.arange(16, dtype=np.uint8), T.Q4_0.block_bytes)

    memory = interleaved(weight, numbered)._memory

    order = memory[:: T.Q4_0.block_bytes].tolist()
    assert order == [0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15]


def test_tiles_read_every_type_that_is_interleaved():
    assert all(TRAITS[kind].rounding.is_quantized for kind in REPACKED)


def test_the_memory_is_no_host_memory_for_others():
    buffer = interleaved(*random_weight(T.Q4_0, 64, 8))

    assert buffer.host is None
    assert buffer.address % CPU_REPACK.alignment == 0
    assert (buffer.buft, buffer.usage) == (CPU_REPACK, BufferUsage.WEIGHTS)


def test_a_weight_whose_rows_fill_no_group_is_refused():
    buffer = RepackBufferType().alloc_buffer(4096)

    with pytest.raises(AssertionError):
        buffer.init_tensor(0, Tensor(T.Q4_0, shape4(64, 6)))


def test_a_weight_is_written_whole():
    weight, raw = random_weight(T.Q4_0, 64, 8)
    buffer = RepackBufferType().alloc_buffer(weight.n_bytes)
    buffer.init_tensor(0, weight)

    with pytest.raises(AssertionError):
        buffer.set_tensor(0, raw[:-1])


def test_cleared_memory_reads_as_cleared():
    weight, raw = random_weight(T.Q4_0, 64, 8)
    buffer, out = interleaved(weight, raw), np.empty_like(raw)

    buffer.clear(7)

    buffer.get_tensor(0, out)
    assert set(out.tolist()) == {7}


def test_the_device_offers_the_memory_it_names():
    device = create().devices()[0]

    assert device.facts.extra_bufts == (CPU_REPACK,)
    assert tuple(buft.facts for buft in device.extra_buffer_types()) == (CPU_REPACK,)
    assert device.extra_buffer_types() == device.extra_buffer_types()
    assert device.facts.rules.supports_buft(CPU_REPACK)


@pytest.mark.parametrize(
    ("kind", "ne", "features", "supported"),
    [
        (T.Q4_0, (64, 8), {"AVX2"}, True),
        (T.Q4_0, (64, 12), {"AVX2"}, False),
        (T.Q4_0, (64, 8), set(), False),
        (T.Q8_0, (64, 8), {"AVX2"}, False),
        (T.Q8_0, (64, 12), {"NEON", "DOTPROD"}, True),
    ],
)
def test_the_rules_ask_for_a_layout_of_the_processor(kind, ne, features, supported):
    weight = Tensor(kind, shape4(*ne), buffer=BufferFacts(CPU_REPACK))
    node = build.mul_mat(weight, Tensor(T.F32, shape4(ne[0], 3)))

    assert CpuRules(frozenset(features)).supports_op(node) is supported


def test_rows_cannot_be_picked_from_interleaved_weights():
    table = Tensor(T.Q4_0, shape4(64, 8), buffer=BufferFacts(CPU_REPACK))
    node = build.get_rows(table, Tensor(T.I32, shape4(3)))

    assert not CpuRules(frozenset({"AVX2"})).supports_op(node)
