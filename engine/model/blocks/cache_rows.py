"""What a graph writes into the cache and reads from it. Source: ARCH.md 1.5."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.core import build
from engine.core.tensor import shape4
from engine.core.types import TensorType
from engine.model.blocks.graph_context import InputKind

if TYPE_CHECKING:
    from engine.core.tensor import Tensor
    from engine.model.blocks.graph_context import GraphContext


def write_keys(ctx: GraphContext, k: Tensor, il: int) -> None:
    """Put k [d, n_head_kv, t] into the cells of the batch."""
    rows = build.view(k, (k.ne[0] * k.ne[1], k.ne[2]), (k.nb[2],))
    part = ctx.cache.part_of[il]
    ids = ctx.input(InputKind.K_IDXS, TensorType.I64, ctx.shape.n_tokens, part=part)
    ctx.builder.expand(build.set_rows(ctx.cache.keys[il], rows, ids))


def write_values(ctx: GraphContext, v: Tensor, il: int) -> None:
    """Put v [dv, n_head_kv, t] into the cells of the batch."""
    if ctx.cache.v_transposed:
        _write_transposed(ctx, v, il)
        return
    rows = build.view(v, (v.ne[0] * v.ne[1], v.ne[2]), (v.nb[2],))
    part = ctx.cache.part_of[il]
    ids = ctx.input(InputKind.V_IDXS, TensorType.I64, ctx.shape.n_tokens, part=part)
    ctx.builder.expand(build.set_rows(ctx.cache.values[il], rows, ids))


def _write_transposed(ctx: GraphContext, v: Tensor, il: int) -> None:
    """Each element becomes a row of its own."""
    n_tokens, part, cache = ctx.shape.n_tokens, ctx.cache.part_of[il], ctx.cache.values[il]
    n_embd = v.ne[0] * v.ne[1]
    has_gaps = v.nb[2] != v.type.row_bytes(n_embd)
    ne = shape4(n_embd, n_tokens)
    rows = build.cont(v, ne) if has_gaps else build.reshape(v, *ne)
    if rows.ne[0] < cache.ne[0]:
        rows = build.pad(rows, cache.ne[0] - rows.ne[0])
    elements = build.reshape(cache, 1, cache.n_elems)
    rows = build.reshape(rows, 1, rows.n_elems)
    ids = ctx.input(InputKind.V_IDXS, TensorType.I64, cache.ne[0] * n_tokens, part=part)
    ctx.builder.expand(build.set_rows(elements, rows, ids))


def cached_keys(ctx: GraphContext, il: int) -> Tensor:
    """The keys a batch sees, [d, n_kv, n_head_kv]."""
    layer = ctx.layer(il)
    rows = cached_rows(ctx, ctx.cache.keys[il], layer.n_embd_head_k, il)
    return build.permute(rows, (0, 2, 1, 3))


def cached_values(ctx: GraphContext, il: int) -> Tensor:
    """The values a batch sees, [dv, n_kv, n_head_kv], or [n_kv, dv, n_head_kv] if transposed."""
    layer, cache = ctx.layer(il), ctx.cache.values[il]
    if not ctx.cache.v_transposed:
        rows = cached_rows(ctx, cache, layer.n_embd_head_v, il)
        return build.permute(rows, (0, 2, 1, 3))
    part, d = ctx.cache.part_of[il], layer.n_embd_head_v
    column = cache.nb[0] * part.n_cells
    seen = build.view(
        cache,
        (ctx.cache.seen_by(part, ctx.shape), layer.n_head_kv, d, 1),
        (column * d, column, column * cache.ne[0]),
    )
    return build.permute(seen, (0, 2, 1, 3))


def cached_rows(ctx: GraphContext, cache: Tensor, n_embd_head: int, il: int) -> Tensor:
    """The rows a batch sees, [d, n_head_kv, n_kv]."""
    part = ctx.cache.part_of[il]
    return build.view(
        cache,
        (n_embd_head, ctx.layer(il).n_head_kv, ctx.cache.seen_by(part, ctx.shape), 1),
        (cache.type.row_bytes(n_embd_head), cache.nb[1], cache.nb[1] * part.n_cells),
    )


def kq_mask(ctx: GraphContext, il: int) -> Tensor:
    """0 where a token sees a cell and -inf elsewhere, [n_kv, t]."""
    part = ctx.cache.part_of[il]
    mask_type = TensorType.F16 if ctx.flash_attn else TensorType.F32
    n_kv = ctx.cache.seen_by(part, ctx.shape)
    return ctx.input(InputKind.KQ_MASK, mask_type, n_kv, ctx.shape.n_tokens, part=part)
