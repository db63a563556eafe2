"""Linear attention by a gated delta rule: each head's state is a matrix. Source: ARCH.md 5."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from engine.core import build
from engine.core.build_recurrent import gated_delta_net, ssm_conv
from engine.core.ops import Op, UnaryOp
from engine.model.blocks.recurrent import picked_states, recurrent_sizes, store_state

if TYPE_CHECKING:
    from engine.core.tensor import Tensor
    from engine.model.blocks.graph_context import GraphContext
    from engine.model.blocks.recurrent import StateRows
    from engine.model.blocks.weight_list import WeightList
    from engine.model.hparams import Hparams


def delta_net_weights(weights: WeightList, hp: Hparams, il: int) -> None:
    """Those of a layer of linear attention; decays have no suffix."""
    sizes = recurrent_sizes(hp)
    n_head = sizes.dt_rank
    weights.matrix(il, "attn_qkv", hp.n_embd, sizes.n_conv)
    weights.matrix(il, "attn_gate", hp.n_embd, sizes.d_inner)
    weights.layer(il, "ssm_conv1d.weight", Op.SSM_CONV, sizes.d_conv, sizes.n_conv)
    weights.bias(il, "ssm_dt", n_head, required=True)
    weights.layer(il, "ssm_a", Op.MUL, n_head)
    weights.matrix(il, "ssm_beta", hp.n_embd, n_head)
    weights.matrix(il, "ssm_alpha", hp.n_embd, n_head)
    weights.norm(il, "ssm_norm", sizes.d_state)
    weights.matrix(il, "ssm_out", sizes.d_inner, hp.n_embd)


def delta_net(ctx: GraphContext, x: Tensor, rows: StateRows, il: int) -> Tensor:
    """f32 [n_embd, t] of x [n_embd, t]."""
    sizes, n_tokens = recurrent_sizes(ctx.hparams), ctx.shape.n_tokens
    joined = _conv_inputs(ctx, x, rows, il)
    state = picked_states(ctx, ctx.state.ssm[il], rows)
    head = sizes.d_state
    state = build.reshape(state, head, head, sizes.dt_rank, 1)
    ctx.named(state, "state_predelta", il)
    convolved = ctx.named(ssm_conv(joined, ctx.weight("ssm_conv1d", il)), "conv_output_raw", il)
    convolved = ctx.named(build.unary(convolved, UnaryOp.SILU), "conv_output_silu", il)
    q, k, v = _heads(ctx, convolved, il)
    attended = gated_delta_net(q, k, v, _decay(ctx, x, il), _rate(ctx, x, il), state)
    _store(ctx, attended, state, il)
    nb0, nb1 = attended.type.row_bytes(head), attended.nb[1]
    out = build.view(attended, v.ne, (nb0, nb1, nb1 * n_tokens))
    out = _gated(ctx, ctx.named(out, "attn_output", il), x, il)
    out = ctx.named(build.mul_mat(ctx.weight("ssm_out", il), out), "linear_attn_out", il)
    return build.reshape(out, out.ne[0], n_tokens)


def _conv_inputs(ctx: GraphContext, x: Tensor, rows: StateRows, il: int) -> Tensor:
    """Q, K and V of the last tokens and of x, f32 [d_conv - 1 + t, n_conv, 1].

    The last of them are kept.
    """
    sizes, state = recurrent_sizes(ctx.hparams), ctx.state.conv[il]
    recent = ctx.named(picked_states(ctx, state, rows), "conv_states", il)
    recent = build.reshape(recent, sizes.d_conv - 1, sizes.n_conv, 1)
    ctx.named(recent, "conv_states_reshaped", il)
    mixed = build.mul_mat(ctx.weight("attn_qkv", il), x)
    mixed = build.reshape(mixed, sizes.n_conv, ctx.shape.n_tokens, 1)
    columns = build.transpose(ctx.named(mixed, "linear_attn_qkv_mixed", il))
    ctx.named(columns, "qkv_mixed_transposed", il)
    joined = ctx.named(build.concat(recent, columns, 0), "conv_input", il)
    last = build.view(joined, recent.ne[:3], joined.nb[1:3], columns.ne[0] * joined.nb[0])
    ctx.named(last, "conv_state_last", il)
    store_state(ctx, last, state, f"conv_state_update-{il}")
    return joined


def _heads(ctx: GraphContext, convolved: Tensor, il: int) -> tuple[Tensor, Tensor, Tensor]:
    """Q and K [d, hk, t, 1] of length 1, and V [d, h, t, 1]."""
    sizes, nb = recurrent_sizes(ctx.hparams), convolved.nb
    head, n_tokens, n_keys = sizes.d_state, ctx.shape.n_tokens, sizes.n_group
    strides = (head * nb[0], nb[1], nb[1] * n_tokens)

    def cut(n_head: int, i_first: int) -> Tensor:
        return build.view(convolved, (head, n_head, n_tokens, 1), strides, i_first * strides[0])

    q, k = ctx.named(cut(n_keys, 0), "q_conv", il), ctx.named(cut(n_keys, n_keys), "k_conv", il)
    return (
        ctx.named(_of_length_one(ctx, q), "q_conv_predelta", il),
        ctx.named(_of_length_one(ctx, k), "k_conv_predelta", il),
        ctx.named(cut(sizes.dt_rank, 2 * n_keys), "v_conv_predelta", il),
    )


def _of_length_one(ctx: GraphContext, x: Tensor) -> Tensor:
    """Heads of x divided by their length: their root mean square does it, up to a factor."""
    normed = build.rms_norm(x, ctx.hparams.norm_eps / x.ne[0])
    return build.scale(normed, 1.0 / math.sqrt(x.ne[0]))


def _decay(ctx: GraphContext, x: Tensor, il: int) -> Tensor:
    """The logarithm of what each head keeps of its state, f32 [1, h, t, 1]."""
    n_head, n_tokens = recurrent_sizes(ctx.hparams).dt_rank, ctx.shape.n_tokens
    alpha = build.mul_mat(ctx.weight("ssm_alpha", il), x)
    alpha = ctx.named(build.reshape(alpha, n_head, n_tokens, 1), "alpha", il)
    alpha = build.add(alpha, ctx.weight("ssm_dt", il, "bias"))
    alpha = ctx.named(build.unary(alpha, UnaryOp.SOFTPLUS), "a_softplus", il)
    decay = ctx.named(build.mul(alpha, ctx.weight("ssm_a", il, "")), "gate", il)
    return build.reshape(decay, 1, n_head, n_tokens, 1)


def _rate(ctx: GraphContext, x: Tensor, il: int) -> Tensor:
    """How much of a difference each head learns, f32 [1, h, t, 1]."""
    n_head, n_tokens = recurrent_sizes(ctx.hparams).dt_rank, ctx.shape.n_tokens
    beta = build.mul_mat(ctx.weight("ssm_beta", il), x)
    beta = ctx.named(build.reshape(beta, 1, n_head, n_tokens, 1), "beta", il)
    return ctx.named(build.unary(beta, UnaryOp.SIGMOID), "beta_sigmoid", il)


def _store(ctx: GraphContext, attended: Tensor, state: Tensor, il: int) -> None:
    """Keep the new states, which stand behind the outputs."""
    offset = attended.nb[1] * ctx.shape.n_tokens
    new = build.view(attended, state.ne, state.nb[1:], offset)
    store_state(ctx, ctx.named(new, "new_state", il), ctx.state.ssm[il])


def _gated(ctx: GraphContext, heads: Tensor, x: Tensor, il: int) -> Tensor:
    """Outputs of each head normalised, let through by a gate; f32 [d_inner, t, 1]."""
    normed = ctx.named(build.rms_norm(heads, ctx.hparams.norm_eps), "norm", il)
    normed = build.mul(normed, ctx.weight("ssm_norm", il))
    z = ctx.named(build.mul_mat(ctx.weight("attn_gate", il), x), "z", il)
    gate = build.unary(build.reshape(z, *heads.ne), UnaryOp.SILU)
    out = build.reshape(build.mul(normed, gate), z.ne[0], heads.ne[2], 1)
    return ctx.named(out, "final_output", il)
