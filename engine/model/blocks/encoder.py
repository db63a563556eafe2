"""Models that see a whole text at once: attention without a cache. Source: ARCH.md 6."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.core import build
from engine.core.ops import Op
from engine.core.types import TensorType
from engine.model.arch_keys import TOKEN_EMBEDDING
from engine.model.blocks.attention import Seen, attend, head_scale, project
from engine.model.blocks.graph_context import InputKind
from engine.model.blocks.inputs import keep_outputs
from engine.model.blocks.norms import layer_norm
from engine.model.blocks.pooling import finish_pooled
from engine.model.blocks.qkv import qkv_weights

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.core.tensor import Tensor
    from engine.model.blocks.graph_context import BuiltGraph, GraphContext
    from engine.model.blocks.qkv import Qkv
    from engine.model.blocks.weight_list import WeightList
    from engine.model.hparams import Hparams


def embedding_weights(weights: WeightList, hp: Hparams) -> None:
    """Embeddings of tokens and of token types; their norm counts as the first layer's."""
    assert hp.encoder is not None, hp.arch
    weights.input(TOKEN_EMBEDDING, Op.GET_ROWS, hp.n_embd, hp.n_vocab)
    types = (hp.n_embd, hp.encoder.n_token_types)
    weights.input("token_types.weight", Op.GET_ROWS, *types, required=False)
    for suffix, op in (("weight", Op.MUL), ("bias", Op.ADD)):
        weights.shared(0, f"token_embd_norm.{suffix}", op, hp.n_embd)


def attention_weights(weights: WeightList, hp: Hparams, il: int) -> None:
    """Attention and the norm after it."""
    qkv_weights(weights, hp, il)
    weights.matrix(il, "attn_output", hp.layers[il].n_embd_attended, hp.n_embd)
    weights.bias(il, "attn_output", hp.n_embd)
    weights.biased_norm(il, "attn_output_norm", hp.n_embd)


def add_token_type(ctx: GraphContext, x: Tensor) -> Tensor:
    """The sum of x and the embedding of the first token type, where the model has one."""
    types = ctx.optional("token_types")
    return x if types is None else build.add(x, build.view(types, (types.ne[0],)))


def embedding_norm(ctx: GraphContext, x: Tensor) -> Tensor:
    """The embeddings as the first layer takes them."""
    return layer_norm(ctx, ctx.named(x, "inp_embd"), "token_embd_norm", "inp_norm", 0)


def encoder_layer(
    ctx: GraphContext,
    x: Tensor,
    parts: Qkv,
    feed_forward: Callable[[GraphContext, Tensor, int], Tensor],
    il: int,
) -> Tensor:
    """Attention of x over itself, then what `feed_forward` makes of that; a norm after each."""
    attended = ctx.named(project(ctx, _self_attention(ctx, parts, il), il), "kqv_out", il)
    attended, x = keep_outputs(ctx, il, attended, x)
    joined = layer_norm(ctx, build.add(attended, x), "attn_output_norm", "ffn_inp", il)
    fed = ctx.named(feed_forward(ctx, joined, il), "ffn_out", il)
    return layer_norm(ctx, build.add(fed, joined), "layer_output_norm", "", il)


def _self_attention(ctx: GraphContext, parts: Qkv, il: int) -> Tensor:
    for tensor in parts:
        ctx.builder.expand(tensor)
    mask_type = TensorType.F16 if ctx.flash_attn else TensorType.F32
    n_tokens = ctx.shape.n_tokens
    mask = ctx.input(InputKind.SELF_MASK, mask_type, n_tokens, n_tokens)
    keys, values = (build.permute(part, (0, 2, 1, 3)) for part in (parts.k, parts.v))
    if ctx.flash_attn:
        keys, values = (build.cast(part, TensorType.F16) for part in (keys, values))
    return attend(ctx, Seen(parts.q, keys, values, mask), scale=head_scale(ctx, il), il=il)


def finish_with_embeddings(ctx: GraphContext, x: Tensor) -> BuiltGraph:
    """The graph that ends in the embeddings of x: one a token, or one a text."""
    ctx.builder.expand(ctx.keep(ctx.named(x, "result_embd")))
    return finish_pooled(ctx, x)
