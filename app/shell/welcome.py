"""WelcomePage: what can be done while nothing is open, and which devices are here."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QModelIndex, Qt, Signal
from PySide6.QtGui import QStandardItem, QStandardItemModel
from PySide6.QtWidgets import (
    QAbstractItemView,
    QFrame,
    QHBoxLayout,
    QHeaderView,
    QLabel,
    QPushButton,
    QTableView,
    QVBoxLayout,
    QWidget,
)

from app.theme.colours import device_style
from app.theme.job_row import JobRow
from app.theme.paint import badge_pixmap
from app.theme.text import NOTHING, bytes_text
from engine.core.table import DeviceRow
from engine.model.manifest import demo_entry

if TYPE_CHECKING:
    from collections.abc import Sequence

    from app.commands.actions import ActionSet
    from app.state.app_state import AppState
    from app.state.settings import RecentFile
    from app.theme.theme import Theme
    from engine.core.devices import Unavailable
    from engine.core.summary import DeviceSummary

DROP_HEIGHT_PX = 116
LEFT_PX = 620
RIGHT_PX = 300
RECENT_ROW_PX = 32


class WelcomePage(QWidget):
    """Open, demo, recent at the left; devices at the right."""

    open_asked = Signal(object)
    """Carries the path of a recent file."""

    def __init__(
        self, state: AppState, theme: Theme, actions: ActionSet, parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        self.setProperty("role", "page")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self._state, self._theme, self._actions = state, theme, actions
        self.job_row = JobRow(self)
        self.devices = DeviceList(theme, self)
        self.recent = RecentTable(self)
        self._recent_title = _label("Recent", "h2")
        self._make_layout()
        self.recent.activated.connect(self._on_recent)
        self.recent.clicked.connect(self._on_recent)
        state.devices_changed.connect(self._on_devices)
        theme.changed.connect(self._tint)
        for action_id in ("open", "open_demo", "load_backend"):
            actions[action_id].changed.connect(self._sync_buttons)
        self._tint()
        self._sync_buttons()
        self._on_devices()

    def set_recent(self, files: Sequence[RecentFile]) -> None:
        """List recent files; the heading goes with an empty list."""
        self.recent.set_files(files)
        self.recent.setVisible(bool(files))
        self._recent_title.setVisible(bool(files))

    def set_drop_over(self, is_over: object) -> None:
        """Show that a file is being dragged over the window."""
        self._drop.setProperty("over", "true" if is_over else "false")
        self._drop.style().unpolish(self._drop)
        self._drop.style().polish(self._drop)

    def _make_layout(self) -> None:
        columns = QHBoxLayout(self)
        columns.setContentsMargins(64, 32, 64, 32)
        columns.setSpacing(64)
        columns.addLayout(self._left_column(), stretch=2)
        columns.addLayout(self._right_column(), stretch=1)

    def _left_column(self) -> QVBoxLayout:
        demo = demo_entry()
        column = QVBoxLayout()
        column.setSpacing(8)
        column.addWidget(_label("Open a model", "h1"))
        column.addWidget(_label("A GGUF file. It can be planned without its weights.", "muted"))
        column.addSpacing(4)
        column.addWidget(self._drop_frame())
        size = bytes_text(demo.size_bytes)
        fetched = f"Demo: {demo.display_name}, {size}, fetched once and checked."
        column.addWidget(_label(fetched, "muted"))
        column.addWidget(self.job_row)
        column.addSpacing(16)
        column.addWidget(self._recent_title)
        column.addWidget(self.recent)
        column.addStretch()
        return column

    def _drop_frame(self) -> QFrame:
        self._drop = QFrame(self)
        self._drop.setProperty("role", "drop")
        self._drop.setFixedHeight(DROP_HEIGHT_PX)
        self._drop.setMaximumWidth(LEFT_PX)
        self.open_button = self._button("open", "primary")
        self.demo_button = self._button("open_demo", "")
        buttons = QHBoxLayout()
        buttons.addStretch()
        buttons.addWidget(self.open_button)
        buttons.addWidget(self.demo_button)
        buttons.addStretch()
        column = QVBoxLayout(self._drop)
        column.addStretch()
        column.addLayout(buttons)
        hint = _label("or drop a file here", "muted")
        hint.setAlignment(Qt.AlignmentFlag.AlignHCenter)
        column.addWidget(hint)
        column.addStretch()
        return self._drop

    def _right_column(self) -> QVBoxLayout:
        column = QVBoxLayout()
        column.setSpacing(8)
        column.addWidget(_label("Devices here", "h2"))
        column.addWidget(self.devices)
        column.addSpacing(16)
        self.devices_button = self._button("show_devices", "link")
        self.devices_button.setText("How they got here")
        self.load_button = self._button("load_backend", "link")
        self.manual_button = self._button("manual", "link")
        for button in (self.devices_button, self.load_button, self.manual_button):
            column.addWidget(button, alignment=Qt.AlignmentFlag.AlignLeft)
        column.addStretch()
        return column

    def _button(self, action_id: str, kind: str) -> QPushButton:
        action = self._actions[action_id]
        button = QPushButton(action.text(), self)
        button.setProperty("kind", kind)
        button.setToolTip(action.toolTip())
        button.clicked.connect(action.trigger)
        return button

    def _on_recent(self, index: QModelIndex) -> None:
        self.open_asked.emit(self.recent.path(index.row()))

    def _on_devices(self) -> None:
        self.devices.show_devices(self._state.devices, self._state.unavailable)

    def _sync_buttons(self) -> None:
        for action_id, button in (
            ("open", self.open_button),
            ("open_demo", self.demo_button),
            ("load_backend", self.load_button),
        ):
            action = self._actions[action_id]
            button.setEnabled(action.isEnabled())
            button.setToolTip(action.toolTip())

    def _tint(self) -> None:
        self.open_button.setIcon(self._theme.inverse_icon("open"))
        self.demo_button.setIcon(self._theme.icon("run"))


class DeviceList(QWidget):
    """Devices with badge, name and description; those left out with the reason."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._devices: Sequence[DeviceSummary] = ()
        self._unavailable: Sequence[Unavailable] = ()
        self._column = QVBoxLayout(self)
        self._column.setContentsMargins(0, 0, 0, 0)
        self._column.setSpacing(8)
        theme.changed.connect(self._fill)

    def show_devices(
        self, devices: Sequence[DeviceSummary], unavailable: Sequence[Unavailable]
    ) -> None:
        """Show other devices."""
        self._devices, self._unavailable = devices, unavailable
        self._fill()

    def _fill(self) -> None:
        while (item := self._column.takeAt(0)) is not None:
            widget = item.widget()
            if widget is not None:
                widget.hide()
                widget.deleteLater()
        if not self._devices and not self._unavailable:
            self._column.addWidget(_label("The engine is asked which devices are here…", "muted"))
        looks = device_style(self._theme.palette, [_row(device) for device in self._devices])
        for device, look in zip(self._devices, looks, strict=True):
            badge = QLabel()
            badge.setPixmap(badge_pixmap(look, ratio=self.devicePixelRatioF()))
            badge.setAccessibleName(look.letter)
            self._column.addWidget(_entry(badge, device.name, device_words(device), strong=True))
        for missing in self._unavailable:
            badge = _label(NOTHING, "muted")
            title = f"{missing.name}, hidden" if missing.hidden else f"{missing.name}, not here"
            words = absence_words(missing)
            self._column.addWidget(_entry(badge, title, words, strong=False))


class RecentTable(QTableView):
    """Recent files; one click or Enter opens."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._files: tuple[RecentFile, ...] = ()
        self._model = QStandardItemModel(self)
        self.setModel(self._model)
        self.setAccessibleName("Recent models")
        self.setShowGrid(False)
        self.setMaximumWidth(LEFT_PX)
        self.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
        self.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)
        self.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setTabKeyNavigation(False)
        self.verticalHeader().hide()
        self.verticalHeader().setDefaultSectionSize(RECENT_ROW_PX)
        self.horizontalHeader().hide()

    def set_files(self, files: Sequence[RecentFile]) -> None:
        """List other files."""
        self._files = tuple(files)
        self._model.clear()
        for file in files:
            self._model.appendRow(_recent_items(file))
        header = self.horizontalHeader()
        header.setSectionResizeMode(QHeaderView.ResizeMode.ResizeToContents)
        if files:
            header.setSectionResizeMode(0, QHeaderView.ResizeMode.Stretch)
        self.setFixedHeight(RECENT_ROW_PX * max(1, len(files)) + 4)

    def path(self, row: int) -> str:
        """The path in a row."""
        return self._files[row].path


def device_words(device: DeviceSummary) -> str:
    """A device in words: what it is, how much memory, whether it is software."""
    memory = f"{bytes_text(device.memory_free)} free" if device.memory_free else ""
    kind = "on paper" if device.virtual else device.software
    return ", ".join(part for part in (device.description, kind, memory) if part)


def absence_words(missing: Unavailable) -> str:
    """Why a device is not used, and what would bring it: two sentences."""
    sentences = [part.strip().rstrip(".") for part in (missing.reason, missing.hint) if part]
    return " ".join(f"{text[:1].upper()}{text[1:]}." for text in sentences)


def when_text(iso: str, now: datetime) -> str:
    """When something was, as people say it: "today 12:41", "Tuesday", "24 Nov"."""
    try:
        then = datetime.fromisoformat(iso)
    except ValueError:
        return ""
    n_days = (now.date() - then.date()).days
    if n_days == 0:
        return f"today {then:%H:%M}"
    return f"{then:%A}" if 0 < n_days < 7 else f"{then.day} {then:%b}"


def _recent_items(file: RecentFile) -> list[QStandardItem]:
    now = datetime.now().astimezone()
    texts = (file.name or Path(file.path).name, file.facts, bytes_text(file.n_bytes),
             when_text(file.when, now))  # fmt: skip
    items = [QStandardItem(text) for text in texts]
    items[0].setToolTip(file.path)
    for item in items[2:]:
        item.setTextAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
    return items


def _row(device: DeviceSummary) -> DeviceRow:
    return DeviceRow(
        device.name, device.name, device.description, device.type, "", device.memory_free,
        device.memory_total, device.software,
    )  # fmt: skip


def _entry(badge: QLabel, title: str, words: str, *, strong: bool) -> QWidget:
    widget = QWidget()
    row = QHBoxLayout(widget)
    row.setContentsMargins(0, 0, 0, 0)
    row.setSpacing(8)
    badge.setFixedWidth(16)
    row.addWidget(badge, alignment=Qt.AlignmentFlag.AlignTop)
    column = QVBoxLayout()
    column.setSpacing(2)
    column.addWidget(_label(title, "strong" if strong else "muted"))
    column.addWidget(_label(words, "muted"))
    row.addLayout(column, stretch=1)
    return widget


def _label(text: str, role: str) -> QLabel:
    label = QLabel(text)
    label.setProperty("role", role)
    label.setTextFormat(Qt.TextFormat.PlainText)
    label.setWordWrap(role in ("muted", ""))
    return label
