"""RulerCanvas: the axis of the shown time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QFontMetricsF, QPainter, QPen
from PySide6.QtWidgets import QSizePolicy, QWidget

from app.theme.fonts import TINY_PX, general_font
from app.views.timeline.scale import ticks

if TYPE_CHECKING:
    from PySide6.QtGui import QPaintEvent

    from app.views.timeline.scene import Scene

RULER_PX = 18
TICK_PX = 4


class RulerCanvas(QWidget):
    """Read-only."""

    def __init__(self, scene: Scene, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._scene = scene
        self.setFixedHeight(RULER_PX)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)

    def paintEvent(self, event: QPaintEvent) -> None:  # noqa: D102 - Qt calls it
        scene, width = self._scene, float(self.width())
        palette = scene.theme.palette
        painter = QPainter(self)
        painter.fillRect(self.rect(), palette.bg1)
        painter.setFont(general_font(TINY_PX))
        metrics = QFontMetricsF(painter.font())
        for tick in ticks(scene.view, width, scene.origin_ns):
            x = round(scene.view.x_of(tick.t_ns, width)) + 0.5
            painter.setPen(QPen(palette.line2, 1))
            painter.drawLine(QPointF(x, RULER_PX - TICK_PX), QPointF(x, RULER_PX))
            text_px = metrics.horizontalAdvance(tick.label) + 2
            left = min(max(x - text_px / 2, 0.0), width - text_px)
            painter.setPen(palette.ink2)
            area = QRectF(left, 0, text_px, RULER_PX - TICK_PX)
            painter.drawText(area, Qt.AlignmentFlag.AlignCenter, tick.label)
        painter.end()
