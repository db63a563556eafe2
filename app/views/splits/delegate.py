"""SplitDelegate: paints a row of the split table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QRectF, QSize, Qt
from PySide6.QtGui import QColor, QFontMetricsF
from PySide6.QtWidgets import QStyle, QStyledItemDelegate

from app.models.splits_model import BACKEND_ROLE, LARGE_ROLE, ROW_ROLE
from app.models.splits_rows import Column, Row
from app.theme.fonts import SMALL_PX, fixed_font, general_font
from app.theme.paint import TABLE_BADGE_PX, elide_middle, paint_badge

if TYPE_CHECKING:
    from PySide6.QtCore import QModelIndex, QObject, QPersistentModelIndex
    from PySide6.QtGui import QPainter
    from PySide6.QtWidgets import QStyleOptionViewItem

    from app.theme.colours import DeviceLook
    from app.theme.theme import Theme

ROW_PX = 22
PAD_PX = 6
BAR_PX = 3
VIEW = " (view)"
"""What ggml adds to the name of a view; the row's tooltip has the whole name."""

_MONO = (Column.ID, Column.NODES, Column.KIB, Column.MS)


class SplitDelegate(QStyledItemDelegate):
    """`looks` has the look of each backend of the shown plan; `hovered_row` is lit."""

    def __init__(self, theme: Theme, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self.looks: tuple[DeviceLook, ...] = ()
        self.hovered_row = -1
        self._mono = fixed_font(SMALL_PX)
        self._plain = general_font(SMALL_PX)

    def sizeHint(  # noqa: D102 - Qt calls it
        self, option: QStyleOptionViewItem, index: QModelIndex | QPersistentModelIndex
    ) -> QSize:
        return QSize(super().sizeHint(option, index).width(), ROW_PX)

    def paint(  # noqa: D102 - Qt calls it
        self,
        painter: QPainter,
        option: QStyleOptionViewItem,
        index: QModelIndex | QPersistentModelIndex,
    ) -> None:
        row: Row = index.data(ROW_ROLE)
        rect = QRectF(option.rect)
        selected = bool(option.state & QStyle.StateFlag.State_Selected)
        painter.save()
        self._paint_row(painter, rect, row, index.row(), selected=selected)
        if row.is_group:
            self._paint_group(painter, rect, index)
        elif index.column() == Column.DEVICE:
            self._paint_device(painter, rect, index.data(BACKEND_ROLE))
        else:
            self._paint_text(painter, rect, index)
        if selected and index.column() == Column.ID:
            bar = QRectF(rect.left(), rect.top(), BAR_PX, rect.height())
            painter.fillRect(bar, self._theme.palette.ink)
        painter.restore()

    def _paint_row(
        self, painter: QPainter, rect: QRectF, row: Row, row_id: int, *, selected: bool
    ) -> None:
        palette = self._theme.palette
        fill = palette.bg2 if row.is_group else palette.bg1
        if row_id == self.hovered_row:
            fill = palette.hover
        painter.fillRect(rect, palette.sel if selected else fill)
        line = QRectF(rect.left(), rect.bottom() - 1, rect.width(), 1)
        painter.fillRect(line, palette.bg0)

    def _paint_group(
        self, painter: QPainter, rect: QRectF, index: QModelIndex | QPersistentModelIndex
    ) -> None:
        painter.setFont(self._plain)
        painter.setPen(self._theme.palette.ink2)
        area = rect.adjusted(PAD_PX, 0, -PAD_PX, 0)
        painter.drawText(area, Qt.AlignmentFlag.AlignVCenter, index.data() or "")

    def _paint_device(self, painter: QPainter, rect: QRectF, backend_id: int) -> None:
        size = TABLE_BADGE_PX
        top = rect.top() + (rect.height() - 1 - size) / 2
        badge = QRectF(rect.left() + (rect.width() - size) / 2, top, size, size)
        paint_badge(painter, badge, self.looks[backend_id])

    def _paint_text(
        self, painter: QPainter, rect: QRectF, index: QModelIndex | QPersistentModelIndex
    ) -> None:
        mono = index.column() in _MONO
        font = self._mono if mono else self._plain
        painter.setFont(font)
        painter.setPen(self._text_colour(index))
        area = rect.adjusted(PAD_PX, 0, -PAD_PX, 0)
        text = index.data()
        if not mono:
            text = fitting_name(text, QFontMetricsF(font), area.width())
        painter.drawText(area, index.data(Qt.ItemDataRole.TextAlignmentRole), text)

    def _text_colour(self, index: QModelIndex | QPersistentModelIndex) -> QColor:
        palette = self._theme.palette
        return palette.copy_text if index.data(LARGE_ROLE) else palette.ink


def fitting_name(name: str, metrics: QFontMetricsF, room: float) -> str:
    """A name that fits: that it is a view goes first, then its middle."""
    for text in (name, name.replace(VIEW, "")):
        if metrics.horizontalAdvance(text) <= room:
            return text
    return elide_middle(name.replace(VIEW, ""), metrics, room)
