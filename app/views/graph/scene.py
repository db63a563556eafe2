"""Scene: everything one picture of the graph is painted from. Frozen; painters only read it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from PySide6.QtCore import Qt
from PySide6.QtGui import QBrush, QColor

from app.theme.colours import device_style
from app.theme.paint import hatch_brush

if TYPE_CHECKING:
    from app.theme.colours import DeviceLook, Palette
    from app.views.graph.columns import GraphShape
    from app.views.graph.layout import Layout
    from app.views.graph.placed import Changed, Placed
    from engine.core.table import PlanTable

Ints = npt.NDArray[np.integer[Any]]
Floats = npt.NDArray[np.float64]

SMALL_HATCH_BELOW_PX = 12


@dataclass(frozen=True, slots=True)
class CellStyle:
    """How the cells of one class are drawn: those of a device, or those that moved alike."""

    fill: QColor
    edge: QColor
    text: QColor
    band: QColor
    letter: str
    hatch: QBrush
    small_hatch: QBrush

    @property
    def is_hatched(self) -> bool:
        """Whether text needs a plain plate."""
        return self.hatch.style() is not Qt.BrushStyle.NoBrush


@dataclass(frozen=True, slots=True, eq=False)
class Bars:
    """Marks at the left of cells, all arrays over the same bars. `side`: -1 gone, 1 new, 0 plain.

    In a difference plain bars are those that stayed.
    """

    cell: Ints
    n_bytes: Ints
    side: Ints


@dataclass(frozen=True, slots=True, eq=False)
class Scene:
    """One picture. `row_ms` is the measured time a row, empty where nothing was measured."""

    shape: GraphShape
    placed: Placed
    changed: Changed | None
    layout: Layout
    palette: Palette
    styles: tuple[CellStyle, ...]
    style: Ints
    bars: Bars
    row_ms: Floats
    note: str

    @property
    def plan(self) -> PlanTable:
        """The plan that is shown."""
        return self.placed.plan


def make_scene(
    placed: Placed,
    shape: GraphShape,
    layout: Layout,
    palette: Palette,
    *,
    changed: Changed | None = None,
    row_ms: Floats | None = None,
) -> Scene:
    """The picture of a plan, or of what changed."""
    looks = device_style(palette, placed.plan.devices)
    if changed is None:
        styles = tuple(_device_cell(look, palette) for look in looks)
        style = placed.device
    else:
        styles, style = _difference_cells(placed, changed, looks, palette)
    return Scene(
        shape=shape,
        placed=placed,
        changed=changed,
        layout=layout,
        palette=palette,
        styles=styles,
        style=style,
        bars=_bars(placed, changed),
        row_ms=np.empty(0) if row_ms is None else row_ms,
        note=input_note(placed.plan, shape),
    )


def input_note(plan: PlanTable, shape: GraphShape) -> str:
    """Why the embedding stays where it is, if no device would take it; else nothing."""
    cells = shape.cells_of_row(0)
    if not len(cells) or len(plan.devices) < 2:
        return ""
    slot = plan.slot(int(shape.node_id[cells[0]]))
    weights = [source for source in plan.sources(slot) if plan.is_weight[source]]
    if plan.op[slot] != "GET_ROWS" or not weights or plan.offload_op[:, slot].any():
        return ""
    weight = plan.name[weights[0]].removesuffix(".weight")
    device = plan.devices[int(plan.backend[slot])].name
    return f"{weight} stays on the {device}: GET_ROWS is never offloaded"


def _device_cell(look: DeviceLook, palette: Palette) -> CellStyle:
    colours = look.colours
    return CellStyle(
        fill=colours.fill,
        edge=colours.edge,
        text=colours.text,
        band=colours.band,
        letter=look.letter,
        hatch=hatch_brush(look, palette),
        small_hatch=hatch_brush(look, palette, small=True),
    )


def _difference_cells(
    placed: Placed, changed: Changed, looks: tuple[DeviceLook, ...], palette: Palette
) -> tuple[tuple[CellStyle, ...], Ints]:
    """Unchanged cells grey with their device's letter and hatch, moved ones orange with `G→C`."""
    styles = [_device_cell(_grey(look, palette), palette) for look in looks]
    style = placed.device.astype(np.intp)
    n = len(looks)
    pair = (changed.was_device + 1) * n + placed.device
    touched = changed.moved | (changed.was_device < 0)
    for code in np.unique(pair[touched]):
        was, now = int(code) // n - 1, int(code) % n
        # A device that is gone has no letter any more.
        before = "+" if was < 0 else f"{looks[was].letter if was < n else ''}→"
        letter = f"{before}{looks[now].letter}"
        style[touched & (pair == code)] = len(styles)
        styles.append(_moved_cell(letter, palette))
    return tuple(styles), style


def _grey(look: DeviceLook, palette: Palette) -> DeviceLook:
    colours = replace(
        look.colours,
        fill=palette.bg2,
        edge=palette.line2,
        text=palette.ink2,
        band=palette.bg2,
    )
    return replace(look, colours=colours)


def _moved_cell(letter: str, palette: Palette) -> CellStyle:
    more, none = palette.more, QBrush(Qt.BrushStyle.NoBrush)
    return CellStyle(more.fill, more.mark, more.text, palette.bg2, letter, none, none)


def _bars(placed: Placed, changed: Changed | None) -> Bars:
    if changed is None:
        cell = np.flatnonzero(placed.copied > 0)
        return Bars(cell, placed.copied[cell], np.zeros(len(cell), np.intp))
    cell = np.flatnonzero((changed.bar != 0) | (placed.copied > 0))
    return Bars(cell, changed.bar_bytes[cell], changed.bar[cell])
