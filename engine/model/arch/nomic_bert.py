"""nomic-bert: an encoder that rotates queries and keys, with a gated feed-forward.

Source: llama.cpp src/models/nomic-bert.cpp; ARCH.md 6.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.core.ops import GluOp
from engine.model.blocks.decoder import run_layers
from engine.model.blocks.encoder import (
    add_token_type,
    attention_weights,
    embedding_norm,
    embedding_weights,
    encoder_layer,
    finish_with_embeddings,
)
from engine.model.blocks.ffn import ffn_weights, gated_ffn
from engine.model.blocks.inputs import embed_tokens
from engine.model.blocks.qkv import qkv, rotate
from engine.model.blocks.weight_list import WeightList
from engine.model.hparams_encoder import read_encoder

if TYPE_CHECKING:
    from engine.core.tensor import Tensor
    from engine.model.arch_keys import ArchKeys
    from engine.model.blocks.graph_context import BuiltGraph, GraphContext
    from engine.model.hparams import Hparams
    from engine.model.weights import WeightKind


def hparams(keys: ArchKeys) -> Hparams:
    """The numbers of a model."""
    return read_encoder(keys, has_positions=False)


def weights(hp: Hparams) -> tuple[WeightKind, ...]:
    """What is asked of a file."""
    table = WeightList()
    embedding_weights(table, hp)
    for il in range(hp.n_layer):
        attention_weights(table, hp, il)
        ffn_weights(table, hp, il)
        table.biased_norm(il, "layer_output_norm", hp.n_embd)
    return table.finish()


def build(ctx: GraphContext) -> BuiltGraph:
    """The graph of one batch."""
    x = embedding_norm(ctx, add_token_type(ctx, embed_tokens(ctx)))
    return finish_with_embeddings(ctx, run_layers(ctx, x, _layer))


def _layer(ctx: GraphContext, x: Tensor, il: int) -> Tensor:
    return encoder_layer(ctx, x, rotate(ctx, qkv(ctx, x, il), il), _feed_forward, il)


def _feed_forward(ctx: GraphContext, x: Tensor, il: int) -> Tensor:
    return gated_ffn(ctx, x, GluOp.SWIGLU, il)
