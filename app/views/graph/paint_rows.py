"""Paints the matrix: heads, row labels, cells, cuts, copies, letters. Batched by style."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QBrush, QFont, QFontMetricsF, QPainter, QPen, QStaticText

from app.theme.fonts import TINY_PX, fixed_font, general_font
from app.theme.paint import elide_middle
from app.views.canvas import RectBatch
from app.views.graph.layout import (
    COPY_TEXT_PX,
    CUT_GAP_PX,
    HEADS_PX,
    LEFT_PX,
    NEAR_ROW_PX,
    Detail,
)
from app.views.graph.placed import COPY_STEPS
from app.views.graph.scene import SMALL_HATCH_BELOW_PX, Scene
from app.views.graph.words import size_text

if TYPE_CHECKING:
    from PySide6.QtGui import QColor

    from app.views.graph.scene import CellStyle

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.integer[Any]]

LETTER_FROM_PX = 14
LEAST_ELIDED = 5
"""Characters, the ellipsis counted, from which on an elided name helps."""
BAR_PX = np.array([1.5, 1.5, 2.0, 3.0])
"""Width of a copy's bar by its place in COPY_STEPS."""


def paint_rows(painter: QPainter, scene: Scene) -> None:
    """Everything of the matrix but the opened layer and the gutter."""
    layout = scene.layout
    cells = _visible_cells(scene)
    painter.save()
    top, height = float(HEADS_PX), float(layout.viewport.height - HEADS_PX)
    painter.setClipRect(QRectF(LEFT_PX, top, layout.matrix_right - LEFT_PX + 2, height))
    _paint_joins(painter, scene, cells)
    if layout.detail is Detail.SPLITS:
        _paint_fills(painter, scene, *_merged(scene, cells))
    else:
        _paint_fills(painter, scene, cells, snapped(layout.rects[cells]))
    _paint_bars(painter, scene)
    _paint_letters(painter, scene, cells)
    painter.restore()
    _paint_boxes(painter, scene)
    _paint_labels(painter, scene)
    _paint_heads(painter, scene)


def snapped(rects: Floats) -> Floats:
    """Rectangles on whole pixels, so that edges are sharp."""
    low = np.rint(rects[:, :2])
    high = np.rint(rects[:, :2] + rects[:, 2:])
    return np.concatenate([low, np.maximum(high - low, 1.0)], axis=1)


def _visible_cells(scene: Scene) -> Ints:
    """Cells of closed layers that are inside the viewport."""
    layout, shape = scene.layout, scene.shape
    inside = (shape.row > 0) & (shape.row < shape.n_rows - 1)
    if layout.opened is not None:
        inside &= shape.row != layout.opened.row
    left, top, width, height = layout.rects.T
    inside &= (top + height > HEADS_PX) & (top < layout.viewport.height)
    inside &= (left + width > LEFT_PX) & (left < layout.matrix_right)
    return np.flatnonzero(inside)


def _merged(scene: Scene, cells: Ints) -> tuple[Ints, Floats]:
    """One rectangle a split and row: the first cell of each, and the rectangles."""
    row, split = scene.shape.row[cells], scene.placed.split[cells]
    starts = np.ones(len(cells), bool)
    starts[1:] = (row[1:] != row[:-1]) | (split[1:] != split[:-1])
    first = np.flatnonzero(starts)
    last = np.append(first[1:], len(cells)) - 1
    rects = scene.layout.rects[cells[first]].copy()
    ends = scene.layout.rects[cells[last]]
    rects[:, 2] = ends[:, 0] + ends[:, 2] - rects[:, 0]
    return cells[first], snapped(rects)


def _paint_fills(painter: QPainter, scene: Scene, cells: Ints, rects: Floats) -> None:
    batch = RectBatch()
    small = scene.layout.row_px < SMALL_HATCH_BELOW_PX
    for index, style in enumerate(scene.styles):
        mine = rects[scene.style[cells] == index]
        if not len(mine):
            continue
        batch.fill(painter, mine, QBrush(style.fill))
        hatch = style.small_hatch if small else style.hatch
        if style.is_hatched:
            batch.fill(painter, mine, hatch)
        if scene.layout.detail is not Detail.SPLITS:
            batch.outline(painter, mine - [0, 0, 1, 1], QPen(style.edge, 1))


def _paint_joins(painter: QPainter, scene: Scene, cells: Ints) -> None:
    """A line from cell to cell of one split, in the device's edge colour; grey in a difference."""
    row, split = scene.shape.row[cells], scene.placed.split[cells]
    joined = np.flatnonzero((row[1:] == row[:-1]) & (split[1:] == split[:-1]))
    if scene.layout.detail is Detail.SPLITS or not joined.size:
        return
    before, after = scene.layout.rects[cells[joined]], scene.layout.rects[cells[joined + 1]]
    lines = np.empty((len(joined), 4))
    lines[:, 0] = before[:, 0] + before[:, 2]
    lines[:, 1] = np.floor(before[:, 1] + before[:, 3] / 2)
    lines[:, 2] = after[:, 0] - lines[:, 0]
    lines[:, 3] = 1
    forward = lines[:, 2] > 0
    style = scene.style[cells[joined]]
    batch = RectBatch()
    for index, cell_style in enumerate(scene.styles):
        colour = cell_style.edge if scene.changed is None else scene.palette.line2
        batch.fill(painter, lines[forward & (style == index)], QBrush(colour))


def _paint_bars(painter: QPainter, scene: Scene) -> None:
    bars, layout, shape = scene.bars, scene.layout, scene.shape
    row = shape.row[bars.cell]
    closed = (row > 0) & (row < shape.n_rows - 1)
    if layout.opened is not None:
        closed &= row != layout.opened.row
    rects = layout.rects[bars.cell]
    width = bar_widths(bars.n_bytes)
    if layout.detail is Detail.NAMES:
        width = width + 1
    marks = np.stack(
        [rects[:, 0] - CUT_GAP_PX / 2 - width / 2, rects[:, 1], width, rects[:, 3]], axis=1
    )
    batch = RectBatch()
    for side, colour in bar_colours(scene):
        batch.fill(painter, marks[closed & (bars.side == side)], QBrush(colour))
    if layout.row_px >= NEAR_ROW_PX - COPY_TEXT_PX - 3:
        _paint_sizes(painter, scene, np.flatnonzero(closed), marks)


def bar_widths(n_bytes: Ints) -> Floats:
    """1.5 px under 10 KiB, 2 under 100 KiB, 3 above."""
    widths: Floats = BAR_PX[np.digitize(n_bytes, COPY_STEPS)]
    return widths


def bar_colours(scene: Scene) -> tuple[tuple[int, QColor], ...]:
    """Colours of bars by side; copies have theirs only outside a difference."""
    palette = scene.palette
    if scene.changed is None:
        return ((0, palette.copy_mark),)
    return ((0, palette.line2), (-1, palette.less.mark), (1, palette.more.mark))


def bar_text_colours(scene: Scene) -> dict[int, QColor]:
    """Colours of sizes by side."""
    palette = scene.palette
    if scene.changed is None:
        return {0: palette.copy_text}
    return {0: palette.ink2, -1: palette.less.text, 1: palette.more.text}


def _paint_sizes(painter: QPainter, scene: Scene, shown: Ints, marks: Floats) -> None:
    """Near: the size of each copy in the gap above its row, dropped where it meets another."""
    font = fixed_font(TINY_PX)
    painter.setFont(font)
    metrics = QFontMetricsF(font)
    colours = bar_text_colours(scene)
    free_from, at_row = -1.0, -1
    for i in shown.tolist():
        row = int(scene.shape.row[scene.bars.cell[i]])
        n_bytes, side = int(scene.bars.n_bytes[i]), int(scene.bars.side[i])
        if not n_bytes or not -20 < marks[i, 1] < scene.layout.viewport.height + 20:
            continue
        text = size_text(n_bytes, side)
        left = float(marks[i, 0])
        if row == at_row and left < free_from:
            continue
        painter.setPen(colours[side])
        painter.drawText(QPointF(left, float(marks[i, 1]) - 3), text)
        free_from, at_row = left + metrics.horizontalAdvance(text) + 4, row


def _paint_letters(painter: QPainter, scene: Scene, cells: Ints) -> None:
    layout = scene.layout
    if layout.detail < Detail.LETTERS:
        return
    font = general_font(TINY_PX, QFont.Weight.Bold)
    painter.setFont(font)
    metrics = QFontMetricsF(font)
    wide = layout.rects[cells, 2] >= LETTER_FROM_PX
    for index, style in enumerate(scene.styles):
        mine = cells[wide & (scene.style[cells] == index)]
        if layout.detail is Detail.NAMES:
            _paint_names(painter, scene, mine, style)
        else:
            _paint_letter(painter, layout.rects[mine], style, metrics)


def _paint_letter(
    painter: QPainter, rects: Floats, style: CellStyle, metrics: QFontMetricsF
) -> None:
    width = metrics.horizontalAdvance(style.letter)
    rects = rects[rects[:, 2] >= width + 2]
    text = QStaticText(style.letter)
    text.prepare(font=painter.font())
    height = metrics.height()
    x = rects[:, 0] + (rects[:, 2] - width) / 2
    y = rects[:, 1] + (rects[:, 3] - height) / 2
    if style.is_hatched:
        _paint_plates(painter, x, y + 2, width, height - 4, style)
    painter.setPen(style.text)
    for left, top in zip(x.tolist(), y.tolist(), strict=True):
        painter.drawStaticText(QPointF(left, top), text)


def _paint_plates(
    painter: QPainter, x: Floats, y: Floats, width: float, height: float, style: CellStyle
) -> None:
    """Plain ground under text on a hatch, 2 px wider than the text."""
    ones = np.ones(len(x))
    plates = np.stack([x - 2, y, ones * (width + 4), ones * height], axis=1)
    RectBatch().fill(painter, plates, QBrush(style.fill))


def _paint_names(painter: QPainter, scene: Scene, cells: Ints, style: CellStyle) -> None:
    """Near: the operation's name, then the device's letter where both fit."""
    font = general_font(TINY_PX)
    painter.setFont(font)
    metrics = QFontMetricsF(font)
    for cell in cells.tolist():
        rect = QRectF(*scene.layout.rects[cell].tolist())
        name = scene.shape.heads[cell].name
        both = f"{name}  {style.letter}"
        if metrics.horizontalAdvance(both) <= rect.width() - 6:
            text = both
        else:
            text = fitting_text(name, scene.shape.heads[cell].letter, metrics, rect.width() - 3)
        paint_cell_text(painter, rect, text, style, metrics)


def paint_cell_text(
    painter: QPainter, rect: QRectF, text: str, style: CellStyle, metrics: QFontMetricsF
) -> None:
    """Text in a cell, on a plate where the cell is hatched."""
    if not text:
        return
    if style.is_hatched:
        height = min(metrics.height(), rect.height() - 2)
        plate = QRectF(0, 0, metrics.horizontalAdvance(text) + 4, height)
        plate.moveCenter(rect.center())
        painter.fillRect(plate, style.fill)
    painter.setPen(style.text)
    painter.drawText(rect, Qt.AlignmentFlag.AlignCenter, text)


def fitting_text(text: str, letter: str, metrics: QFontMetricsF, room: float) -> str:
    """A name where it fits, else middle elided while it still says something, else one letter."""
    if metrics.horizontalAdvance(text) <= room:
        return text
    elided = elide_middle(text, metrics, room)
    if len(elided) >= LEAST_ELIDED:
        return elided
    return letter if metrics.horizontalAdvance(letter) <= room else ""


def _paint_boxes(painter: QPainter, scene: Scene) -> None:
    """The cells of "in" and "out": few, wide, with names."""
    layout, shape, plan = scene.layout, scene.shape, scene.plan
    painter.save()
    painter.setClipRect(
        QRectF(0, HEADS_PX, layout.viewport.width, layout.viewport.height - HEADS_PX)
    )
    font = general_font(TINY_PX)
    metrics = QFontMetricsF(font)
    right = 0.0
    for row in (0, shape.n_rows - 1):
        for cell in shape.cells_of_row(row).tolist():
            style = scene.styles[int(scene.style[cell])]
            rect = QRectF(*snapped(layout.rects[cell : cell + 1])[0].tolist())
            _paint_box(painter, rect, style)
            head = shape.heads[cell].name
            name = plan.name[plan.slot(int(shape.node_id[cell]))] if row == 0 else head
            text = fitting_text(name, shape.heads[cell].letter, metrics, rect.width() - 4)
            painter.setFont(font)
            paint_cell_text(painter, rect, text, style, metrics)
            right = max(right, rect.right()) if row == 0 else right
    if scene.note and right:
        place = note_place(scene, right + 8)
        painter.setPen(scene.palette.ink2)
        note = metrics.elidedText(scene.note, Qt.TextElideMode.ElideRight, place.width())
        painter.drawText(place, Qt.AlignmentFlag.AlignVCenter, note)
    painter.restore()


def note_place(scene: Scene, left: float) -> QRectF:
    """Where the note of the first row has room: it ends where a measured time of that row begins.

    A difference has no figures for that row.
    """
    layout = scene.layout
    is_measured = scene.changed is None and scene.row_ms.size > 0 and scene.row_ms[0] > 0
    end = layout.matrix_right if is_measured else layout.viewport.width - 4.0
    return QRectF(left, layout.row_y[0], max(end - left, 0.0), 14)


def _paint_box(painter: QPainter, rect: QRectF, style: CellStyle) -> None:
    painter.fillRect(rect, style.fill)
    if style.is_hatched:
        painter.fillRect(rect, style.hatch)
    painter.setPen(QPen(style.edge, 1))
    painter.setBrush(Qt.BrushStyle.NoBrush)
    painter.drawRect(rect.adjusted(0, 0, -1, -1))


def _paint_labels(painter: QPainter, scene: Scene) -> None:
    layout, shape = scene.layout, scene.shape
    painter.save()
    painter.setClipRect(QRectF(0, HEADS_PX, LEFT_PX, layout.viewport.height - HEADS_PX))
    for row in layout.rows_shown.tolist():
        is_open = layout.opened is not None and layout.opened.row == row
        if not is_open and not _labelled(layout.detail, row, shape.n_rows):
            continue
        weight = QFont.Weight.Bold if is_open else QFont.Weight.Normal
        painter.setFont(general_font(TINY_PX, weight))
        painter.setPen(scene.palette.ink if is_open else scene.palette.ink2)
        middle = float(layout.row_y[row] + layout.row_h[row] / 2)
        if is_open and layout.opened is not None:
            middle = layout.opened.trunk_y
        place = QRectF(0, middle - 8, LEFT_PX - 8, 16)
        painter.drawText(
            place,
            Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter,
            shape.row_label(row),
        )
    painter.restore()


def _labelled(detail: Detail, row: int, n_rows: int) -> bool:
    if row in (0, n_rows - 1) or detail >= Detail.NUMBERS:
        return True
    every = 4 if detail is Detail.CELLS else 16
    return (row - 1) % every == 0


def _paint_heads(painter: QPainter, scene: Scene) -> None:
    layout, shape = scene.layout, scene.shape
    painter.save()
    painter.setClipRect(QRectF(LEFT_PX - 4, 0, layout.matrix_right - LEFT_PX + 8, HEADS_PX))
    font = general_font(TINY_PX)
    painter.setFont(font)
    metrics = QFontMetricsF(font)
    for group in shape.groups:
        left = float(layout.column_x[group.start])
        right = float(layout.column_x[group.stop - 1] + layout.column_w[group.stop - 1])
        _paint_group(painter, scene, group.title, left, right)
    painter.setPen(scene.palette.ink2)
    for i, column in enumerate(shape.columns):
        if column.is_extra and layout.column_w[i] < LETTER_FROM_PX:
            continue
        room = float(layout.column_w[i] + layout.gap_before[i])
        word, letter = column.head.word, column.head.letter
        text = word if metrics.horizontalAdvance(word) <= room else letter
        if metrics.horizontalAdvance(text) > room:
            continue
        middle = float(layout.column_x[i] + layout.column_w[i] / 2)
        painter.drawText(QRectF(middle - 60, 16, 120, 15), Qt.AlignmentFlag.AlignCenter, text)
    painter.restore()


def _paint_group(painter: QPainter, scene: Scene, title: str, left: float, right: float) -> None:
    metrics = QFontMetricsF(painter.font())
    seen_left, seen_right = max(left, LEFT_PX), min(right, scene.layout.matrix_right)
    half = metrics.horizontalAdvance(title) / 2 + 8
    middle = (seen_left + seen_right) / 2
    if seen_right - seen_left < 2 * half:
        return
    painter.setPen(QPen(scene.palette.line2, 1))
    painter.drawLine(QPointF(left, 9.5), QPointF(middle - half, 9.5))
    painter.drawLine(QPointF(middle + half, 9.5), QPointF(right, 9.5))
    painter.setPen(scene.palette.ink2)
    painter.drawText(QRectF(middle - half, 2, 2 * half, 15), Qt.AlignmentFlag.AlignCenter, title)
