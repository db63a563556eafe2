"""The cache: sizes, devices, and how many cells a graph looks at."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core.devices import BufferUsage
from engine.model.kv_cache import KvCache, padded_cells
from tests.engine.model.smollm2 import planner

ROW = 64 * 3
"""SmolLM2: heads of 64 elements, 3 of keys and values."""


def cache_of(n_cells):
    return KvCache(n_cells, (), (), ())


@pytest.mark.parametrize(("n_cells", "padded"), [(0, 0), (1, 256), (256, 256), (257, 512)])
def test_cells_are_padded_to_256(n_cells, padded):
    assert padded_cells(n_cells) == padded


@pytest.mark.parametrize(
    ("n_cells", "n_used", "n_kv"),
    [(512, 1, 256), (512, 256, 256), (512, 257, 512), (512, 512, 512), (256, 300, 256)],
)
def test_a_graph_looks_at_the_used_cells_in_steps_of_256(n_cells, n_used, n_kv):
    assert cache_of(n_cells).n_kv(n_used) == n_kv


@given(st.integers(1, 64), st.integers(1, 20_000))
def test_a_graph_sees_every_used_cell_and_never_more_than_there_are(n_blocks, n_used):
    cache = cache_of(256 * n_blocks)

    n_kv = cache.n_kv(n_used)

    assert min(n_used, cache.n_cells) <= n_kv <= cache.n_cells
    assert n_kv % 256 == 0


def test_every_layer_has_keys_and_values_of_half_precision():
    cache = planner("cpu").cache

    assert [t.name for t in cache.keys] == [f"cache_k_l{il}" for il in range(30)]
    assert [t.name for t in cache.values] == [f"cache_v_l{il}" for il in range(30)]
    assert {(t.type.label, t.ne) for t in (*cache.keys, *cache.values)} == {
        ("f16", (ROW, 512, 1, 1))
    }


def test_a_cache_without_a_gpu_is_one_buffer():
    (buffer,) = planner("cpu").cache.buffers

    assert (buffer.device.name, buffer.buft.name) == ("CPU", "CPU")
    assert buffer.n_bytes == 30 * 2 * ROW * 512 * 2


def test_layers_keep_their_cache_on_their_device():
    cache = planner("cuda", n_gpu_layers=2).cache

    assert [t.buffer.buft.name for t in cache.keys] == ["CPU"] * 29 + ["CUDA0"]
    assert [(b.buft.name, len(b.tensors)) for b in cache.buffers] == [("CPU", 58), ("CUDA0", 2)]
    assert {t.buffer.usage for t in cache.keys} == {BufferUsage.ANY}


def test_buffers_stand_in_the_order_of_their_types_names():
    names = [buffer.buft.name for buffer in planner("two").cache.buffers]

    assert names == sorted(names) == ["CUDA0", "CUDA1"]
