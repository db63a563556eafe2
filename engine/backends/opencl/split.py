"""Nodes of a split -> kernel calls, with the rounded activations between them. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from engine.backends.opencl.chains import chain_at, encode_chain
from engine.backends.opencl.encode import encode
from engine.backends.opencl.encode_matmul import (
    MATMULS,
    encode_matmul,
    encode_round_rows,
    goes_column_by_column,
)
from engine.backends.opencl.readers import READERS
from engine.core.ops import EMPTY_OPS
from engine.core.tensor import Tensor
from engine.core.types import TensorType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from engine.backend.interface import Place
    from engine.backends.opencl.arguments import KernelCall, PlaceOf
    from engine.backends.opencl.readers import Rounding
    from engine.backends.opencl.tuning import Tuning

MAX_PLAIN_BYTES = 16 << 20
"""Activations that are rounded for half float weights, at most: the weights of a whole prompt's
attention would need too much memory for a difference of 1e-7 (NMSE)."""


class Encoded(NamedTuple):
    """Nodes that some launches compute: one, or a chain."""

    nodes: Sequence[Tensor]
    calls: tuple[KernelCall, ...]


def encode_split(
    nodes: Sequence[Tensor],
    place_of: PlaceOf,
    tuning: Tuning,
    scratch: Callable[[int], Place],
) -> Iterator[KernelCall]:
    """The launches that compute `nodes` in order; see `encode_each`."""
    for encoded in encode_each(nodes, place_of, tuning, scratch):
        yield from encoded.calls


def encode_each(
    nodes: Sequence[Tensor],
    place_of: PlaceOf,
    tuning: Tuning,
    scratch: Callable[[int], Place],
) -> Iterator[Encoded]:
    """The launches that compute `nodes` in order; the rules must have allowed them.

    Matmuls with other weights than float32 read rounded activations (kernels/round_rows.cl) from
    one place, `scratch(n_bytes)`, asked for once and only if there are any. Matmuls in a row that
    share their activations round them once.
    """
    working = [node for node in nodes if node.op not in EMPTY_OPS and node.n_elems > 0]
    needs = [_rounded(node.src[1]).n_bytes for node in working if rounding_of(node, tuning)]
    place = scratch(max(needs)) if needs else None
    held: tuple[Tensor, Rounding] | None = None
    i_node = 0
    while i_node < len(working):
        node = working[i_node]
        chain = chain_at(working, i_node, tuning)
        written = working[i_node : i_node + (1 if chain is None else chain.n_nodes)]
        i_node += len(written)
        if chain is not None:
            kind = _rounding_after(chain.product, working[i_node : i_node + 1], tuning)
            yield Encoded(written, (encode_chain(chain, place_of, kind=kind, whole=place),))
            held = _unless_written(held, written) if kind is None else (chain.product, kind)
            continue
        kind = rounding_of(node, tuning)
        if place is None or kind is None:
            yield Encoded(written, (encode(node, place_of, tuning),))
        else:
            x = node.src[1]
            product = encode_matmul(node, place_of, tuning, x=_rounded(x), x_place=place)
            if held == (x, kind):
                yield Encoded(written, (product,))
            else:
                rounding = encode_round_rows(x, kind, place_of(x), place, tuning)
                yield Encoded(written, (rounding, product))
            held = (x, kind)
        held = _unless_written(held, written)


def _unless_written(
    held: tuple[Tensor, Rounding] | None, written: Sequence[Tensor]
) -> tuple[Tensor, Rounding] | None:
    """`held`, or None if its activations are among what was written."""
    if held is not None and any(node.base is held[0].base for node in written):
        return None
    return held


def _rounding_after(
    product: Tensor, following: Sequence[Tensor], tuning: Tuning
) -> Rounding | None:
    """How the matmul that follows a chain has the product rounded, if to whole numbers."""
    for node in following:
        if node.op in MATMULS and node.src[1] is product:
            kind = rounding_of(node, tuning)
            return kind if kind is not None and kind.is_whole else None
    return None


def rounding_of(node: Tensor, tuning: Tuning) -> Rounding | None:
    """How a matmul has its activations rounded; None if it does not, and for other nodes."""
    if node.op not in MATMULS:
        return None
    weight, x = node.src[:2]
    is_plain = not weight.type.is_quantized
    if is_plain and _rounded(x).n_bytes > MAX_PLAIN_BYTES:
        return None
    reader = READERS[weight.type]
    if reader.whole and tuning.whole_numbers and goes_column_by_column(node, tuning):
        return reader.whole
    return reader.rounding


def _rounded(x: Tensor) -> Tensor:
    """The layout of rounded activations: no gaps. Whole numbers take less than a float's room."""
    return Tensor(TensorType.F32, x.ne)
