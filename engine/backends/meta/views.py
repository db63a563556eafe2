"""Views of tensors that members share: which part of a view lies on which member. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from engine.core.ops import Op
from engine.core.shards import Shard, axis_bytes, shard_along
from engine.core.tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Sequence


class _Layout(NamedTuple):
    """How a gapless tensor is shared: its axis comes round every `period` bytes."""

    period: int
    starts: tuple[int, ...]
    sizes: tuple[int, ...]


def view_shard(base: Tensor, shard: Shard, view: Tensor) -> Shard | None:
    """How `view` of the gapless tensor `base` is shared; None where members have no whole part.

    One dimension of the view has to walk along the whole axis that is shared.
    """
    if shard.is_mirrored or shard.owner is not None:
        return shard
    layout = _layout(base, shard)
    dim = _walk(layout, view)
    return None if dim is None else shard_along(dim, _elems(view, dim, layout))


def member_view(
    base: Tensor, shard: Shard, view: Tensor, member: int, own: Tensor
) -> Tensor | None:
    """What a member has of `view`, as a view of `own`, its part of `base`; None: nothing.

    `view_shard` has found how it is shared, along an axis.
    """
    layout = _layout(base, shard)
    dim = _walk(layout, view)
    assert dim is not None, (base, view)
    size = layout.sizes[member]
    if not size:
        return None
    part = Shard(dim, _elems(view, dim, layout))
    nb = [
        stride // layout.period * size if stride % layout.period == 0 else stride
        for stride in view.nb
    ]
    n_outer, inner = divmod(view.view_offs, layout.period)
    return Tensor(
        view.type,
        part.ne_on(view.ne, member),
        nb=(nb[0], nb[1], nb[2], nb[3]),
        op=Op.VIEW,
        src=(own,),
        view_src=own,
        view_offs=n_outer * size + inner,
        name=view.name,
    )


def slice_of(tensor: Tensor, shard: Shard, member: int) -> Tensor | None:
    """A member's part of a tensor that it has whole, as a view; None where it is nothing."""
    if shard.is_mirrored:
        return tensor
    if not shard.is_on(member):
        return None
    if shard.owner is not None:
        return tensor
    start = shard.start(member)
    if shard.axis == 0:
        offset = start // tensor.type.block_elems * tensor.nb[0]
    else:
        offset = start * tensor.nb[shard.axis]
    return Tensor(
        tensor.type,
        shard.ne_on(tensor.ne, member),
        nb=tensor.nb,
        op=Op.VIEW,
        src=(tensor,),
        view_src=tensor.base,
        view_offs=tensor.view_offs + offset,
        name=tensor.name,
    )


def reshaped_shard(source: Tensor, shard: Shard, target: Tensor) -> Shard | None:
    """How a gapless copy of `source`, perhaps of another shape, is shared; None: not at all."""
    if source.ne == target.ne or shard.is_mirrored or shard.owner is not None:
        return shard
    return view_shard(Tensor(source.type, source.ne), shard, Tensor(source.type, target.ne))


def _layout(base: Tensor, shard: Shard) -> _Layout:
    def n_bytes(n_elems: int) -> int:
        return axis_bytes(base.type, base.ne, shard.axis, n_elems)

    members = range(len(shard.sizes))
    return _Layout(
        n_bytes(base.ne[shard.axis]),
        tuple(n_bytes(shard.start(member)) for member in members),
        tuple(n_bytes(size) for size in shard.sizes),
    )


def _walk(layout: _Layout, view: Tensor) -> int | None:
    """The dimension of the view that walks along the shared axis, if every part is whole."""
    inside = [dim for dim in range(4) if view.ne[dim] > 1 and view.nb[dim] % layout.period]
    if not inside:
        return None
    # A row of one block has the stride of what follows it.
    dim = max(inside, key=lambda dim: (view.nb[dim], dim))
    stride = view.nb[dim]
    offset = view.view_offs % layout.period
    is_apart = offset + _span(view, [d for d in inside if d != dim]) <= stride
    has_whole_parts = all(n % stride == 0 for n in (*layout.starts, *layout.sizes))
    return dim if _extent(view, dim) == layout.period and is_apart and has_whole_parts else None


def _elems(view: Tensor, dim: int, layout: _Layout) -> tuple[int, ...]:
    """Elements along a dimension of the view that each member has."""
    n_elems = view.type.block_elems if dim == 0 else 1
    return tuple(size // view.nb[dim] * n_elems for size in layout.sizes)


def _extent(view: Tensor, dim: int) -> int:
    """Bytes that a dimension goes through, the step behind its last element included."""
    return view.ne[dim] // (1 if dim else view.type.block_elems) * view.nb[dim]


def _span(view: Tensor, dims: Sequence[int]) -> int:
    """Bytes from the first to behind the last element along these dimensions."""
    return view.type.block_bytes + sum(_extent(view, dim) - view.nb[dim] for dim in dims)
