"""phi3: queries, keys and values from one matrix, gate and up from another.

Its sliding window is read by nobody, as in llama.cpp.
Source: llama.cpp src/models/phi3.cpp; ARCH.md 2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.core import build as ops
from engine.core.ops import ROPE_NEOX, GluOp, Op
from engine.model.blocks.attention import attention, head_scale
from engine.model.blocks.decoder import decoder
from engine.model.blocks.ffn import fused_ffn
from engine.model.blocks.inputs import keep_outputs
from engine.model.blocks.norms import rms_norm
from engine.model.blocks.qkv import LONG_AND_SHORT, qkv, qkv_weights, rope_factors, rotate
from engine.model.blocks.weight_list import WeightList
from engine.model.hparams import check_heads_alike, read_common

if TYPE_CHECKING:
    from engine.core.tensor import Tensor
    from engine.model.arch_keys import ArchKeys
    from engine.model.blocks.graph_context import BuiltGraph, GraphContext
    from engine.model.hparams import Hparams
    from engine.model.weights import WeightKind


def hparams(keys: ArchKeys) -> Hparams:
    """The numbers of a model."""
    hp = read_common(keys, rope_mode=ROPE_NEOX)
    check_heads_alike(keys, hp, rotates_all=False)
    return hp


def weights(hp: Hparams) -> tuple[WeightKind, ...]:
    """What is asked of a file."""
    table = WeightList()
    table.embedding_and_head(hp)
    for il, layer in enumerate(hp.layers):
        table.norm(il, "attn_norm", hp.n_embd)
        qkv_weights(table, hp, il)
        table.matrix(il, "attn_output", layer.n_embd_attended, hp.n_embd)
        table.norm(il, "ffn_norm", hp.n_embd)
        table.matrix(il, "ffn_down", layer.n_ff, hp.n_embd)
        table.matrix(il, "ffn_up", hp.n_embd, 2 * layer.n_ff)
        for name in LONG_AND_SHORT:
            table.shared(il, f"{name}.weight", Op.ROPE, hp.n_rope_freqs, required=False)
    return table.finish()


def build(ctx: GraphContext) -> BuiltGraph:
    """The graph of one batch."""
    return decoder(ctx, _layer)


def _layer(ctx: GraphContext, x: Tensor, il: int) -> Tensor:
    normed = rms_norm(ctx, x, "attn_norm", "attn_norm", il)
    parts = rotate(ctx, qkv(ctx, normed, il), il, rope_factors(ctx, il))
    scaled = ops.scale(parts.q, head_scale(ctx, il))
    parts = parts._replace(q=ctx.named(scaled, "Qcur", il))
    attended, x = keep_outputs(ctx, il, attention(ctx, parts, scale=1.0, il=il), x)
    joined = ops.add(attended, x)
    normed = rms_norm(ctx, joined, "ffn_norm", "ffn_norm", il)
    fed = ctx.named(fused_ffn(ctx, normed, GluOp.SWIGLU, il), "ffn_out", il)
    return ctx.named(ops.add(joined, fed), "l_out", il)
