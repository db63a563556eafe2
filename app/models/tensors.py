"""TensorModel: the tensors of a file: name, type, shape, size."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QAbstractTableModel, QModelIndex, QPersistentModelIndex, Qt

from app.theme.fonts import fixed_font
from app.theme.text import mib
from engine.core.visible import visible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from PySide6.QtCore import QObject

    from engine.core.summary import TensorSummary

_Index = QModelIndex | QPersistentModelIndex

HEADERS = ("#", "tensor", "type", "ne", "MiB")
_NUMBERS = (0, 4)
_NO_PARENT = QModelIndex()


class TensorModel(QAbstractTableModel):
    """Read-only, in file order."""

    def __init__(
        self, tensors: Sequence[TensorSummary] = (), parent: QObject | None = None
    ) -> None:
        super().__init__(parent)
        self._tensors = tuple(tensors)

    def set_tensors(self, tensors: Sequence[TensorSummary]) -> None:
        """Show the tensors of another file."""
        self.beginResetModel()
        self._tensors = tuple(tensors)
        self.endResetModel()

    def rowCount(self, parent: _Index = _NO_PARENT) -> int:
        """A row a tensor."""
        return 0 if parent.isValid() else len(self._tensors)

    def columnCount(self, parent: _Index = _NO_PARENT) -> int:
        """The headers."""
        return 0 if parent.isValid() else len(HEADERS)

    def headerData(
        self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole
    ) -> Any:
        """Column heads; the shape's tooltip says in which order."""
        if orientation is not Qt.Orientation.Horizontal:
            return None
        if role == Qt.ItemDataRole.DisplayRole:
            return HEADERS[section]
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return _alignment(section)
        if role == Qt.ItemDataRole.ToolTipRole and HEADERS[section] == "ne":
            return "Shape in ggml order: the first number is the row length"
        return None

    def data(self, index: _Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        """Texts, figures in monospace."""
        if role == Qt.ItemDataRole.DisplayRole:
            return self._text(index.row(), index.column())
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return _alignment(index.column())
        if role == Qt.ItemDataRole.FontRole and HEADERS[index.column()] != "type":
            return fixed_font()
        return None

    def _text(self, row: int, column: int) -> str:
        tensor = self._tensors[row]
        name = visible(tensor.name)
        texts = (str(row), name, tensor.type, str(list(tensor.ne)), mib(tensor.n_bytes))
        return texts[column]


def _alignment(column: int) -> Qt.AlignmentFlag:
    side = Qt.AlignmentFlag.AlignRight if column in _NUMBERS else Qt.AlignmentFlag.AlignLeft
    return side | Qt.AlignmentFlag.AlignVCenter
