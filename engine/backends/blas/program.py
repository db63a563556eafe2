"""A split as products of matrices, whose arrays are made once and used for every batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from engine.core.ops import EMPTY_OPS, Op
from engine.core.quants import dequantize
from engine.core.types import TensorType

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from engine.backend.interface import Bytes, SplitGraph
    from engine.backends.blas.workers import Scratch, Workers
    from engine.core.block_parts import Floats
    from engine.core.tensor import Tensor


BLOCK_ELEMS = 2**20
"""Elements that a thread unpacks before it multiplies them: 4 MiB, whatever a weight takes."""

PIECE_ELEMS = 2**16
"""Elements of blocks with scales that are unpacked at once; much is made and dropped meanwhile."""


@dataclass(frozen=True, slots=True, eq=False)
class Product:
    """One MUL_MAT: out = x times the transposed weight, for every matrix of x.

    The arrays are the tensors' own memory, in numpy's order of dimensions: `weight` [ne3, ne2, ne1,
    bytes of a row], `x` and `out` [ne3, ne2, ne1, ne0]. One matrix of the weight serves several
    neighbouring ones of x.
    """

    weight_type: TensorType
    weight: Bytes
    x: Floats
    out: Floats

    def compute(self, workers: Workers, check_stop: Callable[[], None]) -> None:
        """Multiply; `check_stop` is called between pieces, on any thread, and may raise."""
        n3, n2, n1, _ = self.weight.shape

        def rows_of_all(start: int, stop: int, scratch: Scratch) -> None:
            # An infinity is a value like any other.
            with np.errstate(all="ignore"):
                for i_matrix in range(start // n1, -(-stop // n1)):
                    first = i_matrix * n1
                    rows = range(max(start - first, 0), min(stop - first, n1))
                    self._multiply(divmod(i_matrix, n2), rows, scratch, check_stop)

        workers.share(n3 * n2 * n1, rows_of_all)

    def _multiply(
        self, matrix: tuple[int, int], rows: range, scratch: Scratch, check_stop: Callable[[], None]
    ) -> None:
        """Everything that some rows of one matrix of the weight take part in."""
        stored, pairs = self.weight[matrix], self._sharing(*matrix)
        n_elems = self.x.shape[3]
        n_block = max(1, BLOCK_ELEMS // n_elems)
        for first in range(rows.start, rows.stop, n_block):
            check_stop()
            stop = min(first + n_block, rows.stop)
            values = _as_floats(self.weight_type, stored[first:stop], n_elems, scratch)
            for x, out in pairs:
                np.matmul(x, values.T, out=out[:, first:stop])

    def _sharing(self, i3: int, i2: int) -> list[tuple[Floats, Floats]]:
        """Columns of x that one matrix multiplies, and where they go; neighbours are one matrix."""
        r3 = self.x.shape[0] // self.weight.shape[0]
        r2 = self.x.shape[1] // self.weight.shape[1]
        columns = slice(i2 * r2, (i2 + 1) * r2)
        n_elems, n_out = self.x.shape[3], self.out.shape[3]
        return [
            (self.x[j3, columns].reshape(-1, n_elems), self.out[j3, columns].reshape(-1, n_out))
            for j3 in range(i3 * r3, (i3 + 1) * r3)
        ]


def _as_floats(tensor_type: TensorType, rows: Bytes, n_elems: int, scratch: Scratch) -> Floats:
    """Stored rows as float32, [n, n_elems]; those that are float32 are no copy."""
    if tensor_type is TensorType.F32:
        return rows.view(np.float32)
    out = scratch.rows(len(rows), n_elems)
    if tensor_type is TensorType.F16:
        np.copyto(out, rows.view(np.float16))
        return out
    n_piece = max(1, PIECE_ELEMS // n_elems)
    for first in range(0, len(rows), n_piece):
        target = out[first : first + n_piece]
        piece = rows[first : first + n_piece].reshape(-1)
        np.copyto(target, dequantize(tensor_type, piece, target.size).reshape(target.shape))
    return out


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """The products of a split, and the index of each one's node in it."""

    products: tuple[Product, ...]
    nodes: npt.NDArray[np.int64]


def build_program(graph: SplitGraph) -> Program:
    """The products of a split; views and what has no elements compute nothing."""
    computed = [
        (i_node, node)
        for i_node, node in enumerate(graph.nodes)
        if node.op not in EMPTY_OPS and node.n_elems
    ]
    return Program(
        tuple(_product(graph, node) for _, node in computed),
        np.array([i_node for i_node, _ in computed], np.int64),
    )


def _product(graph: SplitGraph, node: Tensor) -> Product:
    assert node.op is Op.MUL_MAT, node
    weight, x = node.src
    return Product(weight.type, _bytes(graph, weight), _floats(graph, x), _floats(graph, node))


def _bytes(graph: SplitGraph, tensor: Tensor) -> Bytes:
    """The tensor's bytes by rows; it has no gaps."""
    place = graph.place_of(tensor)
    host = place.buffer.host
    assert host is not None, tensor
    ne0, ne1, ne2, ne3 = tensor.ne
    row_bytes = tensor.type.row_bytes(ne0)
    n_bytes = ne3 * ne2 * ne1 * row_bytes
    raw = host[place.offset : place.offset + n_bytes]
    return raw.reshape(ne3, ne2, ne1, row_bytes)


def _floats(graph: SplitGraph, tensor: Tensor) -> Floats:
    return _bytes(graph, tensor).view(np.float32)
