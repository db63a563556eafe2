"""SplitsModel: the splits of a plan as table rows, alike layers folded, times after a run."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QAbstractTableModel, QModelIndex, QObject, QPersistentModelIndex, Qt

from app.models.alike import Fold, folds, split_kinds
from app.models.plan_words import copies_of, split_tip
from app.models.splits_rows import Column, Row, folded_rows, group_text, sorted_rows
from app.theme.text import NOTHING, count, kib, ms

if TYPE_CHECKING:
    from app.models.split_times import SplitTimes
    from engine.core.table import PlanTable

Index = QModelIndex | QPersistentModelIndex

ROW_ROLE = Qt.ItemDataRole.UserRole
"""The `Row`."""
BACKEND_ROLE = Qt.ItemDataRole.UserRole + 1
"""The split's backend id; None on a folded line."""
LARGE_ROLE = Qt.ItemDataRole.UserRole + 2
"""Whether the figure is a copy large enough to be marked."""

LARGE_COPY_BYTES = 100 * 1024
"""From here on a copy is drawn in full strength everywhere."""

_HEADERS = {
    Column.ID: "#",
    Column.DEVICE: "",
    Column.NAME: "first node",
    Column.NODES: "nodes",
    Column.KIB: "in, KiB",
    Column.MS: "ms",
}
_RIGHT = (Column.NODES, Column.KIB, Column.MS)


class SplitsModel(QAbstractTableModel):
    """Rows by order with alike layers folded, or by any column without folds.

    The column `MS` exists while there are times. GUI thread only.
    """

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.plan: PlanTable | None = None
        self.times: SplitTimes | None = None
        self.column, self.descending = Column.ID, False
        self._folds: tuple[Fold, ...] = ()
        self._opened: set[int] = set()
        self._pinned = -1
        self._rows: list[Row] = []

    def set_plan(self, plan: PlanTable | None) -> None:
        """Show another plan, in order, folded."""
        self.beginResetModel()
        self.plan, self.times = plan, None
        self._folds = () if plan is None else folds(plan, split_kinds(plan))
        self._opened, self._pinned = set(), -1
        self.column, self.descending = Column.ID, False
        self._rows = self._made_rows()
        self.endResetModel()

    def set_times(self, times: SplitTimes | None) -> None:
        """Times of the shown plan. The first of them sort the table, slowest first."""
        arrived = times is not None and self.times is None
        self.beginResetModel()
        self.times = times
        if arrived:
            self.column, self.descending = Column.MS, True
        elif times is None and self.column is Column.MS:
            self.column, self.descending = Column.ID, False
        self._rows = self._made_rows()
        self.endResetModel()

    def pin(self, split_id: int) -> None:
        """Keep a row for this split even where it is folded."""
        if split_id != self._pinned:
            self._pinned = split_id
            if self._is_folded and self.row_of(split_id) < 0:
                self._reset_rows()

    def toggle(self, row: int) -> None:
        """Spread out the splits of a folded line, or fold them again."""
        line = self._rows[row]
        if not line.is_group:
            return
        fold = next(f for f in self._folds if f.start <= line.start < f.stop)
        self._opened ^= {fold.start}
        self._reset_rows()

    def row_of(self, split_id: int) -> int:
        """The row of a split, -1 where it is folded away."""
        return next((i for i, row in enumerate(self._rows) if row.split_id == split_id), -1)

    def row(self, index: int) -> Row:
        """What stands in a row."""
        return self._rows[index]

    @property
    def order_words(self) -> str:
        """How the rows are ordered."""
        if self.column is Column.ID and not self.descending:
            return "sorted by order"
        if self.column is Column.MS:
            return "slowest first" if self.descending else "fastest first"
        name = {Column.KIB: "KiB", Column.ID: "order", Column.DEVICE: "device"}.get(self.column)
        return f"by {name or _HEADERS[self.column]}{', falling' if self.descending else ''}"

    def sort(self, column: int, order: Qt.SortOrder = Qt.SortOrder.AscendingOrder) -> None:
        """Order the rows by a column."""
        self.column, self.descending = Column(column), order is Qt.SortOrder.DescendingOrder
        self._reset_rows()

    def rowCount(self, parent: Index = QModelIndex()) -> int:  # noqa: B008, D102 - Qt's signature
        return 0 if parent.isValid() else len(self._rows)

    def columnCount(self, parent: Index = QModelIndex()) -> int:  # noqa: B008, D102 - Qt's signature
        if parent.isValid():
            return 0
        return len(Column) if self.times is not None else len(Column) - 1

    def headerData(  # noqa: D102 - Qt calls it
        self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole
    ) -> Any:
        if orientation is not Qt.Orientation.Horizontal or not 0 <= section < len(Column):
            return None
        column = Column(section)
        if role == Qt.ItemDataRole.DisplayRole:
            return _HEADERS[column]
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return _alignment(column)
        if role == Qt.ItemDataRole.ToolTipRole:
            return self._header_tip(column)
        return None

    def flags(self, index: Index) -> Qt.ItemFlag:  # noqa: D102 - Qt calls it
        if not index.isValid():
            return Qt.ItemFlag.NoItemFlags
        return Qt.ItemFlag.ItemIsEnabled | Qt.ItemFlag.ItemIsSelectable

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:  # noqa: D102 - Qt calls it
        if not index.isValid() or self.plan is None:
            return None
        row, column = self._rows[index.row()], Column(index.column())
        if role == ROW_ROLE:
            return row
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return _alignment(column)
        if row.is_group:
            return self._group_data(row, column, role)
        if role in (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.AccessibleTextRole):
            return self._text(self.plan, row.split_id, column)
        if role == Qt.ItemDataRole.ToolTipRole:
            return split_tip(self.plan, row.split_id, self.times)
        if role == BACKEND_ROLE:
            return int(self.plan.splits[row.split_id]["backend"])
        if role == LARGE_ROLE:
            return column is Column.KIB and self._copied(self.plan, row.split_id)
        return None

    @property
    def _is_folded(self) -> bool:
        return self.column is Column.ID and not self.descending

    def _reset_rows(self) -> None:
        self.beginResetModel()
        self._rows = self._made_rows()
        self.endResetModel()

    def _made_rows(self) -> list[Row]:
        if self.plan is None:
            return []
        if self._is_folded:
            n_splits = len(self.plan.splits)
            return folded_rows(n_splits, self._folds, opened=self._opened, pinned=self._pinned)
        return sorted_rows(self.plan, self.times, self.column, descending=self.descending)

    def _group_data(self, row: Row, column: Column, role: int) -> Any:
        is_open = any(f.start == row.start and f.start in self._opened for f in self._folds)
        if role == Qt.ItemDataRole.DisplayRole:
            return group_text(row, is_open=is_open) if column is Column.ID else None
        if role == Qt.ItemDataRole.ToolTipRole:
            what = f"Splits {row.start} to {row.stop - 1}: each is like the one {row.period} before"
            return f"{what}. Enter or a click {'folds' if is_open else 'shows'} them."
        return None

    def _text(self, plan: PlanTable, split_id: int, column: Column) -> str:
        split = plan.splits[split_id]
        if column is Column.ID:
            return str(split_id)
        if column is Column.DEVICE:
            return plan.devices[int(split["backend"])].name
        if column is Column.NAME:
            return plan.split_name(split_id)
        if column is Column.NODES:
            return count(int(split["stop"] - split["start"]))
        if column is Column.KIB:
            return _whole_kib(int(split["bytes"])) if split["n_copies"] else NOTHING
        return self._ms_text(split_id)

    def _ms_text(self, split_id: int) -> str:
        if self.times is None or math.isnan(self.times.split_ns[split_id]):
            return NOTHING
        return ms(float(self.times.split_ns[split_id]))

    def _copied(self, plan: PlanTable, split_id: int) -> bool:
        sizes = plan.copies["bytes"][list(copies_of(plan, split_id))]
        return bool(sizes.sum() >= LARGE_COPY_BYTES)

    def _header_tip(self, column: Column) -> str:
        if column is Column.MS and self.times is not None and self.times.is_median:
            return f"Compute, measured: median of {count(self.times.n_steps)} steps"
        return {
            Column.NODES: "Nodes of the graph, views counted",
            Column.KIB: self._kib_tip(),
            Column.MS: "Compute, measured: sum over the prompt's steps",
        }.get(column, "")

    def _kib_tip(self) -> str:
        tip = "Copied in before the split runs"
        has_experts = self.plan is not None and bool(self.plan.copies["n_experts"].any())
        return f"{tip}; of experts only used ones, counted whole here" if has_experts else tip


def _alignment(column: Column) -> Qt.AlignmentFlag:
    side = Qt.AlignmentFlag.AlignRight if column in _RIGHT else Qt.AlignmentFlag.AlignLeft
    return side | Qt.AlignmentFlag.AlignVCenter


def _whole_kib(n_bytes: int) -> str:
    """KiB as the table shows them: whole from 1 KiB on."""
    return count(round(n_bytes / 1024)) if n_bytes >= 1024 else kib(n_bytes)
