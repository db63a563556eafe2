"""Attention over the cache and its output projection. Source: ARCH.md 1.6."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from engine.core import build
from engine.core.ops import FlashAttnParams, Precision, SoftMaxParams
from engine.core.tensor import shape4
from engine.core.types import TensorType
from engine.model.blocks import cache_rows
from engine.model.blocks.graph_context import InputKind
from engine.model.blocks.qkv import Qkv

if TYPE_CHECKING:
    from engine.core.tensor import Tensor
    from engine.model.blocks.graph_context import GraphContext
    from engine.model.kv_cache import CachePart


class Seen(NamedTuple):
    """What attention looks at: q [d, h, t], keys [d, n_kv, hk], values [dv, n_kv, hk].

    `v_transposed`: values are [n_kv, dv, hk].
    """

    q: Tensor
    keys: Tensor
    values: Tensor
    mask: Tensor
    v_transposed: bool = False


def head_scale(ctx: GraphContext, il: int) -> float:
    """What Q K^T is multiplied by: the model's own number, else 1 / sqrt(size of a head)."""
    return ctx.hparams.attention_scale or 1.0 / math.sqrt(ctx.layer(il).n_embd_head_k)


def attention(
    ctx: GraphContext,
    parts: Qkv,
    *,
    scale: float,
    il: int,
    precision: Precision = Precision.DEFAULT,
) -> Tensor:
    """Cached attention and its output projection, f32 [n_embd, t].

    `precision` is that of the projection. Sinks take part where the model has them.
    """
    attended = attention_core(ctx, parts, scale=scale, il=il)
    return project(ctx, attended, il, precision=precision)


def attention_core(ctx: GraphContext, parts: Qkv, *, scale: float, il: int) -> Tensor:
    """Attention over the cache, once it has the batch's keys and values; f32 [dv * h, t]."""
    q, k, v = _rotated(ctx, parts, ctx.cache.part_of[il])
    # With a sliding window llama.cpp lists keys before values.
    for tensor in (q, k, v) if ctx.hparams.window else (q, v, k):
        ctx.builder.expand(tensor)
    cache_rows.write_keys(ctx, k, il)
    cache_rows.write_values(ctx, v, il)
    return _attended(ctx, q, scale, il)


def reading_attention(ctx: GraphContext, q: Tensor, *, scale: float, il: int) -> Tensor:
    """Attention over keys and values that an earlier layer wrote; f32 [dv * h, t]."""
    part = ctx.cache.part_of[il]
    if part.k_rotation:
        q = _turn(q, _rotation(ctx, InputKind.K_ROTATION, part.k_rotation, part))
    ctx.builder.expand(q)
    return _attended(ctx, q, scale, il)


def project(
    ctx: GraphContext, attended: Tensor, il: int, *, precision: Precision = Precision.DEFAULT
) -> Tensor:
    """The output projection of what attention gave, f32 [n_embd, t]."""
    out = build.mul_mat(ctx.weight("attn_output", il), attended, precision=precision)
    bias = ctx.optional("attn_output", il, "bias")
    return out if bias is None else build.add(out, bias)


def _attended(ctx: GraphContext, q: Tensor, scale: float, il: int) -> Tensor:
    part = ctx.cache.part_of[il]
    seen = Seen(
        q,
        cache_rows.cached_keys(ctx, il),
        cache_rows.cached_values(ctx, il),
        cache_rows.kq_mask(ctx, il),
        v_transposed=ctx.cache.v_transposed,
    )
    attended = attend(ctx, seen, scale=scale, il=il)
    if part.v_rotation:
        attended = _turn(attended, _rotation(ctx, InputKind.V_ROTATION, part.v_rotation, part))
    return attended


def _rotated(ctx: GraphContext, parts: Qkv, part: CachePart) -> Qkv:
    """What a quantised cache takes: products of Q and K stay as they are."""
    q, k, v = parts
    if part.k_rotation:
        matrix = _rotation(ctx, InputKind.K_ROTATION, part.k_rotation, part)
        q, k = _turn(q, matrix), _turn(k, matrix)
    if part.v_rotation:
        v = _turn(v, _rotation(ctx, InputKind.V_ROTATION, part.v_rotation, part))
    return Qkv(q, k, v)


def _rotation(ctx: GraphContext, kind: InputKind, size: int, part: CachePart) -> Tensor:
    """The Walsh-Hadamard matrix of that size, its own inverse."""
    return ctx.input(kind, TensorType.F32, size, size, part=part)


def _turn(x: Tensor, matrix: Tensor) -> Tensor:
    """Blocks of each row of x times the matrix."""
    size = matrix.ne[0]
    ne = shape4(size, x.n_elems // size)
    blocks = build.reshape(x, *ne) if x.is_contiguous else build.cont(x, ne)
    return build.reshape(build.mul_mat(matrix, blocks), *x.ne)


def seen_query(q: Tensor) -> Tensor:
    """Q [d, n_head, t] as attention takes it, [d, t, n_head]."""
    seen = build.view(q, q.ne, (q.nb[1], q.nb[2], q.nb[3]))
    return build.permute(seen, (0, 2, 1, 3))


def attend(
    ctx: GraphContext, seen: Seen, *, scale: float, il: int, unpack: Tensor | None = None
) -> Tensor:
    """The answers of all heads behind one another, f32 [dv * h, t], before their projection.

    `unpack` [dv, n, h] (optional) makes each head's answer of a packed one.
    """
    if ctx.flash_attn:
        attended = _flash(ctx, seen, scale, il, unpack)
    else:
        attended = _plain(ctx, seen, scale, il, unpack)
    ctx.builder.expand(ctx.named(attended, "kqv_out", il))
    return attended


def _flash(ctx: GraphContext, seen: Seen, scale: float, il: int, unpack: Tensor | None) -> Tensor:
    attended = build.flash_attn_ext(
        seen_query(seen.q), seen.keys, seen.values, seen.mask, FlashAttnParams(scale),
        sinks=ctx.optional("attn_sinks", il),
    )  # fmt: skip
    ctx.attentions.append((attended, il))
    if unpack is not None:
        packed = build.permute(attended, (0, 2, 1, 3))
        heads = ctx.named(build.mul_mat(unpack, packed), "fattn_mla", il)
        attended = build.cont(build.permute(heads, (0, 2, 1, 3)))
    return build.reshape(attended, attended.ne[0] * attended.ne[1], ctx.shape.n_tokens)


def _plain(ctx: GraphContext, seen: Seen, scale: float, il: int, unpack: Tensor | None) -> Tensor:
    query = seen_query(seen.q)
    kq = ctx.named(build.mul_mat(seen.keys, query, precision=Precision.F32), "kq", il)
    sinks = ctx.optional("attn_sinks", il)
    weights = build.soft_max(kq, seen.mask, SoftMaxParams(scale), sinks=sinks)
    ctx.named(weights, "kq_soft_max", il)
    values = seen.values
    if not seen.v_transposed:
        values = ctx.named(build.cont(build.transpose(values)), "v_cont", il)
    kqv = ctx.named(build.mul_mat(values, weights), "kqv", il)
    if unpack is not None:
        kqv = ctx.named(build.mul_mat(unpack, kqv), "kqv_mla", il)
    merged = build.permute(kqv, (0, 2, 1, 3))
    attended = build.cont(merged, shape4(merged.ne[0] * merged.ne[1], ctx.shape.n_tokens))
    ctx.host_attentions.append((attended, il))
    return attended
