"""Parts that graphs share, in llama.cpp's node order and names. Source: ARCH.md 1."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from engine.core import build
from engine.core.graph import Graph, GraphBuilder
from engine.core.ops import FlashAttnParams, GluOp, Precision, SoftMaxParams
from engine.core.tensor import Flag, Tensor, shape4
from engine.core.types import TensorType

if TYPE_CHECKING:
    from collections.abc import Mapping

    from engine.core.plan import BatchShape
    from engine.model.hparams import Hparams
    from engine.model.kv_cache import KvCache


@dataclass(frozen=True, slots=True, eq=False)
class BuiltGraph:
    """A graph and what its user needs of it.

    `inputs` by llama.cpp's name. `layer_norms` are nodes that may be pinned to their layer's
    device (ARCH.md 1.3).
    """

    graph: Graph
    inputs: Mapping[str, Tensor]
    logits: Tensor
    layer_norms: tuple[tuple[Tensor, int], ...]
    attentions: tuple[tuple[Tensor, int], ...]
    """FLASH_ATTN_EXT nodes and their layers; empty without flash attention."""


@dataclass(slots=True, eq=False)
class GraphContext:
    """A graph under construction."""

    hparams: Hparams
    weights: Mapping[str, Tensor]
    cache: KvCache
    shape: BatchShape
    flash_attn: bool
    builder: GraphBuilder = field(default_factory=GraphBuilder)
    inputs: dict[str, Tensor] = field(default_factory=dict)
    layer_norms: list[tuple[Tensor, int]] = field(default_factory=list)
    attentions: list[tuple[Tensor, int]] = field(default_factory=list)

    def weight(self, name: str, il: int = -1) -> Tensor:
        """A weight by its name without layer and suffix, such as `attn_q`."""
        return self.weights[_weight_name(name, il, "weight")]

    def optional(self, name: str, il: int = -1, suffix: str = "weight") -> Tensor | None:
        """A weight or bias that a model may lack."""
        return self.weights.get(_weight_name(name, il, suffix))

    def input(self, name: str, tensor_type: TensorType, *ne: int) -> Tensor:
        """An input of the graph, made on first use."""
        found = self.inputs.get(name)
        if found is None:
            found = Tensor(tensor_type, shape4(*ne), name=name, flags=Flag.INPUT)
            self.inputs[name] = found
        return found

    def named(self, tensor: Tensor, name: str, il: int = -1) -> Tensor:
        """`tensor` with llama.cpp's callback name."""
        tensor.name = name if il < 0 else f"{name}-{il}"
        if name == "norm" and il >= 0:
            self.layer_norms.append((tensor, il))
        return tensor

    def finish(self, logits: Tensor) -> BuiltGraph:
        """The graph that ends in `logits`."""
        self.builder.expand(logits)
        return BuiltGraph(
            self.builder.build(),
            self.inputs,
            logits,
            tuple(self.layer_norms),
            tuple(self.attentions),
        )


def _weight_name(name: str, il: int, suffix: str) -> str:
    return f"{name}.{suffix}" if il < 0 else f"blk.{il}.{name}.{suffix}"


def embed_tokens(ctx: GraphContext) -> Tensor:
    """f32 [n_embd, n_tokens]; the input for ready-made embeddings is a leaf beside it."""
    n_tokens = ctx.shape.n_tokens
    tokens = ctx.input("inp_tokens", TensorType.I32, n_tokens)
    embeddings = build.get_rows(ctx.weight("token_embd"), tokens)
    ctx.builder.expand(ctx.named(embeddings, "embd"))
    ctx.builder.expand(ctx.input("inp_embd", TensorType.F32, ctx.hparams.n_embd, n_tokens))
    return embeddings


def rms_norm(ctx: GraphContext, x: Tensor, weight: Tensor, il: int) -> Tensor:
    """Normalise x and multiply it by a weight."""
    normed = ctx.named(build.rms_norm(x, ctx.hparams.norm_eps), "norm", il)
    return build.mul(normed, weight)


def linear(ctx: GraphContext, name: str, il: int, x: Tensor) -> Tensor:
    """A weight times x."""
    return build.mul_mat(ctx.weight(name, il), x)


def qkv(ctx: GraphContext, x: Tensor, il: int) -> tuple[Tensor, Tensor, Tensor]:
    """Q [d, n_head, t], K and V [d, n_head_kv, t], with biases where the model has them."""
    heads = (ctx.hparams.n_head, ctx.hparams.n_head_kv, ctx.hparams.n_head_kv)
    parts = []
    for letter, n_head in zip("qkv", heads, strict=True):
        name = f"{letter.upper()}cur"
        cur = ctx.named(linear(ctx, f"attn_{letter}", il, x), name, il)
        bias = ctx.optional(f"attn_{letter}", il, "bias")
        if bias is not None:
            cur = ctx.named(build.add(cur, bias), name, il)
        cur = build.reshape(cur, ctx.hparams.n_embd_head, n_head, ctx.shape.n_tokens)
        parts.append(ctx.named(cur, name, il))
    return parts[0], parts[1], parts[2]


def attention(
    ctx: GraphContext, q: Tensor, k: Tensor, v: Tensor, *, scale: float, il: int
) -> Tensor:
    """Cached attention and its output projection, f32 [n_embd, t]."""
    for tensor in (q, v, k):
        ctx.builder.expand(tensor)
    _write_cache(ctx, k, v, il)
    attended = _flash(ctx, q, scale, il) if ctx.flash_attn else _plain(ctx, q, scale, il)
    ctx.builder.expand(ctx.named(attended, "kqv_out", il))
    out = linear(ctx, "attn_output", il, attended)
    bias = ctx.optional("attn_output", il, "bias")
    return out if bias is None else build.add(out, bias)


def _write_cache(ctx: GraphContext, k: Tensor, v: Tensor, il: int) -> None:
    n_tokens, n_embd_kv = ctx.shape.n_tokens, ctx.hparams.n_embd_kv
    k_rows = build.view(k, (n_embd_kv, n_tokens), (k.nb[2],))
    k_ids = ctx.input("attn_inp_k_idxs", TensorType.I64, n_tokens)
    ctx.builder.expand(build.set_rows(ctx.cache.keys[il], k_rows, k_ids))
    cache_v = ctx.cache.values[il]
    if ctx.flash_attn:
        v_rows = build.view(v, (n_embd_kv, n_tokens), (v.nb[2],))
        v_ids = ctx.input("attn_inp_v_idxs", TensorType.I64, n_tokens)
    else:
        # The cache is transposed: each element is a row of its own.
        v_rows = build.reshape(v, n_embd_kv, n_tokens)
        v_rows = build.reshape(v_rows, 1, n_embd_kv * n_tokens)
        cache_v = build.reshape(cache_v, 1, n_embd_kv * ctx.cache.n_cells)
        v_ids = ctx.input("attn_inp_v_idxs", TensorType.I64, n_embd_kv * n_tokens)
    ctx.builder.expand(build.set_rows(cache_v, v_rows, v_ids))


def _cached(ctx: GraphContext, cache: Tensor) -> Tensor:
    """[d, n_head_kv, n_kv] of a cache tensor whose rows are tokens, permuted to [d, n_kv, ..]."""
    d, n_kv = ctx.hparams.n_embd_head, ctx.shape.n_kv
    row = cache.nb[1]
    seen = build.view(
        cache,
        (d, ctx.hparams.n_head_kv, n_kv, 1),
        (d * cache.nb[0], row, row * ctx.cache.n_cells),
    )
    return build.permute(seen, (0, 2, 1, 3))


def _transposed_values(ctx: GraphContext, cache: Tensor) -> Tensor:
    """[n_kv, n_head_kv, d] of the transposed V cache, permuted to [n_kv, d, n_head_kv]."""
    d, n_kv, column = ctx.hparams.n_embd_head, ctx.shape.n_kv, cache.nb[0] * ctx.cache.n_cells
    seen = build.view(
        cache,
        (n_kv, ctx.hparams.n_head_kv, d, 1),
        (column * d, column, column * ctx.hparams.n_embd_kv),
    )
    return build.permute(seen, (0, 2, 1, 3))


def _query(q: Tensor) -> Tensor:
    seen = build.view(q, q.ne, (q.nb[1], q.nb[2], q.nb[3]))
    return build.permute(seen, (0, 2, 1, 3))


def _flash(ctx: GraphContext, q: Tensor, scale: float, il: int) -> Tensor:
    n_kv, n_tokens = ctx.shape.n_kv, ctx.shape.n_tokens
    query = _query(q)
    keys = _cached(ctx, ctx.cache.keys[il])
    values = _cached(ctx, ctx.cache.values[il])
    mask = ctx.input("attn_inp_kq_mask", TensorType.F16, n_kv, n_tokens)
    attended = build.flash_attn_ext(query, keys, values, mask, FlashAttnParams(scale))
    ctx.attentions.append((attended, il))
    ctx.builder.expand(attended)
    return build.reshape(attended, attended.ne[0] * attended.ne[1], n_tokens)


def _plain(ctx: GraphContext, q: Tensor, scale: float, il: int) -> Tensor:
    n_kv, n_tokens = ctx.shape.n_kv, ctx.shape.n_tokens
    query = _query(q)
    keys = _cached(ctx, ctx.cache.keys[il])
    values = _transposed_values(ctx, ctx.cache.values[il])
    mask = ctx.input("attn_inp_kq_mask", TensorType.F32, n_kv, n_tokens)
    kq = ctx.named(build.mul_mat(keys, query, precision=Precision.F32), "kq", il)
    weights = ctx.named(build.soft_max(kq, mask, SoftMaxParams(scale)), "kq_soft_max", il)
    kqv = ctx.named(build.mul_mat(values, weights), "kqv", il)
    merged = build.permute(kqv, (0, 2, 1, 3))
    return build.cont(merged, shape4(merged.ne[0] * merged.ne[1], n_tokens))


def gated_ffn(ctx: GraphContext, x: Tensor, il: int) -> Tensor:
    """down(silu(gate(x)) * up(x)), with biases where the model has them."""
    gate = _with_bias(ctx, "ffn_gate", x, il)
    up = _with_bias(ctx, "ffn_up", x, il)
    hidden = ctx.named(build.glu_split(gate, up, GluOp.SWIGLU), "ffn_swiglu", il)
    down = linear(ctx, "ffn_down", il, hidden)
    bias = ctx.optional("ffn_down", il, "bias")
    return down if bias is None else build.add(ctx.named(down, "ffn_down", il), bias)


def _with_bias(ctx: GraphContext, name: str, x: Tensor, il: int) -> Tensor:
    cur = ctx.named(linear(ctx, name, il, x), name, il)
    bias = ctx.optional(name, il, "bias")
    return cur if bias is None else ctx.named(build.add(cur, bias), f"{name}_b", il)


def keep_outputs(ctx: GraphContext, *tensors: Tensor) -> list[Tensor]:
    """The rows of each tensor that give logits."""
    out_ids = ctx.input("out_ids", TensorType.I32, ctx.shape.n_outputs)
    return [build.get_rows(tensor, out_ids) for tensor in tensors]
