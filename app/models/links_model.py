"""LinksModel: the links between devices that a run used, as table rows."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QAbstractTableModel, QObject, Qt

from app.models.cells import LEFT, LOOK_ROLE, NO_PARENT, RIGHT, Index, head_data, is_head
from app.theme.text import MIB, count, duration_text, plural

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from app.theme.colours import DeviceLook
    from engine.trace.links import Link


class LinkColumn(enum.IntEnum):
    """The columns of the table."""

    SOURCE = 0
    TARGET = 1
    MIB = 2
    RATE = 3


_HEADERS = {
    LinkColumn.SOURCE: ("from", "The device that a copy comes from"),
    LinkColumn.TARGET: ("copies to", "The device that it goes to"),
    LinkColumn.MIB: ("MiB", "Copied over the whole run"),
    LinkColumn.RATE: ("GB/s", "Bytes by the time in which at least one copy is under way"),
}
_RIGHT = (LinkColumn.MIB, LinkColumn.RATE)


class LinksModel(QAbstractTableModel):
    """Rows by source and target; `looks` are those of lanes. GUI thread only."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._links: tuple[Link, ...] = ()
        self._looks: Mapping[int, DeviceLook] = {}
        self.badges: frozenset[LinkColumn] = frozenset()
        """Columns in which the badge alone stands for a device: there is no room for its name."""

    def set_links(self, links: Sequence[Link], looks: Mapping[int, DeviceLook]) -> None:
        """Show the links of a run."""
        self.beginResetModel()
        known = (link for link in links if {link.source_lane, link.target_lane} <= looks.keys())
        self._links, self._looks = tuple(known), looks
        self.endResetModel()

    def rowCount(self, parent: Index = NO_PARENT) -> int:  # noqa: D102 - Qt calls it
        return 0 if parent.isValid() else len(self._links)

    def columnCount(self, parent: Index = NO_PARENT) -> int:  # noqa: D102 - Qt calls it
        return 0 if parent.isValid() else len(LinkColumn)

    def headerData(  # noqa: D102 - Qt calls it
        self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole
    ) -> Any:
        if not is_head(section, orientation, len(LinkColumn)):
            return None
        column = LinkColumn(section)
        text, tip = _HEADERS[column]
        return head_data(role, text, is_figure=column in _RIGHT, tip=tip)

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:  # noqa: D102 - Qt calls it
        if not index.isValid():
            return None
        link, column = self._links[index.row()], LinkColumn(index.column())
        if role == Qt.ItemDataRole.DisplayRole:
            return "" if column in self.badges else self._text(link, column)
        if role == Qt.ItemDataRole.AccessibleTextRole:
            return self._text(link, column)
        if role == LOOK_ROLE:
            lanes = {LinkColumn.SOURCE: link.source_lane, LinkColumn.TARGET: link.target_lane}
            return self._looks.get(lanes.get(column, -1))
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return RIGHT if column in _RIGHT else LEFT
        return self._tip(link) if role == Qt.ItemDataRole.ToolTipRole else None

    def _text(self, link: Link, column: LinkColumn) -> str:
        if column is LinkColumn.MIB:
            return count(link.n_bytes / MIB, 2)
        if column is LinkColumn.RATE:
            return count(link.gb_per_s, 1)
        return self._name(link, column)

    def _name(self, link: Link, column: LinkColumn) -> str:
        lane = link.source_lane if column is LinkColumn.SOURCE else link.target_lane
        return self._looks[lane].name

    def _tip(self, link: Link) -> str:
        source, target = (self._looks[lane].name for lane in (link.source_lane, link.target_lane))
        times = f"p50 {duration_text(link.p50_ns)}, p95 {duration_text(link.p95_ns)}"
        return f"{source} to {target}: {plural(link.n_transfers, 'piece')}, {times} each"
