"""FLASH_ATTN_EXT, and SET_ROWS into the caches it reads, against numpy in float64.

Where the device is a CPU cases run twice, as it is driven, and as a GPU would be; of pairs of types
the second has some, since each is a compilation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pytest

from engine.core import build
from engine.core.ops import FlashAttnParams
from engine.core.quants import dequantize, quantize
from engine.core.types import TensorType
from tests.engine.backends.opencl.numbers import (
    NMSE,
    as_read,
    iq4_nl_bytes,
    nmse,
    on_both_kinds,
    rand,
    slopes,
)

if TYPE_CHECKING:
    from engine.core.tensor import Tensor

F32, F16, I32, I64 = TensorType.F32, TensorType.F16, TensorType.I32, TensorType.I64
BF16, Q8_0, Q4_0 = TensorType.BF16, TensorType.Q8_0, TensorType.Q4_0
Q4_1, Q5_0, Q5_1 = TensorType.Q4_1, TensorType.Q5_0, TensorType.Q5_1
IQ4_NL = TensorType.IQ4_NL
BLOCK_TYPES = [Q8_0, Q4_0, Q4_1, Q5_0, Q5_1]
CACHES = [
    *[(Q8_0, Q8_0), (Q8_0, F16), (F16, Q5_1), (F32, Q4_0), (BF16, BF16), (Q5_0, Q4_1)],
    (IQ4_NL, IQ4_NL),
]
"""Types of keys and values: each type once at least, each kind of key with its rounding."""

TILED_FROM = 64
"""Queries from which ggml's CPU rounds neither queries nor sums over float caches."""

pytestmark = pytest.mark.gpu


@pytest.fixture
def bench(every_bench):
    return every_bench


@pytest.mark.parametrize("table_type", [F32, F16, BF16])
@pytest.mark.parametrize("id_type", [I32, I64])
@pytest.mark.parametrize("n", [1, 13, 192])
def test_set_rows_writes_where_the_ids_say_and_nowhere_else(bench, table_type, id_type, n):
    table = bench.leaf(table_type, rand(500, n))
    rows = bench.leaf(F32, rand(300, n, scale=2.0))
    picks = np.random.default_rng(1).permutation(500)[:300]
    ids = bench.leaf(id_type, picks)

    bench.run(build.set_rows(table, rows, ids))

    want = bench.floats(table).copy()
    written = quantize(table_type, bench.floats(rows))
    want[0, 0, picks] = dequantize(table_type, written, rows.n_elems).reshape(300, n)
    raw = bench.read(table).reshape(-1).view(np.uint8)
    assert np.array_equal(dequantize(table_type, raw, want.size), want.reshape(-1))


@on_both_kinds("table_type", BLOCK_TYPES, [Q8_0, Q5_1])
def test_set_rows_quantises_rows_as_the_reference_does(bench, table_type):
    table = bench.leaf(table_type, rand(20, 128))
    values = rand(5, 128, scale=2.0)
    values[1, 32:64] = 0.0
    values[2, :32] = np.linspace(-9, 9, 32)  # two elements are as far from zero
    picks = np.array([19, 0, 7, 3, 8])
    before = bench.floats(table)[0, 0].copy()

    bench.run(build.set_rows(table, bench.leaf(F32, values), bench.leaf(I64, picks)))

    got = dequantize(table_type, bench.read(table), 20 * 128).reshape(20, 128)
    want = dequantize(table_type, quantize(table_type, values), 5 * 128).reshape(5, 128)
    untouched = np.setdiff1d(np.arange(20), picks)
    # A product and a sum may be fused: an element half-way between two steps may take either.
    assert np.mean(got[picks] != want) < 0.01
    assert nmse(got[picks], want) <= 1e-4
    assert np.array_equal(got[untouched], before[untouched])


@on_both_kinds("width", [32, 160], [160])
def test_set_rows_finds_the_best_step_for_uneven_numbers(bench, width):
    table = bench.leaf(IQ4_NL, rand(9, width))
    values = rand(5, width, scale=2.0)
    values[1, :32] = 0.0
    values[2, :32] = np.linspace(-9, 9, 32)  # two elements are as far from zero
    picks = np.array([8, 0, 7, 3, 1])

    bench.run(build.set_rows(table, bench.leaf(F32, values), bench.leaf(I64, picks)))

    got = bench.read(table).reshape(9, -1)[picks]
    want = iq4_nl_bytes(values).reshape(5, -1)
    assert np.mean(got != want) < 0.01  # sums in another order move an element here and there
    floats = [dequantize(table.type, raw.reshape(-1), values.size) for raw in (got, want)]
    assert nmse(*floats) <= 1e-4


def test_set_rows_writes_several_planes_by_ids_of_their_own(bench):
    table, rows = bench.leaf(F32, rand(2, 9, 16)), bench.leaf(F32, rand(2, 3, 16))
    ids = bench.leaf(I64, np.array([[8, 0, 4], [1, 2, 3]]))

    bench.run(build.set_rows(table, rows, ids))

    want = bench.floats(table).copy()
    for plane, picks in enumerate(([8, 0, 4], [1, 2, 3])):
        want[0, plane, picks] = bench.floats(rows)[0, plane]
    assert np.array_equal(bench.read(table), want)


def attention(q, k, v, mask, params, sinks=None):
    """q [h, t, d], k and v [hk, n_kv, d] -> [t, h, d], float64."""
    share = q.shape[0] // k.shape[0]
    k, v = (np.repeat(a.astype(np.float64), share, axis=0) for a in (k, v))
    logits = q.astype(np.float64) @ k.transpose(0, 2, 1) * params.scale
    if params.softcap:
        logits = params.softcap * np.tanh(logits / params.softcap)
    logits = logits + mask
    if sinks is not None:
        sink = np.broadcast_to(sinks[:, None, None], (*logits.shape[:2], 1))
        logits, v = np.concatenate([logits, sink], axis=-1), np.pad(v, ((0, 0), (0, 1), (0, 0)))
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return (weights / weights.sum(axis=-1, keepdims=True) @ v).transpose(1, 0, 2)


def attention_in_halves(q, k, v, mask, params):
    """The same, key by key, with running sums rounded to float16 at every step."""
    share = q.shape[0] // k.shape[0]
    k, v = (np.repeat(a.astype(np.float64), share, axis=0) for a in (k, v))
    logits = q.astype(np.float64) @ k.transpose(0, 2, 1) * params.scale
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


def reference(q, k, v, mask, params, *, k_type, v_type):
    """Attention as it is computed for these cache types: q [h, t, d], k and v [hk, n_kv, d]."""
    if k_type is v_type and k_type in (F32, F16) and q.shape[1] >= TILED_FROM:
        return attention(q, k, v, mask, params)
    if k_type.is_quantized:
        read = as_read(q, k_type)
    else:
        read = dequantize(k_type, quantize(k_type, np.ascontiguousarray(q)), q.size).reshape(
            q.shape
        )
    compute = attention_in_halves if v_type is F16 else attention
    return compute(read, k, v, mask, params)


@dataclass
class Attention:
    """A FLASH_ATTN_EXT node over views of caches with room to spare, and its result in float64."""

    nodes: tuple[Tensor, ...]
    want: np.ndarray


def attend(bench, k_type, v_type, shape, *, softcap=0.0, causal=True):
    d, n_tokens, n_kv, n_heads, n_kv_heads = shape
    x = bench.leaf(F32, rand(n_tokens, n_heads, d, scale=2.0))
    caches = [
        bench.leaf(cache_type, rand(n_kv + 3, n_kv_heads * d + spare))
        for cache_type, spare in ((k_type, 0), (v_type, 32))
    ]
    q = build.permute(x, (0, 2, 1, 3))
    views = [head_view(cache, d, n_kv, n_kv_heads) for cache in caches]
    hidden = np.triu(np.full((n_tokens, n_kv), -np.inf), 1 + n_kv - n_tokens)
    mask = bench.leaf(F16, hidden) if causal else None
    params = FlashAttnParams(scale=d**-0.5, softcap=softcap)
    k, v = (
        bench.floats(cache)[0, 0, :n_kv, : n_kv_heads * d]
        .reshape(n_kv, n_kv_heads, d)
        .transpose(1, 0, 2)
        for cache in caches
    )
    want = reference(
        bench.floats(x)[0].transpose(1, 0, 2), k, v, hidden if causal else 0.0, params,
        k_type=k_type, v_type=v_type,
    )  # fmt: skip
    return Attention((q, *views, build.flash_attn_ext(q, *views, mask, params)), want)


@pytest.mark.parametrize("cache_type", [F16, F32])
@pytest.mark.parametrize("softcap", [0.0, 5.0])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    "shape",
    [
        (64, 1, 256, 9, 3),
        (64, 13, 32, 9, 3),
        (32, 20, 21, 4, 4),
        (256, 3, 5, 2, 1),
        (256, 66, 70, 4, 1),
        (8, 9, 9, 2, 2),
        (128, 5, 40, 2, 1),
        (16, 5, 40, 2, 1),
        (64, 70, 80, 3, 1),
    ],
)
def test_flash_attention_equals_softmax_of_scores(bench, cache_type, softcap, causal, shape):
    case = attend(bench, cache_type, cache_type, shape, softcap=softcap, causal=causal)

    got = bench.compute(*case.nodes)

    assert nmse(got[0], case.want) <= NMSE


@on_both_kinds("types", CACHES, [(Q8_0, F16), (F16, Q5_1)])
@pytest.mark.parametrize("shape", [(64, 1, 40, 4, 2), (32, 70, 80, 3, 1), (256, 5, 21, 4, 1)])
def test_flash_attention_reads_caches_of_any_two_types(bench, types, shape):
    case = attend(bench, *types, shape)

    got = bench.compute(*case.nodes)

    assert nmse(got[0], case.want) <= NMSE


def head_view(cache: Tensor, d: int, n_kv: int, n_kv_heads: int) -> Tensor:
    """Cache rows as [d, n_kv, heads], the way attention reads them."""
    view = build.view(cache, (d, n_kv_heads, n_kv), (cache.type.row_bytes(d), cache.nb[1]))
    return build.permute(view, (0, 2, 1, 3))


@pytest.mark.parametrize(("cache_type", "n_tokens"), [(F32, 1), (F32, 21), (F16, 70)])
def test_flash_attention_leaves_a_share_to_sinks(bench, cache_type, n_tokens):
    q = bench.leaf(F32, rand(6, n_tokens, 24, scale=2.0))
    k, v = (bench.leaf(cache_type, rand(2, 80, n)) for n in (24, 48))
    hidden = np.triu(np.full((n_tokens, 80), -np.inf), 81 - n_tokens)
    mask, sinks = bench.leaf(F16, hidden), bench.leaf(F32, rand(6, scale=5.0))
    params = FlashAttnParams(scale=0.2)

    got = bench.compute(build.flash_attn_ext(q, k, v, mask, params, sinks=sinks))

    queries, keys, values = (bench.floats(leaf)[0] for leaf in (q, k, v))
    want = attention(queries, keys, values, hidden, params, bench.values[sinks])
    assert nmse(got[0], want) <= NMSE


@pytest.mark.parametrize("n_heads", [4, 12])
def test_flash_attention_weighs_its_mask_by_head(bench, n_heads):
    q, k, v = (bench.leaf(F32, rand(n_heads, n, 32)) for n in (5, 13, 13))
    mask = bench.leaf(F16, -np.abs(rand(5, 13, scale=5.0)))
    params = FlashAttnParams(scale=0.2, max_bias=8.0)

    got = bench.compute(build.flash_attn_ext(q, k, v, mask, params))

    weighed = slopes(n_heads, 8.0)[:, None, None] * bench.floats(mask)[0, 0]
    want = attention(*(bench.floats(leaf)[0] for leaf in (q, k, v)), weighed, params)
    assert nmse(got[0], want) <= NMSE


@pytest.mark.parametrize(("cache_type", "n_tokens"), [(F32, 1), (F32, 5), (F16, 66)])
def test_latent_attention_reads_values_from_the_start_of_keys(bench, cache_type, n_tokens):
    q = bench.leaf(F32, rand(3, n_tokens, 576))
    k = bench.leaf(cache_type, rand(1, 70, 576))
    v = build.view(k, (512, 70, 1), k.nb[1:3])
    params = FlashAttnParams(scale=0.1)

    got = bench.compute(v, build.flash_attn_ext(q, k, v, None, params))

    keys = bench.floats(k)[0]
    want = attention(bench.floats(q)[0], keys, keys[..., :512], 0.0, params)
    assert nmse(got[0], want) <= NMSE


def test_flash_attention_of_a_query_that_sees_nothing_is_zero(bench):
    q, k, v = (bench.leaf(F32, rand(1, n, 16)) for n in (2, 8, 8))
    mask = bench.leaf(F16, np.array([[0.0] * 8, [-np.inf] * 8]))

    got = bench.compute(build.flash_attn_ext(q, k, v, mask, FlashAttnParams(scale=0.25)))

    assert np.isfinite(got).all()
    assert not got[0, 1].any()
