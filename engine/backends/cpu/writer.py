"""Rows of the op table while they are collected, and the scratch memory that they share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Union

from engine.backends.cpu import layout
from engine.backends.cpu.repack import stored_strides

if TYPE_CHECKING:
    from engine.backend.interface import SplitGraph
    from engine.backends.cpu.jit import Kernel
    from engine.core.tensor import Shape, Tensor
    from engine.core.types import TensorType

PARALLEL_FROM = 8192
"""Elements from which sharing a cheap row costs less than it saves (a barrier is about 0.2 us)."""
PARALLEL_FROM_PRODUCTS = 32768
"""The same for multiplications of a product or an attention."""

SOURCES = (
    layout.SRC0,
    layout.SRC1,
    layout.SRC2,
    layout.SRC3,
    layout.SRC4,
    layout.SRC5,
    layout.SRC6,
)

Placed = tuple[int, "Shape", "Shape"]
"""Address, ne and nb of a tensor."""

Param = Union[int, float, "Kernel", None]
"""A parameter of a row; a kernel stands for its address, None for 0."""


@dataclass(slots=True)
class Row:
    """One row before it becomes words. `shared` and `own_bytes` size scratch memory."""

    kernel: str
    i_node: int
    tensors: dict[int, Placed]
    params: tuple[Param, ...] = ()
    parallel: bool = False
    shared: str = ""
    own_bytes: int = 0


@dataclass(slots=True)
class Writer:
    """Collects rows; remembers what scratch memory holds.

    `quantized`: whose columns, and how; `grouped`: the ids whose pairs are sorted by expert;
    `gathered`: whose columns lie beside them, and how; `angles`: the room of each set of angles.
    """

    graph: SplitGraph
    rows: list[Row] = field(default_factory=list)
    shared_bytes: dict[str, int] = field(default_factory=dict)
    quantized: tuple[Tensor, TensorType] | None = None
    grouped: tuple[Tensor, int] | None = None
    gathered: tuple[Tensor, TensorType] | None = None
    angles: dict[tuple[object, ...], str] = field(default_factory=dict)

    def forget_columns(self) -> None:
        """A tensor that exists already was written, perhaps one whose columns are kept."""
        self.quantized = None
        self.gathered = None

    def tensor(self, tensor: Tensor) -> Placed:
        """Address, ne, and nb as the bytes are stored."""
        place = self.graph.place_of(tensor)
        assert place.buffer.address, (tensor, place)
        strides = stored_strides(tensor, place.buffer.buft)
        return place.buffer.address + place.offset, tensor.ne, strides

    def tensors(self, node: Tensor) -> dict[int, Placed]:
        """The node as dst and its sources in order."""
        placed = {layout.DST: self.tensor(node)}
        for offset, source in zip(SOURCES, node.src, strict=False):
            placed[offset] = self.tensor(source)
        return placed

    def add(
        self,
        kernel: str,
        i_node: int,
        node: Tensor,
        params: tuple[Param, ...] = (),
        *,
        work: int | None = None,
        shared: str = "",
        own_bytes: int = 0,
    ) -> None:
        """Add a row with the node as dst and its sources in order."""
        parallel = (
            node.n_elems >= PARALLEL_FROM if work is None else (work >= PARALLEL_FROM_PRODUCTS)
        )
        tensors = self.tensors(node)
        self.rows.append(Row(kernel, i_node, tensors, params, parallel, shared, own_bytes))

    def add_row(
        self,
        kernel: str,
        i_node: int,
        tensors: dict[int, Placed],
        params: tuple[Param, ...],
        *,
        n_elems: int,
        shared: str = "",
        own_bytes: int = 0,
    ) -> None:
        """Add a row with these tensors that handles so many elements."""
        parallel = n_elems >= PARALLEL_FROM
        self.rows.append(Row(kernel, i_node, tensors, params, parallel, shared, own_bytes))

    def room(self, name: str, n_bytes: int) -> str:
        """Scratch memory of this name, at least so large."""
        self.shared_bytes[name] = max(n_bytes, self.shared_bytes.get(name, 0))
        return name
