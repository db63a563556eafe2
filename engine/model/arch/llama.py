"""llama: RMS norm, rotary attention with grouped heads, gated feed-forward.

Source: llama.cpp src/models/llama.cpp; ARCH.md 1 and 2.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from engine.core import build as ops
from engine.core.ops import Op
from engine.core.types import TensorType
from engine.model.blocks import (
    BuiltGraph,
    GraphContext,
    attention,
    embed_tokens,
    gated_ffn,
    keep_outputs,
    qkv,
    rms_norm,
)
from engine.model.weights import LayerClass, WeightKind

if TYPE_CHECKING:
    from engine.core.tensor import Tensor

_INPUT, _OUTPUT, _LAYER = LayerClass.INPUT, LayerClass.OUTPUT, LayerClass.REPEATING

WEIGHTS = (
    WeightKind("token_embd.weight", _INPUT, Op.GET_ROWS, ("n_embd", "n_vocab")),
    WeightKind("output_norm.weight", _OUTPUT, Op.MUL, ("n_embd",)),
    WeightKind("output.weight", _OUTPUT, Op.MUL_MAT, ("n_embd", "n_vocab")),
    WeightKind("blk.{il}.attn_norm.weight", _LAYER, Op.MUL, ("n_embd",)),
    WeightKind("blk.{il}.attn_q.weight", _LAYER, Op.MUL_MAT, ("n_embd", "n_embd_q")),
    WeightKind("blk.{il}.attn_q.bias", _LAYER, Op.ADD, ("n_embd_q",), required=False),
    WeightKind("blk.{il}.attn_k.weight", _LAYER, Op.MUL_MAT, ("n_embd", "n_embd_kv")),
    WeightKind("blk.{il}.attn_k.bias", _LAYER, Op.ADD, ("n_embd_kv",), required=False),
    WeightKind("blk.{il}.attn_v.weight", _LAYER, Op.MUL_MAT, ("n_embd", "n_embd_kv")),
    WeightKind("blk.{il}.attn_v.bias", _LAYER, Op.ADD, ("n_embd_kv",), required=False),
    WeightKind("blk.{il}.attn_output.weight", _LAYER, Op.MUL_MAT, ("n_embd_q", "n_embd")),
    WeightKind("blk.{il}.attn_output.bias", _LAYER, Op.ADD, ("n_embd",), required=False),
    WeightKind("blk.{il}.ffn_norm.weight", _LAYER, Op.MUL, ("n_embd",)),
    WeightKind("rope_freqs.weight", _LAYER, Op.ROPE, ("n_rope_freqs",), required=False),
    WeightKind("blk.{il}.ffn_gate.weight", _LAYER, Op.MUL_MAT, ("n_embd", "n_ff")),
    WeightKind("blk.{il}.ffn_gate.bias", _LAYER, Op.ADD, ("n_ff",), required=False),
    WeightKind("blk.{il}.ffn_down.weight", _LAYER, Op.MUL_MAT, ("n_ff", "n_embd")),
    WeightKind("blk.{il}.ffn_down.bias", _LAYER, Op.ADD, ("n_embd",), required=False),
    WeightKind("blk.{il}.ffn_up.weight", _LAYER, Op.MUL_MAT, ("n_embd", "n_ff")),
    WeightKind("blk.{il}.ffn_up.bias", _LAYER, Op.ADD, ("n_ff",), required=False),
)


def build(ctx: GraphContext) -> BuiltGraph:
    """The graph of one batch."""
    x = embed_tokens(ctx)
    for il in range(ctx.hparams.n_layer):
        x = _layer(ctx, x, il)
    normed = ctx.named(rms_norm(ctx, x, ctx.weight("output_norm"), -1), "result_norm")
    logits = ctx.named(ops.mul_mat(ctx.weight("output"), normed), "result_output")
    return ctx.finish(logits)


def _layer(ctx: GraphContext, x: Tensor, il: int) -> Tensor:
    normed = ctx.named(rms_norm(ctx, x, ctx.weight("attn_norm", il), il), "attn_norm", il)
    attended = ctx.named(_attention(ctx, normed, il), "attn_out", il)
    if il == ctx.hparams.n_layer - 1:
        attended, x = keep_outputs(ctx, attended, x)
    joined = ctx.named(ops.add(attended, x), "ffn_inp", il)
    normed = ctx.named(rms_norm(ctx, joined, ctx.weight("ffn_norm", il), il), "ffn_norm", il)
    hidden = ctx.named(gated_ffn(ctx, normed, il), "ffn_out", il)
    return ctx.named(ops.add(hidden, joined), "l_out", il)


def _attention(ctx: GraphContext, x: Tensor, il: int) -> Tensor:
    positions = ctx.input("inp_pos", TensorType.I32, ctx.shape.n_tokens)
    factors = ctx.optional("rope_freqs", il)
    q, k, v = qkv(ctx, x, il)
    q = ctx.named(ops.rope(q, positions, factors, ctx.hparams.rope), "Qcur", il)
    k = ctx.named(ops.rope(k, positions, factors, ctx.hparams.rope), "Kcur", il)
    return attention(ctx, q, k, v, scale=1.0 / math.sqrt(ctx.hparams.n_embd_head), il=il)
