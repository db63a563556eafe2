"""Rows of MUL_MAT and MUL_MAT_ID: columns prepared first, then the product."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.backends.cpu import layout
from engine.backends.cpu.codegen import LANES
from engine.backends.cpu.kernels.products import (
    PANEL_STEPS,
    float_product,
    quant_product,
)
from engine.backends.cpu.kernels.traits import TRAITS
from engine.backends.cpu.row_tiles import COLUMN_TILE
from engine.backends.cpu.tiles import BLOCK, BYTE_COLUMNS, FLOAT_COLUMNS, PANEL_BLOCK_BYTES
from engine.core.types import TensorType

if TYPE_CHECKING:
    from engine.backends.cpu.writer import Param, Writer
    from engine.core.tensor import Tensor

COLUMN_BYTES_PER_BLOCK = BLOCK + 8
"""Quantised activations: bytes, a scale and a sum a block."""


def mul_mat(writer: Writer, i_node: int, node: Tensor) -> None:
    """Round the columns as the weights want it, unless that was done; then multiply."""
    weight, x = node.src
    rounding = TRAITS[weight.type].rounding
    column_bytes, room = 0, ""
    if rounding is not TensorType.F32:
        column_bytes = _column_bytes(weight.ne[0], rounding)
        room = writer.room("quantized", x.n_rows * column_bytes)
        if writer.quantized != (x, rounding):
            tensors, params = {layout.SRC1: writer.tensor(x)}, (int(rounding), column_bytes)
            writer.add_row("quantize", i_node, tensors, params, shared=room, n_elems=x.n_elems)
            writer.quantized = (x, rounding)
    writer.add(
        "mul_mat",
        i_node,
        node,
        _product_params(weight, column_bytes, x.ne[1]),
        work=node.n_elems * weight.ne[0],
        shared=room,
        own_bytes=_own_bytes(weight, x.ne[1]),
    )


def mul_mat_id(writer: Writer, i_node: int, node: Tensor) -> None:
    """Sort the ids, gather the columns of each expert, then multiply expert by expert."""
    weight, x, ids = node.src
    n_used, n_experts, n_pairs = ids.ne[0], weight.ne[2], ids.ne[0] * ids.ne[1]
    rounding = TRAITS[weight.type].rounding
    column_bytes = _column_bytes(weight.ne[0], rounding)
    pairs_at = 8 * (n_experts + 1)
    columns_at = -(-(pairs_at + 8 * n_pairs) // 64) * 64
    room = writer.room("experts", columns_at + n_pairs * column_bytes)
    params = (int(rounding), column_bytes, pairs_at, columns_at, n_used, n_experts, n_pairs)
    if writer.grouped != (ids, n_experts):
        tensors = {layout.SRC2: writer.tensor(ids)}
        # One thread sorts: no elements to share.
        writer.add_row("group_experts", i_node, tensors, params, shared=room, n_elems=0)
        writer.grouped, writer.gathered = (ids, n_experts), None
    if writer.gathered != (x, rounding):
        tensors = {layout.SRC1: writer.tensor(x)}
        n_elems = n_pairs * weight.ne[0]
        writer.add_row("gather_columns", i_node, tensors, params, shared=room, n_elems=n_elems)
        writer.gathered = (x, rounding)
    product = _product_params(weight, column_bytes, ids.ne[1])
    writer.add(
        "mul_mat_id",
        i_node,
        node,
        (*product, pairs_at, columns_at),
        work=node.n_elems * weight.ne[0],
        shared=room,
        own_bytes=_own_bytes(weight, n_pairs),
    )


def _column_bytes(k: int, rounding: TensorType) -> int:
    """Bytes of a column of k elements: floats, or blocks of bytes with a scale and a sum each."""
    return k // BLOCK * COLUMN_BYTES_PER_BLOCK if rounding.is_quantized else 4 * k


def _product_params(weight: Tensor, column_bytes: int, n_columns: int) -> tuple[Param, ...]:
    """What products.py reads; a panel that this product cannot need is not compiled."""
    traits = TRAITS[weight.type]
    product = quant_product if traits.rounding.is_quantized else float_product
    converts = _becomes_floats(weight.type)
    panel = TRAITS[TensorType.F32].panel if converts else traits.panel
    panel_from = _panel_from(weight.type)
    if panel is None or n_columns < panel_from:
        panel, panel_from = None, NEVER
    return (
        product,
        traits.dot,
        panel,
        traits.to_float if converts else None,
        weight.type.block_elems,
        layout.GROUP_ROWS * weight.nb[1],
        column_bytes,
        panel_from,
    )


def _panel_from(weight_type: TensorType) -> int:
    """From so many columns on a panel is worth its cost.

    A few columns of blocks go as they are stored because their sums then are ggml's to the last
    bit: those of a panel are rounded once a block, not once in four elements.
    """
    return 8 if TRAITS[weight_type].rounding.is_quantized else 4


NEVER = 2**62
"""More columns than there are."""


def _becomes_floats(weight_type: TensorType) -> bool:
    """Whether a panel is packed from converted rows: no panel of its own, and no fast kernel."""
    traits = TRAITS[weight_type]
    return not traits.rounding.is_quantized and traits.panel is None


def _own_bytes(weight: Tensor, n_columns: int) -> int:
    """Scratch of one thread; see `quant_product` and `float_product`."""
    if TRAITS[weight.type].rounding.is_quantized:
        return LANES * (BLOCK + 4 * BYTE_COLUMNS) + weight.ne[0] // BLOCK * PANEL_BLOCK_BYTES
    panel = LANES * (PANEL_STEPS + n_columns + max(FLOAT_COLUMNS, COLUMN_TILE))
    converted = LANES * PANEL_STEPS if _becomes_floats(weight.type) else 0
    return 4 * max(panel + converted, weight.ne[0])
