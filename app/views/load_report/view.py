"""LoadReportView: the report as a sortable table; what is selected stands below with all words."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QVBoxLayout, QWidget

from app.models.dock_title import DockTitle
from app.models.load_report_model import (
    Column,
    LoadReportModel,
    LoadReportRows,
    attempt_text,
    report_text,
)
from app.theme.segment import Segment
from app.theme.text import count
from app.theme.wrapped_label import WrappedLabel
from app.views.sheet import COPY_TIP, Sheet
from app.views.table import RowsTable
from engine.core.visible import visible

if TYPE_CHECKING:
    from app.commands.actions import ActionSet
    from app.state.app_state import AppState
    from app.theme.theme import Theme

EMPTY = "Nothing was tried: no folder was searched for backends, and none was loaded."
ONLY_MISSING = "Nothing lies in the folders that were searched. All shows where that was."
FOUND, ALL = "found", "all"
FILE_MAX_PX, FOLDER_PX, REASON_MIN_PX = 320, 160, 200


class LoadReportView(Sheet):
    """Follows AppState. `dock_title` is for the title bar."""

    def __init__(
        self, state: AppState, theme: Theme, actions: ActionSet, parent: QWidget | None = None
    ) -> None:
        super().__init__("load_report", actions, parent)
        self._state = state
        self.model = LoadReportModel(self)
        self.rows = LoadReportRows(self.model, self)
        self.table = LoadReportTable(theme, self)
        self.table.setModel(self.rows)
        self.filter = Segment(((FOUND, "Only found"), (ALL, "All")), "Paths shown", self)
        self.words = WrappedLabel(self)
        self.words.setMargin(0)
        self.words.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self._empty = QLabel(self)
        self._empty.setProperty("role", "muted")
        self._empty.setMargin(12)
        self._empty.setWordWrap(True)
        self._lay_out()
        self.setFocusProxy(self.table)
        self._connect()
        self._show()

    @property
    def dock_title(self) -> DockTitle:
        """What the title bar shows."""
        n_all, n_shown = self.model.rowCount(), self.rows.rowCount()
        fact = count(n_all) if n_all == n_shown else f"{count(n_shown)} of {count(n_all)}"
        return DockTitle("Load report", f"{fact} paths")

    def _lay_out(self) -> None:
        words = QHBoxLayout()
        words.setContentsMargins(12, 4, 12, 4)
        words.addWidget(self.words)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        column.addWidget(self._empty, alignment=Qt.AlignmentFlag.AlignTop)
        column.addWidget(self.table, stretch=1)
        column.addLayout(words)
        column.addStretch()
        column.addWidget(self._footer())

    def _footer(self) -> QFrame:
        footer, row = self._empty_footer(3)
        row.addWidget(self.filter)
        row.addStretch()
        self.copy_button = self._small_button("Copy", COPY_TIP)
        self.json_button = self._small_button(
            "Copy JSON", "Copy every path as devices --json prints it"
        )
        self.help_button = self._small_button("Help", self._actions["manual_backends"].toolTip())
        for button in (self.copy_button, self.json_button, self.help_button):
            row.addWidget(button)
        return footer

    def _connect(self) -> None:
        self._state.devices_changed.connect(self._show)
        self.filter.chosen.connect(self._on_filter)
        self.table.selectionModel().selectionChanged.connect(self._show_words)
        self.copy_button.clicked.connect(self._copy)
        self.json_button.clicked.connect(self._copy_json)
        self.help_button.clicked.connect(self._actions["manual_backends"].trigger)

    def _show(self) -> None:
        self.model.set_report(self._state.load_report)
        self._show_rows()

    def _on_filter(self, choice: str) -> None:
        self.rows.show_only_found(choice == FOUND)
        self._show_rows()

    def _show_rows(self) -> None:
        attempts = self.model.report.attempts
        n_shown = self.rows.rowCount()
        self._empty.setText(ONLY_MISSING if attempts else EMPTY)
        self._empty.setVisible(not n_shown)
        self.table.setVisible(bool(n_shown))
        for button in (self.copy_button, self.json_button):
            button.setEnabled(bool(attempts))
        self.table.lay_out()
        self._show_words()
        self.dock_title_changed.emit(self.dock_title)

    def _show_words(self, _new: object = None, _old: object = None) -> None:
        rows = self.table.selectionModel().selectedRows()
        shown = self.rows.attempts()
        text = attempt_text(shown[rows[0].row()]) if rows else ""
        self.words.setText(visible(text, keeps="\n"))

    def _copy(self) -> None:
        QGuiApplication.clipboard().setText(report_text(self.rows.attempts()))

    def _copy_json(self) -> None:
        text = json.dumps(self.model.report.to_json(), indent=2)
        QGuiApplication.clipboard().setText(text)


class LoadReportTable(RowsTable):
    """The table's widths: long paths are cut, the reason gets what is left."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(theme, "Load report", parent, sorts=True)

    def lay_out(self) -> None:
        """Give columns their widths."""
        used = 0
        for column in Column:
            width = self.fitting_px(column)
            most = {Column.FILE: FILE_MAX_PX, Column.FOLDER: FOLDER_PX}.get(column, width)
            if column is not Column.REASON:
                self.setColumnWidth(column, min(width, most))
                used += min(width, most)
        rest = self.viewport().width() - used
        least = min(self.fitting_px(Column.REASON), REASON_MIN_PX)
        self.setColumnWidth(Column.REASON, max(rest, least))
