"""DevicesModel: devices, those left out, and files that were not loaded, as a table."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QAbstractTableModel, Qt

from app.models.cells import (
    LEFT,
    LOOK_ROLE,
    MARK_ROLE,
    NO_PARENT,
    RIGHT,
    Index,
    Mark,
    head_data,
    is_head,
)
from app.models.device_entries import Presence, presence_words
from app.models.device_words import source_words
from app.theme.text import NOTHING, mib
from engine.core.visible import visible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from PySide6.QtCore import QObject

    from app.models.device_entries import DeviceEntry
    from app.theme.colours import DeviceLook


class Column(enum.IntEnum):
    """The columns, in order."""

    NAME = 0
    TYPE = 1
    FREE = 2
    TOTAL = 3
    FAMILY = 4
    PLAN = 5
    SOURCE = 6
    WORDS = 7


HEADERS = {
    Column.NAME: "device",
    Column.TYPE: "type",
    Column.FREE: "free, MiB",
    Column.TOTAL: "total, MiB",
    Column.FAMILY: "family",
    Column.PLAN: "this plan",
    Column.SOURCE: "from",
    Column.WORDS: "description, or why not",
}
_TIPS = {
    Column.FREE: "Free memory when the engine was asked; the card says how it was obtained",
    Column.FAMILY: "The backend family that brought it",
    Column.PLAN: "Which backend of the shown plan it is; a lower number has priority",
    Column.SOURCE: "Built in, or the file it was loaded from",
}
_FIGURES = (Column.FREE, Column.TOTAL)


class DevicesModel(QAbstractTableModel):
    """A row an entry, in the order they are given. GUI thread only."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._entries: tuple[DeviceEntry, ...] = ()
        self._looks: tuple[DeviceLook, ...] = ()

    def set_entries(self, entries: Sequence[DeviceEntry], looks: Sequence[DeviceLook]) -> None:
        """Show other entries; `looks` are those of the shown plan's backends."""
        self.beginResetModel()
        self._entries, self._looks = tuple(entries), tuple(looks)
        self.endResetModel()

    @property
    def entries(self) -> tuple[DeviceEntry, ...]:
        """The entries, by row."""
        return self._entries

    def row_of(self, key: str) -> int:
        """The row of an entry, -1 if there is none."""
        return next((i for i, entry in enumerate(self._entries) if entry.key == key), -1)

    def rowCount(self, parent: Index = NO_PARENT) -> int:
        """A row an entry."""
        return 0 if parent.isValid() else len(self._entries)

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
        """Texts, marks, badges."""
        if not index.isValid():
            return None
        entry, column = self._entries[index.row()], Column(index.column())
        if role in (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.AccessibleTextRole):
            return visible(_text(entry, column))
        if role == Qt.ItemDataRole.ToolTipRole and column in (Column.WORDS, Column.SOURCE):
            return visible(_text(entry, column))
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return _alignment(column)
        if role == MARK_ROLE:
            return Mark.MUTED if _is_muted(entry, column) else None
        if role == LOOK_ROLE and column is Column.NAME and 0 <= entry.backend_id < len(self._looks):
            return self._looks[entry.backend_id]
        return None


def _text(entry: DeviceEntry, column: Column) -> str:
    device = entry.device
    if column is Column.NAME:
        return entry.name
    if column is Column.PLAN:
        return presence_words(entry)
    if column is Column.SOURCE:
        return source_words(entry)
    if device is None:
        return entry.why if column is Column.WORDS else NOTHING
    if column is Column.WORDS:
        return ", ".join(part for part in (device.description, device.software) if part)
    if column in _FIGURES:
        n_bytes = device.memory_free if column is Column.FREE else device.memory_total
        return mib(n_bytes) if device.memory_total else NOTHING
    return device.type.value if column is Column.TYPE else device.reg


def _is_muted(entry: DeviceEntry, column: Column) -> bool:
    if entry.device is None:
        return True
    return column is Column.PLAN and entry.presence is not Presence.CHOSEN


def _alignment(column: Column) -> Qt.AlignmentFlag:
    return RIGHT if column in _FIGURES else LEFT
