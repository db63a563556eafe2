"""llama: RMS norm, rotary attention with grouped heads, gated feed-forward or experts.

Source: llama.cpp src/models/llama.cpp; ARCH.md 1 and 2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.core.ops import ROPE_NORM
from engine.model.blocks.attention import attention, head_scale
from engine.model.blocks.decoder import decoder, feed_forward_half
from engine.model.blocks.ffn import dense_ffn, ffn_biases, ffn_weights
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


def hparams(keys: ArchKeys) -> Hparams:
    """The numbers of a model."""
    hp = read_common(keys, rope_mode=ROPE_NORM)
    check_heads_alike(keys, hp, rotates_all=True)
    return hp


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
            if hp.n_expert:
                moe_weights(table, hp, il, n_ff=layer.n_ff)
            else:
                ffn_weights(table, hp, il)
                ffn_biases(table, hp, il)
    return table.finish()


def build(ctx: GraphContext) -> BuiltGraph:
    """The graph of one batch."""
    return decoder(ctx, _layer)


def _layer(ctx: GraphContext, x: Tensor, il: int) -> Tensor:
    normed = rms_norm(ctx, x, "attn_norm", "attn_norm", il)
    parts = rotate(ctx, qkv(ctx, normed, il), il, rope_factors(ctx, il))
    attended = ctx.named(attention(ctx, parts, scale=head_scale(ctx, il), il=il), "attn_out", il)
    attended, x = keep_outputs(ctx, il, attended, x)
    return feed_forward_half(ctx, attended, x, il, _feed_forward)


def _feed_forward(ctx: GraphContext, x: Tensor, il: int) -> Tensor:
    if ctx.hparams.n_expert:
        return moe_ffn(ctx, x, il)
    return dense_ffn(ctx, x, il)
