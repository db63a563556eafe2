"""Nodes of a split -> kernel calls, with the rounded activations between them. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.backends.opencl.encode import ROUNDINGS, encode, encode_mul_mat, encode_round_rows
from engine.core.ops import EMPTY_OPS, Op
from engine.core.tensor import Tensor
from engine.core.types import TensorType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from engine.backend.interface import Place
    from engine.backends.opencl.encode import KernelCall, PlaceOf, Rounding, Tuning


def encode_split(
    nodes: Sequence[Tensor],
    place_of: PlaceOf,
    tuning: Tuning,
    scratch: Callable[[int], Place],
) -> Iterator[KernelCall]:
    """The launches that compute `nodes` in order; the rules must have allowed them.

    Matmuls with quantised weights read rounded activations (kernels/round_rows.cl) from one place,
    `scratch(n_bytes)`, asked for once and only if there are any. Matmuls in a row that share their
    activations round them once.
    """
    working = [node for node in nodes if node.op not in EMPTY_OPS and node.n_elems > 0]
    needs = [_rounded(node.src[1]).n_bytes for node in working if rounding_of(node)]
    place = scratch(max(needs)) if needs else None
    held: tuple[Tensor, Rounding] | None = None
    for node in working:
        kind = rounding_of(node)
        if place is None or kind is None:
            yield encode(node, place_of, tuning)
        else:
            x = node.src[1]
            if held != (x, kind):
                yield encode_round_rows(x, kind, place_of(x), place, tuning)
                held = (x, kind)
            yield encode_mul_mat(node, place_of, tuning, x=_rounded(x), x_place=place)
        if held is not None and _owner(node) is _owner(held[0]):
            held = None


def rounding_of(node: Tensor) -> Rounding | None:
    """How a matmul with quantised weights has its activations rounded; None for other nodes."""
    return ROUNDINGS.get(node.src[0].type) if node.op is Op.MUL_MAT else None


def _rounded(x: Tensor) -> Tensor:
    """The layout of rounded activations: no gaps."""
    return Tensor(TensorType.F32, x.ne)


def _owner(tensor: Tensor) -> Tensor:
    """The tensor whose bytes these are."""
    return tensor if tensor.view_src is None else tensor.view_src
