"""command-r: attention and feed-forward read one norm; the output is always tied.

Source: llama.cpp src/models/command-r.cpp; ARCH.md 2.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from engine.core import build as ops
from engine.core.ops import ROPE_NORM, Op
from engine.model.blocks.attention import attention, head_scale
from engine.model.blocks.decoder import decoder
from engine.model.blocks.ffn import dense_ffn, ffn_weights
from engine.model.blocks.inputs import keep_outputs
from engine.model.blocks.norms import layer_norm
from engine.model.blocks.qkv import qkv, qkv_weights, rotate
from engine.model.blocks.weight_list import WeightList
from engine.model.hparams import LAYER_NORM_EPS, check_heads_alike, read_common

if TYPE_CHECKING:
    from engine.core.tensor import Tensor
    from engine.model.arch_keys import ArchKeys
    from engine.model.blocks.graph_context import BuiltGraph, GraphContext
    from engine.model.blocks.qkv import Qkv
    from engine.model.hparams import Hparams, LayerHparams
    from engine.model.weights import WeightKind

NORMS_HEADS_FROM = 64
"""Models of so many layers normalise each head of Q and K, with a weight of its own."""


def hparams(keys: ArchKeys) -> Hparams:
    """The numbers of a model."""
    hp = read_common(keys, rope_mode=ROPE_NORM, eps_key=LAYER_NORM_EPS)
    check_heads_alike(keys, hp, rotates_all=False)
    return replace(hp, logit_scale=keys.number("logit_scale", 0.0))


def weights(hp: Hparams) -> tuple[WeightKind, ...]:
    """What is asked of a file."""
    table = WeightList()
    table.embedding_and_head(hp, tied=True)
    for il, layer in enumerate(hp.layers):
        table.norm(il, "attn_norm", hp.n_embd)
        if hp.n_layer >= NORMS_HEADS_FROM:
            with table.asked_by("block_count"):
                _head_norm_weights(table, layer, il)
        qkv_weights(table, hp, il)
        table.matrix(il, "attn_output", layer.n_embd_attended, hp.n_embd)
        ffn_weights(table, hp, il)
    return table.finish()


def _head_norm_weights(table: WeightList, layer: LayerHparams, il: int) -> None:
    for name, n_head in (("attn_q_norm", layer.n_head), ("attn_k_norm", layer.n_head_kv)):
        table.layer(il, f"{name}.weight", Op.MUL, layer.n_embd_head_k, n_head)


def build(ctx: GraphContext) -> BuiltGraph:
    """The graph of one batch."""
    return decoder(ctx, _layer, layer_norm)


def _layer(ctx: GraphContext, x: Tensor, il: int) -> Tensor:
    normed = layer_norm(ctx, x, "attn_norm", "attn_norm", il)
    parts = rotate(ctx, _norm_heads(ctx, qkv(ctx, normed, il), il), il)
    attended = attention(ctx, parts, scale=head_scale(ctx, il), il=il)
    attended, x, normed = keep_outputs(ctx, il, attended, x, normed)
    fed = dense_ffn(ctx, normed, il)
    return ctx.named(ops.add(ops.add(fed, x), attended), "l_out", il)


def _norm_heads(ctx: GraphContext, parts: Qkv, il: int) -> Qkv:
    if ctx.hparams.n_layer < NORMS_HEADS_FROM:
        return parts
    return parts._replace(
        q=layer_norm(ctx, parts.q, "attn_q_norm", "Qcur", il),
        k=layer_norm(ctx, parts.k, "attn_k_norm", "Kcur", il),
    )
