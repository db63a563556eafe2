"""Where graphs begin: token embeddings, positions, and the rows that give logits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.core import build
from engine.core.types import TensorType
from engine.model.blocks.graph_context import InputKind

if TYPE_CHECKING:
    from engine.core.tensor import Tensor
    from engine.model.blocks.graph_context import GraphContext


def embed_tokens(ctx: GraphContext) -> Tensor:
    """f32 [n_embd, n_tokens]; the input for ready-made embeddings is a leaf beside it."""
    n_tokens = ctx.shape.n_tokens
    tokens = ctx.input(InputKind.TOKENS, TensorType.I32, n_tokens)
    embeddings = build.get_rows(ctx.weight("token_embd"), tokens)
    factor = ctx.hparams.embedding_scale
    if not factor:
        ctx.named(embeddings, "embd")
    ctx.builder.expand(embeddings)
    n_embd = ctx.hparams.n_embd
    ctx.builder.expand(ctx.input(InputKind.EMBEDDINGS, TensorType.F32, n_embd, n_tokens))
    if factor:
        embeddings = ctx.named(build.scale(embeddings, factor), "embd")
        ctx.builder.expand(embeddings)
    return embeddings


def positions(ctx: GraphContext) -> Tensor:
    """i32 [n_tokens], or four blocks of that size where the rotation takes four."""
    n_positions = ctx.shape.n_tokens * ctx.hparams.n_pos_per_token
    return ctx.input(InputKind.POSITIONS, TensorType.I32, n_positions)


def temperature(ctx: GraphContext) -> Tensor:
    """What the query of each token is multiplied by, f32 [1, 1, n_tokens]."""
    return ctx.input(InputKind.TEMPERATURE, TensorType.F32, 1, 1, ctx.shape.n_tokens)


def keep_outputs(ctx: GraphContext, il: int, *tensors: Tensor) -> tuple[Tensor, ...]:
    """In the last layer the rows of each tensor that give logits, else the tensors themselves."""
    if not ctx.is_last(il):
        return tensors
    return tuple(pick_outputs(ctx, tensor) for tensor in tensors)


def pick_outputs(ctx: GraphContext, x: Tensor) -> Tensor:
    """The rows of x that give logits."""
    out_ids = ctx.input(InputKind.OUT_IDS, TensorType.I32, ctx.shape.n_outputs)
    return build.get_rows(x, out_ids)
