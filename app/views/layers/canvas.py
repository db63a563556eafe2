"""LayerStrip: paints a LayerModel and says which cell a click or a key picks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QPointF, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QColor, QFont, QFontMetricsF, QPainter, QPen

from app.theme.colours import DeviceLook, device_style
from app.theme.fonts import TINY_PX, general_font
from app.theme.paint import hatch_brush
from app.views.canvas import Canvas
from app.views.layers.strip import (
    FOOT_PX,
    LABEL_PX,
    LayerCell,
    StripLayout,
    cell_text,
    labelled,
    strip_layout,
)

if TYPE_CHECKING:
    from collections.abc import Hashable

    from PySide6.QtGui import QKeyEvent, QMouseEvent, QResizeEvent
    from PySide6.QtWidgets import QWidget

    from app.theme.theme import Theme
    from app.views.layers.model import LayerModel
    from engine.core.table import DeviceRow

LETTER_FROM_PX = 11


class LayerStrip(Canvas):
    """Items are cell indices. `picked` carries one."""

    picked = Signal(object)

    def __init__(self, theme: Theme, model: LayerModel, parent: QWidget | None = None) -> None:
        super().__init__(theme, parent)
        self.setObjectName("layerStrip")
        self.setAccessibleName("Layers: where each runs and where its weights are")
        self._model = model
        self._devices: tuple[DeviceRow, ...] = ()
        self._difference = False
        self._selected = -1
        self._version = 0
        self._layout = strip_layout(0, self.width())
        model.modelReset.connect(self._on_reset)

    def show_devices(self, devices: tuple[DeviceRow, ...], *, difference: bool) -> None:
        """Whose colours the cells have; none in a difference."""
        self._devices, self._difference = devices, difference
        self._on_reset()

    def select(self, index: int) -> None:
        """Outline a cell, -1 for none."""
        self._selected = index
        self.setAccessibleDescription("" if index < 0 else self.tip_text(index))
        self.update()

    @property
    def selected(self) -> int:
        """The outlined cell."""
        return self._selected

    @property
    def layout_now(self) -> StripLayout:
        """Where the cells stand."""
        return self._layout

    def background_key(self) -> Hashable:
        """Counts what changed."""
        return self._version

    def paint_background(self, painter: QPainter) -> None:
        """All cells and their numbers."""
        looks = device_style(self.theme.palette, self._devices)
        cells = self._model.cells
        for i, cell in enumerate(cells):
            rect = self._cell_rect(i)
            if self._difference:
                self._paint_changed(painter, rect, cell, looks)
            else:
                self._paint_cell(painter, rect, cell, looks)
            if labelled(i, len(cells), self._layout):
                self._paint_label(painter, rect, cell.label)

    def paint_overlay(self, painter: QPainter) -> None:
        """Hover, then the selected cell."""
        painter.setBrush(Qt.BrushStyle.NoBrush)
        n = len(self._model.cells)
        if isinstance(self.hovered, int) and self.hovered < n:
            painter.setPen(QPen(self.theme.palette.ink2, 1))
            painter.drawRect(self._cell_rect(self.hovered).adjusted(-1, -1, 0, 0))
        if 0 <= self._selected < n:
            pen = QPen(self.theme.palette.ink, 2)
            pen.setJoinStyle(Qt.PenJoinStyle.MiterJoin)
            painter.setPen(pen)
            painter.drawRect(self._cell_rect(self._selected).adjusted(-2, -2, 2, 2))

    def item_at(self, point: QPointF) -> Hashable | None:
        """The cell under a point."""
        index = self._layout.cell_at(point.x(), point.y())
        return None if index < 0 else index

    def tip_text(self, item: Hashable) -> str:
        """A layer in words."""
        if not isinstance(item, int) or not 0 <= item < len(self._model.cells):
            return ""
        return cell_text(self._model.cells[item], self._model.devices)

    def sizeHint(self) -> QSize:
        """As high as its rows."""
        return QSize(264, round(self._layout.height))

    def mousePressEvent(self, event: QMouseEvent) -> None:
        """Pick the layer under the pointer."""
        self.setFocus(Qt.FocusReason.MouseFocusReason)
        index = self._layout.cell_at(event.position().x(), event.position().y())
        if index >= 0 and event.button() is Qt.MouseButton.LeftButton:
            self.picked.emit(index)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Arrows to the next layer or the one below, Home and End to the ends."""
        n = len(self._model.cells)
        now = max(self._selected, 0)
        per_row = self._layout.per_row
        targets = {
            Qt.Key.Key_Left: now - 1,
            Qt.Key.Key_Right: now + 1,
            Qt.Key.Key_Up: now - per_row,
            Qt.Key.Key_Down: now + per_row,
            Qt.Key.Key_Home: 0,
            Qt.Key.Key_End: n - 1,
        }
        target = targets.get(Qt.Key(event.key()), -1)
        if 0 <= target < n:
            self.picked.emit(target)
        elif Qt.Key(event.key()) not in targets:
            super().keyPressEvent(event)

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Wrap the rows anew."""
        super().resizeEvent(event)
        self._on_reset()

    def _on_reset(self) -> None:
        self._version += 1
        self.hovered = None
        self._layout = strip_layout(len(self._model.cells), self.width())
        self.setFixedHeight(round(self._layout.height))
        self.update()

    def _cell_rect(self, index: int) -> QRectF:
        left, top, width, height = self._layout.rects[index].tolist()
        return QRectF(round(left), round(top), round(left + width) - round(left), height)

    def _paint_cell(
        self, painter: QPainter, rect: QRectF, cell: LayerCell, looks: tuple[DeviceLook, ...]
    ) -> None:
        top, foot = _parts(rect)
        left = top.left()
        for look, n in zip(looks, cell.operations, strict=True):
            wide = top.width() * n / max(cell.n_operations, 1)
            share = QRectF(left, top.top(), wide, top.height())
            painter.fillRect(share, look.colours.fill)
            painter.fillRect(share, hatch_brush(look, self.theme.palette))
            left += wide
        if cell.main_device < 0:
            self._paint_weights_only(painter, rect, cell, looks)
            return
        main = looks[cell.main_device]
        self._paint_frame(painter, top, main.colours.edge)
        self._paint_letter(painter, top, main.letter, main.colours.text, main.colours.fill)
        weights = self.theme.palette.line2
        if cell.weights >= 0:
            weights = looks[cell.weights].colours.base
        painter.fillRect(foot, weights)

    def _paint_weights_only(
        self, painter: QPainter, rect: QRectF, cell: LayerCell, looks: tuple[DeviceLook, ...]
    ) -> None:
        """A layer of which no operation is planned: empty above the foot of its weights."""
        top, foot = _parts(rect)
        palette = self.theme.palette
        self._paint_frame(painter, top, palette.line2)
        if cell.weights >= 0:
            self._paint_letter(painter, top, looks[cell.weights].letter, palette.ink2, None)
            painter.fillRect(foot, looks[cell.weights].colours.base)

    def _paint_changed(
        self, painter: QPainter, rect: QRectF, cell: LayerCell, looks: tuple[DeviceLook, ...]
    ) -> None:
        """Grey with letters; orange for the share that moved, and a foot that moved."""
        palette = self.theme.palette
        top, foot = _parts(rect)
        painter.fillRect(top, palette.bg2)
        share = cell.moved / max(cell.n_operations, 1)
        painter.fillRect(QRectF(top.topLeft(), top.size()).adjusted(
            0, top.height() * (1 - share), 0, 0), palette.more.fill)  # fmt: skip
        self._paint_frame(painter, top, palette.more.mark if cell.moved else palette.line2)
        if cell.main_device >= 0:
            text = palette.more.text if cell.moved else palette.ink2
            self._paint_letter(painter, top, looks[cell.main_device].letter, text, None)
        painter.fillRect(foot, palette.more.mark if cell.weights_moved else palette.line2)

    def _paint_frame(self, painter: QPainter, rect: QRectF, colour: QColor) -> None:
        painter.setPen(QPen(colour, 1))
        painter.setBrush(Qt.BrushStyle.NoBrush)
        if rect.width() >= LETTER_FROM_PX / 2:
            painter.drawRect(rect.adjusted(0, 0, -1, -1))

    def _paint_letter(
        self, painter: QPainter, rect: QRectF, letter: str, colour: QColor, plate: QColor | None
    ) -> None:
        if rect.width() < LETTER_FROM_PX:
            return
        font = general_font(TINY_PX, QFont.Weight.Bold)
        painter.setFont(font)
        if plate is not None:
            ground = QRectF(0, 0, QFontMetricsF(font).horizontalAdvance(letter) + 2, 12)
            ground.moveCenter(rect.center())
            painter.fillRect(ground, plate)
        painter.setPen(colour)
        painter.drawText(rect, Qt.AlignmentFlag.AlignCenter, letter)

    def _paint_label(self, painter: QPainter, rect: QRectF, label: str) -> None:
        painter.setFont(general_font(TINY_PX))
        painter.setPen(self.theme.palette.ink2)
        place = QRectF(rect.center().x() - 16, rect.bottom() + 1, 32, LABEL_PX)
        if place.right() > self.width() - 4:
            place.moveRight(self.width() - 4)
        painter.drawText(place, Qt.AlignmentFlag.AlignCenter, label)


def _parts(rect: QRectF) -> tuple[QRectF, QRectF]:
    """Where it runs, and the foot with its weights."""
    top = QRectF(rect.left(), rect.top(), rect.width(), rect.height() - FOOT_PX - 1)
    foot = QRectF(rect.left(), rect.bottom() - FOOT_PX, rect.width(), FOOT_PX)
    return top, foot
