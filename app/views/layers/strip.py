"""The cells of the strip and where they stand. Pure.

A cell a layer, "in" first, "out" last: 15 to 18 px wide in rows of 16; four rows from 64 layers on;
4 px columns above 128.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from app.theme.text import count, plural
from app.views.rows import rows_of

if TYPE_CHECKING:
    from engine.core.table import PlanSetTable, PlanTable

Floats = npt.NDArray[np.float64]

PADDING_PX = 12
CELL_PX = 26.0
FOOT_PX = 5.0
MAX_WIDTH_PX = 18.0
GAP_PX = 1.0
LABEL_PX = 14.0
ROW_GAP_PX = 2.0
TOP_PX = 6.0
PER_ROW = 16
MANY_LAYERS = 64
HUGE_LAYERS = 128
COLUMN_PX = 4.0
LABEL_EVERY = 5


@dataclass(frozen=True, slots=True)
class LayerCell:
    """One cell. `operations` counts nodes by backend id; `moved` those on another device now.

    `weights` is the backend id that holds its weights, -1 where none of the plan's backends does.
    """

    label: str
    operations: tuple[int, ...]
    weights: int
    first_node: int
    moved: int = 0
    weights_moved: bool = False

    @property
    def n_operations(self) -> int:
        """All nodes of the layer, views counted."""
        return sum(self.operations)

    @property
    def main_device(self) -> int:
        """The backend with most operations; -1 for a layer without any."""
        if not self.n_operations:
            return -1
        return max(range(len(self.operations)), key=self.operations.__getitem__)


@dataclass(frozen=True, slots=True, eq=False)
class StripLayout:
    """Rectangles [n, 4] of the cells, how many stand in a row, the height of all."""

    rects: Floats
    per_row: int
    height: float

    def cell_at(self, x: float, y: float) -> int:
        """The cell under a point, -1 for none."""
        left, top, width, height = self.rects.T
        hit = (left <= x) & (x < left + width + GAP_PX) & (top <= y) & (y < top + height)
        found = np.flatnonzero(hit)
        return int(found[0]) if found.size else -1


def cells_of(
    plan: PlanTable, plans: PlanSetTable, was: PlanSetTable | None = None
) -> tuple[LayerCell, ...]:
    """The cells of a plan; `was` is what a difference is shown against."""
    n_rows = plans.n_layers + 2
    row = rows_of(plan, plans.n_layers)
    nodes = slice(plan.n_leafs, plan.n_leafs + plan.n_nodes)
    by_device = np.zeros((n_rows, len(plan.devices)), np.intp)
    np.add.at(by_device, (row, plan.backend[nodes]), 1)
    moved = np.bincount(row[_moved(plan, was)], minlength=n_rows)
    first = _first_nodes(plan, row, n_rows)
    ids = {device.name: i for i, device in enumerate(plan.devices)}
    before = plans.layer_devices if was is None else was.layer_devices
    return tuple(
        LayerCell(
            label="in" if i == 0 else "out" if i == n_rows - 1 else str(i - 1),
            operations=tuple(by_device[i].tolist()),
            weights=ids.get(name, -1),
            first_node=int(first[i]),
            moved=int(moved[i]),
            weights_moved=i < len(before) and before[i] != name,
        )
        for i, name in enumerate(plans.layer_devices)
    )


def _moved(plan: PlanTable, was: PlanSetTable | None) -> npt.NDArray[np.bool_]:
    moved = np.zeros(plan.n_nodes, bool)
    before = None if was is None else was.plan(plan.batch)
    if before is None:
        return moved
    ids = before.node_ids()
    names = [device.name for device in plan.devices]
    for key, node_id in plan.node_ids().items():
        was_id = ids.get(key)
        if was_id is not None:
            was_name = before.devices[int(before.backend[before.slot(was_id)])].name
            moved[node_id] = was_name != names[int(plan.backend[plan.slot(node_id)])]
    return moved


def _first_nodes(
    plan: PlanTable, row: npt.NDArray[np.integer], n_rows: int
) -> npt.NDArray[np.intp]:
    """The first node of each row that computes, else its first node, else -1."""
    first = np.full(n_rows, -1, np.intp)
    computes = ~plan.is_view_op[plan.n_leafs : plan.n_leafs + plan.n_nodes]
    for nodes in (np.arange(plan.n_nodes), np.flatnonzero(computes)):
        first[row[nodes[::-1]]] = nodes[::-1]
    return first


def strip_layout(n_cells: int, width: int) -> StripLayout:
    """Where the cells of a strip `width` px wide stand."""
    room = max(width - 2 * PADDING_PX, 40)
    n_layers = n_cells - 2
    if n_layers > HUGE_LAYERS:
        per_row = max(int(room // COLUMN_PX), 1)
        pitch, gap = COLUMN_PX, 0.0
    else:
        per_row = -(-n_cells // 4) if n_layers >= MANY_LAYERS else PER_ROW
        pitch, gap = min(room / per_row, MAX_WIDTH_PX + GAP_PX), GAP_PX
    index = np.arange(n_cells)
    line = CELL_PX + LABEL_PX + ROW_GAP_PX
    rects = np.empty((n_cells, 4))
    rects[:, 0] = PADDING_PX + (index % per_row) * pitch
    rects[:, 1] = TOP_PX + (index // per_row) * line
    rects[:, 2] = pitch - gap
    rects[:, 3] = CELL_PX
    n_lines = -(-n_cells // per_row) if n_cells else 0
    return StripLayout(rects, per_row, TOP_PX + n_lines * line)


def labelled(index: int, n_cells: int, layout: StripLayout) -> bool:
    """Whether a cell's number stands under it: every fifth layer, a row's first, "in", "out"."""
    if index in (0, n_cells - 1) or index % layout.per_row == 0:
        return True
    every = LABEL_EVERY if n_cells - 2 <= MANY_LAYERS else 4 * LABEL_EVERY
    # A label beside "out" would run into it.
    return (index - 1) % every == 0 and index < n_cells - 2


def cell_text(cell: LayerCell, devices: tuple[str, ...]) -> str:
    """A cell in words: "layer 3: 29 of 31 operations on OpenCL0, 2 on CPU; weights on CPU"."""
    name = f"layer {cell.label}" if cell.label.isdigit() else cell.label
    order = sorted(range(len(devices)), key=lambda i: -cell.operations[i])
    parts = [f"{count(cell.operations[i])} on {devices[i]}" for i in order if cell.operations[i]]
    if len(parts) == 1:
        parts = [f"{plural(cell.n_operations, 'operation')} on {devices[order[0]]}"]
    elif parts:
        total = plural(cell.n_operations, "operation")
        parts[0] = f"{count(cell.operations[order[0]])} of {total} on {devices[order[0]]}"
    text = f"{name}: {', '.join(parts) or 'no operations'}"
    if cell.weights >= 0:
        text += f"; weights on {devices[cell.weights]}"
    if cell.moved:
        text += f"; {count(cell.moved)} moved"
    return text
