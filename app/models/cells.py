"""What models of tables have in common: roles of cells, marks of their text, alignment."""

from __future__ import annotations

import enum

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
