"""MemoryView: a bar a device, all on one MiB scale."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QPointF, QSize, Qt, Signal
from PySide6.QtGui import QFontMetricsF, QKeyEvent, QPainter, QPen

from app.models.dock_title import DockTitle
from app.theme.colours import lane_looks
from app.theme.fonts import SMALL_PX, fixed_font, general_font
from app.theme.text import plural
from app.views.canvas import Canvas
from app.views.memory.facts import MemoryFacts, memory_facts
from app.views.memory.layout import PITCH_PX, TOP_PX, Layout, Shape, lay_out
from app.views.memory.paint import paint_layout, q_rect

if TYPE_CHECKING:
    from collections.abc import Hashable

    from PySide6.QtGui import QResizeEvent
    from PySide6.QtWidgets import QWidget

    from app.state.app_state import AppState
    from app.theme.theme import Theme

EMPTY_TEXT = "Open a model to see what each device must hold."


class MemoryView(Canvas):
    """Left and Right walk the segments; the tooltip of the current one is its description."""

    dock_title_changed = Signal(object)

    def __init__(self, state: AppState, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(theme, parent)
        self.setObjectName("memory")
        self.setAccessibleName("Memory of each device")
        self._state = state
        self.facts: MemoryFacts | None = None
        self._layout = Layout((), None, 0)
        self._version = 0
        self._current = -1
        state.plans_changed.connect(self._on_change)
        state.diff_changed.connect(self._on_change)
        self._read()

    @property
    def dock_title(self) -> DockTitle:
        """What the dock's title bar shows."""
        facts = self.facts
        if facts is None:
            return DockTitle("Memory")
        fact = "predicted, MiB"
        if facts.is_difference:
            fact += " · difference"
        elif len(facts.devices) > 1:
            n = len(facts.devices)
            fact += f" · same scale for {'both' if n == 2 else f'all {n}'} devices"
        return DockTitle("Memory", fact, facts.held_twice)

    def sizeHint(self) -> QSize:  # noqa: D102 - Qt calls it
        n_devices = 2 if self.facts is None else len(self.facts.devices)
        return QSize(640, TOP_PX + PITCH_PX * n_devices)

    def minimumSizeHint(self) -> QSize:  # noqa: D102 - Qt calls it
        return QSize(320, 44)

    @property
    def shapes(self) -> list[Shape]:
        """All segments, device by device."""
        return [shape for line in self._layout.lines for shape in line.shapes]

    def background_key(self) -> Hashable:  # noqa: D102 - Canvas asks
        return self._version

    def paint_background(self, painter: QPainter) -> None:  # noqa: D102 - Canvas asks
        plans = self._state.plans
        if self.facts is None or plans is None:
            painter.setPen(self.theme.palette.ink2)
            painter.setFont(general_font(SMALL_PX))
            area = self.rect().adjusted(12, 8, -12, -8)
            painter.drawText(
                area, Qt.AlignmentFlag.AlignTop | Qt.AlignmentFlag.AlignLeft, EMPTY_TEXT
            )
            return
        looks = lane_looks(self.theme.palette, plans.prompt.devices)
        paint_layout(painter, self._layout, looks, self.theme.palette)

    def paint_overlay(self, painter: QPainter) -> None:  # noqa: D102 - Canvas asks
        painter.setBrush(Qt.BrushStyle.NoBrush)
        if isinstance(self.hovered, int) and self.hovered < len(self.shapes):
            painter.setPen(QPen(self.theme.palette.ink2, 2))
            painter.drawRect(q_rect(self.shapes[self.hovered].rect).adjusted(1, 1, -1, -1))
        if self.hasFocus() and 0 <= self._current < len(self.shapes):
            painter.setPen(QPen(self.theme.palette.ink, 1, Qt.PenStyle.DotLine))
            painter.drawRect(q_rect(self.shapes[self._current].rect).adjusted(-2, -2, 2, 2))

    def item_at(self, point: QPointF) -> Hashable | None:  # noqa: D102 - Canvas asks
        hits = [i for i, shape in enumerate(self.shapes) if q_rect(shape.rect).contains(point)]
        return hits[-1] if hits else None

    def tip_text(self, item: Hashable) -> str:  # noqa: D102 - Canvas asks
        return self.shapes[item].payload.tip if isinstance(item, int) else ""

    def resizeEvent(self, event: QResizeEvent) -> None:  # noqa: D102 - Qt calls it
        super().resizeEvent(event)
        self._lay_out()

    def keyPressEvent(self, event: QKeyEvent) -> None:  # noqa: D102 - Qt calls it
        step = {Qt.Key.Key_Right: 1, Qt.Key.Key_Left: -1}.get(Qt.Key(event.key()), 0)
        if not step or not self.shapes:
            super().keyPressEvent(event)
            return
        self._current = min(max(self._current + step, 0), len(self.shapes) - 1)
        self.setAccessibleDescription(self.shapes[self._current].payload.tip)
        self.set_hovered(self._current)
        self.update()

    def _on_change(self, _value: object) -> None:
        self._read()

    def _read(self) -> None:
        plans, diff = self._state.plans, self._state.diff
        if diff is not None and diff.shows == "was":
            self.facts = memory_facts(diff.was)
        elif diff is not None and diff.shows == "difference":
            self.facts = memory_facts(diff.now, diff.was)
        else:
            self.facts = None if plans is None else memory_facts(plans)
        self._current = -1
        self._lay_out()
        self._describe()
        self.updateGeometry()
        self.dock_title_changed.emit(self.dock_title)

    def _describe(self) -> None:
        if self.facts is None:
            self.setAccessibleDescription(EMPTY_TEXT)
            return
        n = plural(len(self.facts.devices), "device")
        tips = "; ".join(shape.payload.tip for shape in self.shapes)
        self.setAccessibleDescription(f"{n}: {tips}")

    def _lay_out(self) -> None:
        self.set_hovered(None)
        self._version += 1
        plain, mono = QFontMetricsF(general_font(SMALL_PX)), QFontMetricsF(fixed_font(SMALL_PX))
        if self.facts is None:
            self._layout = Layout((), None, 0)
        else:
            self._layout = lay_out(
                self.facts,
                self.width(),
                self.height(),
                plain.horizontalAdvance,
                mono.horizontalAdvance,
            )
        self.update()
