"""deepseek2: keys and values from one short row a token; dense layers, then layers of experts.

Source: llama.cpp src/models/deepseek2.cpp; ARCH.md 4.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from engine.core import build as ops
from engine.core.ops import ROPE_NORM
from engine.model.blocks.decoder import decoder, feed_forward_half
from engine.model.blocks.ffn import (
    dense_ffn,
    ffn_weights,
    shared_expert,
    shared_expert_weights,
)
from engine.model.blocks.inputs import keep_outputs
from engine.model.blocks.latent import latent_attention, latent_weights
from engine.model.blocks.moe import moe_ffn, moe_weights
from engine.model.blocks.nextn import with_nextn_weights
from engine.model.blocks.norms import rms_norm
from engine.model.blocks.weight_list import WeightList
from engine.model.hparams import changed, check_has_experts, read_common
from engine.model.hparams_latent import (
    read_latent,
    read_temperature,
    stated_vocabulary,
    stretched_magnitude,
)
from engine.model.hparams_moe import (
    N_DENSE,
    read_routing,
    read_shared_width,
    with_leading_dense_layers,
)
from engine.model.hparams_parts import Gating

if TYPE_CHECKING:
    from engine.core.tensor import Tensor
    from engine.model.arch_keys import ArchKeys
    from engine.model.blocks.graph_context import BuiltGraph, GraphContext
    from engine.model.hparams import Hparams, LayerHparams
    from engine.model.weights import WeightKind

SMALL_GLM = ((47, 48), 154880)
"""Layers and vocabulary of the one model whose files do not say that its gating is sigmoid."""


def hparams(keys: ArchKeys) -> Hparams:
    """The numbers of a model."""
    hp = read_common(keys, rope_mode=ROPE_NORM)
    check_has_experts(keys, hp)
    keys.counts("expert_feed_forward_length", hp.n_layer_all)
    latent = read_latent(keys, hp)
    is_small_glm = hp.n_layer in SMALL_GLM[0] and stated_vocabulary(keys, hp) == SMALL_GLM[1]
    stretch = stretched_magnitude(keys, hp.layers[0].rope)
    hp = replace(
        hp,
        latent=latent,
        n_ff_shared=read_shared_width(keys, hp),
        routing=read_routing(keys, hp, Gating.SIGMOID if is_small_glm else Gating.SOFTMAX),
        attention_scale=stretch.attention**2 / math.sqrt(latent.n_head_k),
        temperature=read_temperature(keys),
        layers=_with_magnitude(hp.layers, stretch.rotation),
        nextn_layers=_with_magnitude(hp.nextn_layers, stretch.rotation),
    )
    return with_leading_dense_layers(keys, hp)


def _with_magnitude(
    layers: tuple[LayerHparams, ...], attn_factor: float
) -> tuple[LayerHparams, ...]:
    def turn(layer: LayerHparams) -> LayerHparams:
        return replace(layer, rope=replace(layer.rope, attn_factor=attn_factor))

    return changed(layers, (True,) * len(layers), turn)


def weights(hp: Hparams) -> tuple[WeightKind, ...]:
    """What is asked of a file."""
    table = WeightList()
    table.embedding_and_head(hp)
    with_nextn_weights(table, hp, _layer_weights)
    return table.finish()


def _layer_weights(table: WeightList, hp: Hparams, il: int) -> None:
    layer = hp.every_layer[il]
    table.norm(il, "attn_norm", hp.n_embd)
    latent_weights(table, hp, il)
    table.norm(il, "ffn_norm", hp.n_embd)
    with table.asked_by(N_DENSE):
        if not layer.n_expert_used:
            ffn_weights(table, hp, il)
            return
        moe_weights(table, hp, il, n_ff=layer.n_ff_exp, may_be_merged=True)
        table.bias(il, "exp_probs_b", hp.n_expert)
        shared_expert_weights(table, hp, il)


def build(ctx: GraphContext) -> BuiltGraph:
    """The graph of one batch."""
    return decoder(ctx, _layer)


def _layer(ctx: GraphContext, x: Tensor, il: int) -> Tensor:
    normed = rms_norm(ctx, x, "attn_norm", "attn_norm", il)
    attended = latent_attention(ctx, normed, scale=ctx.hparams.attention_scale, il=il)
    attended, x = keep_outputs(ctx, il, attended, x)
    return feed_forward_half(ctx, attended, x, il, _feed_forward)


def _feed_forward(ctx: GraphContext, x: Tensor, il: int) -> Tensor:
    if not ctx.layer(il).n_expert_used:
        return dense_ffn(ctx, x, il)
    answer = moe_ffn(ctx, x, il)
    shared = ctx.named(shared_expert(ctx, x, il), "ffn_shexp", il)
    return ctx.named(ops.add(answer, shared), "ffn_out", il)
