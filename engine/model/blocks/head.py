"""Where graphs end: the last norm and the logits, or embeddings. Source: ARCH.md 1.12."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.core import build
from engine.core.ops import UnaryOp
from engine.model.blocks.inputs import pick_outputs
from engine.model.blocks.norms import Norm, rms_norm
from engine.model.blocks.pooling import finish_pooled

if TYPE_CHECKING:
    from engine.core.tensor import Tensor
    from engine.model.blocks.graph_context import BuiltGraph, GraphContext


def finish_with_logits(ctx: GraphContext, x: Tensor, norm: Norm = rms_norm) -> BuiltGraph:
    """The graph that ends in the logits of x, scaled or kept within a cap as the model has it.

    Where embeddings are wanted it ends in those, which are what the last norm gives.
    """
    return _finish(ctx, norm(ctx, x, "output_norm", "result_norm"))


def finish_with_picked_rows(ctx: GraphContext, x: Tensor) -> BuiltGraph:
    """The same of every row of x up to the last norm, after which the wanted ones are picked."""
    normed = rms_norm(ctx, x, "output_norm", "h_nextn")
    ctx.keep(normed)
    return _finish(ctx, ctx.named(pick_outputs(ctx, normed), "result_norm"))


def _finish(ctx: GraphContext, normed: Tensor) -> BuiltGraph:
    logits = build.mul_mat(ctx.weight("output"), ctx.keep(normed))
    bias = ctx.optional("output", suffix="bias")
    if bias is not None:
        logits = build.add(logits, bias)
    if ctx.hparams.logit_scale:
        logits = build.scale(logits, ctx.hparams.logit_scale)
    cap = ctx.hparams.final_logit_softcap
    if cap:
        bent = build.unary(build.scale(logits, 1.0 / cap), UnaryOp.TANH)
        logits = build.scale(bent, cap)
    ctx.named(logits, "result_output")
    if ctx.pooling is None:
        return ctx.finish(logits)
    # llama.cpp computes the logits of every token all the same.
    ctx.builder.expand(ctx.keep(logits))
    return finish_pooled(ctx, normed)
