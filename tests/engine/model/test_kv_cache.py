"""The cache: sizes, types, devices, and how many cells a graph looks at."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core.devices import BufferUsage
from engine.core.options import FlashAttn, Options
from engine.core.plan import BatchShape
from engine.errors import PlacementError
from engine.model.hparams import Window
from engine.model.kv_cache import CachePart, attention_wish, padded_cells
from tests.engine.model.made_arch import made_header, planner_of
from tests.engine.model.made_numbers import MAMBA
from tests.engine.model.smollm2 import planner

ROW = 64 * 3
"""SmolLM2: heads of 64 elements, 3 of keys and values."""

GPUS = ("GPU1:gpu:8192", "GPU0:gpu:8192", "CPU:cpu:16384")


@pytest.fixture
def cache_of(tmp_path):
    """Return the cache of a small model: its architecture, its numbers, options."""

    def make(arch, numbers, devices=("CPU:cpu:16384",), **options):
        with made_header(tmp_path, arch, **numbers) as file:
            return planner_of(file, devices, **options).cache

    return make


SLIDING = {"attention__sliding_window": 300, "block_count": 6}


# How many cells.


@pytest.mark.parametrize(("n_cells", "padded"), [(0, 0), (1, 256), (256, 256), (257, 512)])
def test_cells_are_padded_to_256(n_cells, padded):
    assert padded_cells(n_cells) == padded


@pytest.mark.parametrize(
    ("n_cells", "n_used", "n_kv"),
    [(512, 1, 256), (512, 256, 256), (512, 257, 512), (512, 512, 512), (256, 300, 256)],
)
def test_a_graph_looks_at_the_used_cells_in_steps_of_256(n_cells, n_used, n_kv):
    assert CachePart(0, n_cells, None).n_kv(n_used) == n_kv


@given(st.integers(1, 64), st.integers(1, 20_000))
def test_a_graph_sees_every_used_cell_and_never_more_than_there_are(n_blocks, n_used):
    part = CachePart(0, 256 * n_blocks, None)

    n_kv = part.n_kv(n_used)

    assert min(n_used, part.n_cells) <= n_kv <= part.n_cells
    assert n_kv % 256 == 0


@pytest.mark.parametrize(
    ("n_ctx", "n_ubatch", "n_cells"),
    [(4096, 512, 1024), (4096, 200, 512), (512, 512, 512), (256, 64, 256)],
)
def test_sliding_layers_have_cells_for_a_window_and_a_batch(cache_of, n_ctx, n_ubatch, n_cells):
    cache = cache_of("gemma3", SLIDING, n_ctx=n_ctx, n_ubatch=n_ubatch)

    full, sliding = cache.parts
    assert (full.n_cells, full.window) == (n_ctx, None)
    assert (sliding.n_cells, sliding.window) == (n_cells, Window(300))
    assert [part.index for part in cache.part_of] == [1, 1, 1, 1, 1, 0]
    assert [t.ne[1] for t in cache.keys.values()] == [n_cells] * 5 + [n_ctx]


def test_a_graph_sees_as_much_of_the_sliding_part_as_it_has(cache_of):
    cache = cache_of("gemma3", SLIDING, n_ctx=4096, n_ubatch=200)
    full, sliding = cache.parts

    assert cache.seen_by(full, BatchShape(1, 1024, 1)) == 1024
    assert cache.seen_by(sliding, BatchShape(1, 1024, 1)) == 512
    assert cache.seen_by(sliding, BatchShape(1, 256, 1)) == 256
    assert cache.seen_by(sliding, BatchShape(1, 4096, 1, n_kv_swa=256)) == 256


# Types and layout.


def test_every_layer_has_keys_and_values_of_half_precision():
    cache = planner("cpu").cache

    assert [t.name for t in cache.keys.values()] == [f"cache_k_l{il}" for il in range(30)]
    assert [t.name for t in cache.values.values()] == [f"cache_v_l{il}" for il in range(30)]
    assert {(t.type.label, t.ne) for t in (*cache.keys.values(), *cache.values.values())} == {
        ("f16", (ROW, 512, 1, 1))
    }


def test_keys_and_values_have_the_types_that_were_asked_for(cache_of):
    cache = cache_of("llama", {}, cache_type_k="q8_0", cache_type_v="q4_0")

    assert {t.type.label for t in cache.keys.values()} == {"q8_0"}
    assert {t.type.label for t in cache.values.values()} == {"q4_0"}
    (buffer,) = cache.buffers
    assert buffer.n_bytes == 2 * 512 * (128 // 32) * (34 + 18)


@pytest.mark.parametrize(("wish", "transposed"), [("on", False), ("auto", False), ("off", True)])
def test_values_are_transposed_only_when_flash_attention_was_turned_off(cache_of, wish, transposed):
    assert cache_of("llama", {}, flash_attn=wish).v_transposed is transposed


def test_a_probe_that_turns_flash_attention_off_leaves_values_as_they_are():
    made = planner("no-attention")

    assert not made.flash_attn
    assert not made.cache.v_transposed


def test_transposed_values_are_as_wide_in_every_layer(cache_of):
    heads = {"attention__head_count_kv": [2, 1]}

    transposed = cache_of("llama", heads, flash_attn="off")
    plain = cache_of("llama", heads)

    assert [t.ne[0] for t in transposed.values.values()] == [128, 128]
    for tensors in (plain.keys, plain.values):
        assert [t.ne[0] for t in tensors.values()] == [128, 64]


def test_quantised_values_need_flash_attention(cache_of):
    with pytest.raises(PlacementError, match="V cache of type q8_0 needs flash attention"):
        cache_of("llama", {}, cache_type_v="q8_0", flash_attn="off")


def test_quantised_keys_do_not_need_flash_attention(cache_of):
    assert cache_of("llama", {}, cache_type_k="q8_0", flash_attn="off").keys[0].type.label == "q8_0"


@pytest.mark.parametrize(("option", "flag"), [("cache_type_k", "-ctk"), ("cache_type_v", "-ctv")])
def test_heads_are_whole_blocks_of_a_quantised_type(cache_of, option, flag):
    sizes = {"attention__key_length": 48, "attention__value_length": 48}

    with pytest.raises(PlacementError) as caught:
        cache_of("llama", sizes, **{option: "q5_1"})

    assert caught.value.title == f"{flag} cannot be q5_1 with this model."
    assert "heads have 48 elements, which blocks of 32 do not fit into" in caught.value.sentence


@pytest.mark.parametrize(
    ("options", "wish"),
    [
        ({}, FlashAttn.AUTO),
        ({"cache_type_v": "q8_0"}, FlashAttn.ON),
        ({"cache_type_v": "q8_0", "flash_attn": "on"}, FlashAttn.ON),
        ({"split_mode": "tensor"}, FlashAttn.ON),
        ({"flash_attn": "off"}, FlashAttn.OFF),
    ],
)
def test_quantised_values_and_shared_layers_ask_for_flash_attention_without_a_probe(options, wish):
    assert attention_wish(Options(**options)) is wish


# Rotation.


@pytest.mark.parametrize(
    ("n_embd_head", "k_size", "v_size"), [(64, 64, 64), (96, 0, 0), (192, 64, 64), (256, 256, 64)]
)
def test_quantised_heads_are_rotated_in_the_largest_blocks_that_fit(
    cache_of, n_embd_head, k_size, v_size
):
    sizes = {"attention__key_length": n_embd_head, "attention__value_length": n_embd_head}

    (part,) = cache_of("llama", sizes, cache_type_k="q8_0", cache_type_v="q4_0").parts

    assert (part.k_rotation, part.v_rotation) == (k_size, v_size)


def test_plain_types_are_not_rotated(cache_of):
    (part,) = cache_of("llama", {}, cache_type_k="q8_0").parts

    assert (part.k_rotation, part.v_rotation) == (64, 0)


# Where it lies.


def test_a_cache_without_a_gpu_is_one_buffer():
    (buffer,) = planner("cpu").cache.buffers

    assert (buffer.device.name, buffer.buft.name) == ("CPU", "CPU")
    assert buffer.n_bytes == 30 * 2 * ROW * 512 * 2


def test_layers_keep_their_cache_on_their_device():
    cache = planner("cuda", n_gpu_layers=2).cache

    assert [t.buffer.buft.name for t in cache.keys.values()] == ["CPU"] * 29 + ["CUDA0"]
    assert [(b.buft.name, len(b.tensors)) for b in cache.buffers] == [("CPU", 58), ("CUDA0", 2)]
    assert {t.buffer.usage for t in cache.keys.values()} == {BufferUsage.ANY}


def test_a_cache_that_is_not_offloaded_is_the_cpus():
    cache = planner("cuda", offload_kqv=False).cache

    assert {t.buffer.buft.name for t in (*cache.keys.values(), *cache.values.values())} == {"CPU"}
    assert [b.device.name for b in cache.buffers] == ["CPU"]


def test_buffers_stand_in_the_order_of_their_types_names():
    names = [buffer.buft.name for buffer in planner("two").cache.buffers]

    assert names == sorted(names) == ["CUDA0", "CUDA1"]


def test_buffers_of_the_full_part_stand_before_those_of_the_sliding_one(cache_of):
    cache = cache_of("gemma3", {**SLIDING, "block_count": 12}, GPUS, n_ctx=4096, n_ubatch=200)

    assert [(b.buft.name, {t.ne[1] for t in b.tensors}) for b in cache.buffers] == [
        ("GPU0", {4096}), ("GPU1", {4096}), ("GPU0", {512}), ("GPU1", {512}),
    ]  # fmt: skip


def test_each_part_has_a_buffer_of_its_own_in_one_kind_of_memory(cache_of):
    cache = cache_of("gemma3", SLIDING)

    assert len({id(t.buffer) for t in cache.keys.values()}) == 2
    assert [b.n_bytes for b in cache.buffers] == [
        sum(t.n_bytes for t in b.tensors) for b in cache.buffers
    ]


def test_a_model_without_attention_takes_a_quantised_cache_type(cache_of):
    cache = cache_of("mamba", MAMBA, cache_type_k="q4_0")

    assert all(part.k_rotation == 0 for part in cache.parts)
