"""CandidatesTable: what each device answered, the first failed test boxed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QRectF, QSize, Qt
from PySide6.QtGui import QFontMetrics, QFontMetricsF, QPen
from PySide6.QtWidgets import QAbstractItemView, QHeaderView, QStyledItemDelegate, QTableView

from app.models.candidates_model import BACKEND_ROLE, FAILED_ROLE, CandidatesModel
from app.theme.fonts import SMALL_PX, TINY_PX, fixed_font, general_font
from app.theme.paint import TABLE_BADGE_PX, elide_middle, paint_badge

if TYPE_CHECKING:
    from PySide6.QtCore import QModelIndex, QObject, QPersistentModelIndex
    from PySide6.QtGui import QPainter, QResizeEvent
    from PySide6.QtWidgets import QStyleOptionViewItem, QWidget

    from app.theme.colours import DeviceLook
    from app.theme.theme import Theme
    from engine.core.explain import Explanation

ROW_PX = 26
HEADER_PX = 24
TWO_LINE_HEADER_PX = 36
BOX_WIDTH_PX = 26
GAP_PX = 3
DEVICE_MIN_PX = 84


class CandidatesTable(QTableView):
    """Read-only. As high as its rows."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.candidates = CandidatesModel(self)
        self._delegate = _Delegate(theme, self)
        self.setModel(self.candidates)
        self.setItemDelegate(self._delegate)
        self.setAccessibleName("What each device answered")
        self.setShowGrid(False)
        self.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)
        self.setTabKeyNavigation(False)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.verticalHeader().hide()
        self.verticalHeader().setDefaultSectionSize(ROW_PX)
        header = self.horizontalHeader()
        header.setFixedHeight(HEADER_PX)
        header.setSectionResizeMode(QHeaderView.ResizeMode.Fixed)
        header.setMinimumSectionSize(20)
        header.setHighlightSections(False)
        header.setFont(general_font(TINY_PX))
        header.setStyleSheet("QHeaderView::section { padding: 3px 1px; }")

    def set_explanation(self, explanation: Explanation, looks: tuple[DeviceLook, ...]) -> None:
        """Show another explanation."""
        self._delegate.looks = looks
        self.candidates.set_explanation(explanation)
        self._lay_out()

    def resizeEvent(self, event: QResizeEvent) -> None:  # noqa: D102 - Qt calls it
        super().resizeEvent(event)
        self._lay_out()

    def _lay_out(self) -> None:
        """Titles break where the device's name would not have room; it takes what is left."""
        narrow = self.width() - sum(self._title_widths(two_lines=False)) < DEVICE_MIN_PX
        self.candidates.break_titles(narrow)
        header_px = TWO_LINE_HEADER_PX if narrow else HEADER_PX
        self.horizontalHeader().setFixedHeight(header_px)
        self.setFixedHeight(header_px + ROW_PX * self.candidates.rowCount() + 2)
        widths = self._title_widths(two_lines=narrow)
        for column, width in enumerate(widths, start=1):
            self.setColumnWidth(column, width)
        self.setColumnWidth(0, max(self.viewport().width() - sum(widths), TABLE_BADGE_PX + 8))

    def _title_widths(self, *, two_lines: bool) -> list[int]:
        metrics = QFontMetrics(general_font(TINY_PX))
        titles = [self.candidates.title(i) for i in range(1, self.candidates.columnCount())]
        lines = [title.split("_") if two_lines else [title] for title in titles]
        return [
            max(metrics.horizontalAdvance(line) for line in parts) + 2 * GAP_PX for parts in lines
        ]


class _Delegate(QStyledItemDelegate):
    def __init__(self, theme: Theme, parent: QObject) -> None:
        super().__init__(parent)
        self._theme = theme
        self.looks: tuple[DeviceLook, ...] = ()

    def sizeHint(
        self, option: QStyleOptionViewItem, index: QModelIndex | QPersistentModelIndex
    ) -> QSize:
        return QSize(super().sizeHint(option, index).width(), ROW_PX)

    def paint(
        self,
        painter: QPainter,
        option: QStyleOptionViewItem,
        index: QModelIndex | QPersistentModelIndex,
    ) -> None:
        palette = self._theme.palette
        rect = QRectF(option.rect)
        painter.save()
        painter.fillRect(rect, palette.bg1)
        painter.fillRect(QRectF(rect.left(), rect.bottom() - 1, rect.width(), 1), palette.bg0)
        painter.setPen(palette.ink)
        if index.column() == 0:
            self._paint_device(painter, rect, index)
        else:
            area = rect.adjusted(GAP_PX, 0, -GAP_PX, 0)
            painter.setFont(fixed_font(SMALL_PX))
            painter.drawText(area, index.data(Qt.ItemDataRole.TextAlignmentRole), index.data())
            if index.data(FAILED_ROLE):
                self._paint_box(painter, rect)
        painter.restore()

    def _paint_device(
        self, painter: QPainter, rect: QRectF, index: QModelIndex | QPersistentModelIndex
    ) -> None:
        size = TABLE_BADGE_PX
        badge = QRectF(rect.left(), rect.top() + (rect.height() - size) / 2, size, size)
        paint_badge(painter, badge, self.looks[index.data(BACKEND_ROLE)])
        font = general_font(SMALL_PX)
        painter.setFont(font)
        area = rect.adjusted(size + 6, 0, 0, 0)
        name = elide_middle(index.data(), QFontMetricsF(font), area.width())
        painter.drawText(area, Qt.AlignmentFlag.AlignVCenter, name)

    def _paint_box(self, painter: QPainter, rect: QRectF) -> None:
        box = QRectF(0, 0, BOX_WIDTH_PX, ROW_PX - 8)
        box.moveCenter(rect.center())
        painter.setPen(QPen(self._theme.palette.ink, 2))
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.drawRoundedRect(box, 2, 2)
