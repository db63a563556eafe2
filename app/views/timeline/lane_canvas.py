"""LaneCanvas: the lanes of the shown time. Selecting, panning and zooming by mouse."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from PySide6.QtCore import QPointF, QRectF, Qt, Signal
from PySide6.QtGui import QColor, QPainter, QPen

from app.theme.text import duration_text, plural
from app.views.canvas import Canvas
from app.views.timeline.device_paint import (
    idle_brushes,
    idle_slices,
    paint_idle,
    paint_idle_outline,
    paint_path_lane,
    paint_path_slices,
)
from app.views.timeline.keys import command_of
from app.views.timeline.lane_paint import (
    lane_colours,
    paint_copy_label,
    paint_flow,
    paint_marks,
    paint_outline,
    paint_slices,
    paint_waits,
)
from app.views.timeline.lanes import lane_at, lanes_height
from app.views.timeline.navigation import row_at
from app.views.timeline.scale import TimeView, ticks
from app.views.timeline.slices import Slices, pixel_slices
from app.views.timeline.store import LaneKey, LaneKind
from engine.trace.records import SpanKind

if TYPE_CHECKING:
    from collections.abc import Hashable

    from PySide6.QtGui import QKeyEvent, QMouseEvent, QWheelEvent
    from PySide6.QtWidgets import QWidget

    from app.views.timeline.lanes import PlacedLane
    from app.views.timeline.scene import Scene
    from engine.trace.idle import Idle, IdleCause

DRAG_PX = 4
ZOOM_STEP = 1.25
MAX_OUTLINES = 400
"""More occurrences than this in view are too near one another to be told apart."""

_WHEEL_UNITS = 120


class Hit(NamedTuple):
    """What is under the pointer: a rectangle of a lane."""

    lane: int
    x0: float
    x1: float
    row: int
    n_merged: int
    busy_ns: float


class IdleHit(NamedTuple):
    """Idle time of a device under the pointer; `idle_id` is the first of the merged moments."""

    lane: int
    x0: float
    x1: float
    idle_id: int
    n_merged: int
    busy_ns: float


class PathHit(NamedTuple):
    """A piece of the critical path under the pointer."""

    lane: int
    x0: float
    x1: float
    piece_id: int


class LaneCanvas(Canvas):
    """Draws a `Scene`; says what a person wants in signals."""

    row_chosen = Signal(object)
    idle_chosen = Signal(object)
    """Carries the place of an idle moment."""
    piece_chosen = Signal(object)
    """Carries the place of a piece of the critical path."""
    nothing_chosen = Signal()
    range_dragged = Signal(object)
    """Carries a TimeView."""
    panned = Signal(object)
    """Carries ns."""
    zoomed = Signal(object, object)
    """Carries a factor and the moment that stays."""
    commanded = Signal(object)

    def __init__(self, scene: Scene, parent: QWidget | None = None) -> None:
        super().__init__(scene.theme, parent)
        self._scene = scene
        self._drawn: list[Slices] = []
        self._idle: list[list[tuple[IdleCause, Slices]]] = []
        self._pressed: QPointF | None = None
        self._dragged = False
        self.paint_s = 0.0
        """What the last background took."""
        self.scrolls = False
        """Whether there are more lanes than are in view: then a plain wheel scrolls them."""
        self.setAccessibleName("Timeline")

    # What Canvas asks.

    def background_key(self) -> Hashable:  # noqa: D102 - Canvas asks
        scene = self._scene
        return (scene.view, scene.version, scene.store.version, scene.lanes)

    def paint_background(self, painter: QPainter) -> None:  # noqa: D102 - Canvas asks
        begun = time.perf_counter()
        scene, width = self._scene, float(self.width())
        self._paint_grid(painter, width)
        self._drawn = [self._slices(lane.key) for lane in scene.lanes]
        self._idle = [self._idle_of(lane) for lane in scene.lanes]
        brushes = idle_brushes(scene.theme.palette)
        for lane, slices, idle in zip(scene.lanes, self._drawn, self._idle, strict=True):
            paint_idle(painter, lane, idle, brushes)
            paint_slices(painter, scene, lane, slices)
            if lane.key.kind is LaneKind.SPLITS:
                waits = self._slices(LaneKey(LaneKind.WAITS, lane.key.lane))
                paint_waits(painter, scene, lane, waits)
        height = lanes_height(scene.lanes)
        paint_path_slices(painter, scene, width, height)
        for lane in scene.lanes:
            if lane.key.kind is LaneKind.PATH:
                paint_path_lane(painter, scene, lane, width)
        paint_marks(painter, scene, width, height)
        self.paint_s = time.perf_counter() - begun

    def paint_overlay(self, painter: QPainter) -> None:  # noqa: D102 - Canvas asks
        self._paint_range(painter)
        self._paint_hover(painter)
        self._paint_selection(painter)

    def item_at(self, point: QPointF) -> Hashable | None:  # noqa: D102 - Canvas asks
        lane_id = lane_at(self._scene.lanes, point.y())
        if lane_id < 0 or lane_id >= len(self._drawn):
            return None
        if self._scene.lanes[lane_id].key.kind is LaneKind.PATH:
            return self._path_at(lane_id, point.x())
        slices = self._drawn[lane_id]
        i = slices.at(point.x())
        if i < 0:
            return self._idle_at(lane_id, point.x())
        return Hit(
            lane_id, float(slices.x0[i]), float(slices.x1[i]), int(slices.row[i]),
            int(slices.n_merged[i]), float(slices.busy_ns[i]),
        )  # fmt: skip

    def _path_at(self, lane_id: int, x: float) -> PathHit | None:
        scene, width = self._scene, float(self.width())
        piece_id = scene.path.at(scene.view.t_of(x, width))
        if piece_id < 0:
            return None
        piece = scene.path.pieces[piece_id]
        x0, x1 = (scene.view.x_of(t, width) for t in (piece.start_ns, piece.end_ns))
        return PathHit(lane_id, max(x0, 0.0), min(x1, width), piece_id)

    def _idle_at(self, lane_id: int, x: float) -> IdleHit | None:
        for _, slices in self._idle[lane_id]:
            i = slices.at(x, reach_px=0.0)
            if i >= 0:
                return IdleHit(
                    lane_id, float(slices.x0[i]), float(slices.x1[i]), int(slices.row[i]),
                    int(slices.n_merged[i]), float(slices.busy_ns[i]),
                )  # fmt: skip
        return None

    def tip_text(self, item: Hashable) -> str:  # noqa: D102 - Canvas asks
        if isinstance(item, PathHit):
            return self._scene.piece_words(item.piece_id)
        if isinstance(item, IdleHit):
            return self._idle_tip(item)
        if not isinstance(item, Hit):
            return ""
        if item.n_merged > 1:
            return f"{plural(item.n_merged, 'slice')} merged, {duration_text(item.busy_ns)}"
        return self._scene.tip(item.row)

    def _idle_tip(self, hit: IdleHit) -> str:
        if hit.n_merged > 1:
            n = plural(hit.n_merged, "idle moment")
            return f"{n} merged, {duration_text(hit.busy_ns)}"
        return self._scene.idle_words(hit.idle_id)

    def idle_rect(self, idle: Idle) -> QRectF | None:
        """Where an idle moment is drawn; None for a device without a lane."""
        lanes = (at for at in self._scene.lanes if at.is_device and at.key.lane == idle.lane)
        lane = next(lanes, None)
        if lane is None:
            return None
        view, width = self._scene.view, float(self.width())
        x0, x1 = (round(view.x_of(t, width)) for t in (idle.start_ns, idle.end_ns))
        left, right = max(x0, -4), min(max(x1, x0 + 1), width + 4)
        return QRectF(left, lane.y, max(right - left, 1.0), lane.height)

    def row_rect(self, row: int) -> QRectF | None:
        """Where a span is drawn; None for one without a lane."""
        span = self._scene.store.spans[row]
        key = self._scene.store.key_at(row)
        lane = next((lane for lane in self._scene.lanes if lane.key == key), None)
        if lane is None:
            return None
        view, width = self._scene.view, float(self.width())
        x0 = round(view.x_of(float(span["start_ns"]), width))
        x1 = max(round(view.x_of(float(span["end_ns"]), width)), x0 + 1)
        left, right = max(x0, -4), min(x1, width + 4)
        return QRectF(left, lane.y, max(right - left, 1.0), lane.height)

    # What a person does.

    def mousePressEvent(self, event: QMouseEvent) -> None:  # noqa: D102 - Qt calls it
        buttons = (Qt.MouseButton.LeftButton, Qt.MouseButton.MiddleButton)
        if event.button() in buttons:
            self._pressed, self._dragged = event.position(), False
        super().mousePressEvent(event)

    def mouseMoveEvent(self, event: QMouseEvent) -> None:  # noqa: D102 - Qt calls it
        if self._pressed is None or event.buttons() == Qt.MouseButton.NoButton:
            super().mouseMoveEvent(event)
            return
        moved = event.position().x() - self._pressed.x()
        if abs(moved) < DRAG_PX and not self._dragged:
            return
        self._dragged = True
        shifted = bool(event.modifiers() & Qt.KeyboardModifier.ShiftModifier)
        if shifted or event.buttons() & Qt.MouseButton.MiddleButton:
            self.panned.emit(-moved / self.width() * self._scene.view.span)
            self._pressed = event.position()
        else:
            self.range_dragged.emit(self._range(self._pressed.x(), event.position().x()))

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:  # noqa: D102 - Qt calls it
        clicked = self._pressed is not None and not self._dragged
        if clicked and event.button() == Qt.MouseButton.LeftButton:
            self.click(event.position())
        self._pressed = None
        super().mouseReleaseEvent(event)

    def click(self, point: QPointF) -> None:
        """Choose what is under a point; of merged slices the one at that moment."""
        hit = self.item_at(point)
        if isinstance(hit, IdleHit):
            self.idle_chosen.emit(self._idle_moment(hit, point.x()))
            return
        if isinstance(hit, PathHit):
            self.piece_chosen.emit(hit.piece_id)
            return
        if not isinstance(hit, Hit):
            self.nothing_chosen.emit()
            return
        row = hit.row
        if hit.n_merged > 1:
            lane = self._scene.store.lanes[self._scene.lanes[hit.lane].key]
            t_ns = self._scene.view.t_of(point.x(), self.width())
            row = row_at(self._scene.store.spans, lane, t_ns)
        self.row_chosen.emit(row)

    def _idle_moment(self, hit: IdleHit, x: float) -> int:
        """The idle moment of a hit; of merged ones that at the pointer, else the nearest."""
        analysis = self._scene.analysis
        if hit.n_merged == 1 or analysis is None:
            return hit.idle_id
        t_ns = self._scene.view.t_of(x, self.width())
        first = analysis.idle[hit.idle_id]
        moments = analysis.pyramids[first.lane, first.cause]
        base = moments.levels[0]
        distance = np.maximum(np.maximum(base.start_ns - t_ns, t_ns - base.end_ns), 0)
        return int(moments.index[int(np.argmin(distance))])

    def wheelEvent(self, event: QWheelEvent) -> None:  # noqa: D102 - Qt calls it
        steps = event.angleDelta().y() / _WHEEL_UNITS
        sideways = event.angleDelta().x() / _WHEEL_UNITS
        is_zoom = bool(event.modifiers() & Qt.KeyboardModifier.ControlModifier)
        if not is_zoom and (sideways or event.modifiers() & Qt.KeyboardModifier.ShiftModifier):
            self.panned.emit(-(sideways or steps) * 0.1 * self._scene.view.span)
        elif is_zoom or not self.scrolls:
            at = self._scene.view.t_of(event.position().x(), self.width())
            self.zoomed.emit(ZOOM_STEP**steps, at)
        else:
            event.ignore()
            return
        event.accept()

    def keyPressEvent(self, event: QKeyEvent) -> None:  # noqa: D102 - Qt calls it
        command = command_of(event.key(), event.modifiers())
        if command is None:
            super().keyPressEvent(event)
        else:
            self.commanded.emit(command)

    # How it is drawn.

    def _slices(self, key: LaneKey) -> Slices:
        view, width = self._scene.view, max(self.width(), 1)
        lane = self._scene.store.lanes.get(key)
        if lane is None:
            none = np.zeros(0)
            rows = np.zeros(0, np.int64)
            return Slices(none, none, rows, rows, none)
        return pixel_slices(lane.visible(view.t0, view.t1, width), view.span / width)

    def _idle_of(self, lane: PlacedLane) -> list[tuple[IdleCause, Slices]]:
        if not lane.is_device:
            return []
        return idle_slices(self._scene, lane.key.lane, max(self.width(), 1))

    def _paint_grid(self, painter: QPainter, width: float) -> None:
        scene = self._scene
        painter.setPen(QPen(scene.theme.palette.line, 1))
        bottom = lanes_height(scene.lanes)
        for tick in ticks(scene.view, width, scene.origin_ns):
            x = round(scene.view.x_of(tick.t_ns, width)) + 0.5
            painter.drawLine(QPointF(x, 0), QPointF(x, bottom))

    def _paint_hover(self, painter: QPainter) -> None:
        hit = self.hovered
        if not isinstance(hit, (Hit, IdleHit, PathHit)) or hit.lane >= len(self._scene.lanes):
            return
        lane = self._scene.lanes[hit.lane]
        painter.setPen(QPen(lane_colours(self._scene, lane)[1], 2))
        painter.setBrush(Qt.BrushStyle.NoBrush)
        rect = QRectF(hit.x0, lane.y, hit.x1 - hit.x0, lane.height)
        painter.drawRect(rect.adjusted(1, 1, -1, -1) if rect.width() > 4 else rect)

    def _paint_selection(self, painter: QPainter) -> None:
        scene = self._scene
        ink = scene.theme.palette.ink
        idle = scene.idle
        idle_rect = None if idle is None else self.idle_rect(idle)
        if idle_rect is not None:
            paint_idle_outline(painter, scene, idle_rect)
        selected, flow = self._in_view(scene.selected_rows), self._in_view(scene.flow_rows)
        for row in (*flow, *selected):
            rect = self.row_rect(row)
            if rect is not None:
                paint_outline(painter, ink, rect)
        for row in (*flow, *selected):
            self._paint_arrow(painter, row, {*flow, *selected})
        copies = [r for r in (*selected, *flow) if scene.store.spans[r]["kind"] == SpanKind.COPY]
        pieces = scene.pieces(copies[-1]) if copies else []
        if pieces and set(copies) <= set(pieces):
            rect = self.row_rect(copies[-1])
            if rect is not None:
                paint_copy_label(painter, scene, pieces, rect, self.width())

    def _paint_arrow(self, painter: QPainter, row: int, shown: set[int]) -> None:
        """The flow from a copy to its split, where both are in view and selected."""
        spans = self._scene.store.spans
        plan = self._scene.plan(row)
        if spans[row]["kind"] != SpanKind.COPY or plan is None:
            return
        split_id = int(plan.copies[int(spans[row]["index"])]["split"])
        for other in shown:
            span = spans[other]
            same = span["kind"] == SpanKind.SPLIT and span["index"] == split_id
            if same and span["step"] == spans[row]["step"]:
                copy, split = self.row_rect(row), self.row_rect(other)
                if copy is not None and split is not None:
                    paint_flow(painter, self._scene.theme.palette.ink, copy, split)

    def _in_view(self, rows: np.ndarray[tuple[int], np.dtype[np.int64]]) -> list[int]:
        view, spans = self._scene.view, self._scene.store.spans[rows]
        shown = rows[(spans["end_ns"] >= view.t0) & (spans["start_ns"] <= view.t1)]
        return [int(row) for row in shown[:MAX_OUTLINES]]

    def _paint_range(self, painter: QPainter) -> None:
        scene = self._scene
        if scene.range is None:
            return
        width, palette = float(self.width()), scene.theme.palette
        x0, x1 = (scene.view.x_of(t, width) for t in (scene.range.t0, scene.range.t1))
        area = QRectF(x0, 0, x1 - x0, lanes_height(scene.lanes))
        veil = QColor(palette.ink)
        veil.setAlphaF(0.08)
        painter.fillRect(area, veil)
        painter.setPen(QPen(palette.ink, 1))
        for x in (round(x0) + 0.5, round(x1) + 0.5):
            painter.drawLine(QPointF(x, 0), QPointF(x, area.bottom()))

    def _range(self, x0: float, x1: float) -> TimeView:
        view, width = self._scene.view, self.width()
        low, high = sorted((view.t_of(x0, width), view.t_of(x1, width)))
        return TimeView(low, max(high, low + 1))
