"""The built-in cases of MUL_MAT, MUL_MAT_ID and FLASH_ATTN_EXT, type by type."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from engine.core import build
from engine.core.ops import FlashAttnParams
from engine.core.quants import READABLE, WRITABLE
from engine.core.tensor import Tensor, shape4
from engine.core.types import TensorType
from engine.opcheck.cases import Case, case_of

if TYPE_CHECKING:
    from collections.abc import Iterator

F32, F16, BF16, I32 = TensorType.F32, TensorType.F16, TensorType.BF16, TensorType.I32
COMMON = (
    F32, F16, BF16, TensorType.Q8_0, TensorType.Q4_0, TensorType.Q4_1, TensorType.Q4_K,
    TensorType.Q6_K,
)  # fmt: skip
"""Types that get more shapes: what most files are made of."""


def product_cases() -> Iterator[Case]:
    """All of them."""
    for kind in sorted(READABLE):
        yield from _products(kind)
        yield from _expert_products(kind)
    for kind in COMMON:
        yield from _large_products(kind)
    yield from _attention_products()
    yield from _attention()


def _leaf(kind: TensorType, *ne: int) -> Tensor:
    return Tensor(kind, shape4(*ne))


def _rows_of(kind: TensorType, k: int, n: int) -> Tensor:
    """Every second row of a matrix."""
    whole = _leaf(kind, k, 2 * n)
    return build.view(whole, (k, n), (2 * whole.nb[1],))


def _products(kind: TensorType) -> Iterator[Case]:
    for k, n, t in ((256, 16, 1), (768, 33, 1), (256, 33, 3), (512, 37, 8), (512, 50, 35)):
        yield case_of(build.mul_mat(_leaf(kind, k, n), _leaf(F32, k, t)))
    if kind.block_elems < 256:
        k = 3 * kind.block_elems if kind.is_quantized else 37
        for t in (1, 9):
            yield case_of(build.mul_mat(_leaf(kind, k, 19), _leaf(F32, k, t)))
    for t in (1, 7):
        weight, x = _leaf(kind, 256, 18, 2), _leaf(F32, 256, t, 6)
        yield case_of(build.mul_mat(weight, x), "weights serve several heads")
    yield case_of(build.mul_mat(_rows_of(kind, 256, 17), _rows_of(F32, 256, 5)))
    yield case_of(build.mul_mat(_leaf(kind, 256, 9, 2, 2), _leaf(F32, 256, 3, 2, 4)))


def _large_products(kind: TensorType) -> Iterator[Case]:
    for k, n, t in ((2048, 300, 1), (1024, 257, 64), (512, 96, 200)):
        yield case_of(build.mul_mat(_leaf(kind, k, n), _leaf(F32, k, t)))


def _expert_products(kind: TensorType) -> Iterator[Case]:
    weights = _leaf(kind, 256, 21, 8)
    for n_used, t in ((2, 1), (4, 1), (2, 5), (4, 40)):
        ids = _leaf(I32, n_used, t)
        yield case_of(build.mul_mat_id(weights, _leaf(F32, 256, 1, t), ids), "one for all experts")
        yield case_of(build.mul_mat_id(weights, _leaf(F32, 256, n_used, t), ids))
    sorted_ids = build.view(_leaf(I32, 8, 6), (3, 6), (32,))
    yield case_of(build.mul_mat_id(weights, _leaf(F32, 256, 1, 6), sorted_ids))


def _attention_products() -> Iterator[Case]:
    """K·Q and V·weights without flash attention: caches as they lie."""
    for kind in (F32, F16, BF16):
        for d, n_kv, heads_kv, n_heads, t in (
            (64, 96, 3, 9, 1),
            (64, 70, 2, 2, 5),
            (80, 256, 1, 4, 40),
        ):
            keys = build.permute(_leaf(kind, d, heads_kv, n_kv), (0, 2, 1, 3))
            query = build.permute(_leaf(F32, d, n_heads, t), (0, 2, 1, 3))
            yield case_of(build.mul_mat(keys, query), "keys, queries")
            cache = _leaf(kind, n_kv + 32, heads_kv * d)
            values = build.view(cache, (n_kv, d, heads_kv), (cache.nb[1], d * cache.nb[1]))
            weights = _leaf(F32, n_kv, t, n_heads)
            yield case_of(build.mul_mat(values, weights), "values, weights")


def _attention() -> Iterator[Case]:
    sizes = ((64, 64, 9, 3, 1), (64, 70, 6, 2, 5), (128, 256, 4, 4, 35), (80, 96, 4, 1, 3))
    for d, n_kv, n_heads, heads_kv, t in sizes:
        for kind in (F32, F16, BF16, TensorType.Q8_0):
            if d % kind.block_elems == 0:
                yield _attended(kind, kind, (d, d), n_kv, (n_heads, heads_kv), t)
    for kind in sorted(WRITABLE):
        for t in (1, 9):
            yield _attended(kind, kind, (64, 64), 96, (4, 2), t)
    yield _attended(TensorType.Q8_0, F16, (64, 64), 96, (4, 2), 3)
    yield _attended(F16, TensorType.Q4_0, (64, 64), 96, (4, 2), 3)
    for t in (1, 20, 70):
        plain = partial(_attended, F16, F16, (64, 64), 288, (6, 2), t)
        yield plain(max_bias=8.0)
        yield plain(softcap=20.0)
        yield plain(with_sinks=True)
        yield plain(is_masked=False)
        yield _attended(F16, F16, (192, 128), 64, (4, 2), t)
        yield _attended(F16, F16, (576, 512), 64, (4, 1), t)
        yield _attended(F16, F16, (256, 256), 64, (4, 2), t)
        yield _attended(F16, F16, (72, 72), 64, (4, 2), t)


def _attended(
    kind_k: TensorType,
    kind_v: TensorType,
    sizes: tuple[int, int],
    n_kv: int,
    heads: tuple[int, int],
    t: int,
    *,
    max_bias: float = 0.0,
    softcap: float = 0.0,
    with_sinks: bool = False,
    is_masked: bool = True,
) -> Case:
    """Attention over a cache; `sizes` are those of a key and of a value, `heads` those of q, k."""
    (d, dv), (n_heads, heads_kv) = sizes, heads
    query = build.permute(_leaf(F32, d, n_heads, t), (0, 2, 1, 3))
    keys, values = (
        build.permute(_leaf(kind, size, heads_kv, n_kv), (0, 2, 1, 3))
        for kind, size in ((kind_k, d), (kind_v, dv))
    )
    mask = _leaf(F16, n_kv, t) if is_masked else None
    sinks = _leaf(F32, n_heads) if with_sinks else None
    params = FlashAttnParams(d**-0.5, max_bias, softcap)
    return case_of(build.flash_attn_ext(query, keys, values, mask, params, sinks=sinks))
