"""DevicesPage: devices and load report as a page, while no plan is shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QPushButton, QSplitter, QVBoxLayout

from app.views.devices.view import DevicesView
from app.views.load_report.view import LoadReportView

if TYPE_CHECKING:
    from PySide6.QtGui import QKeyEvent
    from PySide6.QtWidgets import QWidget

    from app.commands.actions import ActionSet
    from app.state.app_state import AppState
    from app.theme.theme import Theme

UPPER_PX, LOWER_PX = 3200, 2800
"""They are scaled to the room there is."""


class DevicesPage(QFrame):
    """A head with the way back, the devices, the load report."""

    left = Signal()

    def __init__(
        self, state: AppState, theme: Theme, actions: ActionSet, parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        self.devices = DevicesView(state, theme, actions, self)
        self.report = LoadReportView(state, theme, actions, self)
        halves = QSplitter(Qt.Orientation.Vertical, self)
        halves.setChildrenCollapsible(False)
        halves.setHandleWidth(1)
        halves.addWidget(self._titled("Devices", self.devices, has_way_back=True))
        halves.addWidget(self._titled("Load report", self.report, has_way_back=False))
        halves.setSizes([UPPER_PX, LOWER_PX])
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.addWidget(halves)
        self.setFocusProxy(self.devices)
        for view in (self.devices, self.report):
            view.dock_title_changed.connect(self._show_facts)
        self._show_facts()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Esc goes back."""
        if event.key() == Qt.Key.Key_Escape:
            self.left.emit()
        else:
            super().keyPressEvent(event)

    def _titled(self, title: str, view: QWidget, *, has_way_back: bool) -> QFrame:
        frame = QFrame(self)
        head = QFrame(frame)
        head.setProperty("role", "dock_title")
        row = QHBoxLayout(head)
        row.setContentsMargins(12, 2, 12, 2)
        name, fact = QLabel(title, head), QLabel(head)
        name.setProperty("role", "strong")
        fact.setProperty("role", "muted")
        fact.setObjectName(f"{view.objectName()}_fact")
        row.addWidget(name)
        row.addWidget(fact, stretch=1)
        if has_way_back:
            self.back_button = QPushButton("Back", head)
            self.back_button.setProperty("kind", "small")
            self.back_button.setToolTip("Go back to the page before (Esc)")
            self.back_button.clicked.connect(self.left)
            row.addWidget(self.back_button)
        column = QVBoxLayout(frame)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        column.addWidget(head)
        column.addWidget(view, stretch=1)
        return frame

    def _show_facts(self, _title: object = None) -> None:
        for view in (self.devices, self.report):
            label = self.findChild(QLabel, f"{view.objectName()}_fact")
            if label is not None:
                label.setText(view.dock_title.fact)
