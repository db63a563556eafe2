"""qwen3: norms over the heads of Q and K.

Source: llama.cpp src/models/qwen3.cpp; ARCH.md 2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.core.ops import ROPE_NEOX
from engine.model.blocks.attention import attention, head_scale
from engine.model.blocks.decoder import decoder, feed_forward_half
from engine.model.blocks.ffn import dense_ffn, ffn_weights
from engine.model.blocks.inputs import keep_outputs
from engine.model.blocks.norms import rms_norm
from engine.model.blocks.qkv import head_norm_weights, norm_heads, qkv, qkv_weights, rotate
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
    check_heads_alike(keys, hp, rotates_all=True)
    return hp


def weights(hp: Hparams) -> tuple[WeightKind, ...]:
    """What is asked of a file."""
    table = WeightList()
    table.embedding_and_head(hp)
    table.classifier(hp, has_hidden=False)
    for il, layer in enumerate(hp.layers):
        table.norm(il, "attn_norm", hp.n_embd)
        qkv_weights(table, hp, il)
        table.matrix(il, "attn_output", layer.n_embd_attended, hp.n_embd)
        head_norm_weights(table, hp, il)
        table.norm(il, "ffn_norm", hp.n_embd)
        ffn_weights(table, hp, il)
    return table.finish()


def build(ctx: GraphContext) -> BuiltGraph:
    """The graph of one batch."""
    return decoder(ctx, _layer)


def _layer(ctx: GraphContext, x: Tensor, il: int) -> Tensor:
    normed = rms_norm(ctx, x, "attn_norm", "attn_norm", il)
    parts = rotate(ctx, norm_heads(ctx, qkv(ctx, normed, il), il), il)
    attended, x = keep_outputs(ctx, il, attention(ctx, parts, scale=head_scale(ctx, il), il=il), x)
    return feed_forward_half(ctx, attended, x, il, dense_ffn)
