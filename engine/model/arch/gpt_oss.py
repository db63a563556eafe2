"""gpt-oss: sinks in every attention, a window in every second layer, experts with biases.

Source: llama.cpp src/models/openai-moe.cpp; ARCH.md 4.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from engine.core import build as ops
from engine.core.ops import ROPE_NEOX, GluOp, Op
from engine.model.blocks.attention import attention, head_scale
from engine.model.blocks.decoder import run_layers
from engine.model.blocks.head import finish_with_logits
from engine.model.blocks.inputs import embed_tokens, pick_outputs
from engine.model.blocks.moe import Gated, moe_biases, moe_ffn, moe_weights
from engine.model.blocks.norms import rms_norm
from engine.model.blocks.qkv import qkv, qkv_weights, rotate
from engine.model.blocks.weight_list import WeightList
from engine.model.hparams import (
    Window,
    check_has_experts,
    check_heads_alike,
    read_common,
    with_window,
)
from engine.model.hparams_parts import Gating

if TYPE_CHECKING:
    from engine.core.tensor import Tensor
    from engine.model.arch_keys import ArchKeys
    from engine.model.blocks.graph_context import BuiltGraph, GraphContext
    from engine.model.hparams import Hparams
    from engine.model.weights import WeightKind

GATED = Gated(GluOp.SWIGLU_OAI, alpha=1.702, limit=7.0)


def hparams(keys: ArchKeys) -> Hparams:
    """The numbers of a model."""
    hp = read_common(keys, rope_mode=ROPE_NEOX, needs_ff=False)
    check_heads_alike(keys, hp, rotates_all=True)
    check_has_experts(keys, hp)
    keys.counts("expert_feed_forward_length", hp.n_layer_all)
    routing = replace(hp.routing, gating=Gating.SOFTMAX_WEIGHT, normalises=False)
    window = Window(keys.count("attention.sliding_window"))
    return with_window(keys, replace(hp, routing=routing), window, pattern=2, keeps_rope=True)


def weights(hp: Hparams) -> tuple[WeightKind, ...]:
    """What is asked of a file."""
    table = WeightList()
    table.embedding_and_head(hp, tied=False)
    for il, layer in enumerate(hp.layers):
        table.norm(il, "attn_norm", hp.n_embd)
        table.norm(il, "post_attention_norm", hp.n_embd)
        qkv_weights(table, hp, il)
        table.biased_matrix(il, "attn_output", layer.n_embd_attended, hp.n_embd)
        table.layer(il, "attn_sinks.weight", Op.SCALE, layer.n_head)
        moe_weights(table, hp, il, n_ff=layer.n_ff_exp)
        moe_biases(table, hp, il, n_ff=layer.n_ff_exp)
    return table.finish()


def build(ctx: GraphContext) -> BuiltGraph:
    """The graph of one batch: every layer on all rows, then those that give logits."""
    x = run_layers(ctx, embed_tokens(ctx), _layer)
    return finish_with_logits(ctx, pick_outputs(ctx, ctx.keep(x)))


def _layer(ctx: GraphContext, x: Tensor, il: int) -> Tensor:
    normed = rms_norm(ctx, x, "attn_norm", "attn_norm", il)
    parts = rotate(ctx, qkv(ctx, normed, il), il)
    attended = ctx.named(attention(ctx, parts, scale=head_scale(ctx, il), il=il), "attn_out", il)
    joined = ctx.named(ops.add(attended, x), "ffn_inp", il)
    normed = rms_norm(ctx, joined, "post_attention_norm", "attn_post_norm", il)
    return ctx.named(ops.add(moe_ffn(ctx, normed, il, GATED), joined), "l_out", il)
