"""How a node is shared, given how its sources are: one rule an operation. Pure.

Source: ggml_backend_meta_get_split_state (ggml-backend-meta.cpp).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.backends.meta.views import reshaped_shard
from engine.core.ops import FlashAttnParams, Op
from engine.core.shards import MIRRORED, Shard

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.core.tensor import Tensor


@dataclass(frozen=True, slots=True)
class Decision:
    """How the members share a node, and what each needs of every source.

    A source that a member has whole is sliced where a part is needed. With `adds_up` each member
    that has a part of the first source gets a part of each sum: their sum is the result.
    """

    out: Shard
    needs: tuple[Shard, ...]
    adds_up: bool = False


States = tuple[Shard | None, ...]
"""How each source is shared; None for a view of which members have no whole part."""


def decide(node: Tensor, states: States) -> Decision | None:
    """How a node is shared; None: every member computes it whole, from whole sources."""
    if any(state is None for state in states):
        return None
    known = tuple(state for state in states if state is not None)
    divided = [state for state in known if not state.is_mirrored]
    if not divided:
        return Decision(MIRRORED, known)
    owners = {state.owner for state in divided}
    if owners != {None}:
        return _on_one_member(node, known) if len(owners) == 1 else None
    rule = RULES.get(node.op)
    return None if rule is None else rule(node, known)


def _on_one_member(node: Tensor, states: tuple[Shard, ...]) -> Decision | None:
    """One member computes it; a product that ends an attention or a feed-forward is for all."""
    if node.view_src is not None and states[-1].is_mirrored:
        # It writes to what every member has.
        return None
    shard = next(state for state in states if not state.is_mirrored)
    ends = node.op in PRODUCTS and not states[1].is_mirrored
    return Decision(shard, states, adds_up=ends)


def _elementwise(node: Tensor, states: tuple[Shard, ...]) -> Decision | None:
    """Every source as the first one that is divided, but for those that repeat along its axis."""
    lead = next(state for state in states if not state.is_mirrored)
    axis = lead.axis
    needs = []
    for source, state in zip(node.src, states, strict=True):
        is_whole = source.ne[axis] == 1 != node.ne[axis]
        need = MIRRORED if is_whole else lead
        fits = is_whole or source.ne[axis] == node.ne[axis]
        if not fits or state not in (MIRRORED, need):
            return None
        needs.append(need)
    return Decision(lead, tuple(needs))


def _gated(node: Tensor, states: tuple[Shard, ...]) -> Decision | None:
    """A row of one source is the gate and what it lets through, one behind the other."""
    if len(node.src) == 1 and states[0].axis == 0:
        return None
    return _elementwise(node, states)


def _rows(node: Tensor, states: tuple[Shard, ...]) -> Decision | None:
    """Whole rows of a single source."""
    del node
    return Decision(states[0], states) if len(states) == 1 and states[0].axis > 0 else None


def _rope(node: Tensor, states: tuple[Shard, ...]) -> Decision | None:
    """Whole heads."""
    del node
    rest = states[1:]
    fits = states[0].axis == 1 and all(state.is_mirrored for state in rest)
    return Decision(states[0], states) if fits else None


def _copied(node: Tensor, states: tuple[Shard, ...]) -> Decision | None:
    """Not what is copied to another tensor, and not a cast, which is its own second source."""
    if len(states) > 1:
        return None
    out = reshaped_shard(node.src[0], states[0], node)
    return None if out is None else Decision(out, states)


def _get_rows(node: Tensor, states: tuple[Shard, ...]) -> Decision | None:
    del node
    table, ids = states
    return Decision(table, states) if table.axis == 0 and ids.is_mirrored else None


def _set_rows(node: Tensor, states: tuple[Shard, ...]) -> Decision | None:
    """The parts of rows that belong to a member's part of the target."""
    del node
    rows, ids, target = states
    fits = target.axis == 0 and ids.is_mirrored and rows in (MIRRORED, target)
    return Decision(target, (target, ids, target)) if fits else None


def _add_id(node: Tensor, states: tuple[Shard, ...]) -> Decision | None:
    del node
    x, rows, ids = states
    fits = x.axis == 0 and rows in (MIRRORED, x) and ids.is_mirrored
    return Decision(x, (x, x, ids)) if fits else None


def _product(node: Tensor, states: tuple[Shard, ...]) -> Decision | None:
    """MUL_MAT and MUL_MAT_ID."""
    weight, x = states[:2]
    rest = states[2:]
    if any(not state.is_mirrored for state in rest):
        return None
    if weight.axis == 1 and x.is_mirrored:
        return Decision(Shard(0, weight.sizes), states)
    if weight.axis == 0 and x in (MIRRORED, weight):
        return Decision(weight, (weight, weight, *rest), adds_up=True)
    if weight.is_mirrored and not rest and (x.axis == 1 or node.src[0].ne[x.axis] == 1 < x.axis):
        return Decision(x, states)
    return None


def _flash_attn(node: Tensor, states: tuple[Shard, ...]) -> Decision | None:
    """Whole heads of K and V with the heads of Q that look at them.

    Slopes of ALiBi depend on the number of a head.
    """
    params = node.params
    assert isinstance(params, FlashAttnParams), node
    q, k, v = states[:3]
    n_q, n_k = node.src[0].ne[2], node.src[1].ne[2]
    if params.max_bias or k.axis != 2 or v != k or n_q % n_k:
        return None
    queries = Shard(2, tuple(size * (n_q // n_k) for size in k.sizes))
    mask, sinks = states[3:4], states[4:]
    is_common = all(state.is_mirrored for state in mask) and all(
        source.ne[2] == 1 for source in node.src[3:4]
    )
    heads = Shard(0, queries.sizes)
    has_heads = q in (MIRRORED, queries) and all(state in (MIRRORED, heads) for state in sinks)
    if not is_common or not has_heads:
        return None
    needs = (queries, k, v, *mask, *[heads] * len(sinks))
    return Decision(Shard(1, queries.sizes), needs)


PRODUCTS = frozenset({Op.MUL_MAT, Op.MUL_MAT_ID})

RULES: dict[Op, Callable[[Tensor, tuple[Shard, ...]], Decision | None]] = {
    Op.ADD: _elementwise,
    Op.SUB: _elementwise,
    Op.MUL: _elementwise,
    Op.DIV: _elementwise,
    Op.SCALE: _elementwise,
    Op.CLAMP: _elementwise,
    Op.FILL: _elementwise,
    Op.UNARY: _elementwise,
    Op.GLU: _gated,
    Op.NORM: _rows,
    Op.RMS_NORM: _rows,
    Op.SOFT_MAX: _rows,
    Op.SUM_ROWS: _rows,
    Op.ROPE: _rope,
    Op.CONT: _copied,
    Op.CPY: _copied,
    Op.GET_ROWS: _get_rows,
    Op.SET_ROWS: _set_rows,
    Op.ADD_ID: _add_id,
    Op.MUL_MAT: _product,
    Op.MUL_MAT_ID: _product,
    Op.FLASH_ATTN_EXT: _flash_attn,
}
"""The rule of each operation that members can share; others each member computes whole."""
