"""The op table of a split: rows of int64 that the interpreter walks."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from engine.backend.host_buffer import CACHE_LINE, aligned_bytes
from engine.backends.cpu import layout
from engine.backends.cpu.jit import Kernel
from engine.backends.cpu.kernels.catalog import KERNELS
from engine.backends.cpu.lowering import lower
from engine.backends.cpu.ticks import new_ticks
from engine.backends.cpu.writer import Param, Row, Writer
from engine.core.ops import EMPTY_OPS, Op

if TYPE_CHECKING:
    import numpy.typing as npt

    from engine.backend.interface import Bytes, SplitGraph
    from engine.core.tensor import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """A split, compiled: the table, its scratch memory, and which rows belong to which node.

    `computed` are the nodes that have rows, by their index in the split; `first_row` and `end_row`
    have one entry for each.
    """

    table: npt.NDArray[np.int64]
    scratch: Bytes
    ticks: memoryview
    computed: npt.NDArray[np.int64]
    first_row: npt.NDArray[np.int64]
    end_row: npt.NDArray[np.int64]
    row_nodes: tuple[int, ...]
    n_threads: int
    table_address: int
    ticks_address: int

    @property
    def n_rows(self) -> int:
        """Rows of the table."""
        return len(self.row_nodes)


def build_program(graph: SplitGraph, n_threads: int) -> Program:
    """The table of a split for so many threads. Compiles kernels that are not compiled yet."""
    return _assemble(lowered(graph), n_threads)


def lowered(graph: SplitGraph) -> Writer:
    """The rows of a split; nothing is compiled."""
    writer = Writer(graph)
    for i_node, node in enumerate(graph.nodes):
        if node.op not in EMPTY_OPS and not _computes_nothing(node):
            lower(writer, i_node, node)
    return writer


def _computes_nothing(node: Tensor) -> bool:
    writes = node.src[0] if node.op in (Op.SET_ROWS, Op.CPY) else node
    return writes.n_elems == 0


def _assemble(writer: Writer, n_threads: int) -> Program:
    """Words from rows, with scratch memory laid out."""
    rows = writer.rows
    shared, own_at = _lay_out(writer.shared_bytes)
    own_bytes = _round_up(max((row.own_bytes for row in rows), default=0))
    scratch = aligned_bytes(own_at + own_bytes * n_threads, CACHE_LINE)
    base = int(scratch.ctypes.data)
    table = np.zeros((len(rows), layout.ROW_WORDS), dtype=np.int64)
    for i_row, row in enumerate(rows):
        _write_row(table[i_row], row)
        table[i_row, layout.SHARED // 8] = base + shared[row.shared] if row.shared else 0
        table[i_row, layout.OWN // 8] = base + own_at
        table[i_row, layout.OWN_BYTES // 8] = own_bytes
        table[i_row, layout.FLAGS // 8] = _flags(rows, i_row)
    row_nodes = tuple(row.i_node for row in rows)
    ticks = new_ticks(len(rows))
    return Program(
        table,
        scratch,
        ticks.data,
        *_rows_of_nodes(row_nodes),
        row_nodes,
        n_threads,
        table_address=int(table.ctypes.data),
        ticks_address=int(ticks.ctypes.data),
    )


def _lay_out(sizes: dict[str, int]) -> tuple[dict[str, int], int]:
    """Offset of each region, and the end of the last."""
    offsets, end = {}, 0
    for name, n_bytes in sizes.items():
        offsets[name] = end
        end += _round_up(n_bytes)
    return offsets, end


def _round_up(n_bytes: int) -> int:
    return -(-n_bytes // CACHE_LINE) * CACHE_LINE


def _write_row(words: npt.NDArray[np.int64], row: Row) -> None:
    words[layout.KERNEL // 8] = KERNELS[row.kernel].address()
    for i_param, value in enumerate(row.params):
        words[layout.PARAMS // 8 + i_param] = _word_of(value)
    for offset, (address, ne, nb) in row.tensors.items():
        words[offset // 8 : offset // 8 + 9] = (address, *ne, *nb)


def _word_of(value: Param) -> int:
    if isinstance(value, Kernel):
        return value.address()
    if isinstance(value, float):
        return int(struct.unpack("<q", struct.pack("<d", value))[0])
    return value or 0


def _flags(rows: list[Row], i_row: int) -> int:
    """Threads meet on both sides of a parallel row, and at the end."""
    is_last = i_row + 1 == len(rows)
    meets = rows[i_row].parallel or is_last or rows[i_row + 1].parallel
    parallel = layout.PARALLEL if rows[i_row].parallel else 0
    return parallel | (layout.BARRIER if meets else 0)


def _rows_of_nodes(
    row_nodes: tuple[int, ...],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Nodes with rows, the first row of each and the one behind its last."""
    nodes = np.asarray(row_nodes, dtype=np.int64)
    computed, first = np.unique(nodes, return_index=True)
    return computed, first, np.append(first[1:], len(nodes))[: len(first)]
