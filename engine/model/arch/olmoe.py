"""olmoe: norms over whole rows of Q and K; experts whose weights are taken as they are.

Source: llama.cpp src/models/olmoe.cpp; ARCH.md 2.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from engine.core.ops import ROPE_NEOX
from engine.model.blocks.attention import attention, head_scale
from engine.model.blocks.decoder import decoder, feed_forward_half
from engine.model.blocks.inputs import keep_outputs
from engine.model.blocks.moe import moe_ffn, moe_weights
from engine.model.blocks.norms import rms_norm
from engine.model.blocks.qkv import cut_into_heads, flat_qkv, norm_heads, qkv_weights, rotate
from engine.model.blocks.weight_list import WeightList
from engine.model.hparams import check_has_experts, check_heads_alike, read_common

if TYPE_CHECKING:
    from engine.core.tensor import Tensor
    from engine.model.arch_keys import ArchKeys
    from engine.model.blocks.graph_context import BuiltGraph, GraphContext
    from engine.model.hparams import Hparams
    from engine.model.weights import WeightKind


def hparams(keys: ArchKeys) -> Hparams:
    """The numbers of a model."""
    hp = read_common(keys, rope_mode=ROPE_NEOX)
    check_heads_alike(keys, hp, rotates_all=True)
    check_has_experts(keys, hp)
    return replace(hp, routing=replace(hp.routing, normalises=False))


def weights(hp: Hparams) -> tuple[WeightKind, ...]:
    """What is asked of a file."""
    table = WeightList()
    table.embedding_and_head(hp, tied=False)
    for il, layer in enumerate(hp.layers):
        table.norm(il, "attn_norm", hp.n_embd)
        qkv_weights(table, hp, il)
        table.matrix(il, "attn_output", layer.n_embd_attended, hp.n_embd)
        table.norm(il, "attn_q_norm", layer.n_embd_q)
        table.norm(il, "attn_k_norm", layer.n_embd_k)
        table.norm(il, "ffn_norm", hp.n_embd)
        moe_weights(table, hp, il, n_ff=layer.n_ff)
    return table.finish()


def build(ctx: GraphContext) -> BuiltGraph:
    """The graph of one batch."""
    return decoder(ctx, _layer)


def _layer(ctx: GraphContext, x: Tensor, il: int) -> Tensor:
    normed = rms_norm(ctx, x, "attn_norm", "attn_norm", il)
    rows = norm_heads(ctx, flat_qkv(ctx, normed, il), il)
    parts = rotate(ctx, cut_into_heads(ctx, rows, il), il)
    ctx.named(parts.v, "Vcur", il)
    attended, x = keep_outputs(ctx, il, attention(ctx, parts, scale=head_scale(ctx, il), il=il), x)
    return feed_forward_half(ctx, attended, x, il, moe_ffn)
