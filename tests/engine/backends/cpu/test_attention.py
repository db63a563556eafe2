"""FLASH_ATTN_EXT with sinks, with slopes, and with values that are not as wide as keys."""

from __future__ import annotations

import numpy as np
import pytest

from engine.core import build
from engine.core.ops import FlashAttnParams
from engine.core.types import TensorType
from engine.opcheck import reference
from tests.engine.backends.cpu.cpu_split import nmse, random

F32_ROUNDING = 1e-11
# Fewer than 64 queries: sums of f16 values are rounded to f16 key by key, as ggml does.
F16_SUMS = 1e-5
BATCHES = [1, 11, 70]


def bar(kind: TensorType, t: int) -> float:
    return F32_ROUNDING if t >= 64 or kind is TensorType.F32 else F16_SUMS


def sources(split, kind, t, heads, key_heads, d, dv, n_kv=130):
    """q, k, v as an attention reads them, and a causal mask with distances."""
    q = build.permute(split.leaf(random((1, t, heads, d), 1)), (0, 2, 1, 3))
    k, v = (
        build.permute(split.leaf(random((1, n_kv, key_heads, n), seed), kind), (0, 2, 1, 3))
        for n, seed in ((d, 2), (dv, 3))
    )
    distance = np.arange(n_kv)[None] - np.arange(t)[:, None] - (n_kv - t)
    mask = np.where(distance <= 0, distance, -np.inf).astype(np.float32)
    return q, k, v, split.leaf(mask, TensorType.F16)


@pytest.mark.parametrize("kind", [TensorType.F32, TensorType.F16])
@pytest.mark.parametrize("t", BATCHES)
@pytest.mark.parametrize("size", [1.0, 20.0])
def test_the_sink_of_a_head_takes_its_share(backend, split, kind, t, size):
    q, k, v, mask = sources(split, kind, t, 4, 2, 32, 32)
    sinks = random((4,), 5) * np.float32(size)
    params = FlashAttnParams(0.25)
    node = build.flash_attn_ext(q, k, v, mask, params, sinks=split.leaf(sinks))

    result = split.compute(backend, node)

    read = [split.read(each) for each in (q, k, v, mask)]
    expected = reference.flash_attn(*read, 0.25, 0.0, sinks=sinks)
    assert nmse(result, expected) <= bar(kind, t)


@pytest.mark.parametrize("t", [5, 70])
def test_a_query_that_sees_only_the_sink_gives_zeros(backend, split, t):
    q, k, v, _ = sources(split, TensorType.F16, t, 2, 2, 16, 16)
    mask = np.zeros((t, 130))
    mask[2] = -np.inf
    leafs = split.leaf(mask, TensorType.F16), FlashAttnParams(0.25)
    node = build.flash_attn_ext(q, k, v, *leafs, sinks=split.leaf(random((2,), 5)))

    result = split.compute(backend, node)

    assert not result[0, 2].any()
    assert np.isfinite(result).all()


@pytest.mark.parametrize("kind", [TensorType.F32, TensorType.F16])
@pytest.mark.parametrize("t", BATCHES)
@pytest.mark.parametrize("heads", [4, 6])
def test_the_mask_is_sloped_for_each_head(backend, split, kind, t, heads):
    q, k, v, mask = sources(split, kind, t, heads, 2, 32, 32)
    node = build.flash_attn_ext(q, k, v, mask, FlashAttnParams(0.25, 8.0))

    result = split.compute(backend, node)

    read = [split.read(each) for each in (q, k, v, mask)]
    expected = reference.flash_attn(*read, 0.25, 0.0, max_bias=8.0)
    assert nmse(result, expected) <= bar(kind, t)


@pytest.mark.parametrize("kind", [TensorType.F32, TensorType.F16])
@pytest.mark.parametrize("t", BATCHES)
@pytest.mark.parametrize(("d", "dv"), [(48, 32), (16, 40), (192, 128), (8, 4)])
def test_values_may_have_another_width_than_keys(backend, split, kind, t, d, dv):
    q, k, v, mask = sources(split, kind, t, 4, 2, d, dv)
    node = build.flash_attn_ext(q, k, v, mask, FlashAttnParams(d**-0.5))

    result = split.compute(backend, node)

    read = [split.read(each) for each in (q, k, v, mask)]
    assert nmse(result, reference.flash_attn(*read, d**-0.5, 0.0)) <= bar(kind, t)


@pytest.mark.parametrize("t", BATCHES)
def test_values_may_be_the_beginning_of_each_key(backend, split, t):
    """Multi-head latent attention: one head of keys, whose first part is the values."""
    q, k, _, mask = sources(split, TensorType.F16, t, 4, 1, 48, 48)
    v = build.view(k, (32, 130, 1), (k.nb[1], k.nb[2]))
    node = build.flash_attn_ext(q, k, v, mask, FlashAttnParams(0.2))

    result = split.compute(backend, q, k, v, node)

    read = [split.read(each) for each in (q, k, v, mask)]
    assert nmse(result, reference.flash_attn(*read, 0.2, 0.0)) <= bar(TensorType.F16, t)
