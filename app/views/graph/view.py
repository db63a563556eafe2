"""GraphView: the title row over the canvas; follows AppState and tells it what is picked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QVBoxLayout, QWidget

from app.state.app_state import AppState, DiffMode, Selection
from app.theme.colours import device_style
from app.views.graph.canvas import GraphCanvas
from app.views.graph.columns import GraphShape, first_interesting_node, shape_of
from app.views.graph.placed import Changed, Placed, changed, placed
from app.views.graph.timings import SplitTimes
from app.views.graph.title import TitleRow
from app.views.graph.words import fact_text, nodes_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from app.theme.theme import Theme
    from engine.core.plan import NodeKey
    from engine.core.table import PlanTable

GRAPHS_KEPT = 4


@dataclass(frozen=True, slots=True, eq=False)
class _Graph:
    """What plans of one graph share: moving nodes makes no others."""

    shape: GraphShape
    node_ids: Mapping[NodeKey, int]


class GraphView(QWidget):
    """The graph pane. `why_asked`: somebody wants to know why the selected node is where it is."""

    why_asked = Signal()

    def __init__(self, state: AppState, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("graphView")
        self._state = state
        self._theme = theme
        self.title = TitleRow(theme, "Graph", self)
        self.canvas = GraphCanvas(theme, self)
        self._times = SplitTimes()
        self._graphs: dict[bytes, _Graph] = {}
        self._graph: _Graph | None = None
        self._placed: Placed | None = None
        box = QVBoxLayout(self)
        box.setContentsMargins(0, 0, 0, 0)
        box.setSpacing(0)
        box.addWidget(self.title)
        box.addWidget(self.canvas)
        self.setFocusProxy(self.canvas)
        self._connect()
        self._times.read(state.trace)
        self._show()

    def _connect(self) -> None:
        self._state.shown_plan_changed.connect(self._on_plan_changed)
        self._state.diff_changed.connect(self._on_diff_changed)
        self._state.selection_changed.connect(self._on_selection_changed)
        self._state.trace_changed.connect(self._on_trace_changed)
        self._theme.changed.connect(self._on_theme_changed)
        self.canvas.picked.connect(self._on_picked)
        self.canvas.why_asked.connect(self.why_asked)
        self.canvas.opened_changed.connect(self._on_opened_changed)

    def _on_plan_changed(self, _plan: PlanTable | None) -> None:
        self._show()

    def _on_diff_changed(self, _diff: DiffMode | None) -> None:
        self._show()

    def _on_selection_changed(self, _selection: Selection) -> None:
        self._show_selection()

    def _on_trace_changed(self, _trace: object) -> None:
        if self._times.read(self._state.trace):
            self._show()

    def _on_theme_changed(self, _palette: object) -> None:
        self._show_title()

    def _on_picked(self, node_id: int) -> None:
        plan = None if self._placed is None else self._placed.plan
        if plan is None:
            return
        if plan is self._state.shown_plan:
            self._state.select_node(node_id)
        else:
            self._state.select(Selection(node=plan.key(node_id)))
        self.why_asked.emit()

    def _on_opened_changed(self, _row: int) -> None:
        self._show_title()

    def _plan(self) -> PlanTable | None:
        """The plan on the canvas: the one before the change while that is looked at."""
        diff = self._state.diff
        if diff is not None and diff.shows == "was":
            return diff.was.plan(self._state.batch)
        if diff is not None:
            return diff.now.plan(self._state.batch)
        return self._state.shown_plan

    def _show(self) -> None:
        plan = self._plan()
        if plan is None:
            self._graph = self._placed = None
            self.canvas.show_plan(None, None)
            self._show_title()
            return
        graph = self._graph = self._graph_of(plan)
        if self._placed is None or self._placed.plan is not plan:
            self._placed = placed(plan, graph.shape)
        self.canvas.show_plan(
            graph.shape,
            self._placed,
            self._changed(graph, self._placed),
            self._times.row_ms(plan, graph.shape),
        )
        self._begin(plan, graph)
        self._show_selection()
        self._show_title()

    def _graph_of(self, plan: PlanTable) -> _Graph:
        key = plan.name.blob + plan.op.blob
        if key not in self._graphs:
            if len(self._graphs) >= GRAPHS_KEPT:
                self._graphs.pop(next(iter(self._graphs)))
            self._graphs[key] = _Graph(shape_of(plan, self._n_layers(plan)), plan.node_ids())
        return self._graphs[key]

    def _n_layers(self, plan: PlanTable) -> int:
        if self._state.plans is not None:
            return self._state.plans.n_layers
        return int(plan.layer.max(initial=0))

    def _changed(self, graph: _Graph, now: Placed) -> Changed | None:
        if not self._shows_difference or self._state.diff is None:
            return None
        return changed(self._state.diff.was.plan(self._state.batch), now, graph.shape)

    @property
    def _shows_difference(self) -> bool:
        return self._state.diff is not None and self._state.diff.shows == "difference"

    def _begin(self, plan: PlanTable, graph: _Graph) -> None:
        """With nothing selected yet: open the layer that a person will ask about."""
        if plan is not self._state.shown_plan or self._state.selection.node in graph.node_ids:
            return
        node_id = first_interesting_node(plan)
        cell = graph.shape.cell_of_node(node_id)
        if cell >= 0:
            self.canvas.open_row(int(graph.shape.row[cell]))
            self._state.select_node(node_id)

    def _show_selection(self) -> None:
        selection, graph, now = self._state.selection, self._graph, self._placed
        if graph is None or now is None:
            return
        node_id = -1 if selection.node is None else graph.node_ids.get(selection.node, -1)
        split_id = int(now.plan.split[node_id]) if node_id >= 0 else selection.split_id
        self.canvas.select(node_id, split_id)

    def _show_title(self) -> None:
        plan = self._plan()
        if plan is None or self._graph is None:
            self.title.show_fact("", (), difference=False)
            self.title.setToolTip("")
            return
        row = self.canvas.open_layer
        opened = f"layer {self._graph.shape.row_label(row)}" if row > 0 else ""
        difference = self._shows_difference
        fact = fact_text(
            plan,
            ran=plan.plan_id in self._state.met_plans,
            difference=difference,
            open_layer=opened,
            reads=self._state.reads,
        )
        looks = device_style(self._theme.palette, plan.devices)
        self.title.show_fact(fact, looks, difference=difference)
        self.title.setToolTip(nodes_text(plan))
