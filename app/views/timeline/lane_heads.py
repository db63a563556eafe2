"""LaneHeads: names of lanes, beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QFont, QFontMetricsF, QHelpEvent, QPainter
from PySide6.QtWidgets import QToolTip, QWidget

from app.theme.fonts import SMALL_PX, TINY_PX, general_font
from app.theme.paint import BADGE_PX, elide_middle, paint_badge
from app.views.timeline.lanes import HEAD_PX, PlacedLane, lane_at
from app.views.timeline.store import LaneKind

if TYPE_CHECKING:
    from PySide6.QtCore import QEvent
    from PySide6.QtGui import QPaintEvent

    from app.views.timeline.scene import Scene

PAD_PX = 12
TEXT_X_PX = 36
LINK_TEXT_X_PX = 28


class LaneHeads(QWidget):
    """As wide as HEAD_PX, as high as the lanes."""

    def __init__(self, scene: Scene, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._scene = scene
        self.setFixedWidth(HEAD_PX)

    def paintEvent(self, event: QPaintEvent) -> None:  # noqa: D102 - Qt calls it
        painter = QPainter(self)
        painter.fillRect(self.rect(), self._scene.theme.palette.bg1)
        for lane in self._scene.lanes:
            self._paint_head(painter, lane)
        painter.end()

    def event(self, event: QEvent) -> bool:
        """Say of a device how it spent the run, of a link how much it moved."""
        if isinstance(event, QHelpEvent):
            lane_id = lane_at(self._scene.lanes, event.pos().y())
            tip = "" if lane_id < 0 else self._scene.head_tip(self._scene.lanes[lane_id])
            QToolTip.showText(event.globalPos(), tip, self)
            return True
        return super().event(event)

    def _paint_head(self, painter: QPainter, lane: PlacedLane) -> None:
        palette = self._scene.theme.palette
        middle = lane.y + lane.height / 2
        kind = lane.key.kind
        if kind is LaneKind.COPIES:
            mark_px = min(16.0, lane.height - 2)
            mark = QRectF(PAD_PX + 6, middle - mark_px / 2, 4, mark_px)
            painter.fillRect(mark, palette.copy_mark)
        elif lane.is_device:
            badge = QRectF(PAD_PX, middle - BADGE_PX / 2, BADGE_PX, BADGE_PX)
            paint_badge(painter, badge, self._scene.looks[lane.key.lane])
        title = general_font(SMALL_PX, QFont.Weight.Medium)
        metrics = QFontMetricsF(title)
        top = middle - metrics.height() / 2 - (7 if lane.subtitle else 0)
        left = LINK_TEXT_X_PX if kind is LaneKind.COPIES else TEXT_X_PX
        area = QRectF(left, top, HEAD_PX - left - 4, metrics.height())
        painter.setFont(title)
        painter.setPen(palette.ink)
        text = elide_middle(lane.title, metrics, area.width())
        painter.drawText(area, Qt.AlignmentFlag.AlignVCenter, text)
        if lane.subtitle:
            painter.setFont(general_font(TINY_PX))
            painter.setPen(palette.ink2)
            below = area.translated(0, metrics.height())
            painter.drawText(below, Qt.AlignmentFlag.AlignVCenter, lane.subtitle)
