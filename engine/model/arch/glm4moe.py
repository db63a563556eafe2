"""glm4moe: dense layers, then layers of experts; part of each head is rotated.

Layers behind the last guess further tokens: a file has them, nobody loads them.
Source: llama.cpp src/models/glm4-moe.cpp; ARCH.md 4.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from engine.core import build as ops
from engine.core.ops import ROPE_MROPE, ROPE_NEOX, GluOp, Precision
from engine.model.blocks.attention import attention, head_scale
from engine.model.blocks.decoder import decoder
from engine.model.blocks.ffn import ffn_weights, gated_ffn, shared_expert, shared_expert_weights
from engine.model.blocks.inputs import keep_outputs
from engine.model.blocks.moe import moe_ffn, moe_weights
from engine.model.blocks.nextn import with_nextn_weights
from engine.model.blocks.norms import rms_norm
from engine.model.blocks.qkv import norm_heads, qkv, qkv_weights, rotate
from engine.model.blocks.weight_list import WeightList
from engine.model.hparams import (
    check_heads_alike,
    read_common,
    with_expert_width,
)
from engine.model.hparams_moe import (
    N_DENSE,
    read_routing,
    read_shared_width,
    with_leading_dense_layers,
)
from engine.model.hparams_parts import Gating
from engine.model.hparams_rope import N_SECTIONS, SECTIONS, with_sections

if TYPE_CHECKING:
    from engine.core.tensor import Tensor
    from engine.model.arch_keys import ArchKeys
    from engine.model.blocks.graph_context import BuiltGraph, GraphContext
    from engine.model.hparams import Hparams
    from engine.model.weights import WeightKind


def hparams(keys: ArchKeys) -> Hparams:
    """The numbers of a model."""
    sections = keys.integers(SECTIONS, N_SECTIONS, (0,) * N_SECTIONS)
    is_multi = sections[0] > 0 and sections[1] > 0
    hp = read_common(keys, rope_mode=ROPE_MROPE if is_multi else ROPE_NEOX)
    check_heads_alike(keys, hp, rotates_all=False)
    hp = with_expert_width(keys, hp)
    hp = replace(
        hp,
        n_ff_shared=read_shared_width(keys, hp),
        routing=read_routing(keys, hp, Gating.SIGMOID),
    )
    if is_multi:
        hp = with_sections(keys, hp)
    return with_leading_dense_layers(keys, hp)


def weights(hp: Hparams) -> tuple[WeightKind, ...]:
    """What is asked of a file."""
    table = WeightList()
    table.embedding_and_head(hp)
    with_nextn_weights(table, hp, _layer_weights)
    return table.finish()


def _layer_weights(table: WeightList, hp: Hparams, il: int) -> None:
    layer = hp.every_layer[il]
    table.norm(il, "attn_norm", hp.n_embd)
    qkv_weights(table, hp, il)
    table.matrix(il, "attn_output", layer.n_embd_attended, hp.n_embd)
    for name in ("attn_q_norm", "attn_k_norm"):
        table.norm(il, name, layer.n_embd_head_k, required=False)
    table.norm(il, "post_attention_norm", hp.n_embd)
    with table.asked_by(N_DENSE):
        if not layer.n_expert_used:
            ffn_weights(table, hp, il)
            return
        moe_weights(table, hp, il, n_ff=layer.n_ff_exp)
        table.bias(il, "exp_probs_b", hp.n_expert, required=True)
        shared_expert_weights(table, hp, il)


def build(ctx: GraphContext) -> BuiltGraph:
    """The graph of one batch."""
    return decoder(ctx, _layer)


def _layer(ctx: GraphContext, x: Tensor, il: int) -> Tensor:
    normed = rms_norm(ctx, x, "attn_norm", "attn_norm", il)
    parts = rotate(ctx, norm_heads(ctx, qkv(ctx, normed, il), il), il)
    attended = attention(ctx, parts, scale=head_scale(ctx, il), il=il, precision=Precision.F32)
    attended, x = keep_outputs(ctx, il, attended, x)
    joined = ctx.named(ops.add(attended, x), "ffn_inp", il)
    normed = rms_norm(ctx, joined, "post_attention_norm", "post_attn_norm", il)
    return ctx.named(ops.add(_feed_forward(ctx, normed, il), joined), "l_out", il)


def _feed_forward(ctx: GraphContext, x: Tensor, il: int) -> Tensor:
    if not ctx.layer(il).n_expert_used:
        fed = gated_ffn(ctx, x, GluOp.SWIGLU, il, precision=Precision.F32)
        return ctx.named(fed, "ffn_out", il)
    answer = moe_ffn(ctx, x, il)
    shared = shared_expert(ctx, x, il, precision=Precision.F32)
    ctx.named(shared, "ffn_shexp_out", il)
    return ctx.named(ops.add(answer, shared), "ffn_out", il)
