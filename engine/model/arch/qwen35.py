"""qwen35 and qwen35moe: linear attention with a delta rule, and full attention in between.

Source: llama.cpp src/models/qwen35.cpp and qwen35moe.cpp; ARCH.md 5.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from engine.core import build as ops
from engine.core.ops import ROPE_IMROPE, GluOp, Op, UnaryOp
from engine.model.blocks.attention import attention_core, head_scale
from engine.model.blocks.decoder import run_layers
from engine.model.blocks.delta_net import delta_net, delta_net_weights
from engine.model.blocks.ffn import ffn_weights, gated_ffn, shared_expert, shared_expert_weights
from engine.model.blocks.head import finish_with_picked_rows
from engine.model.blocks.inputs import embed_tokens
from engine.model.blocks.moe import moe_ffn, moe_weights
from engine.model.blocks.nextn import with_nextn_weights
from engine.model.blocks.norms import rms_norm
from engine.model.blocks.qkv import Qkv, head_norm_weights, rotate
from engine.model.blocks.recurrent import state_rows
from engine.model.blocks.weight_list import WeightList
from engine.model.hparams import (
    changed,
    check_heads_alike,
    read_common,
    with_expert_width,
)
from engine.model.hparams_recurrent import with_recurrence
from engine.model.hparams_rope import with_sections

if TYPE_CHECKING:
    from engine.core.tensor import Tensor
    from engine.model.arch_keys import ArchKeys
    from engine.model.blocks.graph_context import BuiltGraph, GraphContext
    from engine.model.blocks.recurrent import StateRows
    from engine.model.hparams import Hparams, LayerHparams
    from engine.model.weights import WeightKind

KINDS_OF_LAYERS = ("attention.recurrent_layers", "full_attention_interval")
"""Keys that say which layers have linear attention; the first counts."""

FULL_INTERVAL = 4
"""Every fourth layer has full attention, where a file does not say which."""


def hparams(keys: ArchKeys) -> Hparams:
    """The numbers of a model; in qwen35moe each layer has experts, and one that all tokens use."""
    if keys.arch != "qwen35moe":
        return _with_layer_kinds(keys, read_common(keys, rope_mode=ROPE_IMROPE))
    hp = with_expert_width(keys, read_common(keys, rope_mode=ROPE_IMROPE, needs_ff=False))
    width = keys.count("expert_shared_feed_forward_length", hp.layers[0].n_ff)
    return _with_layer_kinds(keys, replace(hp, n_ff_shared=width))


def _with_layer_kinds(keys: ArchKeys, hp: Hparams) -> Hparams:
    check_heads_alike(keys, hp, rotates_all=False)
    hp = with_sections(keys, hp)
    hp = with_recurrence(keys, hp, _recurrent_layers(keys, hp), has_groups=True)
    sizes = hp.recurrence
    assert sizes is not None
    if sizes.head_size != sizes.d_state:
        allowed = f"{sizes.d_state * sizes.dt_rank}, time_step_rank heads of state_size elements"
        raise keys.wrong("ssm.inner_size", sizes.d_inner, allowed)

    def without_attention(layer: LayerHparams) -> LayerHparams:
        return replace(layer, attends=False)

    recurrent = [layer.is_recurrent for layer in hp.layers]
    return replace(hp, layers=changed(hp.layers, recurrent, without_attention))


def _recurrent_layers(keys: ArchKeys, hp: Hparams) -> list[bool]:
    one_by_one, every_so_many = KINDS_OF_LAYERS
    flags = keys.layer_flags(one_by_one, hp.n_layer_all)
    if flags is not None:
        return list(flags[: hp.n_layer])
    if keys.has(one_by_one):
        return [keys.flag(one_by_one)] * hp.n_layer
    interval = keys.count(every_so_many, FULL_INTERVAL)
    return [(il + 1) % interval != 0 for il in range(hp.n_layer)]


def weights(hp: Hparams) -> tuple[WeightKind, ...]:
    """What is asked of a file."""
    table = WeightList()
    table.embedding_and_head(hp)
    with_nextn_weights(table, hp, _layer_weights)
    return table.finish()


def _layer_weights(table: WeightList, hp: Hparams, il: int) -> None:
    layer = hp.every_layer[il]
    table.norm(il, "attn_norm", hp.n_embd)
    table.norm(il, "post_attention_norm", hp.n_embd)
    with table.asked_by(*KINDS_OF_LAYERS):
        if layer.is_recurrent:
            delta_net_weights(table, hp, il)
        else:
            _attention_weights(table, hp, il)
    if not layer.n_expert_used:
        ffn_weights(table, hp, il)
        return
    moe_weights(table, hp, il, n_ff=layer.n_ff_exp, may_be_merged=True)
    table.layer(il, "ffn_gate_inp_shexp.weight", Op.MUL_MAT, hp.n_embd)
    shared_expert_weights(table, hp, il)


def _attention_weights(table: WeightList, hp: Hparams, il: int) -> None:
    """A gate of its own stands behind the query of each head."""
    layer = hp.every_layer[il]
    table.matrix(il, "attn_q", hp.n_embd, 2 * layer.n_embd_q)
    table.matrix(il, "attn_k", hp.n_embd, layer.n_embd_k)
    table.matrix(il, "attn_v", hp.n_embd, layer.n_embd_v)
    table.matrix(il, "attn_output", layer.n_embd_attended, hp.n_embd)
    head_norm_weights(table, hp, il)


def build(ctx: GraphContext) -> BuiltGraph:
    """The graph of one batch."""
    x = ctx.named(embed_tokens(ctx), "model.input_embed")
    layer = partial(_layer, rows=state_rows(ctx))
    return finish_with_picked_rows(ctx, run_layers(ctx, x, layer))


def _layer(ctx: GraphContext, x: Tensor, il: int, rows: StateRows) -> Tensor:
    normed = rms_norm(ctx, x, "attn_norm", "attn_norm", il)
    ctx.builder.expand(normed)
    is_recurrent = ctx.layer(il).is_recurrent
    mixed = delta_net(ctx, normed, rows, il) if is_recurrent else _full(ctx, normed, il)
    joined = ctx.named(ops.add(mixed, x), "attn_residual", il)
    normed = rms_norm(ctx, joined, "post_attention_norm", "attn_post_norm", il)
    fed = ctx.named(_feed_forward(ctx, normed, il), "ffn_out", il)
    return ctx.named(ops.add(fed, joined), "l_out", il)


def _full(ctx: GraphContext, x: Tensor, il: int) -> Tensor:
    """Full attention, let through by a gate that comes with the queries."""
    parts, queries = _qkv(ctx, x, il)
    attended = attention_core(ctx, rotate(ctx, parts, il), scale=head_scale(ctx, il), il=il)
    ctx.named(attended, "attn_pregate", il)
    n_embd_head, _, n_tokens, _ = parts.q.ne
    gate = ops.view(queries, parts.q.ne[:3], _pair_strides(ctx, queries, il), n_embd_head * 4)
    gate = ctx.named(ops.cont(gate, (attended.ne[0], n_tokens, 1, 1)), "gate_reshaped", il)
    gate = ctx.named(ops.unary(gate, UnaryOp.SIGMOID), "gate_sigmoid", il)
    gated = ctx.named(ops.mul(attended, gate), "attn_gated", il)
    return ctx.named(ops.mul_mat(ctx.weight("attn_output", il), gated), "attn_output", il)


def _qkv(ctx: GraphContext, x: Tensor, il: int) -> tuple[Qkv, Tensor]:
    """Q and K with their heads normalised, V, and the rows of queries and gates."""
    layer, n_tokens = ctx.layer(il), ctx.shape.n_tokens
    queries = ctx.named(ops.mul_mat(ctx.weight("attn_q", il), x), "Qcur_full", il)
    q_ne = (layer.n_embd_head_k, layer.n_head, n_tokens)
    q = ops.view(queries, q_ne, _pair_strides(ctx, queries, il))
    q = rms_norm(ctx, ctx.named(q, "Qcur_reshaped", il), "attn_q_norm", "Qcur_normed", il)
    k = ctx.named(ops.mul_mat(ctx.weight("attn_k", il), x), "Kcur", il)
    k = ops.reshape(k, layer.n_embd_head_k, layer.n_head_kv, n_tokens)
    k = rms_norm(ctx, k, "attn_k_norm", "Kcur_normed", il)
    v = ctx.named(ops.mul_mat(ctx.weight("attn_v", il), x), "Vcur", il)
    v = ops.reshape(v, layer.n_embd_head_v, layer.n_head_kv, n_tokens)
    return Qkv(q, k, ctx.named(v, "Vcur", il)), queries


def _pair_strides(ctx: GraphContext, queries: Tensor, il: int) -> tuple[int, int]:
    """From a head's query to the next one's: a gate stands in between."""
    return 2 * queries.type.row_bytes(ctx.layer(il).n_embd_head_k), queries.nb[1]


def _feed_forward(ctx: GraphContext, x: Tensor, il: int) -> Tensor:
    if not ctx.layer(il).n_expert_used:
        return gated_ffn(ctx, x, GluOp.SWIGLU, il)
    chosen = moe_ffn(ctx, x, il)
    shared = ctx.named(shared_expert(ctx, x, il), "ffn_shexp", il)
    gate = ops.mul_mat(ctx.weight("ffn_gate_inp_shexp", il), x)
    gate = ops.unary(ctx.named(gate, "shared_expert_gate", il), UnaryOp.SIGMOID)
    ctx.named(gate, "shared_expert_gate_sigmoid", il)
    return ops.add(chosen, ctx.named(ops.mul(shared, gate), "ffn_shexp_gated", il))
