"""KernelCall and what its arguments are made of.

Argument orders are those of the .cl files: first the (buffer, offset) pairs, then counts (int),
strides in bytes (ulong), then floats.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import numpy as np

from engine.backend.interface import Place
from engine.core.tensor import Shape, Tensor

Argument = Place | np.generic
PlaceOf = Callable[[Tensor], Place]
P = TypeVar("P")


MAX_INT = 2**31
"""Elements that an int counts."""


class KernelCall(NamedTuple):
    """One launch: which kernel of which program, its arguments and number of items.

    `program` is (family, types) as `programs.Programs` takes it.
    """

    program: tuple[str, str]
    kernel: str
    args: tuple[Argument, ...]
    items: tuple[int, int, int]


def pairs(place_of: PlaceOf, *tensors: Tensor) -> tuple[Argument, ...]:
    """The (buffer, offset) pair of each tensor."""
    return tuple(part for tensor in tensors for part in pair(place_of(tensor)))


def pair(place: Place) -> tuple[Argument, Argument]:
    """The (buffer, offset) pair of a place."""
    return place, np.uint64(place.offset)


def ints(*values: int) -> tuple[np.int32, ...]:
    """Counts and switches."""
    return tuple(np.int32(v) for v in values)


def longs(*values: int) -> tuple[np.uint64, ...]:
    """Single strides."""
    return tuple(np.uint64(v) for v in values)


def floats(*values: float) -> tuple[np.float32, ...]:
    """Parameters."""
    return tuple(np.float32(v) for v in values)


def strides(*tensors: Tensor) -> tuple[np.uint64, ...]:
    """Strides of dimensions 1 to 3 of each tensor."""
    return tuple(np.uint64(nb) for t in tensors for nb in t.nb[1:])


def params_of(node: Tensor, kind: type[P]) -> P:
    """The parameters of a node, which are of this kind."""
    assert isinstance(node.params, kind), node
    return node.params


def chunks(ne: Shape, chunk_elems: int) -> tuple[int, int, int]:
    """Items of a kernel over the elements of `ne` (chunks.cl)."""
    return (ceil_div(ne[0], chunk_elems), ne[1] * ne[2] * ne[3], 1)


def one_row(n_elems: int) -> Shape:
    """The shape of elements without gaps, whatever shape they had."""
    return (n_elems, 1, 1, 1)


def ceil_div(count: int, step: int) -> int:
    """Steps needed to cover `count`."""
    return -(-count // step)
