"""OperationsView: the support matrix of the open model's operations."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QFrame, QVBoxLayout, QWidget

from app.models.dock_title import DockTitle
from app.models.op_matrix_model import (
    N_FIXED,
    SHAPE,
    OpMatrixModel,
    OpMatrixRows,
    Shown,
    is_shown,
    matrix_text,
    row_words,
)
from app.theme.job_row import JobRow
from app.theme.segment import Segment
from app.theme.switch import Switch
from app.theme.text import plural
from app.theme.wrapped_label import WrappedLabel
from app.views.sheet import COPY_TIP, Sheet
from app.views.table import RowsTable
from engine.core.visible import visible

if TYPE_CHECKING:
    from app.commands.actions import ActionSet
    from app.state.app_state import AppState
    from app.theme.theme import Theme

EMPTY = (
    "Check operations: every operation of this model's graphs, with its shapes, is computed on "
    "every device and compared with a reference in 64-bit floats. It takes a minute or so."
)
CHECKING = "The operations are being checked. What is found by then is shown when it is stopped."
NONE_SHOWN = {
    Shown.FAULTS: "No device computes an operation of this model wrong.",
    Shown.UNSUPPORTED: "Every device computes every operation of this model.",
}
SHAPE_MAX_PX, SHAPE_MIN_PX = 420, 160


class OperationsView(Sheet):
    """Follows AppState. `dock_title` is for the title bar."""

    def __init__(
        self, state: AppState, theme: Theme, actions: ActionSet, parent: QWidget | None = None
    ) -> None:
        super().__init__("operations", actions, parent)
        self._state = state
        self.model = OpMatrixModel(self)
        self.rows = OpMatrixRows(self.model, self)
        self.table = OperationsTable(theme, self)
        self.table.setModel(self.rows)
        self.filter = Segment([(shown, shown.value) for shown in Shown], "Operations shown", self)
        self.with_speed = Switch("Measure speed", theme, self)
        self.with_speed.setToolTip("Compute each case again and again: it takes far longer")
        self.job_row = JobRow(self)
        self.words, self.empty = WrappedLabel(self), WrappedLabel(self)
        self.words.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.empty.setProperty("role", "muted")
        self._lay_out()
        self.setFocusProxy(self.buttons["check_ops"])
        self._connect()
        self._show()

    @property
    def dock_title(self) -> DockTitle:
        """What the title bar shows."""
        matrix = self._state.ops.matrix
        if matrix is None:
            return DockTitle("Operations", "being checked" if self._state.ops.is_checking else "")
        facts = [plural(len(matrix.rows), "case"), plural(matrix.n_faults, "fault")]
        if matrix.is_stopped:
            facts.append("stopped early")
        return DockTitle("Operations", ", ".join(facts))

    def _lay_out(self) -> None:
        texts = QVBoxLayout()
        texts.setContentsMargins(12, 4, 12, 4)
        texts.setSpacing(4)
        for widget in (self.empty, self.words, self.job_row):
            texts.addWidget(widget)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        column.addWidget(self.table, stretch=1)
        column.addLayout(texts)
        column.addStretch()
        column.addWidget(self._footer())

    def _footer(self) -> QFrame:
        footer, row = self._empty_footer(3)
        row.addWidget(self._button("check_ops", "Check"))
        row.addWidget(self._button("stop", "Stop"))
        row.addWidget(self.with_speed)
        row.addStretch()
        row.addWidget(self.filter)
        self.copy_button = self._small_button("Copy", COPY_TIP)
        self.json_button = self._small_button("Copy JSON", "Copy all of it as ops --json prints it")
        for button in (self.copy_button, self.json_button):
            row.addWidget(button)
        row.addWidget(self._button("manual_operations", "Help"))
        return footer

    def _connect(self) -> None:
        self._state.ops_changed.connect(self._show)
        self.filter.chosen.connect(self._on_filter)
        self.table.selectionModel().selectionChanged.connect(self._show_words)
        self.copy_button.clicked.connect(self._copy)
        self.json_button.clicked.connect(self._copy_json)
        self._sync_buttons()

    # What is shown.

    def _show(self, _ops: object = None) -> None:
        matrix = self._state.ops.matrix
        self.model.set_matrix(matrix)
        for shown in Shown:
            n = sum(is_shown(row, shown) for row in self.model.matrix.rows)
            self.filter.set_text(shown, shown.value if matrix is None else f"{shown.value} {n}")
        self._show_rows()
        self._sync_buttons()

    def _on_filter(self, shown: Shown) -> None:
        self.rows.show_rows(shown)
        self._show_rows()

    def _show_rows(self) -> None:
        ops, n_shown = self._state.ops, self.rows.rowCount()
        nothing = EMPTY if ops.matrix is None else NONE_SHOWN.get(self.rows.shown, EMPTY)
        self.empty.setText("" if n_shown else CHECKING if ops.is_checking else nothing)
        self.table.setVisible(bool(n_shown))
        for widget in (self.filter, self.copy_button, self.json_button):
            widget.setEnabled(ops.matrix is not None)
        self.table.lay_out()
        self._show_words()
        self.dock_title_changed.emit(self.dock_title)

    def _show_words(self, _new: object = None, _old: object = None) -> None:
        rows = self.table.selectionModel().selectedRows()
        words = row_words(self.model.matrix, self.rows.rows()[rows[0].row()]) if rows else ""
        self.words.setText(visible(words, keeps="\n"))

    def _sync_buttons(self) -> None:
        is_checking = self._state.ops.is_checking
        check, stop = self.buttons["check_ops"], self.buttons["stop"]
        has_focus = check.hasFocus() or stop.hasFocus()
        for action_id, button in self.buttons.items():
            action = self._actions[action_id]
            button.setEnabled(action.isEnabled())
            button.setToolTip(action.toolTip())
        stop.setVisible(is_checking)
        if has_focus:
            # The one that can be used now keeps it: Qt would go on to another pane.
            (stop if is_checking else check).setFocus()
        self.with_speed.setEnabled(not is_checking)

    # What a person does.

    def _copy(self) -> None:
        QGuiApplication.clipboard().setText(matrix_text(self.model.matrix, self.rows.rows()))

    def _copy_json(self) -> None:
        QGuiApplication.clipboard().setText(json.dumps(asdict(self.model.matrix), indent=2))


class OperationsTable(RowsTable):
    """A click on a head sorts: a device's column has its faults first."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(theme, "Operations on devices", parent, sorts=True)

    def lay_out(self) -> None:
        """Give columns their widths; the shape gives way, then the table scrolls."""
        n_columns = self.model().columnCount()
        widths = [self.fitting_px(column) for column in range(n_columns)]
        if n_columns < N_FIXED:
            return
        others = sum(widths) - widths[SHAPE]
        room = self.viewport().width() - others
        widths[SHAPE] = min(max(room, SHAPE_MIN_PX), max(widths[SHAPE], SHAPE_MIN_PX))
        for column, width in enumerate(widths):
            self.setColumnWidth(column, width)
