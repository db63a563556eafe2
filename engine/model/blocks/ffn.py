"""Feed-forward, with a gate or without. Source: ARCH.md 1.10."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.core import build
from engine.core.ops import GluOp, Precision, UnaryOp

if TYPE_CHECKING:
    from engine.core.tensor import Tensor
    from engine.model.blocks.graph_context import GraphContext
    from engine.model.blocks.weight_list import WeightList
    from engine.model.hparams import Hparams


SHARED = "_shexp"
"""What the weights of the expert that every token uses have behind their names."""


def ffn_weights(weights: WeightList, hp: Hparams, il: int) -> None:
    """Gate, down and up."""
    _gated_weights(weights, hp, il, hp.every_layer[il].n_ff, "")


def shared_expert_weights(weights: WeightList, hp: Hparams, il: int) -> None:
    """Gate, down and up of the expert that every token uses."""
    _gated_weights(weights, hp, il, hp.n_ff_shared, SHARED)


def _gated_weights(weights: WeightList, hp: Hparams, il: int, n_ff: int, suffix: str) -> None:
    weights.matrix(il, f"ffn_gate{suffix}", hp.n_embd, n_ff)
    weights.matrix(il, f"ffn_down{suffix}", n_ff, hp.n_embd)
    weights.matrix(il, f"ffn_up{suffix}", hp.n_embd, n_ff)


def ffn_biases(weights: WeightList, hp: Hparams, il: int) -> None:
    """Biases of gate, down and up, which a file may have."""
    n_ff = hp.every_layer[il].n_ff
    weights.bias(il, "ffn_gate", n_ff)
    weights.bias(il, "ffn_down", hp.n_embd)
    weights.bias(il, "ffn_up", n_ff)


def gated_ffn(
    ctx: GraphContext,
    x: Tensor,
    kind: GluOp,
    il: int,
    *,
    suffix: str = "",
    precision: Precision = Precision.DEFAULT,
) -> Tensor:
    """down(act(gate(x)) * up(x)), with biases where the model has them.

    `suffix` stands behind the names of its weights; `precision` is that of the last product.
    """
    gate = _with_bias(ctx, "ffn_gate", x, il, suffix)
    up = _with_bias(ctx, "ffn_up", x, il, suffix)
    hidden = ctx.named(build.glu_split(gate, up, kind), f"ffn_{kind.value.lower()}", il)
    return _down(ctx, hidden, il, suffix, precision)


def dense_ffn(ctx: GraphContext, x: Tensor, il: int) -> Tensor:
    """The feed-forward that most layers have: gated by silu, called ffn_out."""
    return ctx.named(gated_ffn(ctx, x, GluOp.SWIGLU, il), "ffn_out", il)


def shared_expert(
    ctx: GraphContext, x: Tensor, il: int, *, precision: Precision = Precision.DEFAULT
) -> Tensor:
    """The answer of the expert that every token uses."""
    return gated_ffn(ctx, x, GluOp.SWIGLU, il, suffix=SHARED, precision=precision)


def fused_ffn(ctx: GraphContext, x: Tensor, kind: GluOp, il: int) -> Tensor:
    """A gated feed-forward whose gate is the first half of what up gives."""
    up = _with_bias(ctx, "ffn_up", x, il)
    return _down(ctx, ctx.named(build.glu(up, kind), f"ffn_{kind.value.lower()}", il), il)


def plain_ffn(ctx: GraphContext, x: Tensor, kind: UnaryOp, il: int) -> Tensor:
    """down(act(up(x))), with biases where the model has them."""
    up = _with_bias(ctx, "ffn_up", x, il)
    return _down(ctx, ctx.named(build.unary(up, kind), f"ffn_{kind.value.lower()}", il), il)


def _with_bias(ctx: GraphContext, name: str, x: Tensor, il: int, suffix: str = "") -> Tensor:
    cur = ctx.named(build.mul_mat(ctx.weight(f"{name}{suffix}", il), x), name, il)
    bias = ctx.optional(f"{name}{suffix}", il, "bias")
    return cur if bias is None else ctx.named(build.add(cur, bias), f"{name}_b", il)


def _down(
    ctx: GraphContext,
    hidden: Tensor,
    il: int,
    suffix: str = "",
    precision: Precision = Precision.DEFAULT,
) -> Tensor:
    weight = ctx.weight(f"ffn_down{suffix}", il)
    down = build.mul_mat(weight, hidden, precision=precision)
    bias = ctx.optional(f"ffn_down{suffix}", il, "bias")
    return down if bias is None else build.add(ctx.named(down, "ffn_down", il), bias)
