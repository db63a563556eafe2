"""Foot: the lines below the lanes: sums, devices, the critical path, an idle moment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QRectF, QSize, Qt, Signal
from PySide6.QtGui import QFontMetricsF, QPainter
from PySide6.QtWidgets import QGridLayout, QLabel, QPushButton, QSizePolicy, QWidget

from app.theme.elided_label import ElidedLabel
from app.theme.fonts import SMALL_PX, TINY_PX, fixed_font, general_font
from app.views.timeline.device_lines import LINE_PX, DeviceLines
from app.views.timeline.device_paint import idle_brushes
from app.views.timeline.device_words import SHORT_CAUSES
from app.views.timeline.lane_heads import PAD_PX
from app.views.timeline.lanes import HEAD_PX
from engine.trace.idle import IdleCause

if TYPE_CHECKING:
    from collections.abc import Sequence

    from PySide6.QtGui import QPaintEvent

    from app.theme.theme import Theme

FOOT_PX = 24
SWATCH_PX = 14
GAP_PX = 10


class Foot(QWidget):
    """A line a topic, of devices as many as they take; those without words take no room."""

    fault_asked = Signal()
    height_changed = Signal()
    """Another width made the lines more or fewer."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.check, self.lost = ElidedLabel(), ElidedLabel()
        self.path, self.idle, self.devices = ElidedLabel(), ElidedLabel(), DeviceLines()
        self.legend = IdleLegend(theme)
        self.fault = QPushButton("Show it (J)")
        self.fault.setProperty("kind", "small")
        self.fault.setFixedHeight(LINE_PX - 2)
        self.fault.clicked.connect(self.fault_asked)
        self.lost.setProperty("role", "tiny")
        self._lines: list[tuple[QWidget, ...]] = []
        self._grid = QGridLayout(self)
        self._grid.setContentsMargins(0, 0, 0, 0)
        self._grid.setHorizontalSpacing(12)
        self._grid.setVerticalSpacing(0)
        self._grid.setColumnMinimumWidth(0, HEAD_PX - 12)
        self._grid.setColumnStretch(1, 1)
        self._add_line("Idle", self.idle, self.fault)
        self._add_line("Critical path", self.path)
        self._add_line("Devices", self.devices, self.legend)
        self._add_line("Sum check", self.check, self.lost, height_px=FOOT_PX)
        self.check.setFont(fixed_font(SMALL_PX))
        self.devices.lines_changed.connect(self._on_lines)
        for label in (self.idle, self.path):
            self.say(label, "")
        self.say_devices(())

    @property
    def height_px(self) -> int:
        """The height of all lines that have words."""
        n_more = sum(not label.isHidden() for label in (self.idle, self.path))
        return FOOT_PX + LINE_PX * (n_more + self.devices.n_lines)

    def say(self, label: ElidedLabel, text: str) -> None:
        """Put words into a line; without any it goes."""
        label.setText(text)
        self._show_line(label, is_shown=bool(text))

    def say_devices(self, words: Sequence[str]) -> None:
        """Put words of the run and of each device into lines; without any these go."""
        self.devices.say(words)
        self._show_line(self.devices, is_shown=bool(words))

    def set_short(self, *, is_short: bool) -> None:
        """Whether devices have one line only."""
        self.devices.set_short(is_short=is_short)
        self.setFixedHeight(self.height_px)

    def _show_line(self, label: QWidget, *, is_shown: bool) -> None:
        line = next(line for line in self._lines if label in line)
        for part in line:
            part.setVisible(is_shown)
        self.setFixedHeight(self.height_px)

    def _on_lines(self) -> None:
        self.setFixedHeight(self.height_px)
        self.height_changed.emit()

    def _add_line(
        self, title: str, label: QWidget, *more: QWidget, height_px: int = LINE_PX
    ) -> None:
        row = len(self._lines)
        label.setFont(general_font(SMALL_PX))
        head = QLabel(title)
        head.setFont(general_font(TINY_PX))
        head.setProperty("role", "tiny")
        head.setContentsMargins(PAD_PX, 0, 0, 0)
        self._grid.addWidget(head, row, 0)
        self._grid.addWidget(label, row, 1, 1, 1 if more else 2)
        for part in more:
            self._grid.addWidget(part, row, 2, Qt.AlignmentFlag.AlignLeft)
        self._grid.setRowStretch(row, height_px)
        self._lines.append((head, label, *more))


class IdleLegend(QWidget):
    """What the patterns of idle time say."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self.setFont(general_font(TINY_PX))
        self.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)
        self.setAccessibleName("Patterns of idle time: " + ", ".join(SHORT_CAUSES.values()))
        self.setToolTip("Idle time of a device, by what it waits for")
        theme.changed.connect(self.update)

    def sizeHint(self) -> QSize:
        """As wide as swatches and words."""
        metrics = QFontMetricsF(self.font())
        words = sum(metrics.horizontalAdvance(word) for word in SHORT_CAUSES.values())
        lead = metrics.horizontalAdvance("idle:")
        width_px = lead + words + len(SHORT_CAUSES) * (SWATCH_PX + 4 + GAP_PX) + PAD_PX
        return QSize(round(width_px), LINE_PX)

    def paintEvent(self, event: QPaintEvent) -> None:
        """Draw a swatch and a word a cause."""
        painter = QPainter(self)
        palette, brushes = self._theme.palette, idle_brushes(self._theme.palette)
        x = self._word(painter, 0.0, "idle:") + GAP_PX
        for cause in IdleCause:
            swatch = QRectF(x + 0.5, (self.height() - 12) / 2 + 0.5, SWATCH_PX, 11)
            for brush in brushes[cause]:
                painter.fillRect(swatch, brush)
            painter.setPen(palette.line2)
            painter.drawRect(swatch)
            x = self._word(painter, swatch.right() + 4, SHORT_CAUSES[cause]) + GAP_PX
        painter.end()

    def _word(self, painter: QPainter, x: float, text: str) -> float:
        width_px = QFontMetricsF(self.font()).horizontalAdvance(text)
        painter.setPen(self._theme.palette.ink2)
        area = QRectF(x, 0, width_px + 2, self.height())
        painter.drawText(area, Qt.AlignmentFlag.AlignVCenter, text)
        return x + width_px
