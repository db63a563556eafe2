"""DevicesView: a table of devices, the selected one's card, and what can be done with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import (
    QFrame,
    QHBoxLayout,
    QSplitter,
    QVBoxLayout,
    QWidget,
)

from app.models.device_entries import device_entries
from app.models.device_words import card_facts
from app.models.devices_model import Column, DevicesModel
from app.models.dock_title import DockTitle
from app.theme.colours import device_style
from app.theme.job_row import JobRow
from app.theme.switch import Switch
from app.theme.text import plural
from app.views.devices.card import DeviceCard
from app.views.sheet import Sheet
from app.views.table import RowsTable

if TYPE_CHECKING:
    from PySide6.QtCore import QItemSelection

    from app.commands.actions import ActionSet
    from app.models.device_entries import DeviceEntry
    from app.state.app_state import AppState
    from app.theme.theme import Theme

WORDS_MIN_PX = 120
GIVE_WAY = (Column.FAMILY, Column.TOTAL, Column.SOURCE)
"""Columns that are left out where words would have less room, in this order."""
TABLE_PX, CARD_PX = 4600, 5400
"""They are scaled to the room there is."""
BUTTONS = (
    ("load_backend", "Load…"),
    ("load_backend_folder", "Load folder…"),
    ("unload_backend", "Unload"),
)
COPY_BUTTONS = (("copy_device", "Copy"), ("copy_device_json", "Copy JSON"))
HELP_BUTTON = ("manual_backends", "Help")
START_TIP = "Load this file each time the window starts"


class DevicesView(Sheet):
    """Follows AppState; the selected entry is the state's. `dock_title` is for the title bar."""

    start_asked = Signal(object)
    """Carries (path, whether it is to be loaded at every start)."""

    def __init__(
        self, state: AppState, theme: Theme, actions: ActionSet, parent: QWidget | None = None
    ) -> None:
        super().__init__("devices", actions, parent)
        self._state, self._theme = state, theme
        self._syncing = False
        self.model = DevicesModel(self)
        self.table = DevicesTable(theme, self)
        self.table.setModel(self.model)
        self.card = DeviceCard(self)
        self.job_row = JobRow(self)
        self.at_start = Switch("Load at every start", theme, self)
        self.at_start.setToolTip(START_TIP)
        self._lay_out()
        self.setFocusProxy(self.table)
        self._connect()
        self._show()

    @property
    def dock_title(self) -> DockTitle:
        """What the title bar shows."""
        n_here = len(self._state.devices)
        n_out = len(self.model.entries) - n_here
        fact = plural(n_here, "device")
        return DockTitle("Devices", f"{fact}, {n_out} not used" if n_out else fact)

    @property
    def entry(self) -> DeviceEntry | None:
        """The selected entry."""
        row = self.model.row_of(self._state.device)
        return self.model.entries[row] if row >= 0 else None

    def _lay_out(self) -> None:
        halves = QSplitter(Qt.Orientation.Horizontal, self)
        halves.setChildrenCollapsible(False)
        halves.setHandleWidth(1)
        halves.addWidget(self.table)
        halves.addWidget(self.card)
        halves.setSizes([TABLE_PX, CARD_PX])
        jobs = QHBoxLayout()
        jobs.setContentsMargins(12, 0, 12, 0)
        jobs.addWidget(self.job_row)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        column.addWidget(halves, stretch=1)
        column.addLayout(jobs)
        column.addWidget(self._footer())

    def _footer(self) -> QFrame:
        footer, row = self._empty_footer(5)
        for action_id, text in BUTTONS:
            row.addWidget(self._button(action_id, text))
        row.addWidget(self.at_start)
        row.addStretch()
        for action_id, text in (*COPY_BUTTONS, HELP_BUTTON):
            row.addWidget(self._button(action_id, text))
        return footer

    def _connect(self) -> None:
        state = self._state
        for signal in (state.devices_changed, state.loaded_changed, state.shown_plan_changed):
            signal.connect(self._show)
        state.device_chosen.connect(self._on_chosen)
        self._theme.changed.connect(self._show)
        self.table.selectionModel().selectionChanged.connect(self._on_rows)
        self.at_start.clicked.connect(self._on_at_start)
        self._sync_buttons()

    # What is shown.

    def _show(self) -> None:
        plan = self._state.shown_plan
        looks = () if plan is None else device_style(self._theme.palette, plan.devices)
        self._syncing = True
        self.model.set_entries(device_entries(self._state), looks)
        self._syncing = False
        self.table.lay_out()
        if self.model.row_of(self._state.device) < 0 and self.model.entries:
            self._state.choose_device(self.model.entries[0].key)
        self._on_chosen()
        self.dock_title_changed.emit(self.dock_title)

    def _on_chosen(self, _key: object = None) -> None:
        entry = self.entry
        row = self.model.row_of(self._state.device)
        self._syncing = True
        if row >= 0:
            self.table.selectRow(row)
        else:
            self.table.clearSelection()
        self._syncing = False
        self.card.show_facts(None if entry is None else card_facts(entry))
        self._show_at_start(entry)

    def _show_at_start(self, entry: DeviceEntry | None) -> None:
        loaded = self._state.loaded
        path = "" if entry is None else entry.file
        is_at_start = path in loaded.at_start
        self.at_start.setVisible(bool(path) and (is_at_start or path in loaded.by_hand))
        self.at_start.setChecked(is_at_start)

    def _sync_buttons(self) -> None:
        for action_id, button in self.buttons.items():
            action = self._actions[action_id]
            button.setEnabled(action.isEnabled())
            button.setToolTip(action.toolTip())

    # What a person does.

    def _on_rows(self, _selected: QItemSelection, _deselected: QItemSelection) -> None:
        rows = self.table.selectionModel().selectedRows()
        if rows and not self._syncing:
            self._state.choose_device(self.model.entries[rows[0].row()].key)

    def _on_at_start(self) -> None:
        entry = self.entry
        if entry is not None and entry.file:
            self.start_asked.emit((entry.file, self.at_start.isChecked()))


class DevicesTable(RowsTable):
    """The table's widths: the words get what is left, and other columns give way to them."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(theme, "Devices", parent)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)

    def lay_out(self) -> None:
        """Give columns their widths."""
        for column in Column:
            self.setColumnHidden(column, False)
        widths = {column: self.fitting_px(column) for column in Column}
        del widths[Column.WORDS]
        rest = self.viewport().width() - sum(widths.values())
        for column in GIVE_WAY:
            if rest >= WORDS_MIN_PX:
                break
            self.setColumnHidden(column, True)
            rest += widths.pop(column)
        for column, width in widths.items():
            self.setColumnWidth(column, width)
        self.setColumnWidth(Column.WORDS, max(rest, 0))
