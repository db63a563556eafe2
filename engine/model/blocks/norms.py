"""Normalisation with its weight."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from engine.core import build

if TYPE_CHECKING:
    from engine.core.tensor import Tensor
    from engine.model.blocks.graph_context import GraphContext


class Norm(Protocol):
    """(context, x, weight, name, layer) -> x normalised, as `rms_norm` and `layer_norm` do it."""

    def __call__(
        self, ctx: GraphContext, x: Tensor, weight: str, name: str, il: int = -1, /
    ) -> Tensor:
        """The result, called `name`."""
        ...


def rms_norm(
    ctx: GraphContext,
    x: Tensor,
    weight: str,
    name: str,
    il: int = -1,
    *,
    named_for_layer: bool = True,
) -> Tensor:
    """Rows of x normalised and multiplied by the weight called `weight`; the result is `name`.

    `named_for_layer`: whether the bare norm has the layer in its name, which lets it be pinned.
    """
    norm_il = il if named_for_layer else -1
    normed = ctx.named(build.rms_norm(x, ctx.hparams.norm_eps), "norm", norm_il)
    return ctx.named(build.mul(normed, ctx.weight(weight, il)), name, il)


def layer_norm(ctx: GraphContext, x: Tensor, weight: str, name: str, il: int = -1) -> Tensor:
    """Rows of x less their mean, normalised, times a weight, plus a bias if there is one.

    The result has no name where `name` is empty.
    """
    normed = ctx.named(build.norm(x, ctx.hparams.norm_eps), "norm", il)
    weighed = build.mul(normed, ctx.weight(weight, il))
    bias = ctx.optional(weight, il, "bias")
    if bias is None:
        return ctx.named(weighed, name, il)
    biased = build.add(ctx.named(weighed, "norm_w", il), bias)
    return ctx.named(biased, name, il) if name else biased
