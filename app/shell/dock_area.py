"""DockArea: the graph in the middle and the panes around it; a layout that can be put back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import Qt, QTimer
from PySide6.QtWidgets import QMainWindow, QWidget

from app.shell.panes import (
    DOCKS,
    GRAPH,
    INSPECTOR,
    LAYERS,
    TIMELINE,
    TITLE_PX,
    MakeView,
    PaneDock,
)
from app.state.app_state import Selection
from app.state.settings import LAYOUT_VERSION

if TYPE_CHECKING:
    from collections.abc import Mapping

    from PySide6.QtCore import QByteArray
    from PySide6.QtGui import QResizeEvent, QShowEvent

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
OWN_WIDTH_PX = 8
"""A side that differs by more from the design's width was given it by a person."""


def sides_px(area_px: int) -> tuple[int, int]:
    """The widths of the left and the right docks in an area of that width."""
    if area_px < NARROW_PX:
        return SIDES_NARROW_PX
    return SIDES_WIDE_PX if area_px >= WIDE_PX else SIDES_PX


class DockArea(QMainWindow):
    """A main window used as a widget, so that bars can stand above all panes."""

    def __init__(
        self,
        state: AppState,
        theme: Theme,
        make: MakeView,
        panels: Mapping[str, QWidget],
        parent: QWidget | None = None,
    ) -> None:
        """`panels` are views that are made elsewhere, because they ask for things.

        Those of a dock's `later` join when they are shown.
        """
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
        later = {name for spec in DOCKS for name, _ in spec.later}
        self._asked_for = {name: panel for name, panel in panels.items() if name in later}
        for panel in self._asked_for.values():
            panel.hide()
        self.views: dict[str, QWidget] = {GRAPH: self.graph}
        self.views |= {name: panel for name, panel in panels.items() if name not in later}
        self.docks = {spec.name: self._add_dock(spec.name) for spec in DOCKS}
        self._timeline: QWidget | None = None
        self._sides_px: tuple[int, int] | None = None
        """The design's widths for the size that the area has had last."""
        self._restored_width_px: int | None = None
        why_asked = getattr(self.graph, "why_asked", None)
        if why_asked is not None:
            why_asked.connect(self.show_why)
        state.selection_changed.connect(self._on_selection)
        state.model_changed.connect(self._on_model)

    def showEvent(self, event: QShowEvent) -> None:
        """Apply sizes once the area has its own."""
        super().showEvent(event)
        QTimer.singleShot(0, self._ensure_layout)

    def resizeEvent(self, event: QResizeEvent) -> None:
        """A wider window has wider sides."""
        super().resizeEvent(event)
        QTimer.singleShot(0, self._follow_width)

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
        """Every pane in its place, at the sizes of the design; what was asked for goes."""
        for name, view in self._asked_for.items():
            if self.views.pop(name, None) is not None:
                self.docks["bottom_dock"].remove_view(view)
                view.hide()
        for spec in DOCKS:
            dock = self.docks[spec.name]
            dock.setFloating(False)
            self.removeDockWidget(dock)
            self.addDockWidget(spec.area, dock)
            dock.show()
        self.apply_sizes()

    def apply_sizes(self) -> None:
        """The sizes of the design for the window's size."""
        self._sides_px = sides_px(self.width())
        sides = [self.docks["splits_dock"], self.docks["right_dock"]]
        self.resizeDocks(sides, list(self._sides_px), Qt.Orientation.Horizontal)
        self._apply_heights()

    def _apply_heights(self) -> None:
        bottom_px = MEMORY_PX
        if TIMELINE in self.views or not self._asked_for.keys().isdisjoint(self.views):
            bottom_px = TIMELINE_TALL_PX if self.height() >= TALL_PX else TIMELINE_PX
        layers_px = max(LAYERS_PX, TITLE_PX + self.views[LAYERS].sizeHint().height())
        splits_px = max(120, self.height() - bottom_px - layers_px)
        docks = [self.docks[name] for name in ("layers_dock", "splits_dock", "bottom_dock")]
        self.resizeDocks(docks, [layers_px, splits_px, bottom_px], Qt.Orientation.Vertical)

    def _ensure_layout(self) -> None:
        """Once the area has its size: the design's sizes, or those that were restored."""
        if self._sides_px is not None:
            return
        if self._restored_width_px is None:
            self.apply_sizes()
            return
        self._sides_px = sides_px(self._restored_width_px)
        self._follow_width()
        # The bottom was saved with the timeline in it, which comes with the first run only.
        self._apply_heights()

    def _follow_width(self) -> None:
        """Give the sides the design's widths for another size, where nobody chose others."""
        was_px, now_px = self._sides_px, sides_px(self.width())
        if was_px is None or was_px == now_px:
            return
        self._sides_px = now_px
        for name, was, now in zip(("splits_dock", "right_dock"), was_px, now_px, strict=True):
            dock = self.docks[name]
            least_px = dock.minimumSizeHint().width()
            if abs(dock.width() - was) <= OWN_WIDTH_PX or dock.width() <= least_px:
                self.resizeDocks([dock], [now], Qt.Orientation.Horizontal)

    def save_layout(self) -> QByteArray:
        """The layout, to be restored by the same version."""
        return self.saveState(LAYOUT_VERSION)

    def restore_layout(self, state: QByteArray, width_px: int) -> bool:
        """Put panes where they were in an area of that width.

        False if the state is of another version or broken.
        """
        is_restored = self.restoreState(state, LAYOUT_VERSION)
        self._restored_width_px = width_px if is_restored else None
        return is_restored

    # Views that come to the front.

    def join_timeline(self) -> None:
        """Add the timeline as the bottom dock's first tab, in front; once."""
        if TIMELINE in self.views:
            return
        dock = self.docks["bottom_dock"]
        view = self._made_timeline()
        self.views[TIMELINE] = view
        dock.add_view("Timeline", view, at=0)
        dock.show_view(view)
        self._apply_heights()

    def _made_timeline(self) -> QWidget:
        """The timeline, made before it is shown: a run's first spans have no time for that."""
        if self._timeline is None:
            dock = self.docks["bottom_dock"]
            self._timeline = self._make(TIMELINE, self._state, self._theme, dock)
            self._timeline.hide()
        return self._timeline

    def show_why(self) -> None:
        """Bring the Why card to the front."""
        self.show_view(INSPECTOR)

    def _on_model(self, _model: object) -> None:
        """More layers take more rows of the strip, once the plan is here."""
        QTimer.singleShot(0, self._apply_heights)
        QTimer.singleShot(0, self._made_timeline)

    def _on_selection(self, selection: Selection) -> None:
        if selection != Selection():
            self.show_why()

    def show_view(self, name: str) -> None:
        """Bring a view to the front of its dock."""
        if name in self._asked_for and name not in self.views:
            self._join(name)
        view = self.views[name]
        for dock in self.docks.values():
            if view in dock.views:
                dock.show()
                dock.show_view(view)

    def _join(self, name: str) -> None:
        """Add a view that was asked for as its dock's last tab."""
        view = self.views[name] = self._asked_for[name]
        spec = next(spec for spec in DOCKS if name in dict(spec.later))
        self.docks[spec.name].add_view(dict(spec.later)[name], view)
        self._apply_heights()

    def tab_order(self) -> list[QWidget]:
        """The docks and the graph, as Tab walks them."""
        docks = self.docks
        left = [docks["layers_dock"], docks["splits_dock"]]
        return [*left, self.graph, docks["right_dock"], docks["bottom_dock"]]

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
