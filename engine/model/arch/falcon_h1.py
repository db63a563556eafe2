"""falcon-h1: attention and mamba2 side by side in every layer.

Source: llama.cpp src/models/falcon-h1.cpp; ARCH.md 5.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from engine.core import build as ops
from engine.core.ops import ROPE_NEOX, GluOp, Op
from engine.model.blocks.attention import attention, head_scale
from engine.model.blocks.decoder import run_layers
from engine.model.blocks.ffn import ffn_biases, ffn_weights, gated_ffn
from engine.model.blocks.head import finish_with_logits
from engine.model.blocks.inputs import embed_tokens, keep_outputs
from engine.model.blocks.mamba import mamba2, mamba2_weights
from engine.model.blocks.norms import rms_norm
from engine.model.blocks.qkv import qkv, qkv_weights, rotate
from engine.model.blocks.recurrent import state_rows
from engine.model.blocks.weight_list import WeightList
from engine.model.hparams import check_heads_alike, read_common
from engine.model.hparams_recurrent import with_recurrence

if TYPE_CHECKING:
    from engine.core.tensor import Tensor
    from engine.model.arch_keys import ArchKeys
    from engine.model.blocks.graph_context import BuiltGraph, GraphContext
    from engine.model.blocks.recurrent import StateRows
    from engine.model.hparams import Hparams
    from engine.model.weights import WeightKind


def hparams(keys: ArchKeys) -> Hparams:
    """The numbers of a model."""
    hp = read_common(keys, rope_mode=ROPE_NEOX)
    check_heads_alike(keys, hp, rotates_all=False)
    return with_recurrence(keys, hp, [True] * hp.n_layer, has_groups=True)


def weights(hp: Hparams) -> tuple[WeightKind, ...]:
    """What is asked of a file; the norm before the feed-forward has no suffix."""
    table = WeightList()
    table.embedding_and_head(hp)
    for il, layer in enumerate(hp.layers):
        mamba2_weights(table, hp, il)
        qkv_weights(table, hp, il)
        table.matrix(il, "attn_output", layer.n_embd_attended, hp.n_embd)
        table.bias(il, "attn_output", hp.n_embd)
        table.norm(il, "attn_norm", hp.n_embd)
        table.layer(il, "ffn_norm", Op.MUL, hp.n_embd)
        ffn_weights(table, hp, il)
        ffn_biases(table, hp, il)
    return table.finish()


def build(ctx: GraphContext) -> BuiltGraph:
    """The graph of one batch."""
    x = embed_tokens(ctx)
    layer = partial(_layer, rows=state_rows(ctx))
    return finish_with_logits(ctx, run_layers(ctx, x, layer))


def _layer(ctx: GraphContext, x: Tensor, il: int, rows: StateRows) -> Tensor:
    attended = _attention(ctx, x, il)
    given = rms_norm(ctx, x, "attn_norm", "ssm_in", il)
    scanned = ctx.named(mamba2(ctx, given, rows, il), "ssm_out", il)
    both = ctx.named(ops.add(attended, scanned), "layer_out", il)
    (joined,) = keep_outputs(ctx, il, ops.add(both, x))
    ctx.named(joined, "ffn_inp", il)
    normed = ctx.named(ops.rms_norm(joined, ctx.hparams.norm_eps), "norm", il)
    normed = ctx.named(ops.mul(normed, ctx.weight("ffn_norm", il, "")), "ffn_norm", il)
    fed = ctx.named(gated_ffn(ctx, normed, GluOp.SWIGLU, il), "ffn_out", il)
    return ctx.named(ops.add(fed, joined), "l_out", il)


def _attention(ctx: GraphContext, x: Tensor, il: int) -> Tensor:
    normed = rms_norm(ctx, x, "attn_norm", "attn_norm", il)
    parts = rotate(ctx, qkv(ctx, normed, il), il)
    for tensor, name in zip(parts, ("Qcur", "Kcur", "Vcur"), strict=True):
        ctx.named(tensor, f"{name}-post-rope", il)
    return ctx.named(attention(ctx, parts, scale=head_scale(ctx, il), il=il), "attn_out", il)
