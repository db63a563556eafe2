"""Graphs that several CPUs share compute what one of them computes alone.

Members without asynchronous copies: the host carries what they exchange.
"""

import threading
from collections import Counter
from contextlib import closing

import numpy as np
import pytest

from engine.core import build
from engine.core.ops import FlashAttnParams, GluOp, Op, RopeParams
from engine.core.shards import one_of, shard_along
from engine.core.tensor import Flag
from engine.core.types import TensorType
from engine.errors import Stopped
from tests.engine.backends.meta.joined import Computed, Values, cpu, joined_cpus, ordered
from tests.oracle.node_values import nmse

BAR = 1e-10
"""Of sums in another order, float32."""

HEAD, N_TOKENS, N_CELLS = 16, 3, 256


def feed_forward(values, n_embd=32, n_ff=96):
    """down(silu(gate x) * up x), the weights by name, and the nodes."""
    x = values.input(n_embd, N_TOKENS)
    up, gate = values.weight(n_embd, n_ff), values.weight(n_embd, n_ff)
    down = values.weight(n_ff, n_embd)
    mixed = build.glu_split(build.mul_mat(gate, x), build.mul_mat(up, x), GluOp.SWIGLU)
    out = build.add(build.mul_mat(down, mixed), x)
    return {"up": up, "gate": gate, "down": down}, out


def shared_feed_forward(weights, *sizes):
    return {
        weights["up"]: shard_along(1, sizes),
        weights["gate"]: shard_along(1, sizes),
        weights["down"]: shard_along(0, sizes),
    }


def attention(values, n_head=6, n_head_kv=3):
    """One layer's attention with a cache, up to its output projection; weights and caches."""
    n_embd = 32
    x, positions = values.input(n_embd, N_TOKENS), values.ints(0, 1, 2)
    cells = values.ints(0, 1, 2, tensor_type=TensorType.I64)
    mask = build.cast(values.input(N_CELLS, N_TOKENS, name="mask"), TensorType.F16)
    shapes = {"q": n_head, "k": n_head_kv, "v": n_head_kv}
    named = {name: values.weight(n_embd, n * HEAD, name=name) for name, n in shapes.items()}
    bias = values.weight(n_head * HEAD, name="bias")
    caches = {name: values.cache(n_head_kv * HEAD, N_CELLS) for name in "kv"}
    q = build.add(build.mul_mat(named["q"], x), bias)
    q = build.reshape(q, HEAD, n_head, N_TOKENS)
    q = build.rope(q, positions, None, RopeParams(HEAD))
    nodes, seen = ordered(q), {}
    for name in "kv":
        rows = build.mul_mat(named[name], x)
        written = build.set_rows(caches[name], rows, cells)
        nodes += [node for node in ordered(written) if node not in nodes]
        heads = build.view(
            caches[name], (HEAD, n_head_kv, N_CELLS), (2 * HEAD, 2 * HEAD * n_head_kv)
        )
        seen[name] = build.permute(heads, (0, 2, 1, 3))
    query = build.permute(q, (0, 2, 1, 3))
    attended = build.flash_attn_ext(query, seen["k"], seen["v"], mask, FlashAttnParams(0.25))
    flat = build.reshape(attended, HEAD * n_head, N_TOKENS)
    named["output"] = values.weight(n_head * HEAD, n_embd, name="output")
    out = build.mul_mat(named["output"], flat)
    nodes += [node for node in ordered(out) if node not in nodes]
    return named, caches, nodes


def shared_heads(named, caches, *heads, n_queries=2):
    queries = [n * n_queries * HEAD for n in heads]
    rows = [n * HEAD for n in heads]
    shards = {named["q"]: shard_along(1, queries), named["output"]: shard_along(0, queries)}
    shards |= {named[name]: shard_along(1, rows) for name in "kv"}
    return shards | {caches[name]: shard_along(0, rows) for name in "kv"}


def both(values, nodes, n_members, shards, outside=()):
    """What one CPU computes, and what several do."""
    for node in nodes:
        node.flags = Flag.COMPUTE
    alone = Computed(cpu(), values, nodes, outside)
    return alone, Computed(joined_cpus(n_members, shards), values, nodes, outside)


def assert_same(values, nodes, n_members, shards, outside=()):
    alone, shared = both(values, nodes, n_members, shards, outside)
    with closing(alone), closing(shared):
        for node in (*outside, nodes[-1]):
            assert nmse(shared.read(node), alone.read(node)) <= BAR, node


@pytest.mark.parametrize("sizes", [(32, 64), (96, 0), (0, 96), (32, 32, 32), (32, 0, 64)])
def test_a_feed_forward_is_the_same_however_its_channels_are_shared(sizes):
    values = Values()
    weights, out = feed_forward(values)

    assert_same(values, ordered(out), len(sizes), shared_feed_forward(weights, *sizes))


@pytest.mark.parametrize("heads", [(2, 1), (1, 2), (3, 0), (1, 1, 1), (0, 1, 2)])
def test_attention_is_the_same_however_its_heads_are_shared(heads):
    values = Values()
    named, caches, nodes = attention(values)

    assert_same(values, nodes, len(heads), shared_heads(named, caches, *heads))


def test_members_get_the_same_bits_of_a_sum():
    values = Values()
    weights, out = feed_forward(values)
    device = joined_cpus(3, shared_feed_forward(weights, 32, 32, 32))

    with closing(Computed(device, values, ordered(out))) as shared:
        place = shared.places[out]
        raw = [np.empty(out.n_bytes, np.uint8) for _ in range(3)]
        for member, bytes_ in enumerate(raw):
            own = place.buffer.place_on(member, place.offset)
            own.buffer.get_tensor(own.offset, bytes_)

    assert raw[0].tobytes() == raw[1].tobytes() == raw[2].tobytes()


def test_caches_of_members_hold_what_the_whole_cache_does():
    values = Values()
    named, caches, nodes = attention(values)
    alone, shared = both(values, nodes, 2, shared_heads(named, caches, 2, 1))

    with closing(alone), closing(shared):
        for cache in caches.values():
            assert np.abs(shared.read(cache)).max() > 0
            assert nmse(shared.read(cache), alone.read(cache)) <= 1e-6


def test_results_that_are_read_outside_are_whole():
    values = Values()
    weights, out = feed_forward(values)
    nodes = ordered(out)
    products = [node for node in nodes if node.op is Op.MUL_MAT]

    assert_same(values, nodes, 2, shared_feed_forward(weights, 64, 32), outside=products)


def test_logits_are_whole_although_rows_are_shared():
    values = Values()
    x, output = values.input(32, 1), values.weight(32, 100)

    logits = build.mul_mat(output, x)

    assert_same(values, [logits], 2, {output: shard_along(1, (64, 36))})


def test_what_no_rule_shares_is_computed_from_whole_sources():
    """A softmax over channels, which lie on two members."""
    values = Values()
    x, weight = values.input(32, 3), values.weight(32, 64)
    product = build.mul_mat(weight, x)

    out = build.rms_norm(product, 1e-6)

    assert_same(values, [product, out], 2, {weight: shard_along(1, (32, 32))})


def test_a_result_is_right_token_after_token():
    values = Values()
    named, caches, nodes = attention(values)
    alone, shared = both(values, nodes, 2, shared_heads(named, caches, 1, 2))

    with closing(alone), closing(shared):
        shared.again()
        shared.again()
        assert nmse(shared.read(nodes[-1]), alone.read(nodes[-1])) <= BAR


def test_one_member_may_have_a_tensor_alone():
    values = Values()
    x, weight = values.input(32, 3), values.weight(32, 64)
    product = build.scale(build.mul_mat(weight, x), 2.0)

    assert_same(values, ordered(product), 2, {weight: one_of(1, 2)})


def test_the_time_of_each_stage_and_exchange_is_told():
    values = Values()
    weights, out = feed_forward(values)
    device = joined_cpus(2, shared_feed_forward(weights, 32, 64))

    with closing(Computed(device, values, ordered(out))) as shared:
        (done,) = shared.completions

    stages = [shard for shard in done.shards if not shard.source]
    moves = [shard for shard in done.shards if shard.source]
    assert len(stages) == 4
    assert len(moves) == 2
    assert {move.n_bytes for move in moves} == {32 * N_TOKENS * 4}
    assert all(done.start_ns <= s.start_ns <= s.end_ns <= done.end_ns for s in done.shards)


def test_threads_reach_every_member():
    values = Values()
    weights, out = feed_forward(values)
    device = joined_cpus(2, shared_feed_forward(weights, 32, 64))
    set_threads = device.reg.get_proc_address("ggml_backend_set_n_threads")

    with closing(Computed(device, values, ordered(out))) as shared:
        set_threads(shared.backend, 3)
        shared.again()
        names = Counter(thread.name for thread in threading.enumerate())

    assert names["cpu-2"] == 2
    assert device.reg.get_proc_address("nothing") is None


def test_a_wish_to_stop_reaches_every_member():
    values = Values()
    weights, out = feed_forward(values)
    device = joined_cpus(2, shared_feed_forward(weights, 32, 64))
    word = np.ones(1, np.int64)

    with closing(Computed(device, values, ordered(out))) as shared:
        shared.backend.set_stop_word(word.ctypes.data)
        with pytest.raises(Stopped):
            shared.again()


def test_room_for_exchanges_grows_by_doubling_and_is_given_back():
    backend = joined_cpus(2, {}).init_backend()

    sizes = [backend._scratch_places(n)[0].buffer.size for n in (1000, 500, 1001, 5000)]

    assert sizes == [1000, 1000, 2000, 5000]
    backend.dispose()
    assert backend._scratch == []
