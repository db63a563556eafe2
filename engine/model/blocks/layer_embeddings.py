"""Embeddings that each layer has for itself: looked up, projected, gated. Source: ARCH.md 3."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from engine.core import build
from engine.core.ops import Op, UnaryOp
from engine.core.types import TensorType
from engine.model.blocks.graph_context import InputKind
from engine.model.blocks.norms import rms_norm

if TYPE_CHECKING:
    from engine.core.tensor import Tensor
    from engine.model.blocks.graph_context import GraphContext
    from engine.model.blocks.weight_list import WeightList
    from engine.model.hparams import Hparams


def lookup_weights(weights: WeightList, hp: Hparams) -> None:
    """The table, which is the CPU's, and the projection, which counts as the first layer's."""
    n_embd, n_all = hp.n_embd_per_layer, hp.n_embd_per_layer * hp.n_layer
    weights.input("per_layer_token_embd.weight", Op.GET_ROWS, n_all, hp.n_vocab)
    weights.shared(0, "per_layer_model_proj.weight", Op.MUL_MAT, hp.n_embd, n_all)
    weights.shared(0, "per_layer_proj_norm.weight", Op.MUL, n_embd)


def gate_weights(weights: WeightList, hp: Hparams, il: int) -> None:
    """What a layer's embedding goes through on its way in."""
    weights.matrix(il, "inp_gate", hp.n_embd, hp.n_embd_per_layer)
    weights.matrix(il, "proj", hp.n_embd_per_layer, hp.n_embd)
    weights.norm(il, "post_norm", hp.n_embd)


def layer_embeddings(ctx: GraphContext, x: Tensor) -> Tensor:
    """f32 [n_embd_per_layer, t, n_layer] of the tokens, whose scaled embeddings are x."""
    looked_up = _lookup(ctx)
    ctx.builder.expand(looked_up)
    projected = build.mul_mat(ctx.weight("per_layer_model_proj", 0), x)
    projected = build.scale(projected, 1.0 / math.sqrt(ctx.hparams.n_embd))
    normed = build.rms_norm(build.reshape(projected, *looked_up.ne), ctx.hparams.norm_eps)
    weight = ctx.weight("per_layer_proj_norm", 0)
    projected = ctx.named(build.mul(ctx.named(normed, "norm"), weight), "per_layer_proj")
    mean = build.scale(build.add(projected, looked_up), 1.0 / math.sqrt(2.0))
    return build.cont(build.permute(ctx.named(mean, "inp_per_layer"), (0, 2, 1, 3)))


def _lookup(ctx: GraphContext) -> Tensor:
    """f32 [n_embd_per_layer, n_layer, t] of the table."""
    n_embd, n_tokens = ctx.hparams.n_embd_per_layer, ctx.shape.n_tokens
    tokens = ctx.input(InputKind.LAYER_TOKENS, TensorType.I32, n_tokens)
    rows = build.get_rows(ctx.weight("per_layer_token_embd"), tokens)
    rows = build.reshape(rows, n_embd, ctx.hparams.n_layer, n_tokens)
    return ctx.named(build.scale(rows, math.sqrt(n_embd)), "inp_per_layer_selected")


def add_layer_embedding(ctx: GraphContext, x: Tensor, embeddings: Tensor, il: int) -> Tensor:
    """The sum of x [n_embd, t] and what it lets in of layer `il`'s embedding."""
    gate = build.unary(build.mul_mat(ctx.weight("inp_gate", il), x), UnaryOp.GELU)
    n_embd, n_tokens = embeddings.ne[:2]
    own = build.view(embeddings, (n_embd, n_tokens), (embeddings.nb[1],), il * embeddings.nb[2])
    let_in = build.mul_mat(ctx.weight("proj", il), build.mul(gate, own))
    return build.add(x, rms_norm(ctx, let_in, "post_norm", "per_layer_embd_out", il))
