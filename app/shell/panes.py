"""The panes around the graph: a table of docks, and the dock with its own title bar.

A dock holds one view or several as tabs. Its title bar shows the title or the tabs, one grey fact,
and at the right a chip that ends a filter, as the shown view's `dock_title` says.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtWidgets import (
    QDockWidget,
    QFrame,
    QHBoxLayout,
    QLabel,
    QPushButton,
    QSizePolicy,
    QStackedWidget,
    QTabBar,
    QWidget,
)

from app.models.dock_title import DockTitle
from app.theme.elided_label import ElidedLabel

if TYPE_CHECKING:
    from app.state.app_state import AppState
    from app.theme.theme import Theme

TITLE_PX = 28
PADDING_PX = 12

MakeView = Callable[[str, "AppState", "Theme", QWidget | None], QWidget]
"""Makes the view of a name; a test gives another one than `make_view`."""

GRAPH = "graph"
INSPECTOR = "inspector"
LAYERS = "layers"
OPTIONS = "options"
RUN = "run"
TIMELINE = "timeline"
DEVICES = "devices"
LOAD_REPORT = "load_report"
OPERATIONS = "operations"


@dataclass(frozen=True, slots=True)
class DockSpec:
    """A dock: its place and the views in it, each a name and a title.

    `later` are views that join when there is something for them to show, or they are asked for.
    """

    name: str
    area: Qt.DockWidgetArea
    views: tuple[tuple[str, str], ...]
    min_size_px: tuple[int, int]
    later: tuple[tuple[str, str], ...] = ()

    @property
    def title(self) -> str:
        """The dock's name in menus."""
        return ", ".join(title for _, title in (*self.views, *self.later))


_LEFT = Qt.DockWidgetArea.LeftDockWidgetArea
_RIGHT = Qt.DockWidgetArea.RightDockWidgetArea
_BOTTOM = Qt.DockWidgetArea.BottomDockWidgetArea

DOCKS: tuple[DockSpec, ...] = (
    DockSpec("layers_dock", _LEFT, ((LAYERS, "Layers"),), (220, 104)),
    DockSpec("splits_dock", _LEFT, (("splits", "Splits"),), (220, 120)),
    DockSpec(
        "right_dock",
        _RIGHT,
        ((INSPECTOR, "Why here"), (OPTIONS, "Options"), (RUN, "Run")),
        (320, 200),
    ),
    DockSpec(
        "bottom_dock",
        _BOTTOM,
        (("memory", "Memory"),),
        (400, 72),
        (
            (TIMELINE, "Timeline"),
            (DEVICES, "Devices"),
            (LOAD_REPORT, "Load report"),
            (OPERATIONS, "Operations"),
        ),
    ),
)


def make_view(name: str, state: AppState, theme: Theme, parent: QWidget | None) -> QWidget:
    """The view of a name, from its package under app.views."""
    view: QWidget = importlib.import_module(f"app.views.{name}").make(state, theme, parent)
    return view


class PaneDock(QDockWidget):
    """A dock with tabs or a title."""

    def __init__(self, spec: DockSpec, parent: QWidget | None = None) -> None:
        super().__init__(spec.title, parent)
        self.setObjectName(spec.name)
        self._titles: list[str] = []
        self._views: list[QWidget] = []
        self._pages = QStackedWidget(self)
        self._pages.setMinimumSize(QSize(*spec.min_size_px))
        self.bar = PaneTitle(self)
        self.bar.tab_chosen.connect(self._pages.setCurrentIndex)
        self.bar.chip_cleared.connect(self._clear_chip)
        self._pages.currentChanged.connect(self._on_page_changed)
        self.setWidget(self._pages)
        self.setTitleBarWidget(self.bar)

    @property
    def views(self) -> tuple[QWidget, ...]:
        """The views, in the order of their tabs."""
        return tuple(self._views)

    @property
    def shown_view(self) -> QWidget:
        """The view in front."""
        return self._views[self._pages.currentIndex()]

    def add_view(self, title: str, view: QWidget, *, at: int | None = None) -> None:
        """Add a view as the last tab, or at a place; what is in front stays in front."""
        place = len(self._titles) if at is None else at
        self._titles.insert(place, title)
        self._views.insert(place, view)
        self._pages.insertWidget(place, view)
        self.bar.set_titles(self._titles)
        changed = getattr(view, "dock_title_changed", None)
        if changed is not None:
            changed.connect(self._show_title)
        self._on_page_changed(self._pages.currentIndex())

    def remove_view(self, view: QWidget) -> None:
        """Take a view out; it is kept by whoever made it."""
        place = self._views.index(view)
        del self._titles[place], self._views[place]
        self._pages.removeWidget(view)
        self.bar.set_titles(self._titles)
        changed = getattr(view, "dock_title_changed", None)
        if changed is not None:
            changed.disconnect(self._show_title)
        self._on_page_changed(self._pages.currentIndex())

    def show_view(self, view: QWidget) -> None:
        """Bring a view to the front."""
        self._pages.setCurrentWidget(view)

    def _on_page_changed(self, index: int) -> None:
        self.bar.choose(index)
        self._show_title()

    def _show_title(self, _title: object = None) -> None:
        index = self._pages.currentIndex()
        if index < 0:
            return
        known = getattr(self._pages.currentWidget(), "dock_title", None)
        self.bar.show_title(known or DockTitle(self._titles[index]))

    def _clear_chip(self) -> None:
        clear: Any = getattr(self._pages.currentWidget(), "clear_chip", None)
        if clear is not None:
            clear()


class PaneTitle(QFrame):
    """The title bar: a title or tabs, a fact, a fact at the right, a chip."""

    tab_chosen = Signal(int)
    chip_cleared = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setProperty("role", "dock_title")
        self.setFixedHeight(TITLE_PX)
        self._title = QLabel(self)
        self._title.setProperty("role", "strong")
        self._tabs = QTabBar(self)
        self._tabs.setDrawBase(False)  # Qt's signature has no name for it.
        self._tabs.setExpanding(False)
        # Facts beside the tabs give way first: Qt's own tabs would hide behind arrows.
        self._tabs.setSizePolicy(QSizePolicy.Policy.Minimum, QSizePolicy.Policy.Preferred)
        self._tabs.currentChanged.connect(self.tab_chosen)
        self._fact = ElidedLabel(parent=self)
        self._fact.setProperty("role", "muted")
        self._right = ElidedLabel(parent=self)
        self._right.setProperty("role", "muted")
        self._right.setAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
        self._chip = QPushButton(self)
        self._chip.setProperty("kind", "chip")
        self._chip.clicked.connect(self.chip_cleared)
        row = QHBoxLayout(self)
        self._row = row
        row.setSpacing(8)
        row.addWidget(self._tabs)
        row.addWidget(self._title)
        row.addWidget(self._fact, stretch=1)
        row.addWidget(self._right)
        row.addWidget(self._chip)

    def sizeHint(self) -> QSize:
        """A dock gives its title bar the height of this hint."""
        return QSize(120, TITLE_PX)

    def minimumSizeHint(self) -> QSize:
        """As the size hint."""
        return self.sizeHint()

    def set_titles(self, titles: list[str]) -> None:
        """Tabs for several views, a title for one."""
        was_blocked = self._tabs.blockSignals(True)
        while self._tabs.count():
            self._tabs.removeTab(0)
        for title in titles:
            self._tabs.addTab(title)
        self._tabs.blockSignals(was_blocked)
        self._tabs.setVisible(len(titles) > 1)
        self._title.setVisible(len(titles) == 1)
        self._row.setContentsMargins(0 if len(titles) > 1 else PADDING_PX, 0, PADDING_PX, 0)

    def choose(self, index: int) -> None:
        """Mark a tab as the one in front."""
        was_blocked = self._tabs.blockSignals(True)
        self._tabs.setCurrentIndex(index)
        self._tabs.blockSignals(was_blocked)

    def show_title(self, title: DockTitle) -> None:
        """Show what a view says of itself."""
        self._title.setText(title.title)
        self._fact.setText(title.fact)
        self._right.setText(title.right)
        self._right.setVisible(bool(title.right))
        self._chip.setText(f"{title.chip} ✕")
        self._chip.setToolTip(f"End {title.chip}")
        self._chip.setVisible(bool(title.chip))
