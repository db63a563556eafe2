"""Tensor: shape, strides, operation and sources. Facts only; where its bytes live is elsewhere."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from engine.core.ops import VIEW_OPS, GluParams, Op, OpParams, UnaryParams

if TYPE_CHECKING:
    from engine.core.devices import BufferFacts
    from engine.core.types import TensorType

Shape = tuple[int, int, int, int]
"""ne or nb in ggml order: index 0 is the fastest dimension."""

MAX_NAME = 63
"""Longest name ggml keeps, in bytes."""


class Flag(enum.IntEnum):
    """What a tensor is to the graph; the values are ggml's bits.

    Combined they are plain ints, which every pass asks for many times: an IntFlag is far slower.
    """

    NONE = 0
    INPUT = 1
    OUTPUT = 2
    COMPUTE = 16


class Tensor:
    """One tensor of a graph. Compared by identity; finished once its Graph is built.

    `ne` counts elements, `nb` is the stride in bytes, both ne[0] first. `view_src` is never itself
    a view. `buffer` is set for tensors that have a home before planning (weights, KV cache).
    """

    __slots__ = (
        "buffer", "flags", "name", "nb", "ne", "op", "params", "src", "type", "view_offs",
        "view_src",
    )  # fmt: skip

    def __init__(
        self,
        tensor_type: TensorType,
        ne: Shape,
        *,
        nb: Shape | None = None,
        op: Op = Op.NONE,
        params: OpParams = None,
        src: tuple[Tensor, ...] = (),
        view_src: Tensor | None = None,
        view_offs: int = 0,
        name: str = "",
        buffer: BufferFacts | None = None,
        flags: int = Flag.NONE,
    ) -> None:
        self.type = tensor_type
        self.ne = ne
        self.nb = contiguous_strides(tensor_type, ne) if nb is None else nb
        self.op = op
        self.params = params
        self.src = src
        self.view_src = view_src
        self.view_offs = view_offs
        self.name = name
        self.buffer = buffer
        self.flags = flags

    def __repr__(self) -> str:
        return f"<{self.op_desc} {self.name!r} {self.type.label} {list(self.ne)}>"

    @property
    def op_desc(self) -> str:
        """The operation as ggml describes it: SILU rather than UNARY, SWIGLU rather than GLU."""
        if isinstance(self.params, UnaryParams | GluParams):
            return self.params.kind.value
        return self.op.value

    @property
    def n_elems(self) -> int:
        """Number of elements."""
        ne = self.ne
        return ne[0] * ne[1] * ne[2] * ne[3]

    @property
    def n_rows(self) -> int:
        """Number of rows, ne1 * ne2 * ne3."""
        return self.ne[1] * self.ne[2] * self.ne[3]

    @property
    def n_bytes(self) -> int:
        """Bytes from the first to the last element, strides included."""
        return span_bytes(self.type, self.ne, self.nb)

    @property
    def is_view_op(self) -> bool:
        """Whether the scheduler looks through this node (VIEW, RESHAPE, PERMUTE, TRANSPOSE)."""
        return self.op in VIEW_OPS

    @property
    def is_contiguous(self) -> bool:
        """Whether elements follow one another without gaps; a dimension of 1 has any stride."""
        gapless = contiguous_strides(self.type, self.ne)
        if self.nb == gapless:
            return True
        is_one_block = self.ne[0] == self.type.block_elems
        return (is_one_block or self.nb[0] == gapless[0]) and all(
            self.ne[i] == 1 or self.nb[i] == gapless[i] for i in (1, 2, 3)
        )

    @property
    def base(self) -> Tensor:
        """The tensor whose bytes these are: its view source, or itself."""
        return self if self.view_src is None else self.view_src

    @property
    def home(self) -> BufferFacts | None:
        """The buffer its bytes are in before planning: its view source's, or its own."""
        return self.base.buffer

    def same_layout(self, other: Tensor) -> bool:
        """Whether type, ne and nb are equal."""
        return self.type == other.type and self.ne == other.ne and self.nb == other.nb


def contiguous_strides(tensor_type: TensorType, ne: Shape) -> Shape:
    """Byte strides of a tensor without gaps."""
    nb0 = tensor_type.block_bytes
    nb1 = tensor_type.row_bytes(ne[0])
    nb2 = nb1 * ne[1]
    return (nb0, nb1, nb2, nb2 * ne[2])


def span_bytes(tensor_type: TensorType, ne: Shape, nb: Shape) -> int:
    """Bytes from the first to the last element of a strided tensor; 0 when it is empty."""
    if 0 in ne:
        return 0
    if tensor_type.block_elems == 1:
        first = tensor_type.block_bytes + (ne[0] - 1) * nb[0]
    else:
        first = ne[0] * nb[0] // tensor_type.block_elems
    return first + (ne[1] - 1) * nb[1] + (ne[2] - 1) * nb[2] + (ne[3] - 1) * nb[3]


def shape4(*ne: int) -> Shape:
    """`ne` filled up with ones to four dimensions."""
    assert 1 <= len(ne) <= 4, ne
    padded = (*ne, 1, 1, 1)
    return (padded[0], padded[1], padded[2], padded[3])
