"""LayerModel: the strip as a list, so that keyboards and screen readers reach every layer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QAbstractListModel, QModelIndex, QPersistentModelIndex, Qt

from app.views.layers.strip import cell_text

if TYPE_CHECKING:
    from PySide6.QtCore import QObject

    from app.views.layers.strip import LayerCell

FIRST_NODE_ROLE = int(Qt.ItemDataRole.UserRole)
"""The node that selecting the layer selects."""


class LayerModel(QAbstractListModel):
    """A row a cell: its label, and its facts as text."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.cells: tuple[LayerCell, ...] = ()
        self.devices: tuple[str, ...] = ()

    def show_cells(self, cells: tuple[LayerCell, ...], devices: tuple[str, ...]) -> None:
        """Show other cells; `devices` are the names of the plan's backends."""
        self.beginResetModel()
        self.cells, self.devices = cells, devices
        self.endResetModel()

    def rowCount(self, parent: QModelIndex | QPersistentModelIndex | None = None) -> int:
        """One row a cell."""
        return 0 if parent is not None and parent.isValid() else len(self.cells)

    def data(
        self,
        index: QModelIndex | QPersistentModelIndex,
        role: int = int(Qt.ItemDataRole.DisplayRole),
    ) -> Any:
        """The label, the facts, or the layer's first node."""
        if not index.isValid() or not 0 <= index.row() < len(self.cells):
            return None
        cell = self.cells[index.row()]
        if role == Qt.ItemDataRole.DisplayRole:
            return cell.label
        if role in (Qt.ItemDataRole.AccessibleTextRole, Qt.ItemDataRole.ToolTipRole):
            return cell_text(cell, self.devices)
        return cell.first_node if role == FIRST_NODE_ROLE else None
