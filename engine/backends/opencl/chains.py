"""Runs of small operations that one launch computes: ADD, RMS_NORM, MUL, rounding. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from engine.backends.opencl.arguments import KernelCall, floats, ints, pair, params_of
from engine.core.ops import NormParams, Op

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine.backend.interface import Place
    from engine.backends.opencl.arguments import PlaceOf
    from engine.backends.opencl.readers import Rounding
    from engine.backends.opencl.tuning import Tuning
    from engine.core.tensor import Tensor


class Chain(NamedTuple):
    """Nodes that follow one another, each the source of the next; `add` is optional."""

    add: Tensor | None
    norm: Tensor
    product: Tensor

    @property
    def n_nodes(self) -> int:
        """Nodes of the split that the chain stands for."""
        return 2 if self.add is None else 3


def chain_at(nodes: Sequence[Tensor], start: int, tuning: Tuning) -> Chain | None:
    """The chain that begins with `nodes[start]`, if one does.

    Every node of it is written, as if each were a launch of its own: nobody has to ask who else
    reads them.
    """
    if nodes[start].n_elems > tuning.chained_elems:
        return None
    add = nodes[start] if nodes[start].op is Op.ADD else None
    first = start if add is None else start + 1
    if first + 1 >= len(nodes):
        return None
    chain = Chain(add, nodes[first], nodes[first + 1])
    return chain if _fits(chain) else None


def _fits(chain: Chain) -> bool:
    add, norm, product = chain
    if norm.op is not Op.RMS_NORM or product.op is not Op.MUL or product.src[0] is not norm:
        return False
    weight = product.src[1]
    is_row = weight.n_elems == weight.ne[0] == norm.ne[0]
    sources = norm.src if add is None else add.src
    follows = add is None or norm.src[0] is add
    same = all(t.ne == norm.ne and t.is_contiguous for t in (*sources, norm, product))
    return is_row and follows and same and weight.is_contiguous


def encode_chain(
    chain: Chain, place_of: PlaceOf, *, kind: Rounding | None, whole: Place | None
) -> KernelCall:
    """The launch of a chain; with a `kind` its product is left at `whole` as whole numbers, too."""
    add, norm, product = chain
    source = norm.src[0]
    a, b = (source, source) if add is None else add.src
    args = (
        *pair(place_of(a)),
        *pair(place_of(b)),
        *pair(place_of(source)),
        *pair(place_of(norm)),
        *pair(place_of(product.src[1])),
        *pair(place_of(product)),
        *pair(place_of(product) if whole is None else whole),
        *ints(int(add is not None), norm.ne[0], norm.n_rows, kind.block if kind else 0),
        *floats(params_of(norm, NormParams).eps),
    )
    return KernelCall(("norm_chain", ""), "norm_chain", args, (1, 1, 1))
