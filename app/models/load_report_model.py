"""LoadReportModel: every path that was tried to load backends, as a table; LoadReportRows sorts."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QAbstractTableModel, QModelIndex, QSortFilterProxyModel, Qt

from app.models.cells import (
    LEFT,
    MARK_ROLE,
    NO_PARENT,
    RIGHT,
    SORT_ROLE,
    Index,
    Mark,
    head_data,
    is_head,
)
from app.theme.text import NOTHING, count
from engine.core.load_report import LoadReport, Outcome
from engine.core.visible import visible

if TYPE_CHECKING:
    from PySide6.QtCore import QObject, QPersistentModelIndex

    from engine.core.load_report import Attempt


class Column(enum.IntEnum):
    """The columns, in order."""

    OUTCOME = 0
    BACKEND = 1
    VARIANT = 2
    KIND = 3
    API = 4
    SCORE = 5
    FILE = 6
    FOLDER = 7
    WHY = 8
    REASON = 9


HEADERS = {
    Column.OUTCOME: "outcome",
    Column.BACKEND: "backend",
    Column.VARIANT: "variant",
    Column.KIND: "kind",
    Column.API: "API",
    Column.SCORE: "score",
    Column.FILE: "file",
    Column.FOLDER: "folder",
    Column.WHY: "tried because",
    Column.REASON: "reason",
}
_TIPS = {
    Column.API: "The version of the contract that it was made for",
    Column.SCORE: "How well it fits this computer, by its own word; the highest is taken",
    Column.KIND: "A plug-in in Python, or a library of ggml's",
}
_FIGURES = (Column.API, Column.SCORE)


class LoadReportModel(QAbstractTableModel):
    """A row a path, in the order in which they were tried. GUI thread only."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.report = LoadReport()

    def set_report(self, report: LoadReport) -> None:
        """Show another report."""
        self.beginResetModel()
        self.report = report
        self.endResetModel()

    def rowCount(self, parent: Index = NO_PARENT) -> int:
        """A row a path."""
        return 0 if parent.isValid() else len(self.report.attempts)

    def columnCount(self, parent: Index = NO_PARENT) -> int:
        """The columns."""
        return 0 if parent.isValid() else len(Column)

    def headerData(
        self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole
    ) -> Any:
        """Heads, and what they mean."""
        if not is_head(section, orientation, len(Column)):
            return None
        column = Column(section)
        is_figure = column in _FIGURES
        return head_data(role, HEADERS[column], is_figure=is_figure, tip=_TIPS.get(column))

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        """Texts and marks; a cell's tooltip has all of it."""
        if not index.isValid():
            return None
        attempt, column = self.report.attempts[index.row()], Column(index.column())
        if role in (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.AccessibleTextRole):
            return " ".join(visible(cell_text(attempt, column), keeps="\n").split())
        if role == Qt.ItemDataRole.ToolTipRole:
            is_long = column in (Column.FILE, Column.FOLDER, Column.REASON)
            return visible(attempt_text(attempt), keeps="\n") if is_long else None
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return RIGHT if column in _FIGURES else LEFT
        if role == MARK_ROLE:
            return _mark(attempt, column)
        return _sort_key(attempt, column) if role == SORT_ROLE else None


class LoadReportRows(QSortFilterProxyModel):
    """The rows of a report as they are shown: sorted by a column, or as they were tried."""

    def __init__(self, model: LoadReportModel, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.only_found = True
        self.setSourceModel(model)
        self.setSortRole(SORT_ROLE)

    def show_only_found(self, only_found: bool) -> None:
        """Leave out paths with nothing there, or show all."""
        self.beginFilterChange()
        self.only_found = only_found
        self.endFilterChange(QSortFilterProxyModel.Direction.Rows)

    def filterAcceptsRow(  # noqa: N802 - Qt's name
        self, source_row: int, source_parent: QModelIndex | QPersistentModelIndex
    ) -> bool:
        """Whether a path is shown."""
        model = self.sourceModel()
        assert isinstance(model, LoadReportModel)
        attempt = model.report.attempts[source_row]
        return not self.only_found or attempt.outcome is not Outcome.NOT_FOUND

    def attempts(self) -> tuple[Attempt, ...]:
        """What is shown, in that order."""
        model = self.sourceModel()
        assert isinstance(model, LoadReportModel)
        rows = (self.mapToSource(self.index(row, 0)).row() for row in range(self.rowCount()))
        return tuple(model.report.attempts[row] for row in rows)


def attempt_text(attempt: Attempt) -> str:
    """All of a path in words: what became of it, why, and why it was tried."""
    reason = f": {attempt.reason}" if attempt.reason else ""
    return f"{attempt.path}\n{attempt.outcome.value}{reason}\nTried because: {attempt.why}"


def report_text(attempts: tuple[Attempt, ...]) -> str:
    """A table as text: heads and a line a path, cells parted by tabs."""
    lines = ["\t".join(HEADERS.values())]
    lines += ["\t".join(cell_text(a, c).replace("\n", " ") for c in Column) for a in attempts]
    return "\n".join(lines)


def cell_text(attempt: Attempt, column: Column) -> str:
    """What stands in a cell."""
    path = Path(attempt.path)
    return {
        Column.OUTCOME: attempt.outcome.value,
        Column.BACKEND: attempt.backend or NOTHING,
        Column.VARIANT: attempt.variant or NOTHING,
        Column.KIND: attempt.kind or NOTHING,
        Column.API: _figure(attempt.api_version),
        Column.SCORE: _figure(attempt.score),
        Column.FILE: path.name,
        Column.FOLDER: str(path.parent),
        Column.WHY: attempt.why,
        Column.REASON: attempt.reason or NOTHING,
    }[column]


def _figure(n: int | None) -> str:
    return NOTHING if n is None else count(n)


def _mark(attempt: Attempt, column: Column) -> Mark | None:
    if column is Column.OUTCOME and attempt.outcome is Outcome.REFUSED:
        return Mark.ALERT
    return None if attempt.outcome in (Outcome.REGISTERED, Outcome.REFUSED) else Mark.MUTED


def _sort_key(attempt: Attempt, column: Column) -> Any:
    if column in _FIGURES:
        n = attempt.api_version if column is Column.API else attempt.score
        return -1 if n is None else n
    return cell_text(attempt, column).lower()
