"""Attention whose keys and values are unpacked from one short row a token (MLA).

The unpacking is either done for every key, or made part of queries and answers ("absorbed"): then
the cache holds packed rows, and all heads of Q look at the same ones.
Source: llama.cpp src/models/deepseek2.cpp; ARCH.md 4.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from engine.core import build
from engine.core.ops import Op
from engine.model.blocks import cache_rows
from engine.model.blocks.attention import Seen, attend, attention, project
from engine.model.blocks.inputs import positions, temperature
from engine.model.blocks.norms import rms_norm
from engine.model.blocks.qkv import Qkv

if TYPE_CHECKING:
    from engine.core.tensor import Tensor
    from engine.model.blocks.graph_context import GraphContext
    from engine.model.blocks.weight_list import WeightList
    from engine.model.hparams import Hparams
    from engine.model.hparams_parts import LatentAttention


class Packed(NamedTuple):
    """A token's row [n_lora_kv, t], and its part of the key that is rotated [n_rope, 1, t]."""

    rows: Tensor
    rotated: Tensor


def latent_weights(weights: WeightList, hp: Hparams, il: int) -> None:
    """What packs, unpacks and projects."""
    sizes, n_head = _sizes(hp), hp.every_layer[il].n_head
    n_q = n_head * sizes.n_head_k
    with weights.asked_by("attention.q_lora_rank"):
        if sizes.n_lora_q:
            weights.norm(il, "attn_q_a_norm", sizes.n_lora_q)
            weights.matrix(il, "attn_q_a", hp.n_embd, sizes.n_lora_q)
            weights.matrix(il, "attn_q_b", sizes.n_lora_q, n_q)
        else:
            weights.matrix(il, "attn_q", hp.n_embd, n_q)
    weights.norm(il, "attn_kv_a_norm", sizes.n_lora_kv)
    weights.matrix(il, "attn_kv_a_mqa", hp.n_embd, sizes.n_lora_kv + sizes.n_rope)
    with weights.asked_by("attention.key_length_mla"):
        _unpacking_weights(weights, sizes, n_head, il)
    weights.matrix(il, "attn_output", n_head * sizes.n_head_v, hp.n_embd)


def _unpacking_weights(weights: WeightList, sizes: LatentAttention, n_head: int, il: int) -> None:
    if sizes.is_absorbed:
        for name, n_in, n_out in (
            ("attn_k_b", sizes.n_nope, sizes.n_lora_kv),
            ("attn_v_b", sizes.n_lora_kv, sizes.n_head_v),
        ):
            weights.layer(il, f"{name}.weight", Op.MUL_MAT, n_in, n_out, n_head)
    else:
        n_unpacked = n_head * (sizes.n_nope + sizes.n_head_v)
        weights.matrix(il, "attn_kv_b", sizes.n_lora_kv, n_unpacked)


def latent_attention(ctx: GraphContext, x: Tensor, *, scale: float, il: int) -> Tensor:
    """Attention over the cache and its output projection, f32 [n_embd, t]."""
    q, packed = _queries(ctx, x, il), _pack(ctx, x, il)
    if not _sizes(ctx.hparams).is_absorbed:
        parts = _unpacked(ctx, q, packed, il)
        return attention(ctx, _tempered(ctx, parts, il), scale=scale, il=il)
    parts = _tempered(ctx, _absorbed(ctx, q, packed, il), il)
    for tensor in (parts.q, parts.v, parts.k):
        ctx.builder.expand(tensor)
    cache_rows.write_keys(ctx, parts.k, il)
    seen = _cached(ctx, parts, il)
    unpack = ctx.weight("attn_v_b", il)
    return project(ctx, attend(ctx, seen, scale=scale, il=il, unpack=unpack), il)


def _sizes(hp: Hparams) -> LatentAttention:
    assert hp.latent is not None, hp.arch
    return hp.latent


def _queries(ctx: GraphContext, x: Tensor, il: int) -> Tensor:
    """Q [n_head_k, n_head, t], not rotated."""
    sizes = _sizes(ctx.hparams)
    name, q = "attn_q", x
    if sizes.n_lora_q:
        short = ctx.named(build.mul_mat(ctx.weight("attn_q_a", il), x), "q", il)
        name, q = "attn_q_b", rms_norm(ctx, short, "attn_q_a_norm", "q", il)
    q = ctx.named(build.mul_mat(ctx.weight(name, il), q), "q", il)
    heads = build.reshape(q, sizes.n_head_k, ctx.layer(il).n_head, ctx.shape.n_tokens)
    return ctx.named(heads, "q", il)


def _pack(ctx: GraphContext, x: Tensor, il: int) -> Packed:
    sizes, n_tokens = _sizes(ctx.hparams), ctx.shape.n_tokens
    both = ctx.named(build.mul_mat(ctx.weight("attn_kv_a_mqa", il), x), "kv_cmpr_pe", il)
    row = both.nb[1]
    rows = build.view(both, (sizes.n_lora_kv, n_tokens), (row,))
    ctx.named(rows, "kv_cmpr", il)
    offset = both.type.row_bytes(sizes.n_lora_kv)
    key = build.view(both, (sizes.n_rope, 1, n_tokens), (row, row), offset)
    rotated = _rotated(ctx, ctx.named(key, "k_pe", il), "k_pe", il)
    return Packed(rms_norm(ctx, rows, "attn_kv_a_norm", "kv_cmpr", il), rotated)


def _rotated(ctx: GraphContext, x: Tensor, name: str, il: int) -> Tensor:
    return ctx.named(build.rope(x, positions(ctx), None, ctx.layer(il).rope), name, il)


def _tempered(ctx: GraphContext, parts: Qkv, il: int) -> Qkv:
    if ctx.hparams.temperature is None:
        return parts
    scaled = build.mul(parts.q, temperature(ctx))
    return parts._replace(q=ctx.named(scaled, "Qcur_attn_temp_scaled", il))


def _absorbed(ctx: GraphContext, q: Tensor, packed: Packed, il: int) -> Qkv:
    """Q [n_lora_kv + n_rope, n_head, t], K of that length and V, both of one head: packed rows."""
    sizes = _sizes(ctx.hparams)
    _, n_head, n_tokens, _ = q.ne
    plain = build.view(q, (sizes.n_nope, n_head, n_tokens), q.nb[1:3])
    ctx.named(plain, "q_nope", il)
    offset = q.type.row_bytes(sizes.n_nope)
    turned = build.view(q, (sizes.n_rope, n_head, n_tokens), q.nb[1:3], offset)
    turned = _rotated(ctx, ctx.named(turned, "q_pe", il), "q_pe", il)
    plain = ctx.named(build.permute(plain, (0, 2, 1, 3)), "q_nope_perm", il)
    product = build.mul_mat(ctx.weight("attn_k_b", il), plain)
    ctx.named(product, "q_nope_absorbed", il)
    product = ctx.named(build.permute(product, (0, 2, 1, 3)), "q_nope_absorbed_perm", il)
    query = ctx.named(build.concat(product, turned, 0), "Qcur", il)
    value = ctx.named(build.reshape(packed.rows, sizes.n_lora_kv, 1, n_tokens), "Vcur", il)
    return Qkv(query, ctx.named(build.concat(value, packed.rotated, 0), "Kcur", il), value)


def _cached(ctx: GraphContext, parts: Qkv, il: int) -> Seen:
    """The packed rows as keys, and without what is rotated as values."""
    keys = cache_rows.cached_rows(ctx, ctx.cache.keys[il], parts.k.ne[0], il)
    values = build.view(keys, (parts.v.ne[0], *keys.ne[1:]), keys.nb[1:])
    return Seen(
        parts.q,
        build.permute(keys, (0, 2, 1, 3)),
        build.permute(values, (0, 2, 1, 3)),
        cache_rows.kq_mask(ctx, il),
    )


def _unpacked(ctx: GraphContext, q: Tensor, packed: Packed, il: int) -> Qkv:
    """Q, K and V of as many heads as there are."""
    sizes = _sizes(ctx.hparams)
    _, n_head, n_tokens, _ = q.ne
    both = ctx.named(build.mul_mat(ctx.weight("attn_kv_b", il), packed.rows), "kv", il)
    head = both.type.row_bytes(sizes.n_nope + sizes.n_head_v)
    nb = (head, head * n_head)
    plain = build.view(both, (sizes.n_nope, n_head, n_tokens), nb)
    ctx.named(plain, "k_nope_view", il)
    offset = both.type.row_bytes(sizes.n_nope)
    value = build.view(both, (sizes.n_head_v, n_head, n_tokens), nb, offset)
    value = ctx.named(build.cont(ctx.named(value, "Vcur_view", il)), "Vcur_cont", il)
    query = _rotated_behind(ctx, q, sizes.n_nope, il)
    turned = build.repeat(packed.rotated, sizes.n_rope, n_head, n_tokens)
    return Qkv(query, ctx.named(build.concat(plain, turned, 0), "Kcur", il), value)


def _rotated_behind(ctx: GraphContext, q: Tensor, n_plain: int, il: int) -> Tensor:
    """Q whose elements from `n_plain` on are rotated."""
    params = replace(ctx.layer(il).rope, offset=n_plain)
    return ctx.named(build.rope(q, positions(ctx), None, params), "Qcur", il)
