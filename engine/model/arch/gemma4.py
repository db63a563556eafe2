"""gemma4: heads of two sizes, layers that share keys, embeddings for each layer, experts.

Source: llama.cpp src/models/gemma4.cpp; ARCH.md 3.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from engine.core import build as ops
from engine.core.ops import ROPE_NEOX, GluOp, Op
from engine.model.blocks.attention import attention_core, project, reading_attention
from engine.model.blocks.decoder import run_layers
from engine.model.blocks.ffn import ffn_weights, gated_ffn
from engine.model.blocks.head import finish_with_picked_rows
from engine.model.blocks.inputs import embed_tokens, positions
from engine.model.blocks.layer_embeddings import (
    add_layer_embedding,
    gate_weights,
    layer_embeddings,
    lookup_weights,
)
from engine.model.blocks.moe import Gated, moe_ffn, moe_weights
from engine.model.blocks.norms import rms_norm
from engine.model.blocks.qkv import Qkv
from engine.model.blocks.weight_list import WeightList
from engine.model.hparams import (
    MOST_PER_HEAD,
    Window,
    changed,
    check_heads_alike,
    read_common,
    with_dense_layers,
    with_expert_width,
    with_window,
)

if TYPE_CHECKING:
    from engine.core.tensor import Tensor
    from engine.model.arch_keys import ArchKeys
    from engine.model.blocks.graph_context import BuiltGraph, GraphContext
    from engine.model.hparams import Hparams, LayerHparams
    from engine.model.weights import WeightKind

PATTERN = "attention.sliding_window_pattern"
PER_LAYER = "embedding_length_per_layer_input"
SHARED_KEYS = "attention.shared_kv_layers"


def hparams(keys: ArchKeys) -> Hparams:
    """The numbers of a model."""
    hp = read_common(keys, rope_mode=ROPE_NEOX)
    check_heads_alike(keys, hp, rotates_all=False)
    keys.layer_flags(PATTERN, hp.n_layer, required=True)
    hp = with_window(keys, hp, Window(keys.count("attention.sliding_window")), pattern=0)
    hp = _with_sliding_heads(keys, hp)
    hp = replace(
        hp,
        n_embd_per_layer=keys.count(PER_LAYER, low=0),
        final_logit_softcap=keys.number("final_logit_softcapping", 0.0, low=0.0),
        n_layer_shared_kv=keys.count(SHARED_KEYS, 0, low=0, high=hp.n_layer),
    )
    _check_shared(keys, hp)
    return _with_routed_layers(keys, hp) if hp.n_expert else hp


def _with_routed_layers(keys: ArchKeys, hp: Hparams) -> Hparams:
    """Layers have experts where the file has a router for them."""
    dense = [f"blk.{il}.ffn_gate_inp.weight" not in keys.file for il in range(hp.n_layer_all)]
    return with_dense_layers(with_expert_width(keys, hp), dense)


def _with_sliding_heads(keys: ArchKeys, hp: Hparams) -> Hparams:
    """Sliding layers have heads of a size of their own."""
    sizes = [
        keys.count(f"attention.{kind}_length_swa", high=MOST_PER_HEAD) for kind in ("key", "value")
    ]
    if sizes[0] != sizes[1]:
        raise keys.wrong("attention.value_length_swa", sizes[1], f"{sizes[0]}, as long as a key")
    key = "rope.dimension_count_swa"
    n_dims = keys.count(key, hp.layers[0].rope.n_dims)
    if n_dims > sizes[0] or n_dims % 2:
        raise keys.wrong(key, n_dims, f"even and at most {sizes[0]}")

    def resize(layer: LayerHparams) -> LayerHparams:
        rope = replace(layer.rope, n_dims=n_dims)
        return replace(layer, n_embd_head_k=sizes[0], n_embd_head_v=sizes[1], rope=rope)

    slides = [layer.is_swa for layer in hp.layers]
    return replace(hp, layers=changed(hp.layers, slides, resize))


def _check_shared(keys: ArchKeys, hp: Hparams) -> None:
    """ModelError unless a layer without keys finds those of a layer like itself."""
    n_owners = hp.n_layer - hp.n_layer_shared_kv
    for layer in hp.layers[n_owners:]:
        i_owner = n_owners - (2 if layer.is_swa else 1)
        owner = hp.layers[i_owner] if i_owner >= 0 else None
        if owner is None or owner.is_swa != layer.is_swa or owner.n_embd_k != layer.n_embd_k:
            raise keys.wrong(
                SHARED_KEYS,
                hp.n_layer_shared_kv,
                "such that the last layer with keys sees everything, the one before it slides, "
                "and their rows are as long as those of the layers that read them",
            )


def weights(hp: Hparams) -> tuple[WeightKind, ...]:
    """What is asked of a file."""
    table = WeightList()
    table.embedding_and_head(hp)
    if hp.n_embd_per_layer:
        with table.asked_by(PER_LAYER):
            lookup_weights(table, hp)
    for il, layer in enumerate(hp.layers):
        table.norm(il, "attn_norm", hp.n_embd)
        _attention_weights(table, hp, il)
        table.norm(il, "post_attention_norm", hp.n_embd)
        table.layer(il, "layer_output_scale.weight", Op.MUL, 1, required=False)
        if not layer.is_swa:
            table.shared(il, "rope_freqs.weight", Op.ROPE, layer.n_embd_head_k // 2)
        table.norm(il, "ffn_norm", hp.n_embd)
        ffn_weights(table, hp, il)
        table.norm(il, "post_ffw_norm", hp.n_embd)
        if layer.n_expert_used:
            _expert_weights(table, hp, il)
        if hp.n_embd_per_layer:
            with table.asked_by(PER_LAYER):
                gate_weights(table, hp, il)
    return table.finish()


def _attention_weights(table: WeightList, hp: Hparams, il: int) -> None:
    """Keys are needed where the layer has its own; where values are missing, keys are values."""
    layer, owns = hp.layers[il], hp.cache_layer(il) == il
    table.matrix(il, "attn_q", hp.n_embd, layer.n_embd_q)
    k_ne, v_ne = (hp.n_embd, layer.n_embd_k), (hp.n_embd, layer.n_embd_v)
    with table.asked_by(SHARED_KEYS):
        table.layer(il, "attn_k.weight", Op.MUL_MAT, *k_ne, required=owns)
    table.layer(il, "attn_v.weight", Op.MUL_MAT, *v_ne, required=False)
    table.matrix(il, "attn_output", layer.n_embd_attended, hp.n_embd)
    table.norm(il, "attn_q_norm", layer.n_embd_head_k)
    with table.asked_by(SHARED_KEYS):
        table.norm(il, "attn_k_norm", layer.n_embd_head_k, required=owns)


def _expert_weights(table: WeightList, hp: Hparams, il: int) -> None:
    moe_weights(table, hp, il, n_ff=hp.layers[il].n_ff_exp, may_be_merged=True)
    table.layer(il, "ffn_gate_inp.scale", Op.MUL, hp.n_embd)
    for name in ("pre_ffw_norm_2", "post_ffw_norm_1", "post_ffw_norm_2"):
        table.norm(il, name, hp.n_embd)
    table.layer(il, "ffn_down_exps.scale", Op.MUL, hp.n_expert, required=False)


def build(ctx: GraphContext) -> BuiltGraph:
    """The graph of one batch."""
    x = embed_tokens(ctx)
    x = ctx.named(ops.scale(x, math.sqrt(ctx.hparams.n_embd)), "inp_scaled")
    embeddings = layer_embeddings(ctx, x) if ctx.hparams.n_embd_per_layer else None
    layer = partial(_layer, embeddings=embeddings)
    return finish_with_picked_rows(ctx, run_layers(ctx, x, layer))


def _layer(ctx: GraphContext, x: Tensor, il: int, embeddings: Tensor | None) -> Tensor:
    normed = rms_norm(ctx, x, "attn_norm", "attn_norm", il)
    attended = project(ctx, _attention(ctx, normed, il), il)
    attended = rms_norm(ctx, attended, "post_attention_norm", "attn_post_norm", il)
    joined = ctx.named(ops.add(attended, x), "attn_out", il)
    fed = _feed_forward(ctx, joined, il)
    fed = rms_norm(ctx, fed, "post_ffw_norm", "ffn_post_norm", il, named_for_layer=False)
    x = ops.add(fed, joined)
    if embeddings is not None:
        x = add_layer_embedding(ctx, ctx.named(x, "pe_in", il), embeddings, il)
    scale = ctx.optional("layer_output_scale", il)
    if scale is not None:
        x = ops.mul(x, scale)
    return ctx.named(x, "l_out", il)


def _attention(ctx: GraphContext, x: Tensor, il: int) -> Tensor:
    queries = ctx.named(ops.mul_mat(ctx.weight("attn_q", il), x), "Qcur", il)
    q = _rotated_heads(ctx, queries, "q", il)
    if ctx.hparams.cache_layer(il) != il:
        return reading_attention(ctx, q, scale=1.0, il=il)
    layer = ctx.layer(il)
    keys = ctx.named(ops.mul_mat(ctx.weight("attn_k", il), x), "Kcur", il)
    weight = ctx.optional("attn_v", il)
    values = keys if weight is None else ops.mul_mat(weight, x)
    values = ctx.named(values, "Vcur", il)
    heads = ops.reshape(values, layer.n_embd_head_v, layer.n_head_kv, ctx.shape.n_tokens)
    v = ctx.named(ops.rms_norm(heads, ctx.hparams.norm_eps), "Vcur_normed", il)
    return attention_core(ctx, Qkv(q, _rotated_heads(ctx, keys, "k", il), v), scale=1.0, il=il)


def _rotated_heads(ctx: GraphContext, rows: Tensor, kind: str, il: int) -> Tensor:
    """Rows of Q or K as heads, normalised and turned by their positions."""
    layer, name = ctx.layer(il), f"{kind.upper()}cur"
    n_embd = layer.n_embd_head_k
    heads = ops.reshape(rows, n_embd, rows.ne[0] // n_embd, ctx.shape.n_tokens)
    heads = rms_norm(ctx, heads, f"attn_{kind}_norm", f"{name}_normed", il)
    factors = None if layer.is_swa else ctx.weight("rope_freqs", il)
    return ctx.named(ops.rope(heads, positions(ctx), factors, layer.rope), f"{name}_pos", il)


def _feed_forward(ctx: GraphContext, x: Tensor, il: int) -> Tensor:
    if ctx.layer(il).n_expert_used:
        return _experts_beside(ctx, x, il)
    normed = rms_norm(ctx, x, "ffn_norm", "ffn_norm", il)
    return ctx.named(gated_ffn(ctx, normed, GluOp.GEGLU, il), "ffn_out", il)


def _experts_beside(ctx: GraphContext, x: Tensor, il: int) -> Tensor:
    """The feed-forward that every token uses, and that of its experts."""
    logits = _router_logits(ctx, x, il)
    given = rms_norm(ctx, x, "pre_ffw_norm_2", "ffn_norm_2", il)
    chosen = moe_ffn(ctx, given, il, Gated(GluOp.GEGLU), logits=logits)
    chosen = rms_norm(ctx, chosen, "post_ffw_norm_2", "ffn_moe", il)
    normed = rms_norm(ctx, x, "ffn_norm", "ffn_norm_1", il)
    always = gated_ffn(ctx, normed, GluOp.GEGLU, il)
    always = rms_norm(ctx, always, "post_ffw_norm_1", "ffn_mlp", il)
    return ctx.named(ops.add(always, chosen), "ffn_moe_combined", il)


def _router_logits(ctx: GraphContext, x: Tensor, il: int) -> Tensor:
    """The router looks at what attention left, with a norm of its own."""
    normed = ops.scale(ops.rms_norm(x, ctx.hparams.norm_eps), 1.0 / math.sqrt(x.ne[0]))
    scaled = ops.mul(normed, ctx.weight("ffn_gate_inp", il, "scale"))
    return ctx.named(ops.mul_mat(ctx.weight("ffn_gate_inp", il), scaled), "ffn_moe_logits", il)
