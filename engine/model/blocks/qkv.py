"""Queries, keys and values: projected, normalised where the model does so, and rotated.

Source: ARCH.md 1.8 and 1.9.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from engine.core import build
from engine.core.ops import Op
from engine.model.blocks.inputs import positions
from engine.model.blocks.norms import rms_norm
from engine.model.blocks.weight_list import WeightList

if TYPE_CHECKING:
    from engine.core.tensor import Tensor
    from engine.model.blocks.graph_context import GraphContext
    from engine.model.hparams import Hparams


FUSED = "attn_qkv"
"""The matrix that gives Q, K and V together."""


LONG_AND_SHORT = ("rope_factors_long", "rope_factors_short")
"""What divides the angles of a context that is stretched, and of one that is not."""


class Qkv(NamedTuple):
    """Q [d, n_head, t], K [d, n_head_kv, t] and V [dv, n_head_kv, t]."""

    q: Tensor
    k: Tensor
    v: Tensor


def qkv_weights(weights: WeightList, hp: Hparams, il: int) -> None:
    """One matrix, or three where a file lacks that, and biases that a file may have.

    The product of one matrix takes one bias, or three that are all there.
    """
    layer = hp.every_layer[il]
    sizes = {"attn_q": layer.n_embd_q, "attn_k": layer.n_embd_k, "attn_v": layer.n_embd_v}
    fused, fused_bias = f"blk.{il}.{FUSED}.weight", f"blk.{il}.{FUSED}.bias"
    n_all = sum(sizes.values())
    matrices, biases, one_bias = WeightList(), WeightList(), WeightList()
    for name, n_out in sizes.items():
        matrices.matrix(il, name, hp.n_embd, n_out)
        biases.bias(il, name, n_out)
    one_bias.bias(il, FUSED, n_all)
    weights.layer(il, f"{FUSED}.weight", Op.MUL_MAT, hp.n_embd, n_all, required=False)
    weights.given(one_bias.finish(), fused)
    weights.either(matrices.finish(), fused)
    weights.either(biases.finish(), fused)
    all_three = [kind.name for kind in biases.finish()]
    weights.given(biases.finish(), fused, *all_three, unless=fused_bias)


def head_norm_weights(weights: WeightList, hp: Hparams, il: int) -> None:
    """The weights of the norms over each head of K and Q."""
    weights.norm(il, "attn_k_norm", hp.every_layer[il].n_embd_head_k)
    weights.norm(il, "attn_q_norm", hp.every_layer[il].n_embd_head_k)


def rope_factor_weights(weights: WeightList, hp: Hparams, il: int) -> None:
    """What divides the angles, shared by all layers; a file may lack it."""
    names = LONG_AND_SHORT if hp.rope_scaling == "longrope" else ("rope_freqs",)
    for name in names:
        weights.shared(il, f"{name}.weight", Op.ROPE, hp.n_rope_freqs, required=False)


def qkv(ctx: GraphContext, x: Tensor, il: int) -> Qkv:
    """Projections of x, with biases where the model has them."""
    fused = _fused(ctx, x, il)
    heads = _shapes(ctx, il)
    if fused is None:
        return Qkv(*(_heads(ctx, x, *names, *shape, il) for names, shape in heads.items()))
    parts, offset = [], 0
    for (_, name), (n_embd_head, n_head) in heads.items():
        nb = (fused.type.row_bytes(n_embd_head), fused.nb[1])
        part = build.view(fused, (n_embd_head, n_head, ctx.shape.n_tokens), nb, offset)
        parts.append(ctx.named(part, name, il))
        offset += fused.type.row_bytes(n_embd_head * n_head)
    return Qkv(*parts)


def flat_qkv(ctx: GraphContext, x: Tensor, il: int) -> Qkv:
    """The same, not cut into heads: [n_embd_q, t], [n_embd_k, t] and [n_embd_v, t]."""
    fused = _fused(ctx, x, il)
    parts, offset = [], 0
    for (weight, name), (n_embd_head, n_head) in _shapes(ctx, il).items():
        if fused is None:
            part = build.mul_mat(ctx.weight(weight, il), x)
            bias = ctx.optional(weight, il, "bias")
            part = part if bias is None else build.add(part, bias)
        else:
            n_embd = n_embd_head * n_head
            part = build.cont(
                build.view(fused, (n_embd, ctx.shape.n_tokens), (fused.nb[1],), offset)
            )
            offset += fused.type.row_bytes(n_embd)
        parts.append(ctx.named(part, name, il))
    return Qkv(*parts)


def cut_into_heads(ctx: GraphContext, parts: Qkv, il: int) -> Qkv:
    """Rows without gaps as heads."""
    shapes = _shapes(ctx, il).values()
    return Qkv(
        *(
            build.reshape(part, *shape, ctx.shape.n_tokens)
            for part, shape in zip(parts, shapes, strict=True)
        )
    )


def _shapes(ctx: GraphContext, il: int) -> dict[tuple[str, str], tuple[int, int]]:
    """Elements of a head and heads of Q, K and V, by weight and node."""
    layer = ctx.layer(il)
    return {
        ("attn_q", "Qcur"): (layer.n_embd_head_k, layer.n_head),
        ("attn_k", "Kcur"): (layer.n_embd_head_k, layer.n_head_kv),
        ("attn_v", "Vcur"): (layer.n_embd_head_v, layer.n_head_kv),
    }


def _fused(ctx: GraphContext, x: Tensor, il: int) -> Tensor | None:
    """Q, K and V behind one another, where one matrix gives them, with their bias or biases."""
    weight = ctx.optional(FUSED, il)
    if weight is None:
        return None
    product = ctx.named(build.mul_mat(weight, x), "wqkv", il)
    bias = ctx.optional(FUSED, il, "bias")
    if bias is None:
        q, k, v = (ctx.optional(name, il, "bias") for name in ("attn_q", "attn_k", "attn_v"))
        if q is None or k is None or v is None:
            return product
        bias = build.concat(build.concat(q, k, 0), v, 0)
    return ctx.named(build.add(product, bias), "wqkv_b", il)


def norm_heads(ctx: GraphContext, parts: Qkv, il: int) -> Qkv:
    """Q and K with each head normalised, or each row if they are not cut into heads.

    Each for itself: a model may have the weight of one and lack the other.
    """

    def normed(part: Tensor, weight: str, name: str) -> Tensor:
        has_norm = ctx.optional(weight, il) is not None
        return rms_norm(ctx, part, weight, name, il) if has_norm else part

    return parts._replace(
        q=normed(parts.q, "attn_q_norm", "Qcur_normed"),
        k=normed(parts.k, "attn_k_norm", "Kcur_normed"),
    )


def rotate(ctx: GraphContext, parts: Qkv, il: int, factors: Tensor | None = None) -> Qkv:
    """Q and K turned by their positions, if the layer does so; `factors` divide the angles."""
    if not ctx.layer(il).rotates:
        return parts
    params, where = ctx.layer(il).rope, positions(ctx)
    return parts._replace(
        q=ctx.named(build.rope(parts.q, where, factors, params), "Qcur", il),
        k=ctx.named(build.rope(parts.k, where, factors, params), "Kcur", il),
    )


def rope_factors(ctx: GraphContext, il: int) -> Tensor | None:
    """What divides the angles; of two sets, the long one where the context is stretched."""
    always = ctx.optional("rope_freqs", il)
    if always is not None:
        return always
    is_long = ctx.cache.n_cells > ctx.layer(il).rope.n_ctx_orig
    return ctx.optional(LONG_AND_SHORT[0 if is_long else 1], il)


def _heads(
    ctx: GraphContext, x: Tensor, weight: str, name: str, n_embd_head: int, n_head: int, il: int
) -> Tensor:
    cur = ctx.named(build.mul_mat(ctx.weight(weight, il), x), name, il)
    bias = ctx.optional(weight, il, "bias")
    if bias is not None:
        cur = ctx.named(build.add(cur, bias), name, il)
    return ctx.named(build.reshape(cur, n_embd_head, n_head, ctx.shape.n_tokens), name, il)
