"""gemma3: a sliding window in most layers, and norms after attention and feed-forward too.

Source: llama.cpp src/models/gemma3.cpp; ARCH.md 3.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from engine.core import build as ops
from engine.core.ops import ROPE_NEOX, GluOp
from engine.model.blocks.attention import attention
from engine.model.blocks.decoder import run_layers
from engine.model.blocks.ffn import ffn_weights, gated_ffn
from engine.model.blocks.head import finish_with_logits
from engine.model.blocks.inputs import embed_tokens, keep_outputs
from engine.model.blocks.norms import rms_norm
from engine.model.blocks.qkv import head_norm_weights, norm_heads, qkv, qkv_weights, rotate
from engine.model.blocks.weight_list import WeightList
from engine.model.hparams import Window, check_heads_alike, read_common, with_window

if TYPE_CHECKING:
    from engine.core.tensor import Tensor
    from engine.model.arch_keys import ArchKeys
    from engine.model.blocks.graph_context import BuiltGraph, GraphContext
    from engine.model.hparams import Hparams
    from engine.model.weights import WeightKind

LAYERS_OF_27B = 62
"""This size alone scales attention by the embedding's share of a head, not by a head's size."""


def hparams(keys: ArchKeys) -> Hparams:
    """The numbers of a model."""
    hp = read_common(keys, rope_mode=ROPE_NEOX)
    check_heads_alike(keys, hp, rotates_all=False)
    layer = hp.layers[0]
    is_27b = hp.n_layer == LAYERS_OF_27B
    n_scaled = hp.n_embd // layer.n_head if is_27b else layer.n_embd_head_k
    hp = replace(
        hp,
        attention_scale=1.0 / math.sqrt(n_scaled),
        final_logit_softcap=keys.number("final_logit_softcapping", 0.0, low=0.0),
    )
    n_swa = keys.count("attention.sliding_window", 0, low=0)
    return with_window(keys, hp, Window(n_swa), pattern=6) if n_swa else hp


def weights(hp: Hparams) -> tuple[WeightKind, ...]:
    """What is asked of a file."""
    table = WeightList()
    table.embedding_and_head(hp)
    for il, layer in enumerate(hp.layers):
        table.norm(il, "attn_norm", hp.n_embd)
        qkv_weights(table, hp, il)
        table.matrix(il, "attn_output", layer.n_embd_attended, hp.n_embd)
        table.norm(il, "post_attention_norm", hp.n_embd)
        head_norm_weights(table, hp, il)
        table.norm(il, "ffn_norm", hp.n_embd)
        ffn_weights(table, hp, il)
        table.norm(il, "post_ffw_norm", hp.n_embd)
    return table.finish()


def build(ctx: GraphContext) -> BuiltGraph:
    """The graph of one batch."""
    x = embed_tokens(ctx)
    x = ctx.named(ops.scale(x, math.sqrt(ctx.hparams.n_embd)), "inp_scaled")
    return finish_with_logits(ctx, run_layers(ctx, x, _layer))


def _layer(ctx: GraphContext, x: Tensor, il: int) -> Tensor:
    normed = rms_norm(ctx, x, "attn_norm", "attn_norm", il)
    parts = rotate(ctx, norm_heads(ctx, qkv(ctx, normed, il), il), il)
    parts = parts._replace(q=ops.scale(parts.q, ctx.hparams.attention_scale))
    attended, x = keep_outputs(ctx, il, attention(ctx, parts, scale=1.0, il=il), x)
    attended = rms_norm(ctx, attended, "post_attention_norm", "attn_post_norm", il)
    joined = ctx.named(ops.add(attended, x), "sa_out", il)
    normed = rms_norm(ctx, joined, "ffn_norm", "ffn_norm", il)
    fed = ctx.named(gated_ffn(ctx, normed, GluOp.GEGLU, il), "ffn_out", il)
    fed = rms_norm(ctx, fed, "post_ffw_norm", "ffn_post_norm", il, named_for_layer=False)
    return ctx.named(ops.add(fed, joined), "l_out", il)
