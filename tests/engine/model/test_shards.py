"""Weights and caches by role: which part of each a member gets."""

from dataclasses import replace

import pytest

from engine.core.options import Options, SplitMode
from engine.core.shards import MIRRORED, one_of, shard_along
from engine.gguf.reader import open_gguf
from engine.model.planned_model import place
from engine.model.shards import member_shares
from tests.engine.paper import parse_virtual
from tests.oracle import golden

CPU = parse_virtual("CPU:cpu:16384")


def device(name, mib=4096, more=""):
    return parse_virtual(f"{name}:gpu:{mib}{more}")


def placed(model, *names, folder="", more="", **options):
    """The model on these devices, joined."""
    wanted = Options(split_mode=SplitMode.TENSOR, n_ctx=512, **options)
    path = golden.path(f"arch/headers/{model}.gguf-header") if folder else golden.header(model)
    with open_gguf(path) as file:
        return place(file, [*(device(name, more=more) for name in names), CPU], wanted)


def shard_of(model, role):
    """How a weight or a cache is shared; None: each member has it whole."""
    kind, _, il = role.partition(" ")
    if kind == "keys":
        return model.shards.get(model.cache.keys[int(il)])
    if kind == "values":
        return model.shards.get(model.cache.values[int(il)])
    return model.shards.get(model.weights.tensors[role])


def test_heads_of_a_layer_go_together_and_what_is_left_over_takes_turns():
    """Nine heads of Q look at three of K and V; heads have 64 elements."""
    model = placed("smollm2-135m-q4_1", "A", "B")

    for il, heads in ((0, (2, 1)), (1, (1, 2)), (2, (2, 1))):
        queries, rows = [192 * n for n in heads], [64 * n for n in heads]
        assert shard_of(model, f"blk.{il}.attn_q.weight") == shard_along(1, queries)
        assert shard_of(model, f"blk.{il}.attn_output.weight") == shard_along(0, queries)
        for name in ("attn_k", "attn_v"):
            assert shard_of(model, f"blk.{il}.{name}.weight") == shard_along(1, rows)
        for name in ("keys", "values"):
            assert shard_of(model, f"{name} {il}") == shard_along(0, rows)


def test_channels_of_a_feed_forward_end_where_blocks_do():
    """1536 channels; ffn_down has blocks of 32."""
    model = placed("smollm2-135m-q4_1", "A", "B", tensor_split=(2, 1))

    for name, axis in (("ffn_up", 1), ("ffn_gate", 1), ("ffn_down", 0)):
        assert shard_of(model, f"blk.0.{name}.weight") == shard_along(axis, (1024, 512))
        assert shard_of(model, f"blk.1.{name}.weight") == shard_along(axis, (1024, 512))


def test_blocks_of_256_are_not_cut():
    """6.5 blocks for each: the second gets what is left, in the next layer the first."""
    model = placed("gemma-3-270m-q4_k_m", "A", "B", tensor_split=(13, 3))
    down = model.weights.tensors["blk.0.ffn_down.weight"]

    sizes = shard_of(model, "blk.0.ffn_down.weight").sizes

    assert down.type.block_elems in (32, 256)
    assert all(size % down.type.block_elems == 0 for size in sizes)
    assert sum(sizes) == 2048


def test_the_rows_of_the_output_are_shared_and_norms_are_not():
    model = placed("smollm2-135m-q4_1", "A", "B")

    assert shard_of(model, "output.weight") == shard_along(1, (24576, 24576))
    for role in ("output_norm.weight", "blk.0.attn_norm.weight", "blk.0.ffn_norm.weight"):
        assert shard_of(model, role) is None


def test_an_input_table_on_the_cpu_is_no_members():
    model = placed("smollm2-135m-q4_1", "A", "B")

    assert model.weights.tensors["token_embd.weight"] not in model.shards


def test_two_heads_of_k_are_one_for_each_of_two_members():
    """Qwen 0.5B: fourteen heads of Q, two of K; its rows of 896 have blocks of 32."""
    model = placed("qwen2.5-0.5b", "A", "B")

    assert shard_of(model, "blk.0.attn_output.weight") == shard_along(0, (448, 448))
    assert shard_of(model, "keys 0") == shard_along(0, (64, 64))
    assert shard_of(model, "blk.0.attn_q.bias") is None


def test_a_third_member_has_none_of_two_heads():
    model = placed("qwen2.5-0.5b", "A", "B", "C")

    sizes = [shard_of(model, f"keys {il}").sizes for il in range(3)]
    assert [sorted(each) for each in sizes] == [[0, 64, 64]] * 3


def test_a_single_head_of_k_is_on_every_member_with_all_of_its_attention():
    model = placed("gemma-3-270m-q4_k_m", "A", "B")

    for role in ("attn_q", "attn_k", "attn_v", "attn_output"):
        assert shard_of(model, f"blk.0.{role}.weight") is None
    assert shard_of(model, "keys 0") is None
    assert shard_of(model, "blk.0.ffn_up.weight") == shard_along(1, (1024, 1024))


def test_a_member_that_is_to_have_everything_has_it_alone():
    model = placed("gemma-3-270m-q4_k_m", "A", "B", tensor_split=(0, 1))

    assert set(model.shards.values()) == {one_of(1, 2)}
    assert shard_of(model, "keys 0") == one_of(1, 2)


def test_experts_are_shared_by_their_channels_and_routers_are_not():
    model = placed("tiny-qwen3moe-f32", "A", "B")

    assert shard_of(model, "blk.0.ffn_gate_exps.weight") == shard_along(1, (64, 64))
    assert shard_of(model, "blk.0.ffn_down_exps.weight") == shard_along(0, (64, 64))
    assert shard_of(model, "blk.0.ffn_gate_inp.weight") is None


@pytest.mark.big_set
@pytest.mark.parametrize("model", ["phi3", "qwen35", "qwen35moe"])
def test_fused_or_recurrent_layers_are_on_every_member(model):
    found = placed(model, "A", "B", folder="arch")

    fused = [role for role in found.weights.tensors if ".attn_qkv." in role or ".ssm_" in role]
    assert fused
    assert all(found.weights.tensors[role] not in found.shards for role in fused)


@pytest.mark.big_set
def test_layers_that_read_another_layers_keys_are_divided_as_that_one_is():
    found = placed("gemma4", "A", "B", folder="arch")
    hparams = found.facts.hparams
    readers = [il for il in range(hparams.n_layer) if hparams.cache_layer(il) != il]

    assert readers
    for il in readers:
        heads = hparams.layers[il].n_head // hparams.layers[il].n_head_kv
        keys, queries = shard_of(found, f"keys {il}"), shard_of(found, f"blk.{il}.attn_q.weight")
        if keys is not None and keys.owner is None:
            assert queries.sizes == tuple(heads * size for size in keys.sizes)


def test_one_member_divides_nothing():
    assert placed("smollm2-135m-q4_1", "A").shards == {}


# Shares.


def test_shares_are_those_asked_for_else_of_free_memory_else_equal():
    pair = [device("A", 300), device("B", 100)]

    assert member_shares(pair, CPU, (1, 4)) == (0.2, 0.8)
    assert member_shares(pair, CPU, (2,)) == (1.0, 0.0)
    assert member_shares(pair, CPU, ()) == member_shares(pair, CPU, (0, 0)) == (0.75, 0.25)
    full = [replace(device(name), memory_free=0) for name in "AB"]
    assert member_shares(full, CPU, ()) == (0.5, 0.5)


def test_a_member_that_reports_no_memory_counts_as_the_cpu_does():
    """Its free memory is not known, which is no reason to give it nothing."""
    silent = replace(device("B"), memory_free=0, memory_total=0)

    assert member_shares([device("A", 16384), silent], CPU, ()) == (0.5, 0.5)


def test_what_members_hold_is_counted_with_what_each_has_whole():
    model = placed("smollm2-135m-q4_1", "A", "B", tensor_split=(3, 1))

    a, b = model.member_shares
    held = [tensor.n_bytes for buffer in model.cache.buffers for tensor in buffer.tensors]
    weights = [w.info.n_bytes for buf in model.weights.buffers if not buf.is_mapped
               for w in buf.weights]  # fmt: skip

    assert (a.device, b.device, a.asked, b.asked) == ("A", "B", 0.75, 0.25)
    assert a.whole_bytes == b.whole_bytes > 0
    assert a.n_bytes + b.n_bytes == sum(held) + sum(weights) + a.whole_bytes
    assert a.achieved == pytest.approx(a.n_bytes / (a.n_bytes + b.n_bytes))
    assert 0.7 < a.achieved < 0.8


def test_what_a_member_holds_is_counted_with_what_its_memory_adds():
    """CUDA's pads rows of quantised weights to 512 elements: halves of 576 and 1536 are not."""
    plain = placed("smollm2-135m-q4_1", "A", "B")
    padded = placed("smollm2-135m-q4_1", "A", "B", more=":preset=cuda")

    per_layer = [
        pad_bytes(padded, weight.tensor, member)
        for buffer in padded.weights.buffers
        if not buffer.is_mapped
        for weight in buffer.weights
        for member in (0, 1)
    ]
    assert sum(per_layer) > 0
    held = [sum(share.n_bytes for share in model.member_shares) for model in (plain, padded)]
    assert held[1] - held[0] == sum(per_layer)


def pad_bytes(model, tensor, member):
    """What a row of 512 elements adds behind a member's part."""
    ne = model.shards.get(tensor, MIRRORED).ne_on(tensor.ne, member)
    rest = -ne[0] % 512 if tensor.type.is_quantized else 0
    part = tensor.type.row_bytes(ne[0]) * ne[1]
    padded = part + (tensor.type.row_bytes(rest) if rest else 0)
    return -(-padded // 128) * 128 - -(-part // 128) * 128


def test_without_joined_devices_there_is_nothing_to_hold():
    with open_gguf(golden.header("smollm2-135m-q4_1")) as file:
        model = place(file, [device("A"), CPU], Options())

    assert model.joined is None
    assert model.shards == {}
    assert model.member_shares == ()
