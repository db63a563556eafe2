"""TensorPage: the tensors of a file that was read but cannot be planned."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtWidgets import (
    QAbstractItemView,
    QHeaderView,
    QLabel,
    QTableView,
    QVBoxLayout,
    QWidget,
)

from app.models.tensors import TensorModel
from app.theme.text import bytes_text, plural
from engine.core.visible import visible

if TYPE_CHECKING:
    from engine.core.summary import ModelSummary

ROW_PX = 22


class TensorPage(QWidget):
    """A heading and a table: name, type, shape, MiB."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.title = QLabel(self)
        self.title.setProperty("role", "h2")
        self.title.setMargin(12)
        self.model = TensorModel(parent=self)
        self.table = QTableView(self)
        self.table.setModel(self.model)
        self.table.setAccessibleName("Tensors of the file")
        self.table.setShowGrid(False)
        self.table.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
        self.table.verticalHeader().hide()
        self.table.verticalHeader().setDefaultSectionSize(ROW_PX)
        header = self.table.horizontalHeader()
        header.setSectionResizeMode(QHeaderView.ResizeMode.Interactive)
        for column, width_px in enumerate((48, 320, 80, 220)):
            self.table.setColumnWidth(column, width_px)
        header.setStretchLastSection(True)
        column_layout = QVBoxLayout(self)
        column_layout.setContentsMargins(0, 0, 0, 0)
        column_layout.setSpacing(0)
        column_layout.addWidget(self.title)
        column_layout.addWidget(self.table)

    def show_model(self, model: ModelSummary) -> None:
        """List another file's tensors."""
        size = bytes_text(model.weight_bytes)
        self.title.setText(f"{visible(model.name)}: {plural(len(model.tensors), 'tensor')}, {size}")
        self.model.set_tensors(model.tensors)
