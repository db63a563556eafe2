"""LayersView: the strip and its caption; follows AppState and selects a layer's first node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QLabel, QSizePolicy, QVBoxLayout, QWidget

from app.state.app_state import AppState, DiffMode, Selection
from app.views.layers.canvas import LayerStrip
from app.views.layers.model import LayerModel
from app.views.layers.strip import PADDING_PX, cells_of
from app.views.rows import rows_of

if TYPE_CHECKING:
    from PySide6.QtGui import QResizeEvent

    from app.theme.theme import Theme
    from engine.core.table import PlanSetTable, PlanTable

CAPTION = "top: runs on · foot: its weights"
WEIGHTS_CAPTION = "no operation planned · foot: its weights"
DIFFERENCE_CAPTION = "orange: moved · foot: its weights"


class LayersView(QWidget):
    """The layers pane. `fact` is the grey text of its title: how many layers."""

    fact_changed = Signal(object)

    def __init__(self, state: AppState, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("layersView")
        self.fact = ""
        self._state = state
        self.model = LayerModel(self)
        self.strip = LayerStrip(theme, self.model, self)
        self._caption = QLabel(CAPTION, self)
        self._caption.setProperty("role", "tiny")
        self._caption.setContentsMargins(PADDING_PX, 0, PADDING_PX, 6)
        self._caption.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
        box = QVBoxLayout(self)
        box.setContentsMargins(0, 0, 0, 0)
        box.setSpacing(0)
        box.addWidget(self.strip)
        box.addWidget(self._caption)
        box.addStretch(1)
        self.setFocusProxy(self.strip)
        self.setProperty("role", "sheet")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self._connect()
        self._show()

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Leave the caption out where the strip needs its place."""
        super().resizeEvent(event)
        self._fit_caption()

    def _fit_caption(self) -> None:
        needed = self.strip.sizeHint().height() + self._caption.sizeHint().height()
        self._caption.setVisible(bool(self.fact) and self.height() >= needed)

    def _connect(self) -> None:
        self._state.shown_plan_changed.connect(self._on_plan_changed)
        self._state.diff_changed.connect(self._on_diff_changed)
        self._state.selection_changed.connect(self._on_selection_changed)
        self.strip.picked.connect(self._on_picked)

    def _on_plan_changed(self, _plan: PlanTable | None) -> None:
        self._show()

    def _on_diff_changed(self, _diff: DiffMode | None) -> None:
        self._show()

    def _on_selection_changed(self, _selection: Selection) -> None:
        self._show_selection()

    def _on_picked(self, index: int) -> None:
        plan, _ = self._shown()
        node_id = self.model.cells[index].first_node
        if plan is not None and node_id >= 0:
            self._state.select(Selection(node=plan.key(node_id), split_id=int(plan.split[node_id])))

    def _shown(self) -> tuple[PlanTable | None, PlanSetTable | None]:
        """The plan on the strip and the set that its weights' devices come from."""
        diff, batch = self._state.diff, self._state.batch
        if diff is None:
            return self._state.shown_plan, self._state.plans
        plans = diff.was if diff.shows == "was" else diff.now
        return plans.plan(batch), plans

    def _show(self) -> None:
        plan, plans = self._shown()
        diff = self._state.diff
        difference = diff is not None and diff.shows == "difference"
        if plan is None or plans is None:
            self.model.show_cells((), ())
            self.strip.show_devices((), difference=False)
            self._say("")
            return
        was = diff.was if difference and diff is not None else None
        names = tuple(device.name for device in plan.devices)
        self.model.show_cells(cells_of(plan, plans, was), names)
        self.strip.show_devices(plan.devices, difference=difference)
        caption = CAPTION if plan.n_nodes else WEIGHTS_CAPTION
        self._caption.setText(DIFFERENCE_CAPTION if difference else caption)
        self._say(f"{plans.n_layers} + in, out")
        self._show_selection()

    def _show_selection(self) -> None:
        node_id = self._state.selected_node_id()
        plan, plans = self._state.shown_plan, self._state.plans
        index = -1
        if node_id >= 0 and plan is not None and plans is not None:
            index = int(rows_of(plan, plans.n_layers)[node_id])
        self.strip.select(index if index < len(self.model.cells) else -1)

    def _say(self, fact: str) -> None:
        if fact != self.fact:
            self.fact = fact
            self.fact_changed.emit(fact)
        self._fit_caption()
        self._caption.setTextInteractionFlags(Qt.TextInteractionFlag.NoTextInteraction)
