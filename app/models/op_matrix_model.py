"""OpMatrixModel: what checking operations found, a row a case; OpMatrixRows filters and sorts."""

from __future__ import annotations

import enum
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
from app.theme.text import MINUS, NOTHING, SPACE, count, duration_text
from engine.core.op_matrix import FAULTS, OpMatrix, OpState

if TYPE_CHECKING:
    from PySide6.QtCore import QObject, QPersistentModelIndex

    from engine.core.op_matrix import OpRow, OpSpeed, OpVerdict

OP, TYPE, SHAPE, PROMPT, TOKEN = range(5)
FIXED = ("operation", "type", "shape", "in a prompt", "in a token")
N_FIXED = len(FIXED)
_TIPS = {
    TYPE: "The type of its weights or cache",
    SHAPE: "Shapes in ggml order: the first number is the row length",
    PROMPT: "How many operations of a prompt batch are like it",
    TOKEN: "How many operations of one token are like it",
}
_RANK = {
    OpState.FAILED: 0,
    OpState.WRONG: 1,
    OpState.NOT_SUPPORTED: 3,
    OpState.NOT_CHECKED: 4,
}
"""Where a verdict stands when a device's column is sorted: faults first."""


class Shown(enum.Enum):
    """Which rows are shown."""

    ALL = "All"
    FAULTS = "Faults"
    UNSUPPORTED = "Not supported"


class OpMatrixModel(QAbstractTableModel):
    """The columns of a case, then one a device. GUI thread only."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.matrix = OpMatrix((), ())

    def set_matrix(self, matrix: OpMatrix | None) -> None:
        """Show another matrix; None is an empty one."""
        self.beginResetModel()
        self.matrix = matrix or OpMatrix((), ())
        self.endResetModel()

    def rowCount(self, parent: Index = NO_PARENT) -> int:
        """A row a case."""
        return 0 if parent.isValid() else len(self.matrix.rows)

    def columnCount(self, parent: Index = NO_PARENT) -> int:
        """The case's, and the devices."""
        return 0 if parent.isValid() else N_FIXED + len(self.matrix.devices)

    def headerData(
        self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole
    ) -> Any:
        """Heads, and what they mean."""
        if not is_head(section, orientation, self.columnCount()):
            return None
        text = FIXED[section] if section < N_FIXED else self.matrix.devices[section - N_FIXED]
        is_figure = section in (PROMPT, TOKEN)
        return head_data(role, text, is_figure=is_figure, tip=_TIPS.get(section))

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        """Texts and marks; a cell's tooltip says all of a verdict."""
        if not index.isValid():
            return None
        row, column = self.matrix.rows[index.row()], index.column()
        if role in (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.AccessibleTextRole):
            return cell_text(row, column)
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return RIGHT if column in (PROMPT, TOKEN) else LEFT
        if role == SORT_ROLE:
            return _sort_key(row, column)
        if column < N_FIXED:
            return row.words if role == Qt.ItemDataRole.ToolTipRole and column == SHAPE else None
        verdict = row.verdicts[column - N_FIXED]
        if role == Qt.ItemDataRole.ToolTipRole:
            return verdict_words(self.matrix.devices[column - N_FIXED], verdict)
        return _mark(verdict) if role == MARK_ROLE else None


class OpMatrixRows(QSortFilterProxyModel):
    """The rows that are shown, in the order of a column or of the check."""

    def __init__(self, model: OpMatrixModel, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.shown = Shown.ALL
        self.setSourceModel(model)
        self.setSortRole(SORT_ROLE)

    def show_rows(self, shown: Shown) -> None:
        """Show other rows."""
        self.beginFilterChange()
        self.shown = shown
        self.endFilterChange(QSortFilterProxyModel.Direction.Rows)

    def filterAcceptsRow(  # noqa: N802 - Qt's name
        self, source_row: int, source_parent: QModelIndex | QPersistentModelIndex
    ) -> bool:
        """Whether a case is shown."""
        return is_shown(self._model.matrix.rows[source_row], self.shown)

    def rows(self) -> tuple[OpRow, ...]:
        """What is shown, in that order."""
        places = (self.mapToSource(self.index(row, 0)).row() for row in range(self.rowCount()))
        return tuple(self._model.matrix.rows[place] for place in places)

    @property
    def _model(self) -> OpMatrixModel:
        model = self.sourceModel()
        assert isinstance(model, OpMatrixModel)
        return model


def is_shown(row: OpRow, shown: Shown) -> bool:
    """Whether a case belongs to what is shown."""
    if shown is Shown.FAULTS:
        return any(verdict.is_fault for verdict in row.verdicts)
    if shown is Shown.UNSUPPORTED:
        return any(verdict.state is OpState.NOT_SUPPORTED for verdict in row.verdicts)
    return True


def cell_text(row: OpRow, column: int) -> str:
    """What stands in a cell."""
    if column in (PROMPT, TOKEN):
        n = row.n_prompt if column == PROMPT else row.n_token
        return count(n) if n else NOTHING
    if column < N_FIXED:
        return {OP: row.op, TYPE: row.type, SHAPE: row.words}[column]
    return verdict_text(row.verdicts[column - N_FIXED])


def verdict_text(verdict: OpVerdict) -> str:
    """A verdict for a narrow column: the state, the error, how long it takes."""
    if verdict.state in (OpState.NOT_SUPPORTED, OpState.NOT_CHECKED):
        return verdict.state.value
    error = "" if verdict.error is None else f" {error_text(verdict.error)}"
    speed = "" if verdict.speed is None else f", {duration_text(verdict.speed.median_ns)}"
    return f"{verdict.state.value}{error}{speed}"


def error_text(error: float) -> str:
    """An error with two digits and a power of ten; 0 where there is none at all."""
    if error == 0:
        return "0"
    digits, _, power = f"{error:.1e}".partition("e")
    return f"{digits}e{int(power)}".replace("-", MINUS)


def verdict_words(device: str, verdict: OpVerdict) -> str:
    """All of a verdict, in lines."""
    bar = (
        "values must be the same"
        if not verdict.bar
        else f"at most {error_text(verdict.bar)} is allowed"
    )
    error = "" if verdict.error is None else f", error {error_text(verdict.error)}, {bar}"
    lines = [f"{device}: {verdict.state.value}{error}"]
    if verdict.speed is not None:
        lines.append(speed_words(verdict.speed))
    lines += [text for text in (verdict.reason, verdict.details) if text]
    return "\n".join(lines)


def speed_words(speed: OpSpeed) -> str:
    """How fast: median, spread and n, bytes and operations in a second."""
    flops = f", {count(speed.gflop_per_s, 1)}{SPACE}GFLOP/s" if speed.n_flops else ""
    return (
        f"median {duration_text(speed.median_ns)}, quartiles {count(100 * speed.spread)}{SPACE}% "
        f"apart, n = {speed.n_runs}; {count(speed.gb_per_s, 1)}{SPACE}GB/s{flops}"
    )


def row_words(matrix: OpMatrix, row: OpRow) -> str:
    """A case on every device, in lines."""
    verdicts = zip(matrix.devices, row.verdicts, strict=True)
    lines = [f"{row.op} {row.type}, {row.words}"]
    lines += [verdict_words(device, verdict).replace("\n", "; ") for device, verdict in verdicts]
    return "\n".join(lines)


def matrix_text(matrix: OpMatrix, rows: tuple[OpRow, ...]) -> str:
    """A table as text: heads and a line a case, cells parted by tabs."""
    n_columns = N_FIXED + len(matrix.devices)
    lines = ["\t".join((*FIXED, *matrix.devices))]
    lines += ["\t".join(cell_text(row, column) for column in range(n_columns)) for row in rows]
    return "\n".join(lines)


def _mark(verdict: OpVerdict) -> Mark | None:
    if verdict.state in FAULTS:
        return Mark.ALERT
    return None if verdict.state is OpState.OK else Mark.MUTED


def _sort_key(row: OpRow, column: int) -> Any:
    if column == PROMPT:
        return row.n_prompt
    if column == TOKEN:
        return row.n_token
    if column < N_FIXED:
        return cell_text(row, column).lower()
    verdict = row.verdicts[column - N_FIXED]
    # One number: the state first, within it the error or how long it takes.
    rank = float(_RANK.get(verdict.state, 2))
    if verdict.speed is not None:
        return rank + 1 - 1 / (1 + verdict.speed.median_ns)
    return rank + min(verdict.error or 0.0, 0.999)
