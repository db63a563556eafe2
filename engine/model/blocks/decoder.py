"""The frame of a decoder: token embeddings, layers, logits, and the second half of a layer."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from engine.core import build
from engine.model.blocks.head import finish_with_logits
from engine.model.blocks.inputs import embed_tokens
from engine.model.blocks.norms import Norm, rms_norm

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.core.tensor import Tensor
    from engine.model.blocks.graph_context import BuiltGraph, GraphContext

LayerStep: TypeAlias = "Callable[[GraphContext, Tensor, int], Tensor]"
"""(context, x, layer) -> what the layer, or a part of it, makes of x."""


def decoder(ctx: GraphContext, layer: LayerStep, norm: Norm = rms_norm) -> BuiltGraph:
    """The graph of one batch: token embeddings through every layer to logits."""
    return finish_with_logits(ctx, run_layers(ctx, embed_tokens(ctx), layer), norm)


def run_layers(ctx: GraphContext, x: Tensor, layer: LayerStep) -> Tensor:
    """What the last layer makes of x."""
    for il in range(ctx.hparams.n_layer):
        x = layer(ctx, x, il)
    return x


def feed_forward_half(
    ctx: GraphContext,
    attended: Tensor,
    x: Tensor,
    il: int,
    feed_forward: LayerStep,
    norm: Norm = rms_norm,
) -> Tensor:
    """The layer from what attention gave on: added to x, normalised, fed forward, added again."""
    joined = ctx.named(build.add(attended, x), "ffn_inp", il)
    normed = norm(ctx, joined, "ffn_norm", "ffn_norm", il)
    return ctx.named(build.add(feed_forward(ctx, normed, il), joined), "l_out", il)
