"""OverviewCanvas: the whole run in one strip, and the part that is shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from PySide6.QtCore import QPointF, QRectF, Qt, Signal
from PySide6.QtGui import QBrush, QColor, QFontMetricsF, QPainter, QPen

from app.theme.fonts import TINY_PX, general_font
from app.theme.text import SPACE, count, plural
from app.views.canvas import Canvas, RectBatch
from app.views.timeline.keys import command_of
from app.views.timeline.slices import rects
from engine.trace.records import StepKind

if TYPE_CHECKING:
    from collections.abc import Hashable

    from PySide6.QtGui import QKeyEvent, QMouseEvent
    from PySide6.QtWidgets import QWidget

    from app.views.timeline.scene import Scene
    from app.views.timeline.store import LaneKey
    from engine.trace.pyramid import Visible
    from engine.trace.records import Spans

STRIP_PX = 26
FUNNEL_PX = 8
TOP_PX = 4
SHADES = 4
"""Steps of the strength in which a pixel shows how much of its time a device computes."""

_MS = 1e6
_TAKING_TURNS = 2


class OverviewCanvas(Canvas):
    """Press or drag moves the shown time there."""

    moved = Signal(object)
    """Carries the moment to centre on."""
    commanded = Signal(object)

    def __init__(self, scene: Scene, parent: QWidget | None = None) -> None:
        super().__init__(scene.theme, parent)
        self._scene = scene
        self.setFixedHeight(TOP_PX + STRIP_PX + FUNNEL_PX)
        self.setAccessibleName("The whole run")

    def background_key(self) -> Hashable:  # noqa: D102 - Canvas asks
        return (self._scene.version, self._scene.store.version, self._scene.lanes)

    def paint_background(self, painter: QPainter) -> None:  # noqa: D102 - Canvas asks
        scene = self._scene
        if scene.store.is_empty:
            return
        bounds, width = scene.bounds, max(self.width(), 1)
        for key, y, height in strips(scene):
            found = scene.store.lanes[key].visible(bounds.t0, bounds.t1, width)
            self._paint_lane(painter, found, scene.looks[key.lane].colours.fill, y, height)
        painter.setPen(QPen(scene.theme.palette.line2, 1))
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.drawRect(QRectF(0.5, TOP_PX + 0.5, width - 1, STRIP_PX - 1))
        self._paint_labels(painter, scene.store.steps())

    def paint_overlay(self, painter: QPainter) -> None:  # noqa: D102 - Canvas asks
        scene = self._scene
        if scene.store.is_empty:
            return
        width, palette = float(self.width()), scene.theme.palette
        bounds = scene.bounds
        x0 = max(bounds.x_of(scene.view.t0, width), 1.0)
        x1 = max(min(bounds.x_of(scene.view.t1, width), width - 1.0), x0 + 3)
        bottom = TOP_PX + STRIP_PX
        painter.setPen(QPen(palette.line2, 1))
        painter.drawLine(QPointF(x0, bottom), QPointF(0, self.height()))
        painter.drawLine(QPointF(x1, bottom), QPointF(width, self.height()))
        painter.setPen(QPen(palette.ink, 2))
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.drawRoundedRect(QRectF(x0, TOP_PX - 1, x1 - x0, STRIP_PX + 2), 2, 2)

    def mousePressEvent(self, event: QMouseEvent) -> None:  # noqa: D102 - Qt calls it
        if event.button() == Qt.MouseButton.LeftButton:
            self._move_to(event.position().x())
        super().mousePressEvent(event)

    def mouseMoveEvent(self, event: QMouseEvent) -> None:  # noqa: D102 - Qt calls it
        if event.buttons() & Qt.MouseButton.LeftButton:
            self._move_to(event.position().x())
        super().mouseMoveEvent(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:  # noqa: D102 - Qt calls it
        command = command_of(event.key(), event.modifiers())
        if command is None:
            super().keyPressEvent(event)
        else:
            self.commanded.emit(command)

    def _move_to(self, x: float) -> None:
        if not self._scene.store.is_empty:
            self.moved.emit(self._scene.bounds.t_of(x, max(self.width(), 1)))

    def _paint_lane(
        self, painter: QPainter, found: Visible, fill: QColor, y: float, height: float
    ) -> None:
        """A pixel is as strong as the share of its time that the lane computes."""
        batch = RectBatch()
        share = np.clip(found.x1 - found.x0, 0.0, 1.0) * found.busy
        shade = np.minimum((share * SHADES).astype(np.int64), SHADES - 1)
        x0 = np.floor(found.x0)
        x1 = np.maximum(np.ceil(found.x1), x0 + 1)
        for level in range(SHADES):
            mine = shade == level
            colour = QColor(fill)
            colour.setAlphaF((level + 1) / SHADES if level else 0.12)
            batch.fill(painter, rects(x0[mine], x1[mine], y, height), QBrush(colour))

    def _paint_labels(self, painter: QPainter, steps: Spans) -> None:
        prompt = steps[steps["peer"] == StepKind.PROMPT]
        tokens = steps[steps["peer"] == StepKind.TOKEN]
        if len(prompt):
            took = _ms_text(int(prompt["end_ns"].max() - prompt["start_ns"][0]), 1)
            n_tokens = plural(int(prompt["bytes"].sum()), "token")
            self._paint_label(painter, prompt, f"{self._scene.state.reads}, {n_tokens}  {took}")
        if len(tokens):
            self._paint_label(painter, tokens, tokens_text(tokens))

    def _paint_label(self, painter: QPainter, steps: Spans, text: str) -> None:
        """Words on a plate in the middle of some steps; dropped where they do not fit."""
        bounds, width = self._scene.bounds, float(self.width())
        x0 = bounds.x_of(float(steps["start_ns"][0]), width)
        x1 = bounds.x_of(float(steps["end_ns"].max()), width)
        painter.setFont(general_font(TINY_PX))
        text_px = QFontMetricsF(painter.font()).horizontalAdvance(text) + 12
        if text_px > x1 - x0:
            return
        plate = QRectF((x0 + x1 - text_px) / 2, TOP_PX + 5, text_px, STRIP_PX - 10)
        painter.fillRect(plate, self._scene.theme.palette.bg1)
        painter.setPen(self._scene.theme.palette.ink)
        painter.drawText(plate, Qt.AlignmentFlag.AlignCenter, text)


def strips(scene: Scene) -> list[tuple[LaneKey, float, float]]:
    """Lanes of devices with y and height: one above the other where several may compute at once.

    A GPU and the CPU take turns: there each has the whole height.
    """
    devices = [lane.key for lane in scene.lanes if lane.is_device]
    known = [key for key in devices if key in scene.store.lanes]
    n_rows = max(len(known), 1) if len(devices) > _TAKING_TURNS else 1
    height = STRIP_PX / n_rows
    return [
        (key, TOP_PX + (i if n_rows > 1 else 0) * height, height) for i, key in enumerate(known)
    ]


def tokens_text(steps: Spans) -> str:
    """What is said of the generated tokens: how long one takes, and all of them together."""
    median = _ms_text(float(np.median(steps["end_ns"] - steps["start_ns"])), 2)
    took = _ms_text(int(steps["end_ns"][-1] - steps["start_ns"][0]), 1)
    return f"{plural(len(steps), 'token')}, median {median}, together {took}"


def _ms_text(ns: float, decimals: int) -> str:
    return f"{count(ns / _MS, decimals)}{SPACE}ms"
