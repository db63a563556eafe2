"""Feed-forward of experts, of which each token uses a few. Source: ARCH.md 1.11."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from engine.core import build
from engine.core.ops import GluOp, Op, SoftMaxParams, UnaryOp
from engine.model.blocks.weight_list import WeightList
from engine.model.hparams_parts import Gating

if TYPE_CHECKING:
    from engine.core.tensor import Tensor
    from engine.model.blocks.graph_context import GraphContext
    from engine.model.hparams import Hparams

SMALLEST_SUM = 6.103515625e-5
"""The smallest normal number of half precision: no division by zero."""

BEST_OF_GROUP = 2
"""So many experts of a group speak for it."""

MERGED = "ffn_gate_up_exps"
"""The matrices of experts that give gate and up together."""


class Routing(NamedTuple):
    """Which experts each token uses, i32 [k, t], and how much each counts, f32 [1, k, t]."""

    experts: Tensor
    weights: Tensor


class Gated(NamedTuple):
    """What experts do between their matrices: the function, and its numbers if it has any."""

    kind: GluOp
    alpha: float = 0.0
    limit: float = 0.0


SWIGLU = Gated(GluOp.SWIGLU)


def moe_weights(
    weights: WeightList, hp: Hparams, il: int, *, n_ff: int, may_be_merged: bool = False
) -> None:
    """The router and the three matrices of every expert; `n_ff` is the width of one.

    `may_be_merged`: a file may have gate and up in one.
    """
    weights.matrix(il, "ffn_gate_inp", hp.n_embd, hp.n_expert)
    gate_and_up = WeightList()
    _experts(weights, hp, il, "ffn_down_exps", n_ff, hp.n_embd)
    _experts(gate_and_up, hp, il, "ffn_gate_exps", hp.n_embd, n_ff)
    _experts(gate_and_up, hp, il, "ffn_up_exps", hp.n_embd, n_ff)
    merged = ""
    if may_be_merged:
        merged = f"blk.{il}.{MERGED}.weight"
        _experts(weights, hp, il, MERGED, hp.n_embd, 2 * n_ff, required=False)
    weights.either(gate_and_up.finish(), merged)


def moe_biases(weights: WeightList, hp: Hparams, il: int, *, n_ff: int) -> None:
    """Biases of the router and of the three matrices of every expert."""
    weights.bias(il, "ffn_gate_inp", hp.n_expert, required=True)
    for name, n_out in (("gate", n_ff), ("down", hp.n_embd), ("up", n_ff)):
        weights.layer(il, f"ffn_{name}_exps.bias", Op.ADD_ID, n_out, hp.n_expert)


def _experts(
    weights: WeightList,
    hp: Hparams,
    il: int,
    name: str,
    n_in: int,
    n_out: int,
    *,
    required: bool = True,
) -> None:
    ne = (n_in, n_out, hp.n_expert)
    weights.layer(il, f"{name}.weight", Op.MUL_MAT_ID, *ne, required=required)


def moe_ffn(
    ctx: GraphContext, x: Tensor, il: int, gated: Gated = SWIGLU, *, logits: Tensor | None = None
) -> Tensor:
    """The experts' answers to x [n_embd, t], weighed and added up.

    `logits` are the router's, where it looks at something else than x.
    """
    routing = route(ctx, x, il, logits)
    ctx.builder.expand(routing.weights)
    rows = build.reshape(x, x.ne[0], 1, x.ne[1])
    weighs_input = ctx.hparams.routing.weighs_input
    if weighs_input:
        repeated = build.repeat(rows, x.ne[0], routing.experts.ne[0], x.ne[1])
        rows = ctx.named(build.mul(repeated, routing.weights), "ffn_moe_weighted", il)
    gate, up = _gate_and_up(ctx, rows, routing, il)
    hidden = build.glu_split(gate, up, gated.kind, alpha=gated.alpha, limit=gated.limit)
    ctx.named(hidden, f"ffn_moe_{gated.kind.value.lower()}", il)
    answers = _of_experts(ctx, "ffn_down_exps", hidden, routing, "ffn_moe_down", il)
    if not weighs_input:
        answers = ctx.named(build.mul(answers, routing.weights), "ffn_moe_weighted", il)
    ctx.builder.expand(answers)
    return ctx.named(_sum_of_experts(ctx, answers), "ffn_moe_out", il)


def _gate_and_up(
    ctx: GraphContext, rows: Tensor, routing: Routing, il: int
) -> tuple[Tensor, Tensor]:
    if ctx.optional(MERGED, il) is None:
        gate = _of_experts(ctx, "ffn_gate_exps", rows, routing, "ffn_moe_gate", il)
        return gate, _of_experts(ctx, "ffn_up_exps", rows, routing, "ffn_moe_up", il)
    both = _of_experts(ctx, MERGED, rows, routing, "ffn_moe_gate_up", il)
    n_ff, ne, nb = both.ne[0] // 2, both.ne, both.nb
    gate = build.view(both, (n_ff, ne[1], ne[2]), nb[1:3])
    up = build.view(both, (n_ff, ne[1], ne[2]), nb[1:3], n_ff * nb[0])
    return ctx.named(gate, "ffn_moe_gate", il), ctx.named(up, "ffn_moe_up", il)


def route(ctx: GraphContext, x: Tensor, il: int, logits: Tensor | None = None) -> Routing:
    """The experts of each token of x [n_embd, t], by the model's own rules."""
    n_expert, n_used = ctx.hparams.n_expert, ctx.layer(il).n_expert_used
    n_tokens = x.ne[1]
    logits = _logits(ctx, x, il) if logits is None else logits
    probs = ctx.named(_probabilities(logits, ctx.hparams.routing.gating), "ffn_moe_probs", il)
    order = build.argsort(_ranked(ctx, logits, probs, il), descending=True)
    ctx.named(order, "ffn_moe_argsort", il)
    best = build.view(order, (n_used, n_tokens), (order.nb[1],))
    experts = ctx.named(best, "ffn_moe_topk", il)
    picked = build.get_rows(build.reshape(probs, 1, n_expert, n_tokens), experts)
    return Routing(experts, _balanced(ctx, ctx.named(picked, "ffn_moe_weights", il), il))


def _logits(ctx: GraphContext, x: Tensor, il: int) -> Tensor:
    logits = ctx.named(build.mul_mat(ctx.weight("ffn_gate_inp", il), x), "ffn_moe_logits", il)
    bias = ctx.optional("ffn_gate_inp", il, "bias")
    if bias is None:
        return logits
    return ctx.named(build.add(logits, bias), "ffn_moe_logits_biased", il)


def _probabilities(logits: Tensor, gating: Gating) -> Tensor:
    match gating:
        case Gating.SOFTMAX:
            return build.soft_max(logits, None, SoftMaxParams())
        case Gating.SIGMOID:
            return build.unary(logits, UnaryOp.SIGMOID)
        case Gating.SOFTMAX_WEIGHT:
            return logits


def _ranked(ctx: GraphContext, logits: Tensor, probs: Tensor, il: int) -> Tensor:
    """What experts are chosen by; -inf in groups that are not looked at."""
    routing = ctx.hparams.routing
    ranks = logits if routing.weighs_input else probs
    bias = ctx.optional("exp_probs_b", il, "bias")
    if bias is not None:
        ranks = ctx.named(build.add(ranks, bias), "ffn_moe_probs_biased", il)
    return _best_groups(ctx, ranks, il) if routing.n_group > 1 else ranks


def _best_groups(ctx: GraphContext, ranks: Tensor, il: int) -> Tensor:
    """`ranks` with -inf outside of the groups whose two best experts have the largest sum."""
    n_expert, n_tokens, _, _ = ranks.ne
    n_group, n_used = ctx.hparams.routing.n_group, ctx.hparams.routing.n_group_used
    size = n_expert // n_group
    groups = build.reshape(ranks, size, n_group, n_tokens)
    elements = build.reshape(groups, 1, size, n_group, n_tokens)
    order = build.argsort(groups, descending=True)
    pairs = build.view(order, (BEST_OF_GROUP, n_group, n_tokens), order.nb[1:3])
    best = build.get_rows(elements, pairs)
    sums = build.sum_rows(build.reshape(best, *best.ne[1:]))
    scores = build.reshape(sums, n_group, n_tokens)
    order = build.argsort(scores, descending=True)
    chosen = build.view(order, (n_used, n_tokens), (order.nb[1],))
    ctx.named(chosen, "ffn_moe_group_topk", il)
    kept = build.set_rows(build.fill(groups, -math.inf), build.get_rows(groups, chosen), chosen)
    return ctx.named(build.reshape(kept, n_expert, n_tokens), "ffn_moe_probs_masked", il)


def _balanced(ctx: GraphContext, weights: Tensor, il: int) -> Tensor:
    """Weights [1, k, t] as they count."""
    routing = ctx.hparams.routing
    if routing.gating is Gating.SOFTMAX_WEIGHT:
        _, n_used, n_tokens, _ = weights.ne
        rows = build.soft_max(build.reshape(weights, n_used, n_tokens), None, SoftMaxParams())
        weights = build.reshape(rows, 1, n_used, n_tokens)
        ctx.named(weights, "ffn_moe_weights_softmax", il)
    if routing.normalises:
        weights = _normalised(ctx, weights, il)
    if routing.scale not in (0.0, 1.0):
        weights = ctx.named(build.scale(weights, routing.scale), "ffn_moe_weights_scaled", il)
    return weights


def _normalised(ctx: GraphContext, weights: Tensor, il: int) -> Tensor:
    """Weights [1, k, t] over their sum."""
    _, n_used, n_tokens, _ = weights.ne
    rows = build.reshape(weights, n_used, n_tokens)
    total = ctx.named(build.sum_rows(rows), "ffn_moe_weights_sum", il)
    clamped = build.clamp(total, SMALLEST_SUM, math.inf)
    total = ctx.named(clamped, "ffn_moe_weights_sum_clamped", il)
    shares = ctx.named(build.binary(Op.DIV, rows, total), "ffn_moe_weights_norm", il)
    return build.reshape(shares, 1, n_used, n_tokens)


def _of_experts(
    ctx: GraphContext, weight: str, x: Tensor, routing: Routing, name: str, il: int
) -> Tensor:
    answers = build.mul_mat_id(ctx.weight(weight, il), x, routing.experts)
    scales = ctx.optional(weight, il, "scale")
    if scales is not None:
        scaled = build.mul(answers, _scale_of_each(scales, routing.experts))
        return ctx.named(scaled, f"{name}_scaled", il)
    ctx.named(answers, name, il)
    bias = ctx.optional(weight, il, "bias")
    if bias is None:
        return answers
    return ctx.named(build.add_id(answers, bias, routing.experts), f"{name}_biased", il)


def _scale_of_each(scales: Tensor, experts: Tensor) -> Tensor:
    """f32 [1, k, t] of the chosen experts; `scales` is f32 [n_expert]."""
    n_expert, n_tokens = scales.ne[0], experts.ne[1]
    rows = build.repeat(build.reshape(scales, 1, n_expert, 1), 1, n_expert, n_tokens)
    return build.get_rows(rows, experts)


def _sum_of_experts(ctx: GraphContext, answers: Tensor) -> Tensor:
    """The sum over the experts of answers [n_embd, k, t]: all views first, then the additions."""
    n_embd, n_used, n_tokens, _ = answers.ne
    nb = answers.nb
    views = [build.view(answers, (n_embd, n_tokens), (nb[2],), i * nb[1]) for i in range(n_used)]
    for one in views:
        ctx.builder.expand(one)
    if n_used == 1:
        return build.cont(views[0])
    total = views[0]
    for one in views[1:]:
        total = build.add(total, one)
        ctx.builder.expand(total)
    return total
