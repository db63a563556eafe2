"""Every kernel against numpy in float64: one case table an operation, odd sizes included.

All cases run twice where the device is a CPU: as it is driven, and as a GPU would be.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from engine.core import build
from engine.core.ops import (
    FlashAttnParams,
    GluOp,
    Op,
    RopeParams,
    SoftMaxParams,
    UnaryOp,
)
from engine.core.types import TensorType

if TYPE_CHECKING:
    from engine.core.tensor import Tensor

F32, F16, I32, I64 = TensorType.F32, TensorType.F16, TensorType.I32, TensorType.I64
Q6_K = TensorType.Q6_K
WEIGHT_TYPES = [F32, F16, TensorType.Q8_0, TensorType.Q4_0, TensorType.Q4_1, Q6_K]

# Kernels sum in float32 in another order than numpy; quantised weights are compared with their
# dequantised values and activations rounded as the kernels do, so one bound holds for every type.
NMSE = 1e-6
# Results that are rounded to float16 once.
NMSE_F16 = 1e-5
# Attention of fewer queries over a float16 cache rounds its running sums to float16.
HALF_SUMS_BELOW = 64

pytestmark = pytest.mark.gpu


@pytest.fixture
def bench(every_bench):
    return every_bench


def rand(*shape, scale=1.0):
    return np.random.default_rng(sum(shape)).normal(0, scale, shape).astype(np.float32)


def nmse(got, want):
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    assert got.shape == want.shape
    return float(np.mean((got - want) ** 2) / max(np.mean(want**2), 1e-30))


BINARIES = {Op.ADD: np.add, Op.SUB: np.subtract, Op.MUL: np.multiply, Op.DIV: np.divide}


@pytest.mark.parametrize("op", BINARIES)
@pytest.mark.parametrize(
    ("a_shape", "b_shape"),
    [
        ((64,), (64,)),
        ((3, 5, 7), (3, 5, 7)),
        ((4, 5001), (5001,)),
        ((2, 3, 4, 24), (3, 1, 24)),
        ((2, 6, 24), (1, 1)),
        ((2, 6, 24), (6, 8)),
        ((2, 6, 24), (3, 1)),
    ],
)
def test_binary_operations_repeat_their_second_source(bench, op, a_shape, b_shape):
    a, b = bench.leaf(F32, rand(*a_shape)), bench.leaf(F32, rand(*b_shape) + 3)

    got = bench.compute(build.binary(op, a, b))

    repeats = [na // nb for na, nb in zip(a.ne[::-1], b.ne[::-1], strict=True)]
    want = BINARIES[op](bench.floats(a), np.tile(bench.floats(b), repeats))
    assert nmse(got, want) <= NMSE


def test_a_binary_operation_reads_strided_views(bench):
    base = bench.leaf(F32, rand(6, 40))
    window = build.view(base, (13, 5), (160,), offset=3 * 4)
    bias = bench.leaf(F32, rand(13))

    got = bench.compute(window, build.add(window, bias))

    want = bench.floats(base)[0, 0, 0:5, 3:16] + bench.floats(bias).reshape(13)
    assert nmse(got[0, 0], want) <= NMSE


@pytest.mark.parametrize("n", [1, 7, 64, 4099])
def test_scale_multiplies_and_adds(bench, n):
    x = bench.leaf(F32, rand(3, n))

    got = bench.compute(build.scale(x, 0.25, 1.5))

    assert nmse(got, bench.floats(x) * 0.25 + 1.5) <= NMSE


UNARIES = {
    UnaryOp.SILU: lambda x: x / (1 + np.exp(-x)),
    UnaryOp.GELU: lambda x: 0.5 * x * (1 + np.tanh(0.7978845608 * x * (1 + 0.044715 * x * x))),
}


@pytest.mark.parametrize("kind", UNARIES)
@pytest.mark.parametrize("shape", [(1,), (3, 13), (2, 3, 4096)])
def test_unary_functions_hold_over_a_wide_range(bench, kind, shape):
    x = bench.leaf(F32, rand(*shape, scale=8.0))

    got = bench.compute(build.unary(x, kind))

    assert nmse(got, UNARIES[kind](bench.floats(x).astype(np.float64))) <= NMSE


@pytest.mark.parametrize("shape", [(1, 8), (5, 13), (4, 1536)])
def test_swiglu_gates_the_second_source(bench, shape):
    gate, up = bench.leaf(F32, rand(*shape)), bench.leaf(F32, rand(*shape[::-1]).T)

    got = bench.compute(build.glu_split(gate, up, GluOp.SWIGLU))

    want = UNARIES[UnaryOp.SILU](bench.floats(gate).astype(np.float64)) * bench.floats(up)
    assert nmse(got, want) <= NMSE


@pytest.mark.parametrize("shape", [(1, 576), (5, 13), (2, 3, 4, 64)])
def test_rms_norm_divides_rows_by_their_root_mean_square(bench, shape):
    x = bench.leaf(F32, rand(*shape, scale=3.0))

    got = bench.compute(build.rms_norm(x, 1e-5))

    values = bench.floats(x).astype(np.float64)
    want = values / np.sqrt(np.mean(values**2, axis=-1, keepdims=True) + 1e-5)
    assert nmse(got, want) <= NMSE


@pytest.mark.parametrize("table_type", WEIGHT_TYPES)
@pytest.mark.parametrize("n_blocks", [1, 18])
def test_get_rows_reads_every_weight_type(bench, table_type, n_blocks):
    n = n_blocks * max(32, table_type.block_elems)
    table = bench.leaf(table_type, rand(11, n))
    ids = bench.leaf(I32, np.array([3, 0, 10, 3]))

    got = bench.compute(build.get_rows(table, ids))

    assert nmse(got[0, 0], bench.floats(table)[0, 0][[3, 0, 10, 3]]) <= NMSE


@pytest.mark.parametrize("table_type", [F32, F16])
def test_get_rows_of_a_plain_type_takes_any_length(bench, table_type):
    table = bench.leaf(table_type, rand(2, 5, 13))
    ids = bench.leaf(I32, np.array([[4, 0], [1, 1]]))

    got = bench.compute(build.get_rows(table, ids))

    values = bench.floats(table)[0]
    assert nmse(got[0], np.stack([values[0][[4, 0]], values[1][[1, 1]]])) <= NMSE


def test_get_rows_shows_an_id_outside_the_table(bench):
    table, ids = bench.leaf(F32, rand(4, 16)), bench.leaf(I32, np.array([1, 99]))

    got = bench.compute(build.get_rows(table, ids))

    assert np.isfinite(got[0, 0, 0]).all()
    assert np.isnan(got[0, 0, 1]).all()


@pytest.mark.parametrize("table_type", [F32, F16])
@pytest.mark.parametrize("id_type", [I32, I64])
@pytest.mark.parametrize("n", [1, 13, 192])
def test_set_rows_writes_where_the_ids_say_and_nowhere_else(bench, table_type, id_type, n):
    table = bench.leaf(table_type, rand(500, n))
    rows = bench.leaf(F32, rand(300, n, scale=2.0))
    picks = np.random.default_rng(1).permutation(500)[:300]
    ids = bench.leaf(id_type, picks)

    bench.run(build.set_rows(table, rows, ids))

    want = bench.floats(table).copy()
    want[0, 0, picks] = bench.floats(rows)[0, 0].astype(bench.values[table].dtype)
    assert np.array_equal(bench.read(table), want.astype(bench.values[table].dtype))


def test_set_rows_writes_several_planes_by_ids_of_their_own(bench):
    table, rows = bench.leaf(F32, rand(2, 9, 16)), bench.leaf(F32, rand(2, 3, 16))
    ids = bench.leaf(I64, np.array([[8, 0, 4], [1, 2, 3]]))

    bench.run(build.set_rows(table, rows, ids))

    want = bench.floats(table).copy()
    for plane, picks in enumerate(([8, 0, 4], [1, 2, 3])):
        want[0, plane, picks] = bench.floats(rows)[0, plane]
    assert np.array_equal(bench.read(table), want)


@pytest.mark.parametrize("axes", [(0, 1, 2, 3), (1, 0, 2, 3), (0, 2, 1, 3), (2, 0, 3, 1)])
@pytest.mark.parametrize("source_type", [F32, F16])
def test_cont_makes_any_permutation_gapless(bench, axes, source_type):
    x = bench.leaf(source_type, rand(2, 3, 5, 12))
    permuted = build.permute(x, axes)

    got = bench.compute(permuted, build.cont(permuted))

    places = [axes.index(i) for i in range(4)]
    want = bench.values[x].transpose([3 - places[3 - i] for i in range(4)])
    assert np.array_equal(got, want)


def test_cont_may_take_another_shape(bench):
    x = bench.leaf(F32, rand(3, 5, 8))
    permuted = build.permute(x, (0, 2, 1, 3))

    got = bench.compute(permuted, build.cont(permuted, (24, 5, 1, 1)))

    want = bench.values[x].transpose(1, 0, 2).reshape(1, 1, 5, 24)
    assert np.array_equal(got, want)


@pytest.mark.parametrize(("source_type", "target_type"), [(F32, F16), (F16, F32), (F32, F32)])
def test_cpy_converts_into_a_strided_window(bench, source_type, target_type):
    x = bench.leaf(source_type, rand(5, 13))
    base = bench.leaf(target_type, np.zeros((7, 20)))
    step = base.type.block_bytes
    window = build.view(base, (13, 5), (20 * step,), offset=3 * step)

    bench.run(window, build.cpy(x, window))

    want = np.zeros((1, 1, 7, 20), bench.values[base].dtype)
    want[0, 0, 0:5, 3:16] = bench.values[x]
    assert np.array_equal(bench.read(base), want)


@pytest.mark.parametrize("shape", [(1, 1, 8), (3, 5, 13), (2, 4, 260)])
@pytest.mark.parametrize("mask_type", [None, F32, F16])
def test_soft_max_adds_its_mask(bench, shape, mask_type):
    x = bench.leaf(F32, rand(*shape, scale=4.0))
    hidden = np.triu(np.full(shape[1:], -np.inf), 1)
    mask = None if mask_type is None else bench.leaf(mask_type, hidden)

    got = bench.compute(build.soft_max(x, mask, SoftMaxParams(scale=0.3)))

    logits = bench.floats(x).astype(np.float64) * 0.3 + (0 if mask is None else hidden)
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    assert nmse(got, weights / weights.sum(axis=-1, keepdims=True)) <= NMSE


def rotated(x, positions, params, factors=None):
    """ROPE in float64; x [t, heads, d]. Source: ARCH.md 1.9."""
    x = x.astype(np.float64)
    half = params.n_dims // 2
    j = np.arange(half)
    extrapolated = positions[:, None] * params.freq_base ** (-2.0 * j / params.n_dims)
    if factors is not None:
        extrapolated = extrapolated / factors
    angle, magnitude = params.freq_scale * extrapolated, params.attn_factor
    if params.ext_factor:

        def pair_of(turns):
            length = np.log(params.n_ctx_orig / (2 * np.pi * turns))
            return params.n_dims * length / (2 * np.log(params.freq_base))

        low = max(0, np.floor(pair_of(params.beta_fast)))
        high = min(params.n_dims - 1, np.ceil(pair_of(params.beta_slow)))
        ramp = (1 - np.clip((j - low) / max(0.001, high - low), 0, 1)) * params.ext_factor
        angle = angle * (1 - ramp) + extrapolated * ramp
        magnitude *= 1 + 0.1 * np.log(1 / params.freq_scale)
    cosine, sine = (f(angle)[:, None, :] * magnitude for f in (np.cos, np.sin))
    out = x.copy()
    pairs = (slice(0, 2 * half, 2), slice(1, 2 * half, 2))
    if params.mode == 2:
        pairs = (slice(0, half), slice(half, 2 * half))
    a, b = x[..., pairs[0]], x[..., pairs[1]]
    out[..., pairs[0]], out[..., pairs[1]] = a * cosine - b * sine, a * sine + b * cosine
    return out


YARN = {"n_ctx_orig": 2048, "freq_scale": 0.25, "ext_factor": 1.0, "attn_factor": 1.1}


@pytest.mark.parametrize("mode", [0, 2])
@pytest.mark.parametrize("changes", [{}, {"freq_base": 1e6, "freq_scale": 0.5}, YARN])
@pytest.mark.parametrize(("d", "n_dims"), [(64, 64), (80, 20), (10, 6)])
def test_rope_rotates_pairs(bench, mode, changes, d, n_dims):
    x = bench.leaf(F32, rand(4, 3, d))
    positions = np.array([0, 1, 77, 2000])
    params = RopeParams(n_dims=n_dims, mode=mode, **changes)

    got = bench.compute(build.rope(x, bench.leaf(I32, positions), None, params))

    assert nmse(got[0], rotated(bench.floats(x)[0], positions, params)) <= NMSE


def test_rope_divides_angles_by_factors(bench):
    x = bench.leaf(F32, rand(2, 3, 64))
    factors = bench.leaf(F32, 1 + np.arange(32, dtype=np.float32) / 4)
    positions = np.array([5, 900])
    params = RopeParams(n_dims=64, mode=2)

    got = bench.compute(build.rope(x, bench.leaf(I32, positions), factors, params))

    want = rotated(bench.floats(x)[0], positions, params, bench.floats(factors).reshape(32))
    assert nmse(got[0], want) <= NMSE


def test_rope_may_write_over_its_source(bench):
    x = bench.leaf(F32, rand(2, 3, 64))
    positions = np.array([5, 900])
    node = build.rope(x, bench.leaf(I32, positions), None, RopeParams(n_dims=64, mode=2))
    graph = bench.graph(node)
    graph.places = {**graph.places, node: graph.places[x]}

    bench.backend.graph_compute(graph)
    bench.backend.synchronize()

    assert nmse(bench.read(x)[0], rotated(bench.floats(x)[0], positions, node.params)) <= NMSE


def as_read(x, weight_type):
    """Activations as a matmul with these weights reads them: rounded to int8 blocks, or as is."""
    if not weight_type.is_quantized:
        return x.astype(np.float64)
    blocks = x.reshape(-1, weight_type.block_elems)
    largest = np.abs(blocks).max(axis=1, keepdims=True)
    inverse = np.float32(127) / np.where(largest == 0, np.float32(1), largest)
    d = largest / np.float32(127)
    if weight_type is not Q6_K:
        d = d.astype(np.float16)
    return (np.rint(blocks * inverse) * d.astype(np.float64)).reshape(x.shape)


@pytest.mark.parametrize("weight_type", WEIGHT_TYPES)
@pytest.mark.parametrize("n_columns", [1, 2, 3, 4, 5, 33, 70])
@pytest.mark.parametrize(("n_blocks", "n"), [(1, 5), (18, 19), (33, 8)])
def test_mul_mat_multiplies_every_weight_type(bench, weight_type, n_columns, n_blocks, n):
    k = n_blocks * max(32, weight_type.block_elems)
    weight = bench.leaf(weight_type, rand(n, k, scale=0.1))
    x = bench.leaf(F32, rand(n_columns, k))

    got = bench.compute(build.mul_mat(weight, x))

    want = as_read(bench.floats(x), weight_type)[0, 0] @ bench.floats(weight)[0, 0].T
    assert nmse(got[0, 0], want) <= NMSE


def test_activations_of_quantised_weights_are_rounded_to_even_whole_numbers(bench):
    values = np.zeros((1, 64), np.float32)
    values[0, :6] = [127.0, 0.5, 1.5, 2.5, -0.5, -1.5]  # the second block stays zero
    weight = bench.leaf(TensorType.Q8_0, np.eye(64) * 127)

    got = bench.compute(build.mul_mat(weight, bench.leaf(F32, values)))

    assert (got[0, 0, 0, :6] / 127).tolist() == [127, 0, 2, 2, 0, -2]
    assert not got[0, 0, 0, 6:].any()


def test_quantised_weights_take_strided_activations_of_several_matrices(bench):
    weight = bench.leaf(TensorType.Q8_0, rand(2, 5, 64, scale=0.1))
    base = bench.leaf(F32, rand(4, 3, 6, 64))
    x = build.permute(base, (0, 2, 1, 3))

    got = bench.compute(x, build.mul_mat(weight, x))

    w = np.repeat(bench.floats(weight)[0], 3, axis=0).transpose(0, 2, 1)
    want = as_read(bench.floats(base), weight.type).transpose(0, 2, 1, 3) @ w
    assert nmse(got, want) <= NMSE


def test_activations_that_change_between_two_matmuls_are_rounded_again(bench):
    weight = bench.leaf(TensorType.Q4_0, rand(8, 64, scale=0.1))
    x, more = bench.leaf(F32, rand(1, 64)), bench.leaf(F32, rand(1, 64, scale=5.0))
    first, second = build.mul_mat(weight, x), build.mul_mat(weight, x)
    before = bench.floats(x).copy()

    bench.run(first, build.cpy(more, x), second)

    w = bench.floats(weight)[0, 0].T
    assert nmse(bench.read(first), as_read(before, weight.type) @ w) <= NMSE
    assert nmse(bench.read(second), as_read(bench.floats(more), weight.type) @ w) <= NMSE


@pytest.mark.parametrize("weight_type", [F32, F16])
@pytest.mark.parametrize("n_columns", [1, 9])
@pytest.mark.parametrize("k", [1, 7, 13, 1029])
def test_mul_mat_of_plain_weights_takes_any_length(bench, weight_type, n_columns, k):
    weight, x = bench.leaf(weight_type, rand(6, k)), bench.leaf(F32, rand(n_columns, k))

    got = bench.compute(build.mul_mat(weight, x))

    want = bench.floats(x).astype(np.float64)[0, 0] @ bench.floats(weight)[0, 0].T
    assert nmse(got[0, 0], want) <= NMSE


@pytest.mark.parametrize("n_tokens", [1, 6])
def test_mul_mat_shares_strided_cache_views_among_heads(bench, n_tokens):
    n_kv, n_heads, n_kv_heads, d = 11, 6, 2, 16
    cache = bench.leaf(F16, rand(32, n_kv_heads * d))
    keys = build.view(cache, (d, n_kv_heads, n_kv), (d * 2, n_kv_heads * d * 2))
    keys = build.permute(keys, (0, 2, 1, 3))
    x = bench.leaf(F32, rand(n_tokens, n_heads, d))
    query = build.permute(x, (0, 2, 1, 3))

    got = bench.compute(keys, query, build.mul_mat(keys, query))

    k = bench.floats(cache)[0, 0, :n_kv].reshape(n_kv, n_kv_heads, d)
    k = np.repeat(k, n_heads // n_kv_heads, axis=1).transpose(1, 2, 0)
    want = bench.floats(x)[0].astype(np.float64).transpose(1, 0, 2) @ k
    assert nmse(got[0], want) <= NMSE


def test_mul_mat_broadcasts_over_both_outer_dimensions(bench):
    weight, x = bench.leaf(F32, rand(2, 1, 5, 8)), bench.leaf(F32, rand(4, 3, 7, 8))

    got = bench.compute(build.mul_mat(weight, x))

    w = np.repeat(bench.floats(weight), 2, axis=0).transpose(0, 1, 3, 2)
    assert nmse(got, bench.floats(x).astype(np.float64) @ w) <= NMSE


def attention(q, k, v, mask, params):
    """q [h, t, d], k and v [hk, n_kv, d] -> [t, h, d], float64."""
    share = q.shape[0] // k.shape[0]
    k, v = (np.repeat(a.astype(np.float64), share, axis=0) for a in (k, v))
    logits = q.astype(np.float64) @ k.transpose(0, 2, 1) * params.scale
    if params.softcap:
        logits = params.softcap * np.tanh(logits / params.softcap)
    logits = logits + mask
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return (weights / weights.sum(axis=-1, keepdims=True) @ v).transpose(1, 0, 2)


def attention_in_halves(q, k, v, mask, params):
    """The same, key by key, with queries and running sums rounded to float16 at every step."""
    share = q.shape[0] // k.shape[0]
    k, v = (np.repeat(a.astype(np.float64), share, axis=0) for a in (k, v))
    logits = q.astype(np.float16).astype(np.float64) @ k.transpose(0, 2, 1) * params.scale
    if params.softcap:
        logits = params.softcap * np.tanh(logits / params.softcap)
    logits = logits + mask
    out = np.zeros((*q.shape[:2], v.shape[-1]))
    top, total = np.full((*q.shape[:2], 1), -np.inf), np.zeros((*q.shape[:2], 1))
    for i_key in range(k.shape[1]):
        logit = logits[..., i_key : i_key + 1]
        is_hidden, is_new = np.isneginf(logit), logit > top
        shrunk = np.exp(-np.abs(np.where(is_hidden, 0.0, logit) - np.where(is_hidden, 0.0, top)))
        keep = np.where(is_new, shrunk, 1.0)
        weight = np.where(is_hidden, 0.0, np.where(is_new, 1.0, shrunk))
        out = in_half(in_half(out * keep) + weight * v[:, i_key : i_key + 1])
        total, top = total * keep + weight, np.maximum(top, logit)
    return (out / total).transpose(1, 0, 2)


def in_half(values):
    """Rounded to float16."""
    return values.astype(np.float16).astype(np.float64)


@pytest.mark.parametrize("cache_type", [F16, F32])
@pytest.mark.parametrize("softcap", [0.0, 5.0])
@pytest.mark.parametrize("masked", ["plain", "causal"])
@pytest.mark.parametrize(
    ("d", "n_tokens", "n_kv", "n_heads", "n_kv_heads"),
    [
        (64, 1, 256, 9, 3),
        (64, 13, 32, 9, 3),
        (32, 20, 21, 4, 4),
        (256, 3, 5, 2, 1),
        (8, 9, 9, 2, 2),
        (64, 70, 80, 3, 1),
    ],
)
def test_flash_attention_equals_softmax_of_scores(
    bench, cache_type, softcap, masked, d, n_tokens, n_kv, n_heads, n_kv_heads
):
    x = bench.leaf(F32, rand(n_tokens, n_heads, d, scale=2.0))
    caches = [bench.leaf(cache_type, rand(n_kv + 3, n_kv_heads * d + i)) for i in (0, 8)]
    q = build.permute(x, (0, 2, 1, 3))
    views = [head_view(cache, d, n_kv, n_kv_heads) for cache in caches]
    hidden = np.triu(np.full((n_tokens, n_kv), -np.inf), 1 + n_kv - n_tokens)
    mask = bench.leaf(F16, hidden) if masked == "causal" else None
    params = FlashAttnParams(scale=d**-0.5, softcap=softcap)

    got = bench.compute(q, *views, build.flash_attn_ext(q, *views, mask, params))

    k, v = (
        bench.floats(cache)[0, 0, :n_kv, : n_kv_heads * d].reshape(n_kv, n_kv_heads, d)
        for cache in caches
    )
    rounds_sums = cache_type is F16 and n_tokens < HALF_SUMS_BELOW
    reference = attention_in_halves if rounds_sums else attention
    want = reference(
        bench.floats(x)[0].transpose(1, 0, 2),
        k.transpose(1, 0, 2),
        v.transpose(1, 0, 2),
        0.0 if mask is None else hidden,
        params,
    )
    assert nmse(got[0], want) <= NMSE


def head_view(cache: Tensor, d: int, n_kv: int, n_kv_heads: int) -> Tensor:
    """Cache rows as [d, n_kv, heads], the way attention reads them."""
    step = cache.type.block_bytes
    view = build.view(cache, (d, n_kv_heads, n_kv), (d * step, cache.nb[1]))
    return build.permute(view, (0, 2, 1, 3))


def test_flash_attention_of_a_query_that_sees_nothing_is_zero(bench):
    q, k, v = (bench.leaf(F32, rand(1, n, 16)) for n in (2, 8, 8))
    mask = bench.leaf(F16, np.array([[0.0] * 8, [-np.inf] * 8]))

    got = bench.compute(build.flash_attn_ext(q, k, v, mask, FlashAttnParams(scale=0.25)))

    assert np.isfinite(got).all()
    assert not got[0, 1].any()
