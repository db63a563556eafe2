"""How the embeddings of a text's tokens become one. Source: llama-graph.cpp, build_pooling."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.core import build
from engine.core.types import TensorType
from engine.model.blocks.graph_context import InputKind
from engine.model.hparams_parts import Pooling

if TYPE_CHECKING:
    from engine.core.tensor import Tensor
    from engine.model.blocks.graph_context import BuiltGraph, GraphContext


def finish_pooled(ctx: GraphContext, x: Tensor) -> BuiltGraph:
    """The graph that ends in the embeddings of x [n_embd, t]: one a token, or one a text."""
    return ctx.finish(ctx.named(_pooled(ctx, x), "result_embd_pooled"))


def _pooled(ctx: GraphContext, x: Tensor) -> Tensor:
    n_texts = ctx.shape.n_seqs
    match ctx.pooling:
        case Pooling.MEAN:
            shares = ctx.input(InputKind.MEAN, TensorType.F32, ctx.shape.n_tokens, n_texts)
            return build.mul_mat(build.cont(build.transpose(x)), shares)
        case Pooling.CLS | Pooling.LAST:
            return build.get_rows(x, ctx.input(InputKind.CLS, TensorType.I32, n_texts))
    return x
