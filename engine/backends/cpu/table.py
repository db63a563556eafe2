"""The op table of a split: nodes to rows of int64 that the interpreter walks.

Most nodes are one row. A product with quantised weights has a row before it that quantises the
activations, unless the row before already did (Q, K and V read the same ones). The angles of ROPE
are computed once for all layers that share positions and parameters.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from engine.backend.host_buffer import CACHE_LINE, aligned_bytes
from engine.backends.cpu import layout
from engine.backends.cpu.codegen import LANES
from engine.backends.cpu.kernels import elementwise
from engine.backends.cpu.kernels.catalog import KERNELS
from engine.backends.cpu.kernels.flash_attn import KEYS, QUERIES
from engine.backends.cpu.kernels.matmul_float import PANEL_STEPS
from engine.backends.cpu.rules import QUANTIZED
from engine.backends.cpu.tiles import BLOCK, BYTE_COLUMNS, FLOAT_COLUMNS, PANEL_BLOCK_BYTES
from engine.core.ops import (
    EMPTY_OPS,
    FlashAttnParams,
    NormParams,
    Op,
    RopeParams,
    ScaleParams,
    SoftMaxParams,
    UnaryOp,
    UnaryParams,
)
from engine.core.rope import rope_factors
from engine.core.tensor import Shape, contiguous_strides
from engine.core.types import TensorType

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from engine.backend.interface import Bytes, SplitGraph
    from engine.core.tensor import Tensor

PARALLEL_FROM = 8192
"""Elements from which sharing a cheap row costs less than it saves (a barrier is about 0.2 us)."""
PARALLEL_FROM_PRODUCTS = 32768
"""The same for multiplications of a product or an attention."""

COLUMN_BYTES_PER_BLOCK = BLOCK + 8
"""Quantised activations: bytes, a scale and a sum a block."""


@dataclass(slots=True)
class Row:
    """One row before it becomes words. `shared` and `own_bytes` size scratch memory."""

    kernel: str
    i_node: int
    tensors: dict[int, tuple[int, Shape, Shape]]
    params: tuple[int | float, ...] = ()
    parallel: bool = False
    shared: str = ""
    own_bytes: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """A split, compiled: the table, its scratch memory, and which rows belong to which node.

    `first_row` and `end_row` have one entry a node; a node without rows has end 0.
    """

    table: npt.NDArray[np.int64]
    scratch: Bytes
    ticks: npt.NDArray[np.int64]
    first_row: npt.NDArray[np.int64]
    end_row: npt.NDArray[np.int64]
    row_nodes: tuple[int, ...]
    n_threads: int

    @property
    def n_rows(self) -> int:
        """Rows of the table."""
        return len(self.row_nodes)


def build_program(graph: SplitGraph, n_threads: int) -> Program:
    """The table of a split for so many threads. Compiles kernels that are not compiled yet."""
    writer = _Writer(graph)
    for i_node, node in enumerate(graph.nodes):
        if node.op not in EMPTY_OPS and not _computes_nothing(node):
            writer.node(i_node, node)
    return _assemble(writer, len(graph.nodes), n_threads)


def _computes_nothing(node: Tensor) -> bool:
    writes = node.src[0] if node.op in (Op.SET_ROWS, Op.CPY) else node
    return writes.n_elems == 0


@dataclass(slots=True)
class _Writer:
    """Collects rows; remembers what scratch memory holds."""

    graph: SplitGraph
    rows: list[Row] = field(default_factory=list)
    shared_bytes: dict[str, int] = field(default_factory=dict)
    quantized: tuple[Tensor, TensorType] | None = None
    angles: dict[tuple[object, ...], str] = field(default_factory=dict)

    def node(self, i_node: int, node: Tensor) -> None:
        """Add the rows of one node."""
        _ROWS_OF[node.op](self, i_node, node)
        if node.op in (Op.SET_ROWS, Op.CPY):
            # It wrote into a tensor that exists already, perhaps the one that was quantised.
            self.quantized = None

    def tensor(self, tensor: Tensor) -> tuple[int, Shape, Shape]:
        """Address, ne and nb."""
        place = self.graph.place_of(tensor)
        assert place.buffer.address, (tensor, place)
        return place.buffer.address + place.offset, tensor.ne, tensor.nb

    def add(
        self,
        kernel: str,
        i_node: int,
        node: Tensor,
        params: tuple[int | float, ...] = (),
        *,
        work: int | None = None,
        shared: str = "",
        own_bytes: int = 0,
    ) -> None:
        """Add a row with the node as dst and its sources in order."""
        tensors = {layout.DST: self.tensor(node)}
        for offset, source in zip(_SOURCES, node.src, strict=False):
            tensors[offset] = self.tensor(source)
        parallel = (
            node.n_elems >= PARALLEL_FROM if work is None else (work >= PARALLEL_FROM_PRODUCTS)
        )
        self.rows.append(Row(kernel, i_node, tensors, params, parallel, shared, own_bytes))

    def room(self, name: str, n_bytes: int) -> str:
        """Scratch memory of this name, at least so large."""
        self.shared_bytes[name] = max(n_bytes, self.shared_bytes.get(name, 0))
        return name


_SOURCES = (layout.SRC0, layout.SRC1, layout.SRC2, layout.SRC3)
_BINARY = {
    Op.ADD: elementwise.ADD,
    Op.SUB: elementwise.SUB,
    Op.MUL: elementwise.MUL,
    Op.DIV: elementwise.DIV,
}


def _binary(writer: _Writer, i_node: int, node: Tensor) -> None:
    writer.add("binary", i_node, node, (_BINARY[node.op],))


def _scale(writer: _Writer, i_node: int, node: Tensor) -> None:
    assert isinstance(node.params, ScaleParams), node
    writer.add("scale", i_node, node, (float(node.params.scale), float(node.params.bias)))


def _unary(writer: _Writer, i_node: int, node: Tensor) -> None:
    assert isinstance(node.params, UnaryParams), node
    kind = elementwise.SILU if node.params.kind is UnaryOp.SILU else elementwise.GELU
    writer.add("unary", i_node, node, (kind,))


def _glu(writer: _Writer, i_node: int, node: Tensor) -> None:
    writer.add("swiglu", i_node, node)


def _rms_norm(writer: _Writer, i_node: int, node: Tensor) -> None:
    assert isinstance(node.params, NormParams), node
    writer.add("rms_norm", i_node, node, (float(node.params.eps),))


def _soft_max(writer: _Writer, i_node: int, node: Tensor) -> None:
    assert isinstance(node.params, SoftMaxParams), node
    mask_kind = int(node.src[1].type) if len(node.src) > 1 else 0
    writer.add("soft_max", i_node, node, (float(node.params.scale), mask_kind))


def _get_rows(writer: _Writer, i_node: int, node: Tensor) -> None:
    writer.add("get_rows", i_node, node, (int(node.src[0].type),))


def _set_rows(writer: _Writer, i_node: int, node: Tensor) -> None:
    rows, ids = node.src[:2]
    tensors = {
        layout.DST: writer.tensor(node),
        layout.SRC0: writer.tensor(rows),
        layout.SRC1: writer.tensor(ids),
    }
    params = (int(node.type), int(ids.type))
    parallel = rows.n_elems >= PARALLEL_FROM
    writer.rows.append(Row("set_rows", i_node, tensors, params, parallel))


def _copy(writer: _Writer, i_node: int, node: Tensor) -> None:
    target, source = writer.tensor(node), writer.tensor(node.src[0])
    if node.ne != node.src[0].ne:
        # Elements keep their order, so the gapless side may be seen in the other's shape.
        if node.is_contiguous:
            shape = node.src[0].ne
            target = (target[0], shape, contiguous_strides(node.type, shape))
        else:
            source = (source[0], node.ne, contiguous_strides(node.src[0].type, node.ne))
    tensors = {layout.DST: target, layout.SRC0: source}
    params = (int(node.type), int(node.src[0].type))
    writer.rows.append(Row("copy", i_node, tensors, params, node.n_elems >= PARALLEL_FROM))


_ROUNDINGS = {
    TensorType.Q8_0: TensorType.Q8_0,
    TensorType.Q4_0: TensorType.Q8_0,
    TensorType.Q4_1: TensorType.Q8_1,
    TensorType.Q6_K: TensorType.Q8_K,
}
"""How activations are rounded for weights of a type, as ggml's CPU does (its vec_dot_type)."""


def _mul_mat(writer: _Writer, i_node: int, node: Tensor) -> None:
    weight, x = node.src
    work = node.n_elems * weight.ne[0]
    kind = int(weight.type)
    if weight.type not in QUANTIZED:
        columns = x.ne[1] + FLOAT_COLUMNS
        own_bytes = 4 * LANES * (PANEL_STEPS + columns)
        writer.add("mul_mat_float", i_node, node, (kind,), work=work, own_bytes=own_bytes)
        return
    n_blocks = weight.ne[0] // BLOCK
    room = writer.room("quantized", x.n_rows * n_blocks * COLUMN_BYTES_PER_BLOCK)
    rounding = _ROUNDINGS[weight.type]
    if writer.quantized != (x, rounding):
        tensors = {layout.SRC1: writer.tensor(x)}
        parallel = x.n_elems >= PARALLEL_FROM
        writer.rows.append(Row("quantize", i_node, tensors, (int(rounding),), parallel, room))
        writer.quantized = (x, rounding)
    own_bytes = LANES * (BLOCK + 4 * BYTE_COLUMNS) + n_blocks * PANEL_BLOCK_BYTES
    writer.add("mul_mat_quant", i_node, node, (kind,), work=work, shared=room, own_bytes=own_bytes)


def _rope(writer: _Writer, i_node: int, node: Tensor) -> None:
    params = node.params
    assert isinstance(params, RopeParams), node
    positions, factors = node.src[1], node.src[2] if len(node.src) > 2 else None
    key = (id(positions), id(factors), params)
    name = writer.angles.get(key)
    if name is None:
        name = writer.room(f"angles {len(writer.angles)}", 4 * params.n_dims * positions.ne[0])
        writer.angles[key] = name
        tensors = {layout.SRC1: writer.tensor(positions)}
        if factors is not None:
            tensors[layout.SRC2] = writer.tensor(factors)
        parallel = params.n_dims * positions.ne[0] >= PARALLEL_FROM // 8
        row = Row("rope_angles", i_node, tensors, _angle_params(params), parallel, name)
        writer.rows.append(row)
    writer.add("rope", i_node, node, (params.n_dims, params.mode), shared=name)


def _angle_params(params: RopeParams) -> tuple[int | float, ...]:
    """What `rope_angles` reads: two whole numbers, then floats."""
    return (params.n_dims, params.mode, *(float(value) for value in rope_factors(params)))


def _flash_attn(writer: _Writer, i_node: int, node: Tensor) -> None:
    params = node.params
    assert isinstance(params, FlashAttnParams), node
    q, k, v = node.src[:3]
    work = q.n_elems * k.ne[1]
    dv = -(-v.ne[0] // LANES) * LANES
    own_floats = KEYS * (FLOAT_COLUMNS + k.ne[0] + dv) + QUERIES * (2 + dv)
    floats = (float(params.scale), float(params.softcap))
    writer.add("flash_attn", i_node, node, floats, work=work, own_bytes=4 * own_floats)


_ROWS_OF: dict[Op, Callable[[_Writer, int, Tensor], None]] = {
    Op.ADD: _binary,
    Op.SUB: _binary,
    Op.MUL: _binary,
    Op.DIV: _binary,
    Op.SCALE: _scale,
    Op.UNARY: _unary,
    Op.GLU: _glu,
    Op.RMS_NORM: _rms_norm,
    Op.SOFT_MAX: _soft_max,
    Op.ROPE: _rope,
    Op.GET_ROWS: _get_rows,
    Op.SET_ROWS: _set_rows,
    Op.CPY: _copy,
    Op.CONT: _copy,
    Op.MUL_MAT: _mul_mat,
    Op.FLASH_ATTN_EXT: _flash_attn,
}


def _assemble(writer: _Writer, n_nodes: int, n_threads: int) -> Program:
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
    first_row, end_row = _rows_of_nodes(rows, n_nodes)
    return Program(
        table,
        scratch,
        np.zeros(len(rows) + 1, dtype=np.int64),
        first_row,
        end_row,
        tuple(row.i_node for row in rows),
        n_threads,
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
        word = value if isinstance(value, int) else struct.unpack("<q", struct.pack("<d", value))[0]
        words[layout.PARAMS // 8 + i_param] = word
    for offset, (address, ne, nb) in row.tensors.items():
        words[offset // 8 : offset // 8 + 9] = (address, *ne, *nb)


def _flags(rows: list[Row], i_row: int) -> int:
    """Threads meet on both sides of a parallel row, and at the end."""
    is_last = i_row + 1 == len(rows)
    meets = rows[i_row].parallel or is_last or rows[i_row + 1].parallel
    parallel = layout.PARALLEL if rows[i_row].parallel else 0
    return parallel | (layout.BARRIER if meets else 0)


def _rows_of_nodes(
    rows: list[Row], n_nodes: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    first, end = np.zeros(n_nodes, dtype=np.int64), np.zeros(n_nodes, dtype=np.int64)
    for i_row in reversed(range(len(rows))):
        i_node = rows[i_row].i_node
        first[i_node] = i_row
        end[i_node] = max(end[i_node], i_row + 1)
    return first, end
