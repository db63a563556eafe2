"""bert: an encoder that has an embedding for each position.

Source: llama.cpp src/models/bert.cpp; ARCH.md 6.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.core import build as ops
from engine.core.ops import Op, UnaryOp
from engine.model.blocks.decoder import run_layers
from engine.model.blocks.encoder import (
    add_token_type,
    attention_weights,
    embedding_norm,
    embedding_weights,
    encoder_layer,
    finish_with_embeddings,
)
from engine.model.blocks.ffn import plain_ffn
from engine.model.blocks.inputs import embed_tokens, positions
from engine.model.blocks.qkv import qkv
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
    return read_encoder(keys, has_positions=True)


def weights(hp: Hparams) -> tuple[WeightKind, ...]:
    """What is asked of a file."""
    table = WeightList()
    embedding_weights(table, hp)
    table.input("position_embd.weight", Op.GET_ROWS, hp.n_embd, hp.n_ctx_train)
    table.classifier(hp, has_hidden=True)
    for il, layer in enumerate(hp.layers):
        attention_weights(table, hp, il)
        for name, n_in, n_out in (
            ("ffn_up", hp.n_embd, layer.n_ff),
            ("ffn_down", layer.n_ff, hp.n_embd),
        ):
            table.matrix(il, name, n_in, n_out)
            table.bias(il, name, n_out)
        table.biased_norm(il, "layer_output_norm", hp.n_embd)
    return table.finish()


def build(ctx: GraphContext) -> BuiltGraph:
    """The graph of one batch."""
    x = add_token_type(ctx, embed_tokens(ctx))
    x = ops.add(ops.get_rows(ctx.weight("position_embd"), positions(ctx)), x)
    return finish_with_embeddings(ctx, run_layers(ctx, embedding_norm(ctx, x), _layer))


def _layer(ctx: GraphContext, x: Tensor, il: int) -> Tensor:
    return encoder_layer(ctx, x, qkv(ctx, x, il), _feed_forward, il)


def _feed_forward(ctx: GraphContext, x: Tensor, il: int) -> Tensor:
    return plain_ffn(ctx, x, UnaryOp.GELU, il)
