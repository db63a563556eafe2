"""RowsTable: a table of facts as the design has them: 22 px rows, a bar at the selected one, copy.

A model's `LOOK_ROLE` of a cell is a `DeviceLook` whose badge stands before the text, `MARK_ROLE`
how the text is coloured (`Mark`), `TextAlignmentRole` as Qt has it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QRectF, QSize, Qt
from PySide6.QtGui import QFontMetricsF, QGuiApplication, QKeySequence
from PySide6.QtWidgets import (
    QAbstractItemView,
    QHeaderView,
    QStyle,
    QStyledItemDelegate,
    QTableView,
)

from app.models.cells import LOOK_ROLE, MARK_ROLE, Mark
from app.theme.fonts import SMALL_PX, fixed_font, general_font
from app.theme.paint import TABLE_BADGE_PX, paint_badge

if TYPE_CHECKING:
    from PySide6.QtCore import QModelIndex, QObject, QPersistentModelIndex
    from PySide6.QtGui import QColor, QKeyEvent, QPainter, QResizeEvent
    from PySide6.QtWidgets import QStyleOptionViewItem, QWidget

    from app.theme.theme import Theme

    Index = QModelIndex | QPersistentModelIndex

ROW_PX = 22
HEADER_PX = 24
PAD_PX = 6
BAR_PX = 3


class RowsTable(QTableView):
    """Read-only rows; one is selected at a time.

    With `sorts` a click on a head sorts, the next one turns the order round, a third one gives
    back the order of the model.
    """

    def __init__(
        self, theme: Theme, name: str, parent: QWidget | None = None, *, sorts: bool = False
    ) -> None:
        super().__init__(parent)
        self.setItemDelegate(RowDelegate(theme, self))
        self.setAccessibleName(name)
        self.setProperty("role", "rows")
        self.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
        self.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)
        self.setShowGrid(False)
        self.setWordWrap(False)
        self.setMouseTracking(True)
        self.setTabKeyNavigation(False)
        self.setVerticalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        self.setHorizontalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        rows = self.verticalHeader()
        rows.hide()
        rows.setSectionResizeMode(QHeaderView.ResizeMode.Fixed)
        rows.setDefaultSectionSize(ROW_PX)
        header = self.horizontalHeader()
        header.setFixedHeight(HEADER_PX)
        header.setHighlightSections(False)
        header.setMinimumSectionSize(24)
        self._sorted = (-1, Qt.SortOrder.AscendingOrder)
        if sorts:
            header.setSectionsClickable(True)
            header.sectionClicked.connect(self._on_head)
        theme.changed.connect(self.viewport().update)

    def lay_out(self) -> None:
        """Give columns their widths."""
        for column in range(self.model().columnCount()):
            self.setColumnWidth(column, self.fitting_px(column))

    def fitting_px(self, column: int) -> int:
        """The width at which nothing of a column is cut."""
        head = self.horizontalHeader().sectionSizeHint(column)
        return max(head, self.sizeHintForColumn(column)) + 4

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Lay columns out anew."""
        super().resizeEvent(event)
        self.lay_out()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Ctrl+C copies the selected row, cells parted by tabs."""
        if event.matches(QKeySequence.StandardKey.Copy):
            self.copy_row()
        else:
            super().keyPressEvent(event)

    def _on_head(self, section: int) -> None:
        column, order = self._sorted
        if section != column:
            column, order = section, Qt.SortOrder.AscendingOrder
        elif order is Qt.SortOrder.AscendingOrder:
            order = Qt.SortOrder.DescendingOrder
        else:
            column, order = -1, Qt.SortOrder.AscendingOrder
        self._sorted = (column, order)
        header = self.horizontalHeader()
        header.setSortIndicatorShown(column >= 0)
        header.setSortIndicator(column, order)
        self.model().sort(column, order)

    def copy_row(self) -> None:
        """Put the selected row on the clipboard."""
        rows = self.selectionModel().selectedRows()
        if rows:
            QGuiApplication.clipboard().setText(row_text(self, rows[0].row()))


def row_text(table: QTableView, row: int) -> str:
    """A row's cells, also those that are not shown, parted by tabs."""
    model = table.model()
    cells = (model.index(row, column).data() for column in range(model.columnCount()))
    return "\t".join(str(cell) for cell in cells)


class RowDelegate(QStyledItemDelegate):
    """Paints a cell: fill, line below, badge, text that ends in an ellipsis where it is cut."""

    def __init__(self, theme: Theme, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._plain, self._mono = general_font(SMALL_PX), fixed_font(SMALL_PX)

    def sizeHint(self, option: QStyleOptionViewItem, index: Index) -> QSize:
        """As wide as badge and text, as high as a row."""
        font = self._mono if self._is_figure(index) else self._plain
        width = QFontMetricsF(font).horizontalAdvance(str(index.data() or ""))
        badge = TABLE_BADGE_PX + PAD_PX if index.data(LOOK_ROLE) is not None else 0
        return QSize(round(width) + badge + 2 * PAD_PX + 1, ROW_PX)

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        """Draw it."""
        rect = QRectF(option.rect)
        state = option.state
        painter.save()
        is_selected = bool(state & QStyle.StateFlag.State_Selected)
        is_hovered = bool(state & QStyle.StateFlag.State_MouseOver)
        self._paint_ground(painter, rect, is_selected=is_selected, is_hovered=is_hovered)
        if is_selected and index.column() == 0:
            bar = QRectF(rect.left(), rect.top(), BAR_PX, rect.height())
            painter.fillRect(bar, self._theme.palette.ink)
        self._paint_text(painter, rect.adjusted(PAD_PX, 0, -PAD_PX, 0), index)
        painter.restore()

    def _paint_ground(
        self, painter: QPainter, rect: QRectF, *, is_selected: bool, is_hovered: bool
    ) -> None:
        palette = self._theme.palette
        fill = palette.hover if is_hovered else palette.bg1
        painter.fillRect(rect, palette.sel if is_selected else fill)
        painter.fillRect(QRectF(rect.left(), rect.bottom() - 1, rect.width(), 1), palette.bg0)

    def _paint_text(self, painter: QPainter, area: QRectF, index: Index) -> None:
        look = index.data(LOOK_ROLE)
        if look is not None:
            size = TABLE_BADGE_PX
            top = area.top() + (area.height() - 1 - size) / 2
            paint_badge(painter, QRectF(area.left(), top, size, size), look)
            area = area.adjusted(size + PAD_PX, 0, 0, 0)
        font = self._mono if self._is_figure(index) else self._plain
        painter.setFont(font)
        painter.setPen(self._colour(index.data(MARK_ROLE)))
        alignment = index.data(Qt.ItemDataRole.TextAlignmentRole)
        text = QFontMetricsF(font).elidedText(
            str(index.data() or ""), Qt.TextElideMode.ElideRight, area.width()
        )
        painter.drawText(area, alignment or Qt.AlignmentFlag.AlignVCenter, text)

    def _colour(self, mark: Mark | None) -> QColor:
        palette = self._theme.palette
        colours = {Mark.MUTED: palette.ink2, Mark.ALERT: palette.alert}
        return palette.ink if mark is None else colours.get(mark, palette.ink)

    def _is_figure(self, index: Index) -> bool:
        alignment = index.data(Qt.ItemDataRole.TextAlignmentRole)
        return alignment is not None and bool(alignment & Qt.AlignmentFlag.AlignRight)
