"""Selective state spaces: mamba, whose every channel has a decay, and mamba2. Source: ARCH.md 5."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.core import build
from engine.core.build_recurrent import ssm_conv, ssm_scan
from engine.core.ops import GluOp, Op, UnaryOp
from engine.model.blocks.recurrent import picked_states, recurrent_sizes, store_state

if TYPE_CHECKING:
    from engine.core.tensor import Tensor
    from engine.model.blocks.graph_context import GraphContext
    from engine.model.blocks.recurrent import StateRows
    from engine.model.blocks.weight_list import WeightList
    from engine.model.hparams import Hparams
    from engine.model.hparams_recurrent import Recurrence


def mamba_weights(weights: WeightList, hp: Hparams, il: int) -> None:
    """Those of a layer of the first kind; decays and skips have no suffix."""
    sizes = recurrent_sizes(hp)
    d_inner, d_state, dt_rank = sizes.d_inner, sizes.d_state, sizes.dt_rank
    weights.matrix(il, "ssm_in", hp.n_embd, 2 * d_inner)
    _conv_weights(weights, sizes, il)
    weights.matrix(il, "ssm_x", d_inner, dt_rank + 2 * d_state)
    weights.biased_matrix(il, "ssm_dt", dt_rank, d_inner)
    weights.layer(il, "ssm_a", Op.SSM_SCAN, d_state, d_inner)
    weights.layer(il, "ssm_d", Op.MUL, d_inner)
    weights.matrix(il, "ssm_out", d_inner, hp.n_embd)


def mamba2_weights(weights: WeightList, hp: Hparams, il: int) -> None:
    """Those of a layer of the second kind, whose heads have one decay each."""
    sizes = recurrent_sizes(hp)
    d_inner, n_head, n_group = sizes.d_inner, sizes.dt_rank, sizes.n_group
    weights.matrix(il, "ssm_in", hp.n_embd, d_inner + sizes.n_conv + n_head)
    _conv_weights(weights, sizes, il)
    weights.bias(il, "ssm_dt", n_head, required=True)
    weights.layer(il, "ssm_a", Op.SSM_SCAN, 1, n_head)
    weights.layer(il, "ssm_d", Op.MUL, 1, n_head)
    group = (d_inner // n_group, n_group)
    weights.layer(il, "ssm_norm.weight", Op.MUL, *group, required=False)
    weights.matrix(il, "ssm_out", d_inner, hp.n_embd)


def _conv_weights(weights: WeightList, sizes: Recurrence, il: int) -> None:
    weights.layer(il, "ssm_conv1d.weight", Op.SSM_CONV, sizes.d_conv, sizes.n_conv)
    weights.bias(il, "ssm_conv1d", sizes.n_conv, required=True)


def mamba(ctx: GraphContext, x: Tensor, rows: StateRows, il: int) -> Tensor:
    """f32 [n_embd, t] of x [n_embd, t]."""
    sizes, n_tokens = recurrent_sizes(ctx.hparams), ctx.shape.n_tokens
    d_inner = sizes.d_inner
    recent = _recent_inputs(ctx, rows, il)
    xz = build.mul_mat(ctx.weight("ssm_in", il), build.reshape(x, x.ne[0], n_tokens, 1))
    ne, strides = (d_inner, n_tokens, 1), xz.nb[1:3]
    z = build.view(xz, ne, strides, d_inner * xz.nb[0])
    x = _convolved(ctx, recent, build.view(xz, ne, strides), il)
    x_db = build.mul_mat(ctx.weight("ssm_x", il), x)
    steps, b, c = _inner_parts(ctx, x_db)
    steps = build.mul_mat(ctx.weight("ssm_dt", il), steps)
    steps = build.add(steps, ctx.weight("ssm_dt", il, "bias"))
    heads = build.reshape(x, 1, d_inner, n_tokens, 1)
    scanned = _scanned(ctx, (heads, steps, b, c), rows, il)
    y = build.view(scanned, (d_inner, n_tokens, 1), heads.nb[2:4])
    y = build.add(y, build.mul(x, ctx.weight("ssm_d", il, "")))
    y = build.glu_split(build.cont(z), y, GluOp.SWIGLU)
    out = build.mul_mat(ctx.weight("ssm_out", il), y)
    return build.reshape(out, out.ne[0], n_tokens)


def _inner_parts(ctx: GraphContext, x_db: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Time steps [dt_rank, t, 1] and the directions in and out, [d_state, 1, t, 1]."""
    sizes, n_tokens = recurrent_sizes(ctx.hparams), ctx.shape.n_tokens
    d_state, dt_rank, nb = sizes.d_state, sizes.dt_rank, x_db.nb
    steps = build.view(x_db, (dt_rank, n_tokens, 1), nb[1:3])
    ne, strides = (d_state, 1, n_tokens, 1), (d_state * nb[0], *nb[1:3])
    b = build.view(x_db, ne, strides, dt_rank * nb[0])
    c = build.view(x_db, ne, strides, (dt_rank + d_state) * nb[0])
    if not sizes.normalises_parts:
        return build.cont(steps), b, c
    eps = ctx.hparams.norm_eps
    return build.rms_norm(steps, eps), build.rms_norm(b, eps), build.rms_norm(c, eps)


def mamba2(ctx: GraphContext, x: Tensor, rows: StateRows, il: int) -> Tensor:
    """f32 [n_embd, t] of x [n_embd, t]."""
    sizes, n_tokens = recurrent_sizes(ctx.hparams), ctx.shape.n_tokens
    d_inner, n_head, head = sizes.d_inner, sizes.dt_rank, sizes.head_size
    recent = _recent_inputs(ctx, rows, il)
    all_parts = build.mul_mat(ctx.weight("ssm_in", il), x)
    all_parts = build.reshape(all_parts, all_parts.ne[0], n_tokens, 1)
    nb = all_parts.nb
    heads_ne, heads_nb = (head, n_head, n_tokens, 1), (head * nb[0], *nb[1:3])
    z = build.view(all_parts, heads_ne, heads_nb)
    convolved = build.view(all_parts, (sizes.n_conv, n_tokens, 1), nb[1:3], d_inner * nb[0])
    i_steps = d_inner + sizes.n_conv
    steps = build.view(all_parts, (n_head, n_tokens, 1), nb[1:3], i_steps * nb[0])
    convolved = _convolved(ctx, recent, convolved, il)
    x, b, c = _conv_parts(sizes, convolved)
    steps = build.add(build.cont(steps), ctx.weight("ssm_dt", il, "bias"))
    scanned = _scanned(ctx, (x, steps, b, c), rows, il)
    row = n_head * x.nb[1]
    y = build.view(scanned, heads_ne, (x.nb[1], row, n_tokens * row))
    y = build.add(y, build.mul(x, ctx.weight("ssm_d", il, "")))
    y = build.glu_split(build.cont(z), ctx.named(y, "mamba2_y_add_d", il), GluOp.SWIGLU)
    y = build.reshape(_normed_groups(ctx, y, il), d_inner, n_tokens)
    return ctx.named(build.mul_mat(ctx.weight("ssm_out", il), y), "mamba_out", il)


def _conv_parts(sizes: Recurrence, convolved: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Inputs [head size, h, t, 1] and the directions in and out, [d_state, g, t, 1]."""
    n_tokens, nb = convolved.ne[1], convolved.nb
    head, d_state, n_group = sizes.head_size, sizes.d_state, sizes.n_group
    x = build.view(convolved, (head, sizes.dt_rank, n_tokens, 1), (head * nb[0], *nb[1:3]))
    ne, strides = (d_state, n_group, n_tokens, 1), (d_state * nb[0], *nb[1:3])
    b = build.view(convolved, ne, strides, sizes.d_inner * nb[0])
    c = build.view(convolved, ne, strides, (sizes.d_inner + n_group * d_state) * nb[0])
    return x, b, c


def _normed_groups(ctx: GraphContext, y: Tensor, il: int) -> Tensor:
    """Outputs with the channels of each group normalised, where the model does so."""
    weight = ctx.optional("ssm_norm", il)
    if weight is None:
        return y
    n_channels, n_group = weight.ne[:2]
    groups = build.reshape(y, n_channels, n_group, ctx.shape.n_tokens, 1)
    normed = ctx.named(build.rms_norm(groups, ctx.hparams.norm_eps), "norm", il)
    return build.mul(normed, weight)


def _recent_inputs(ctx: GraphContext, rows: StateRows, il: int) -> Tensor:
    """The inputs that the convolution looks back at, f32 [d_conv - 1, n_conv, 1]."""
    sizes = recurrent_sizes(ctx.hparams)
    picked = picked_states(ctx, ctx.state.conv[il], rows)
    return build.reshape(picked, sizes.d_conv - 1, sizes.n_conv, 1)


def _convolved(ctx: GraphContext, recent: Tensor, x: Tensor, il: int) -> Tensor:
    """What becomes of x [n_conv, t, 1] by its convolution; the last inputs are kept."""
    joined = build.concat(recent, build.transpose(x), 0)
    last = build.view(joined, recent.ne[:3], joined.nb[1:3], x.ne[1] * joined.nb[0])
    store_state(ctx, last, ctx.state.conv[il])
    y = ssm_conv(joined, ctx.weight("ssm_conv1d", il))
    y = build.add(y, ctx.weight("ssm_conv1d", il, "bias"))
    return build.unary(y, UnaryOp.SILU)


def _scanned(
    ctx: GraphContext, parts: tuple[Tensor, Tensor, Tensor, Tensor], rows: StateRows, il: int
) -> Tensor:
    """Outputs and new states of x, time steps and the directions in and out; those are kept."""
    x, steps, b, c = parts
    state, decays = ctx.state.ssm[il], ctx.weight("ssm_a", il, "")

    def scan(states: Tensor, ids: Tensor) -> Tensor:
        by_head = build.reshape(states, b.ne[0], *x.ne[:2], states.ne[1])
        return ssm_scan(by_head, x, steps, decays, b, c, ids)

    scanned = picked_states(ctx, state, rows, scan)
    new = build.view(scanned, (state.ne[0],), (), x.n_elems * scanned.nb[0])
    store_state(ctx, new, state)
    return scanned
