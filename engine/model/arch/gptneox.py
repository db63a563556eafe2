"""gptneox: layer norms with biases, attention and feed-forward beside or after one another.

Source: llama.cpp src/models/gptneox.cpp; ARCH.md 2.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from engine.core import build as ops
from engine.core.ops import ROPE_NEOX, Op, UnaryOp
from engine.model.blocks.attention import attention, head_scale
from engine.model.blocks.decoder import decoder
from engine.model.blocks.ffn import plain_ffn
from engine.model.blocks.inputs import keep_outputs
from engine.model.blocks.norms import layer_norm
from engine.model.blocks.qkv import FUSED, qkv, rotate
from engine.model.blocks.weight_list import WeightList
from engine.model.hparams import LAYER_NORM_EPS, check_heads_alike, read_common

if TYPE_CHECKING:
    from engine.core.tensor import Tensor
    from engine.model.arch_keys import ArchKeys
    from engine.model.blocks.graph_context import BuiltGraph, GraphContext
    from engine.model.hparams import Hparams
    from engine.model.weights import WeightKind


def hparams(keys: ArchKeys) -> Hparams:
    """The numbers of a model."""
    hp = read_common(keys, rope_mode=ROPE_NEOX, eps_key=LAYER_NORM_EPS)
    check_heads_alike(keys, hp, rotates_all=False)
    return replace(hp, is_parallel=keys.flag("use_parallel_residual"))


def weights(hp: Hparams) -> tuple[WeightKind, ...]:
    """What is asked of a file."""
    table = WeightList()
    table.embedding_and_head(hp, tied=False)
    table.output("output_norm.bias", Op.ADD, hp.n_embd)
    for il, layer in enumerate(hp.layers):
        n_qkv = layer.n_embd_q + layer.n_embd_k + layer.n_embd_v
        table.biased_norm(il, "attn_norm", hp.n_embd)
        table.biased_matrix(il, FUSED, hp.n_embd, n_qkv)
        table.biased_matrix(il, "attn_output", layer.n_embd_attended, hp.n_embd)
        table.biased_norm(il, "ffn_norm", hp.n_embd)
        table.biased_matrix(il, "ffn_down", layer.n_ff, hp.n_embd)
        table.biased_matrix(il, "ffn_up", hp.n_embd, layer.n_ff)
    return table.finish()


def build(ctx: GraphContext) -> BuiltGraph:
    """The graph of one batch."""
    return decoder(ctx, _layer, layer_norm)


def _layer(ctx: GraphContext, x: Tensor, il: int) -> Tensor:
    normed = layer_norm(ctx, x, "attn_norm", "attn_norm", il)
    parts = rotate(ctx, qkv(ctx, normed, il), il)
    attended, x = keep_outputs(ctx, il, attention(ctx, parts, scale=head_scale(ctx, il), il=il), x)
    if ctx.hparams.is_parallel:
        fed = ctx.named(ops.add(_feed_forward(ctx, x, il), x), "ffn_out", il)
        return ctx.named(ops.add(fed, attended), "l_out", il)
    joined = ctx.named(ops.add(attended, x), "ffn_inp", il)
    return ctx.named(ops.add(_feed_forward(ctx, joined, il), joined), "l_out", il)


def _feed_forward(ctx: GraphContext, x: Tensor, il: int) -> Tensor:
    normed = layer_norm(ctx, x, "ffn_norm", "ffn_norm", il)
    return ctx.named(plain_ffn(ctx, normed, UnaryOp.GELU, il), "ffn_out", il)
