"""What models of tables have in common: roles of cells, marks of their text, alignment."""

from __future__ import annotations

import enum
from typing import Any

from PySide6.QtCore import QModelIndex, QPersistentModelIndex, Qt

Index = QModelIndex | QPersistentModelIndex
NO_PARENT = QModelIndex()

LOOK_ROLE = Qt.ItemDataRole.UserRole + 10
"""The `DeviceLook` whose badge stands before the text; None for no badge."""
MARK_ROLE = Qt.ItemDataRole.UserRole + 11
"""A `Mark`, or None."""
SORT_ROLE = Qt.ItemDataRole.UserRole + 12
"""What a column is sorted by."""


class Mark(enum.Enum):
    """How a cell's text stands out."""

    MUTED = enum.auto()
    ALERT = enum.auto()


LEFT = Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter
RIGHT = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter


def is_head(section: int, orientation: Qt.Orientation, n_columns: int) -> bool:
    """Whether a model is asked for the head of a column that it has."""
    return orientation is Qt.Orientation.Horizontal and 0 <= section < n_columns


def head_data(role: int, text: str, *, is_figure: bool, tip: str | None) -> Any:
    """A head by role: its text, alignment and tooltip."""
    if role == Qt.ItemDataRole.DisplayRole:
        return text
    if role == Qt.ItemDataRole.TextAlignmentRole:
        return RIGHT if is_figure else LEFT
    return tip if role == Qt.ItemDataRole.ToolTipRole else None
