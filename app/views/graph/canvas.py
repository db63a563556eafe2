"""GraphCanvas: the matrix of layers and operations, with one layer opened.

Items are cells (nodes that compute) as ints, and rows beside them. Nothing is a Qt item; the
background is one pixmap a plan, place and theme.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from PySide6.QtCore import QPointF, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QPainter, QPen

from app.theme.fonts import BODY_PX, general_font
from app.views.canvas import Canvas
from app.views.graph.block import Block, block_of
from app.views.graph.gutter import paint_gutter
from app.views.graph.layout import HEADS_PX, LEFT_PX, MAX_ZOOM, Layout, Viewport, layout_of
from app.views.graph.paint_open import frames_of, paint_open
from app.views.graph.paint_rows import paint_rows
from app.views.graph.scene import Scene, make_scene
from app.views.graph.words import cell_tip, row_text

if TYPE_CHECKING:
    from collections.abc import Hashable

    import numpy.typing as npt
    from PySide6.QtGui import QColor, QKeyEvent, QMouseEvent, QResizeEvent, QWheelEvent
    from PySide6.QtWidgets import QWidget

    from app.theme.theme import Theme
    from app.views.graph.columns import GraphShape
    from app.views.graph.placed import Changed, Placed

WHEEL_STEP = 120.0
ZOOM_PER_STEP = 1.2
DRAG_FROM_PX = 4
OUTSET_PX = 2.0
EMPTY_TEXT = "Open a model to see its graph"


@dataclass(frozen=True, slots=True)
class RowItem:
    """A row's label or gutter under the pointer."""

    row: int


class GraphCanvas(Canvas):
    """Shows one `Placed`. `picked` carries the node id of a click or a key, `opened` the layer."""

    picked = Signal(object)
    why_asked = Signal()
    opened_changed = Signal(object)

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(theme, parent)
        self.setObjectName("graphCanvas")
        self.setAccessibleName("Graph: a row a layer, a column an operation")
        self.setMinimumSize(240, 160)
        self._shape: GraphShape | None = None
        self._placed: Placed | None = None
        self._changed: Changed | None = None
        self._row_ms: npt.NDArray[np.float64] = np.empty(0)
        self._viewport = Viewport(1, 1)
        self._layout: Layout | None = None
        self._blocks: dict[int, Block] = {}
        self._last_scene: Scene | None = None
        self._selected_cell = -1
        self._selected_split = -1
        self._drag_from: QPointF | None = None
        self._drags = False
        self._version = 0

    # What is shown.

    def show_plan(
        self,
        shape: GraphShape | None,
        placed: Placed | None,
        changed: Changed | None = None,
        row_ms: npt.NDArray[np.float64] | None = None,
    ) -> None:
        """Show a plan, or what changed up to it; the place and the opened layer stay."""
        if shape is not self._shape:
            self._blocks, self.hovered = {}, None
            self._viewport = Viewport(self.width(), self.height(), open_row=self._viewport.open_row)
        self._shape, self._placed, self._changed = shape, placed, changed
        self._row_ms = np.empty(0) if row_ms is None else row_ms
        self._place()

    def select(self, node_id: int, split_id: int) -> None:
        """Outline a node, or a whole split where no node is selected; scroll to it if hidden."""
        cell = -1 if self._shape is None else self._drawn_cell(node_id)
        self._selected_cell, self._selected_split = cell, split_id
        self._scroll_to(cell)
        self._describe()
        self.update()

    @property
    def selected_cell(self) -> int:
        """The outlined cell, -1 for none."""
        return self._selected_cell

    @property
    def open_layer(self) -> int:
        """The row that is open, -1 for none."""
        return self._viewport.open_row

    @property
    def layout_now(self) -> Layout | None:
        """Where everything stands; None without a plan."""
        return self._layout

    @property
    def zoom(self) -> float:
        """1 shows everything."""
        return self._viewport.zoom

    def open_row(self, row: int) -> None:
        """Open a layer by its row, or none with -1; one at a time."""
        inside = self._shape is not None and 0 < row < self._shape.n_rows - 1
        self._move(open_row=row if inside else -1)
        self.opened_changed.emit(self._viewport.open_row)

    def fit(self) -> None:
        """Show everything."""
        self._move(zoom=1.0, x=0.0, y=0.0)

    def zoom_at(self, point: QPointF, factor: float) -> None:
        """Zoom by a factor; what is under the point stays there."""
        layout, zoom = self._layout, min(max(self._viewport.zoom * factor, 1.0), MAX_ZOOM)
        if layout is None or zoom == self._viewport.zoom:
            return
        row = _nearest(layout.row_y, layout.row_h, point.y())
        column = _nearest(layout.column_x, layout.column_w, point.x())
        down = (point.y() - layout.row_y[row]) / max(layout.row_h[row], 1.0)
        along = (point.x() - layout.column_x[column]) / max(layout.column_w[column], 1.0)
        self._move(zoom=zoom, x=0.0, y=0.0)
        new = self._layout
        assert new is not None
        y = float(new.row_y[row] + down * new.row_h[row]) - point.y()
        x = float(new.column_x[column] + along * new.column_w[column]) - point.x()
        self._move(x=x, y=y)

    # Canvas.

    def background_key(self) -> Hashable:
        """A plan, a place: every change of either counts the version."""
        return self._version

    def paint_background(self, painter: QPainter) -> None:
        """The matrix, the opened layer over it, the gutter."""
        scene = self._scene()
        if scene is None:
            painter.setFont(general_font(BODY_PX))
            painter.setPen(self.theme.palette.ink3)
            painter.drawText(self.rect(), Qt.AlignmentFlag.AlignCenter, EMPTY_TEXT)
            return
        paint_rows(painter, scene)
        paint_open(painter, scene)
        paint_gutter(painter, scene)

    def paint_overlay(self, painter: QPainter) -> None:
        """Hover in the cell's own edge, then the selection."""
        scene = self._scene()
        if scene is None:
            return
        painter.setClipRect(
            QRectF(LEFT_PX - 6, HEADS_PX - 4, self.width() - LEFT_PX + 6, self.height())
        )
        painter.setBrush(Qt.BrushStyle.NoBrush)
        if isinstance(self.hovered, int):
            style = scene.styles[int(scene.style[self.hovered])]
            painter.setPen(_square_pen(style.edge, 2))
            painter.drawRect(self._cell_rect(self.hovered))
        painter.setPen(_square_pen(self.theme.palette.ink, 2))
        for rect in self._selection_rects(scene):
            painter.drawRect(rect.adjusted(-OUTSET_PX, -OUTSET_PX, OUTSET_PX, OUTSET_PX))
        if self.hasFocus() and self._selected_cell >= 0:
            dotted = _square_pen(self.theme.palette.ink, 1)
            dotted.setDashPattern([1, 2])
            painter.setPen(dotted)
            painter.drawRect(self._cell_rect(self._selected_cell).adjusted(-5, -5, 5, 5))
        painter.setClipping(False)

    def item_at(self, point: QPointF) -> Hashable | None:
        """The cell under a point; beside the cells the row."""
        cell = self._cell_at(point)
        if cell >= 0:
            return cell
        row = -1 if self._layout is None else self._layout.row_at(point.y())
        return None if row < 0 else RowItem(row)

    def tip_text(self, item: Hashable) -> str:
        """What a cell is, what a row adds up to."""
        if self._shape is None or self._placed is None:
            return ""
        if isinstance(item, RowItem):
            return row_text(self._shape, self._placed, item.row)
        if not isinstance(item, int):
            return ""
        return cell_tip(self._shape, self._placed, self._changed, item)

    def sizeHint(self) -> QSize:
        """The centre of a window of 1280 by 720."""
        return QSize(668, 463)

    # Mouse and keys.

    def mousePressEvent(self, event: QMouseEvent) -> None:
        """Begin a click or a drag."""
        self.setFocus(Qt.FocusReason.MouseFocusReason)
        self._drag_from = event.position()
        self._drags = event.button() is Qt.MouseButton.MiddleButton

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        """Pan while a button is down, else hover."""
        if self._drag_from is None or event.buttons() == Qt.MouseButton.NoButton:
            super().mouseMoveEvent(event)
            return
        way = event.position() - self._drag_from
        self._drags = self._drags or way.manhattanLength() >= DRAG_FROM_PX
        if self._drags:
            self._move(x=self._viewport.x - way.x(), y=self._viewport.y - way.y())
            self._drag_from = event.position()

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        """A click without a drag selects."""
        if not self._drags and event.button() is Qt.MouseButton.LeftButton:
            self._click(event.position())
        self._drag_from, self._drags = None, False

    def mouseDoubleClickEvent(self, event: QMouseEvent) -> None:
        """Open or close the layer under the pointer."""
        row = -1 if self._layout is None else self._layout.row_at(event.position().y())
        if row >= 0:
            self.open_row(-1 if row == self._viewport.open_row else row)

    def wheelEvent(self, event: QWheelEvent) -> None:
        """Zoom at the pointer; with Shift, or by a touch pad without Ctrl, pan."""
        modifiers, pixels = event.modifiers(), event.pixelDelta()
        zooms = bool(modifiers & Qt.KeyboardModifier.ControlModifier)
        if not zooms and not pixels.isNull():
            self._move(x=self._viewport.x - pixels.x(), y=self._viewport.y - pixels.y())
        elif modifiers & Qt.KeyboardModifier.ShiftModifier:
            self._move(y=self._viewport.y - event.angleDelta().y() / 2)
        else:
            steps = event.angleDelta().y() / WHEEL_STEP
            self.zoom_at(event.position(), ZOOM_PER_STEP**steps)
        event.accept()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Arrows to the next operation or layer, Enter opens, Esc closes, W why, Space fits."""
        key = Qt.Key(event.key())
        steps = {
            Qt.Key.Key_Left: (0, -1),
            Qt.Key.Key_Right: (0, 1),
            Qt.Key.Key_Up: (-1, 0),
            Qt.Key.Key_Down: (1, 0),
        }
        if key in steps:
            self._step(*steps[key])
        elif key in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            self._toggle_selected_row()
        elif key is Qt.Key.Key_Escape and self._viewport.open_row >= 0:
            self.open_row(-1)
        elif key is Qt.Key.Key_W and not event.modifiers():
            self.why_asked.emit()
        elif key is Qt.Key.Key_Space:
            self.fit()
        elif key in (Qt.Key.Key_Plus, Qt.Key.Key_Equal, Qt.Key.Key_Minus):
            factor = 1 / ZOOM_PER_STEP if key is Qt.Key.Key_Minus else ZOOM_PER_STEP
            self.zoom_at(self._anchor(), factor)
        else:
            super().keyPressEvent(event)

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Place everything anew."""
        super().resizeEvent(event)
        self._place()

    # Within.

    def _place(self) -> None:
        self._version += 1
        view, shape, placed = self._viewport, self._shape, self._placed
        if shape is None or placed is None:
            self._layout = None
            self.update()
            return
        open_row = view.open_row if 0 < view.open_row < shape.n_rows - 1 else -1
        wanted = Viewport(self.width(), self.height(), view.zoom, view.x, view.y, open_row)
        self._layout = layout_of(shape, wanted, self._block(open_row))
        self._viewport = self._layout.viewport
        self.update()

    def _move(
        self,
        *,
        zoom: float | None = None,
        x: float | None = None,
        y: float | None = None,
        open_row: int | None = None,
    ) -> None:
        old = self._viewport
        self._viewport = Viewport(
            old.width,
            old.height,
            old.zoom if zoom is None else zoom,
            old.x if x is None else x,
            old.y if y is None else y,
            old.open_row if open_row is None else open_row,
        )
        self._place()

    def _block(self, row: int) -> Block | None:
        """The drawing of a row's kind of layer, made once."""
        if row < 0 or self._shape is None or self._placed is None:
            return None
        kind = int(self._shape.kind[row])
        if kind not in self._blocks:
            cells = self._shape.cells_of_row(row)
            nodes = self._shape.node_id[cells].tolist()
            self._blocks[kind] = block_of(self._placed.plan, nodes)
        return self._blocks[kind]

    def _scene(self) -> Scene | None:
        """The picture, made anew where plan, place or theme changed."""
        if self._layout is None or self._shape is None or self._placed is None:
            return None
        scene, palette = self._last_scene, self.theme.palette
        if scene is None or scene.layout is not self._layout or scene.palette is not palette:
            scene = make_scene(
                self._placed,
                self._shape,
                self._layout,
                palette,
                changed=self._changed,
                row_ms=self._row_ms,
            )
            self._last_scene = scene
        return scene

    def _cell_at(self, point: QPointF) -> int:
        if self._layout is None or self._shape is None:
            return -1
        return self._layout.cell_at(self._shape, point.x(), point.y())

    def _cell_rect(self, cell: int) -> QRectF:
        assert self._layout is not None
        left, top, width, height = self._layout.rects[cell].tolist()
        return QRectF(round(left), round(top), round(width), round(height))

    def _drawn_cell(self, node_id: int) -> int:
        """The cell of a node; for a view that of the node it looks at."""
        shape, placed = self._shape, self._placed
        if shape is None or placed is None or node_id < 0:
            return -1
        plan = placed.plan
        slot = plan.slot(node_id)
        while slot >= plan.n_leafs and plan.is_view_op[slot]:
            slot = int(plan.src[slot, 0])
        return shape.cell_of_node(slot - plan.n_leafs) if slot >= plan.n_leafs else -1

    def _selection_rects(self, scene: Scene) -> list[QRectF]:
        """The selected node, its split's frame where it is open; or a split's cells by rows."""
        opened = scene.layout.opened
        rects: list[QRectF] = []
        if self._selected_split >= 0 and opened is not None:
            frames = frames_of(scene, opened)
            rects += [
                f.rect.adjusted(1, 1, -1, -1) for f in frames if f.split == self._selected_split
            ]
        if self._selected_cell >= 0:
            return [*rects, self._cell_rect(self._selected_cell)]
        if self._selected_split < 0:
            return rects
        cells = np.flatnonzero(scene.placed.split == self._selected_split)
        for row in np.unique(scene.shape.row[cells]).tolist():
            if opened is not None and opened.row == row:
                continue
            mine = scene.layout.rects[cells[scene.shape.row[cells] == row]]
            left, right = float(mine[:, 0].min()), float((mine[:, 0] + mine[:, 2]).max())
            rects.append(QRectF(round(left), round(mine[0, 1]), right - left, round(mine[0, 3])))
        return rects

    def _scroll_to(self, cell: int) -> None:
        """Move just so far that a cell is inside."""
        layout = self._layout
        if cell < 0 or layout is None:
            return
        rect = self._cell_rect(cell)
        right = layout.viewport.width if self._is_open(cell) else layout.matrix_right
        dx = _outside(rect.left(), rect.right(), LEFT_PX, right - 4)
        dy = _outside(rect.top(), rect.bottom(), HEADS_PX, layout.viewport.height - 4)
        if dx or dy:
            self._move(x=self._viewport.x + dx, y=self._viewport.y + dy)

    def _is_open(self, cell: int) -> bool:
        opened = None if self._layout is None else self._layout.opened
        return (
            opened is not None
            and self._shape is not None
            and (int(self._shape.row[cell]) == opened.row)
        )

    def _describe(self) -> None:
        """Say the selection to a screen reader."""
        text = "" if self._selected_cell < 0 else self.tip_text(self._selected_cell)
        self.setAccessibleDescription(text.replace("\n", ", "))

    def _click(self, point: QPointF) -> None:
        cell = self._cell_at(point)
        shape, layout = self._shape, self._layout
        if shape is None or layout is None:
            return
        if cell < 0:
            # Beside the cells a click means the layer.
            row = layout.row_at(point.y())
            cells = shape.cells_of_row(row) if row >= 0 else np.empty(0, np.intp)
            cell = int(cells[0]) if len(cells) else -1
        if cell >= 0:
            self.picked.emit(int(shape.node_id[cell]))

    def _step(self, rows: int, cells: int) -> None:
        shape, cell = self._shape, self._selected_cell
        if shape is None or not shape.n_cells:
            return
        if cell < 0:
            target = 0
        elif cells:
            target = min(max(cell + cells, 0), shape.n_cells - 1)
        else:
            target = _neighbour(shape, cell, rows)
        self.picked.emit(int(shape.node_id[target]))

    def _toggle_selected_row(self) -> None:
        if self._shape is None or self._selected_cell < 0:
            return
        row = int(self._shape.row[self._selected_cell])
        self.open_row(-1 if row == self._viewport.open_row else row)

    def _anchor(self) -> QPointF:
        if self._selected_cell >= 0:
            return self._cell_rect(self._selected_cell).center()
        return QPointF(self.rect().center())


def _neighbour(shape: GraphShape, cell: int, rows: int) -> int:
    """The cell in the next row that is nearest in column; the same cell at the ends."""
    row = int(shape.row[cell]) + rows
    while 0 <= row < shape.n_rows:
        cells = shape.cells_of_row(row)
        if len(cells):
            away = np.abs(shape.column[cells] - shape.column[cell])
            return int(cells[int(away.argmin())])
        row += rows
    return cell


def _nearest(starts: npt.NDArray[np.float64], sizes: npt.NDArray[np.float64], at: float) -> int:
    away = np.maximum(starts - at, at - (starts + sizes))
    return int(away.argmin())


def _outside(low: float, high: float, least: float, most: float) -> float:
    """How far [low, high] must move to be inside [least, most]; its beginning wins."""
    if low < least or high - low > most - least:
        return low - least
    return max(high - most, 0.0)


def _square_pen(colour: QColor, width: float) -> QPen:
    pen = QPen(colour, width)
    pen.setJoinStyle(Qt.PenJoinStyle.MiterJoin)
    return pen
