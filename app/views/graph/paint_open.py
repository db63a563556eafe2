"""Paints the opened layer: split frames, edges, copies with sizes and arrows, named nodes."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np
from PySide6.QtCore import QLineF, QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QFont, QFontMetricsF, QPainter, QPen, QPolygonF

from app.theme.fonts import SMALL_PX, TINY_PX, fixed_font, general_font
from app.views.graph.block import INPUT
from app.views.graph.layout import HEADS_PX, LEFT_PX, OPEN_MARGIN_PX
from app.views.graph.paint_rows import (
    bar_colours,
    bar_text_colours,
    bar_widths,
    fitting_text,
    paint_cell_text,
)
from app.views.graph.words import size_text

if TYPE_CHECKING:
    from app.views.graph.block import Block, Edge
    from app.views.graph.layout import OpenLayer
    from app.views.graph.scene import Scene

FRAME_PX = 3.0
FRAME_ALPHA = 0.45
RADIUS_PX = 3.0
ARROW_HEAD_PX = (10.0, 6.0)
STEM_PX = 14.0


@dataclass(frozen=True, slots=True)
class Frame:
    """The nodes of a split that stand together, and the rectangle around them."""

    split: int
    members: tuple[int, ...]
    rect: QRectF


def paint_open(painter: QPainter, scene: Scene) -> None:
    """The opened layer, over the whole width."""
    opened = scene.layout.opened
    if opened is None:
        return
    viewport = scene.layout.viewport
    painter.save()
    painter.setClipRect(QRectF(0, HEADS_PX, viewport.width, viewport.height - HEADS_PX))
    _paint_ground(painter, scene, opened)
    left = LEFT_PX - 6
    painter.setClipRect(QRectF(left, HEADS_PX, viewport.width - left, viewport.height - HEADS_PX))
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    for frame in frames_of(scene, opened):
        _paint_frame(painter, scene, opened, frame)
    _paint_edges(painter, scene, opened)
    _paint_nodes(painter, scene, opened)
    _paint_copies(painter, scene, opened)
    painter.restore()


def frames_of(scene: Scene, opened: OpenLayer) -> tuple[Frame, ...]:
    """A frame a split; where other nodes stand between, a frame for each run on a lane."""
    split = scene.placed.split[opened.cells]
    frames: list[Frame] = []
    for split_id in dict.fromkeys(split.tolist()):
        members = tuple(np.flatnonzero(split == split_id).tolist())
        whole = _frame(opened, split_id, members)
        if _is_clear(opened, whole):
            frames.append(whole)
        else:
            frames += [_frame(opened, split_id, run) for run in _runs(opened.block, members)]
    return tuple(frames)


def edge_lines(opened: OpenLayer, edge: Edge, left: float) -> tuple[QLineF, ...]:
    """The orthogonal way of an edge that is no residual; `left` is where the layer begins."""
    target = QRectF(*opened.rects[edge.target].tolist())
    if edge.source == INPUT:
        return (QLineF(QPointF(left, target.center().y()), _left_of(target)),)
    source = QRectF(*opened.rects[edge.source].tolist())
    source_lane, target_lane = opened.block.lanes[edge.source], opened.block.lanes[edge.target]
    start, end = _right_of(source), _left_of(target)
    if source_lane == target_lane:
        return (QLineF(start, end),)
    if abs(source_lane) > abs(target_lane):
        # Towards the trunk: along the source's lane, then into the target from above or below.
        corner = QPointF(target.center().x(), start.y())
        side = target.top() if start.y() < target.top() else target.bottom()
        return (QLineF(start, corner), QLineF(corner, QPointF(corner.x(), side)))
    middle = end.x() - 5
    return (
        QLineF(start, QPointF(middle, start.y())),
        QLineF(QPointF(middle, start.y()), QPointF(middle, end.y())),
        QLineF(QPointF(middle, end.y()), end),
    )


def _paint_ground(painter: QPainter, scene: Scene, opened: OpenLayer) -> None:
    palette, width = scene.palette, scene.layout.viewport.width
    ground = QRectF(0, round(opened.top), width, round(opened.height))
    painter.fillRect(ground, palette.bg2)
    painter.setPen(QPen(palette.line, 1))
    painter.drawLine(ground.topLeft(), ground.topRight())
    painter.drawLine(ground.bottomLeft(), ground.bottomRight())
    painter.setFont(general_font(TINY_PX, QFont.Weight.Bold))
    painter.setPen(palette.ink)
    place = QRectF(0, opened.trunk_y - 8, LEFT_PX - 8, 16)
    flags = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
    painter.drawText(place, flags, scene.shape.row_label(opened.row))


def _frame(opened: OpenLayer, split_id: int, members: tuple[int, ...]) -> Frame:
    rects = opened.rects[list(members)]
    left, top = rects[:, :2].min(axis=0).tolist()
    right, bottom = (rects[:, :2] + rects[:, 2:]).max(axis=0).tolist()
    rect = QRectF(left, top, right - left, bottom - top)
    grow = FRAME_PX
    return Frame(split_id, members, rect.adjusted(-grow, -grow, grow, grow))


def _is_clear(opened: OpenLayer, frame: Frame) -> bool:
    others = set(range(len(opened.rects))) - set(frame.members)
    return not any(frame.rect.intersects(QRectF(*opened.rects[i].tolist())) for i in others)


def _runs(block: Block, members: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Members on neighbouring ranks of one lane."""
    runs = []
    for _, lane in groupby(
        sorted(members, key=lambda i: (block.lanes[i], block.ranks[i])),
        key=lambda i: block.lanes[i],
    ):
        run: list[int] = []
        for i in lane:
            if run and block.ranks[i] > block.ranks[run[-1]] + 1:
                runs.append(tuple(run))
                run = []
            run.append(i)
        runs.append(tuple(run))
    return runs


def _paint_frame(painter: QPainter, scene: Scene, opened: OpenLayer, frame: Frame) -> None:
    style = scene.styles[int(scene.placed.device[opened.cells[frame.members[0]]])]
    edge = QColor(style.edge)
    edge.setAlphaF(FRAME_ALPHA)
    painter.setBrush(style.band)
    painter.setPen(QPen(edge, 1))
    painter.drawRoundedRect(_on_pixels(frame.rect), RADIUS_PX, RADIUS_PX)


def _paint_edges(painter: QPainter, scene: Scene, opened: OpenLayer) -> None:
    left = LEFT_PX - scene.layout.viewport.x
    flow = QPen(scene.palette.ink3, 1)
    painter.setRenderHint(QPainter.RenderHint.Antialiasing, on=False)
    painter.setPen(flow)
    for edge in opened.block.edges:
        if not edge.residual:
            painter.drawLines(list(edge_lines(opened, edge, left)))
    dotted = QPen(scene.palette.ink3, 1)
    dotted.setDashPattern([1, 3])
    painter.setPen(dotted)
    residuals = [edge for edge in opened.block.edges if edge.residual]
    for level, edge in enumerate(residuals):
        painter.drawLines(list(_residual_lines(opened, edge, left, level)))
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)


def _residual_lines(opened: OpenLayer, edge: Edge, left: float, level: int) -> tuple[QLineF, ...]:
    target = QRectF(*opened.rects[edge.target].tolist())
    floor = opened.top + opened.height - OPEN_MARGIN_PX - 2 - 3 * (level % 3)
    into = target.center().x() - 4
    lines = [
        QLineF(QPointF(into, floor), QPointF(into, target.bottom())),
    ]
    if edge.source == INPUT:
        return (QLineF(QPointF(left, floor), QPointF(into, floor)), *lines)
    source = QRectF(*opened.rects[edge.source].tolist())
    out = source.center().x() + 4
    down = QLineF(QPointF(out, source.bottom()), QPointF(out, floor))
    return (down, QLineF(QPointF(out, floor), QPointF(into, floor)), *lines)


def _paint_nodes(painter: QPainter, scene: Scene, opened: OpenLayer) -> None:
    font = general_font(TINY_PX)
    metrics = QFontMetricsF(font)
    for cell, values in zip(opened.cells.tolist(), opened.rects.tolist(), strict=True):
        style = scene.styles[int(scene.style[cell])]
        rect = _on_pixels(QRectF(*values))
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(style.fill)
        painter.drawRoundedRect(rect, RADIUS_PX, RADIUS_PX)
        painter.setBrush(style.hatch)
        painter.setPen(QPen(style.edge, 1))
        painter.drawRoundedRect(rect, RADIUS_PX, RADIUS_PX)
        painter.setFont(font)
        text = node_text(scene, cell, rect.width() - 3, metrics)
        paint_cell_text(painter, rect, text, style, metrics)


def node_text(scene: Scene, cell: int, room: float, metrics: QFontMetricsF) -> str:
    """A node's name; in a difference with its letters where both fit."""
    head = scene.shape.heads[cell]
    if scene.changed is not None:
        both = f"{head.name} {scene.styles[int(scene.style[cell])].letter}"
        if metrics.horizontalAdvance(both) <= room:
            return both
    return fitting_text(head.name, head.letter, metrics, room)


def _paint_copies(painter: QPainter, scene: Scene, opened: OpenLayer) -> None:
    """An arrow with its size on nodes with nothing above them, a bar at the left of others."""
    font = fixed_font(SMALL_PX)
    painter.setFont(font)
    metrics = QFontMetricsF(font)
    marks, texts = dict(bar_colours(scene)), bar_text_colours(scene)
    index_of = {int(cell): i for i, cell in enumerate(opened.cells)}
    free_from = 0.0
    bars = zip(
        scene.bars.cell.tolist(), scene.bars.n_bytes.tolist(), scene.bars.side.tolist(), strict=True
    )
    for cell, n_bytes, side in sorted(bars, key=lambda bar: _place(opened, index_of, bar[0])):
        i = index_of.get(cell)
        if i is None:
            continue
        rect = QRectF(*opened.rects[i].tolist())
        width = 2.0 if float(bar_widths(np.array([n_bytes]))[0]) < 3 else 3.0
        above = _above(opened.block, i)
        split = scene.placed.split[opened.cells]
        if all(split[j] == split[i] for j in above):
            # The arrow ends at the top of what the split has at this rank.
            top = min([rect.top(), *(float(opened.rects[j, 1]) for j in above)])
            rect.setTop(top)
        elif above:
            bar = QRectF(rect.left() - 4.5, rect.top() - 2, width, rect.height() + 4)
            painter.fillRect(bar, marks[side])
            continue
        text = size_text(n_bytes, side) if n_bytes else ""
        half = metrics.horizontalAdvance(text) / 2
        middle = rect.center().x()
        if text and middle - half >= free_from:
            top = min(opened.top + OPEN_MARGIN_PX, rect.top() - STEM_PX - metrics.height())
            painter.setPen(texts[side])
            place = QRectF(middle - half - 2, top, 2 * half + 4, metrics.height())
            painter.drawText(place, Qt.AlignmentFlag.AlignCenter, text)
            free_from = middle + half + 4
        _paint_arrow(painter, opened, rect, width, marks[side])


def _place(opened: OpenLayer, index_of: dict[int, int], cell: int) -> float:
    i = index_of.get(cell)
    return -1.0 if i is None else float(opened.rects[i, 0])


def _paint_arrow(
    painter: QPainter, opened: OpenLayer, rect: QRectF, width: float, colour: QColor
) -> None:
    head_w, head_h = ARROW_HEAD_PX
    middle, tip = rect.center().x(), rect.top() - 1
    start = min(opened.top + OPEN_MARGIN_PX + 16, tip - head_h)
    painter.setPen(QPen(colour, width, Qt.PenStyle.SolidLine, Qt.PenCapStyle.FlatCap))
    painter.drawLine(QPointF(middle, start), QPointF(middle, tip - head_h + 1))
    painter.setPen(Qt.PenStyle.NoPen)
    painter.setBrush(colour)
    painter.drawPolygon(
        QPolygonF(
            [
                QPointF(middle - head_w / 2, tip - head_h),
                QPointF(middle + head_w / 2, tip - head_h),
                QPointF(middle, tip),
            ]
        )
    )


def _above(block: Block, i: int) -> list[int]:
    """The nodes of the same rank on higher lanes."""
    return [
        j
        for j, (rank, lane) in enumerate(zip(block.ranks, block.lanes, strict=True))
        if rank == block.ranks[i] and lane < block.lanes[i]
    ]


def _on_pixels(rect: QRectF) -> QRectF:
    """Moved by half a pixel, so that a line of 1 px is sharp."""
    return QRectF(
        round(rect.x()) + 0.5, round(rect.y()) + 0.5, round(rect.width()), round(rect.height())
    )


def _left_of(rect: QRectF) -> QPointF:
    return QPointF(rect.left(), rect.center().y())


def _right_of(rect: QRectF) -> QPointF:
    return QPointF(rect.right(), rect.center().y())
