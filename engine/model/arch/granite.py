"""granite and granitemoe: llama's layer with scaled embeddings, residuals, attention and logits.

Source: llama.cpp src/models/granite.cpp, granite-moe.cpp; ARCH.md 2.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from engine.core import build as ops
from engine.core.ops import ROPE_NORM
from engine.model.blocks.attention import attention, head_scale
from engine.model.blocks.decoder import decoder, feed_forward_half
from engine.model.blocks.ffn import (
    dense_ffn,
    ffn_biases,
    ffn_weights,
    shared_expert,
    shared_expert_weights,
)
from engine.model.blocks.inputs import keep_outputs
from engine.model.blocks.moe import moe_ffn, moe_weights
from engine.model.blocks.norms import rms_norm
from engine.model.blocks.qkv import (
    qkv,
    qkv_weights,
    rope_factor_weights,
    rope_factors,
    rotate,
)
from engine.model.blocks.weight_list import WeightList
from engine.model.hparams import check_heads_alike, read_common

if TYPE_CHECKING:
    from engine.core.tensor import Tensor
    from engine.model.arch_keys import ArchKeys
    from engine.model.blocks.graph_context import BuiltGraph, GraphContext
    from engine.model.hparams import Hparams
    from engine.model.weights import WeightKind

SHARED_WIDTH = "expert_shared_feed_forward_length"


def hparams(keys: ArchKeys) -> Hparams:
    """The numbers of a model; a granite that is not "finetuned" has no rotation."""
    is_granite = keys.arch == "granite"
    if is_granite:
        _refuse_images(keys)
    rotates = not is_granite or keys.flag("rope.scaling.finetuned", default=True)
    hp = read_common(keys, rope_mode=ROPE_NORM, rotates=rotates)
    check_heads_alike(keys, hp, rotates_all=rotates)
    logit_scale = keys.number("logit_scale")
    if not logit_scale:
        raise keys.wrong("logit_scale", 0.0, "a number that logits can be divided by")
    return replace(
        hp,
        logit_scale=1.0 / logit_scale,
        residual_scale=keys.number("residual_scale", 0.0),
        embedding_scale=keys.number("embedding_scale", 0.0),
        attention_scale=keys.number("attention.scale", 0.0),
        n_ff_shared=keys.count(SHARED_WIDTH, 0, low=0),
    )


def _refuse_images(keys: ArchKeys) -> None:
    """Layers that take in parts of an image have more nodes than this graph."""
    key = "deepstack_mapping"
    if keys.has(key) and max(keys.counts(key, keys.count("block_count"), low=-1)) >= 0:
        raise keys.wrong(key, "set for some layers", "-1 for all: images are not planned")


def weights(hp: Hparams) -> tuple[WeightKind, ...]:
    """What is asked of a file."""
    table = WeightList()
    table.embedding_and_head(hp)
    for il, layer in enumerate(hp.layers):
        table.norm(il, "attn_norm", hp.n_embd)
        qkv_weights(table, hp, il)
        table.matrix(il, "attn_output", layer.n_embd_attended, hp.n_embd)
        table.bias(il, "attn_output", hp.n_embd)
        table.norm(il, "ffn_norm", hp.n_embd)
        rope_factor_weights(table, hp, il)
        with table.asked_by("expert_count"):
            _feed_forward_weights(table, hp, il)
    return table.finish()


def _feed_forward_weights(table: WeightList, hp: Hparams, il: int) -> None:
    if not hp.n_expert:
        ffn_weights(table, hp, il)
        ffn_biases(table, hp, il)
        return
    moe_weights(table, hp, il, n_ff=hp.layers[il].n_ff)
    if hp.n_ff_shared:
        with table.asked_by(SHARED_WIDTH):
            shared_expert_weights(table, hp, il)


def build(ctx: GraphContext) -> BuiltGraph:
    """The graph of one batch."""
    return decoder(ctx, _layer)


def _layer(ctx: GraphContext, x: Tensor, il: int) -> Tensor:
    normed = rms_norm(ctx, x, "attn_norm", "attn_norm", il)
    parts = rotate(ctx, qkv(ctx, normed, il), il, rope_factors(ctx, il))
    attended = ctx.named(attention(ctx, parts, scale=head_scale(ctx, il), il=il), "attn_out", il)
    attended, x = keep_outputs(ctx, il, attended, x)
    return feed_forward_half(ctx, _scaled(ctx, attended), x, il, _scaled_feed_forward)


def _scaled(ctx: GraphContext, x: Tensor) -> Tensor:
    factor = ctx.hparams.residual_scale
    return ops.scale(x, factor) if factor else x


def _scaled_feed_forward(ctx: GraphContext, x: Tensor, il: int) -> Tensor:
    return _scaled(ctx, _feed_forward(ctx, x, il))


def _feed_forward(ctx: GraphContext, x: Tensor, il: int) -> Tensor:
    if not ctx.hparams.n_expert:
        return dense_ffn(ctx, x, il)
    answer = moe_ffn(ctx, x, il)
    if not ctx.hparams.n_ff_shared:
        return answer
    shared = ctx.named(shared_expert(ctx, x, il), "ffn_shexp", il)
    return ctx.named(ops.add(answer, shared), "ffn_out", il)
