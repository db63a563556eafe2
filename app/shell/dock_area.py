"""DockArea: the graph in the middle and the panes around it; a layout that can be put back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import Qt, QTimer
from PySide6.QtWidgets import QMainWindow, QWidget

from app.shell.panes import DOCKS, GRAPH, RUN, TIMELINE, MakeView, PaneDock
from app.state.settings import LAYOUT_VERSION

if TYPE_CHECKING:
    from PySide6.QtCore import QByteArray
    from PySide6.QtGui import QShowEvent

    from app.state.app_state import AppState
    from app.theme.theme import Theme

NARROW_PX, WIDE_PX = 1200, 1440
TALL_PX = 860

SIDES_NARROW_PX = (220, 320)
SIDES_PX = (264, 348)
SIDES_WIDE_PX = (300, 380)
LAYERS_PX = 144
MEMORY_PX = 116
TIMELINE_PX, TIMELINE_TALL_PX = 260, 318


class DockArea(QMainWindow):
    """A main window used as a widget, so that bars can stand above all panes."""

    def __init__(
        self,
        state: AppState,
        theme: Theme,
        make: MakeView,
        run_panel: QWidget,
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(parent)
        self.setWindowFlags(Qt.WindowType.Widget)
        self.setDockNestingEnabled(True)
        self.setAnimated(False)
        for corner, area in (
            (Qt.Corner.BottomLeftCorner, Qt.DockWidgetArea.BottomDockWidgetArea),
            (Qt.Corner.BottomRightCorner, Qt.DockWidgetArea.BottomDockWidgetArea),
        ):
            self.setCorner(corner, area)
        self._state, self._theme, self._make = state, theme, make
        self.graph = make(GRAPH, state, theme, self)
        self.setCentralWidget(self.graph)
        self.views: dict[str, QWidget] = {GRAPH: self.graph, RUN: run_panel}
        self.docks = {spec.name: self._add_dock(spec.name) for spec in DOCKS}
        self._is_laid_out = False
        self._is_restored = False

    def showEvent(self, event: QShowEvent) -> None:
        """Apply sizes once the area has its own."""
        super().showEvent(event)
        QTimer.singleShot(0, self._ensure_layout)

    def _add_dock(self, name: str) -> PaneDock:
        spec = next(spec for spec in DOCKS if spec.name == name)
        dock = PaneDock(spec, self)
        for view_name, title in spec.views:
            if view_name not in self.views:
                self.views[view_name] = self._make(view_name, self._state, self._theme, dock)
            dock.add_view(title, self.views[view_name])
        self.addDockWidget(spec.area, dock)
        return dock

    # Layout.

    def reset_layout(self) -> None:
        """Every pane in its place, at the sizes of the design."""
        for spec in DOCKS:
            dock = self.docks[spec.name]
            dock.setFloating(False)
            self.removeDockWidget(dock)
            self.addDockWidget(spec.area, dock)
            dock.show()
        self.apply_sizes()

    def apply_sizes(self) -> None:
        """The sizes of the design for the window's size."""
        tall = self.height() >= TALL_PX
        docks = self.docks
        self.resizeDocks(
            [docks["splits_dock"], docks["right_dock"]],
            list(self._sides()),
            Qt.Orientation.Horizontal,
        )
        bottom_px = MEMORY_PX
        if TIMELINE in self.views:
            bottom_px = TIMELINE_TALL_PX if tall else TIMELINE_PX
        left_px = max(200, self.height() - bottom_px - LAYERS_PX)
        self.resizeDocks(
            [docks["layers_dock"], docks["splits_dock"], docks["bottom_dock"]],
            [LAYERS_PX, left_px, bottom_px],
            Qt.Orientation.Vertical,
        )
        self._is_laid_out = True

    def _sides(self) -> tuple[int, int]:
        """Widths of the left and the right docks."""
        if self.width() < NARROW_PX:
            return SIDES_NARROW_PX
        return SIDES_WIDE_PX if self.width() >= WIDE_PX else SIDES_PX

    def _ensure_layout(self) -> None:
        if self._is_laid_out:
            return
        if self._is_restored:
            # The bottom was saved with the timeline in it.
            self.resizeDocks([self.docks["bottom_dock"]], [MEMORY_PX], Qt.Orientation.Vertical)
            self._is_laid_out = True
        else:
            self.apply_sizes()

    def save_layout(self) -> QByteArray:
        """The layout, to be restored by the same version."""
        return self.saveState(LAYOUT_VERSION)

    def restore_layout(self, state: QByteArray) -> bool:
        """Put panes where they were; False if the state is of another version or broken."""
        self._is_restored = self.restoreState(state, LAYOUT_VERSION)
        return self._is_restored

    # Views that come to the front.

    def join_timeline(self) -> None:
        """Add the timeline as the bottom dock's first tab, in front; once."""
        if TIMELINE in self.views:
            return
        dock = self.docks["bottom_dock"]
        view = self._make(TIMELINE, self._state, self._theme, dock)
        self.views[TIMELINE] = view
        dock.add_view("Timeline", view, at=0)
        dock.show_view(view)
        height_px = TIMELINE_TALL_PX if self.height() >= TALL_PX else TIMELINE_PX
        self.resizeDocks([dock], [height_px], Qt.Orientation.Vertical)

    def show_view(self, name: str) -> None:
        """Bring a view to the front of its dock."""
        view = self.views[name]
        for dock in self.docks.values():
            if view in dock.views:
                dock.show()
                dock.show_view(view)

    def focus_order(self) -> list[QWidget]:
        """The panes, as F6 walks them."""
        docks = self.docks
        order: list[QWidget] = [
            docks["layers_dock"].shown_view,
            docks["splits_dock"].shown_view,
            self.graph,
            docks["right_dock"].shown_view,
            docks["bottom_dock"].shown_view,
        ]
        return [widget for widget in order if widget.isVisible()]
