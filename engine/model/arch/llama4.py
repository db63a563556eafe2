"""llama4: a window in chunks, every fourth layer without rotation, experts in some layers.

Source: llama.cpp src/models/llama4.cpp; ARCH.md 2.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from engine.core import build as ops
from engine.core.ops import ROPE_NORM
from engine.model.blocks.attention import attention, head_scale
from engine.model.blocks.decoder import decoder
from engine.model.blocks.ffn import (
    dense_ffn,
    ffn_weights,
    shared_expert,
    shared_expert_weights,
)
from engine.model.blocks.inputs import keep_outputs, temperature
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
from engine.model.hparams import (
    Window,
    WindowKind,
    changed,
    check_has_experts,
    check_heads_alike,
    read_common,
    with_dense_layers,
    with_window,
)
from engine.model.hparams_parts import Gating, Temperature

if TYPE_CHECKING:
    from engine.core.tensor import Tensor
    from engine.model.arch_keys import ArchKeys
    from engine.model.blocks.graph_context import BuiltGraph, GraphContext
    from engine.model.blocks.qkv import Qkv
    from engine.model.hparams import Hparams
    from engine.model.weights import WeightKind

STEP = "interleave_moe_layer_step"
"""Every so many layers have experts; 0: none has."""

CHUNK = 8192
"""Tokens of a chunk, whatever a file says, and of a step of the temperature."""

STILL_EVERY = 4
"""Every so many layers, the last one is not rotated."""

PLAIN_HEADS = 128
"""Models with so many experts do not normalise rotated heads."""


def hparams(keys: ArchKeys) -> Hparams:
    """The numbers of a model."""
    hp = read_common(keys, rope_mode=ROPE_NORM)
    check_heads_alike(keys, hp, rotates_all=True)
    check_has_experts(keys, hp)
    keys.counts("expert_feed_forward_length", hp.n_layer_all)
    step = keys.count(STEP, low=0)
    routing = replace(hp.routing, gating=Gating.SIGMOID, normalises=False, weighs_input=True)
    hp = replace(hp, routing=routing, n_ff_shared=hp.layers[0].n_ff_exp)
    hp = with_dense_layers(hp, [not _comes_up(il, step) for il in range(hp.n_layer_all)])
    # A file may turn the window off with a 0; then the last layer alone is not rotated.
    if keys.count("attention.sliding_window", CHUNK, low=0) == 0:
        return _with_still_layers(hp, hp.n_layer)
    hp = replace(hp, temperature=Temperature(length=CHUNK, scale=0.1, offset=1.0))
    window = Window(CHUNK, WindowKind.CHUNKED)
    hp = with_window(keys, hp, window, pattern=STILL_EVERY, keeps_rope=True)
    return _with_still_layers(hp, STILL_EVERY)


def _comes_up(il: int, step: int) -> bool:
    return step > 0 and (il + 1) % step == 0


def _with_still_layers(hp: Hparams, step: int) -> Hparams:
    still = [_comes_up(il, step) for il in range(hp.n_layer)]
    return replace(
        hp, layers=changed(hp.layers, still, lambda layer: replace(layer, rotates=False))
    )


def weights(hp: Hparams) -> tuple[WeightKind, ...]:
    """What is asked of a file."""
    table = WeightList()
    table.embedding_and_head(hp)
    for il, layer in enumerate(hp.layers):
        table.norm(il, "attn_norm", hp.n_embd)
        qkv_weights(table, hp, il)
        table.matrix(il, "attn_output", layer.n_embd_attended, hp.n_embd)
        table.norm(il, "ffn_norm", hp.n_embd)
        rope_factor_weights(table, hp, il)
        with table.asked_by(STEP):
            if layer.n_expert_used:
                moe_weights(table, hp, il, n_ff=layer.n_ff_exp)
                shared_expert_weights(table, hp, il)
            else:
                ffn_weights(table, hp, il)
    return table.finish()


def build(ctx: GraphContext) -> BuiltGraph:
    """The graph of one batch."""
    return decoder(ctx, _layer)


def _layer(ctx: GraphContext, x: Tensor, il: int) -> Tensor:
    normed = rms_norm(ctx, x, "attn_norm", "attn_norm", il)
    parts = _placed(ctx, qkv(ctx, normed, il), il)
    attended = ctx.named(attention(ctx, parts, scale=head_scale(ctx, il), il=il), "attn_out", il)
    attended, x = keep_outputs(ctx, il, attended, x)
    joined = ctx.named(ops.add(attended, x), "ffn_inp", il)
    if ctx.layer(il).n_expert_used:
        # llama.cpp gives attention's result the name of the norm, which has none.
        ctx.named(attended, "ffn_norm", il)
        normed = ctx.named(ops.rms_norm(joined, ctx.hparams.norm_eps), "norm", il)
        fed = _experts(ctx, ops.mul(normed, ctx.weight("ffn_norm", il)), il)
    else:
        normed = rms_norm(ctx, joined, "ffn_norm", "ffn_norm", il)
        fed = dense_ffn(ctx, normed, il)
    return ctx.named(ops.add(fed, joined), "l_out", il)


def _placed(ctx: GraphContext, parts: Qkv, il: int) -> Qkv:
    """Queries and keys that know their positions, or queries that grow sharper with them."""
    if not ctx.layer(il).rotates:
        return parts._replace(q=ctx.named(ops.mul(parts.q, temperature(ctx)), "Qcur", il))
    turned = rotate(ctx, parts, il, rope_factors(ctx, il))
    if ctx.hparams.n_expert == PLAIN_HEADS:
        return turned
    eps = ctx.hparams.norm_eps
    return turned._replace(
        q=ctx.named(ops.rms_norm(turned.q, eps), "Qcur_normed", il),
        k=ctx.named(ops.rms_norm(turned.k, eps), "Kcur_normed", il),
    )


def _experts(ctx: GraphContext, x: Tensor, il: int) -> Tensor:
    answer = moe_ffn(ctx, x, il)
    shared = ctx.named(shared_expert(ctx, x, il), "ffn_moe_shexp", il)
    return ctx.named(ops.add(answer, shared), "ffn_moe_out_merged", il)
