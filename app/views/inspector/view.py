"""InspectorView: why the selected node is there; after a run also what its split took."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtWidgets import QFrame, QLabel, QScrollArea, QVBoxLayout, QWidget

from app.models.dock_title import DockTitle
from app.models.split_times import SplitTimes, split_times
from app.state.app_state import Selection
from app.theme.colours import device_style
from app.views.inspector.node_facts import time_words
from app.views.inspector.split_card import SplitCard
from app.views.inspector.split_facts import split_facts
from app.views.inspector.why_card import Subject, WhyCard
from engine.core.explain import Explanation, explain
from engine.core.plan import Batch
from engine.core.summary import RunState

if TYPE_CHECKING:
    from app.state.app_state import AppState
    from app.theme.colours import DeviceLook
    from app.theme.theme import Theme
    from engine.core.plan import NodeKey
    from engine.core.table import PlanTable
    from engine.trace.records import Spans

TIMES_EVERY_MS = 500
MAX_LIVE_SPANS = 200_000


EMPTY_TEXT = "Select an operation to see why it is where it is."
PLACED_TEXT = (
    "No operation of this model is planned. Why a weight is where it is: "
    "python -m engine why FILE NAME"
)


class InspectorView(QWidget):
    """Both cards in one scrolling pane, with an empty state."""

    dock_title_changed = Signal(object)

    def __init__(self, state: AppState, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("inspector")
        self._state, self._theme = state, theme
        self._times: SplitTimes | None = None
        self._others: tuple[tuple[PlanTable, SplitTimes], ...] = ()
        self._spans: Spans | None = None
        self.why = WhyCard(theme)
        self.split = SplitCard(theme)
        self._empty = QLabel()
        self._empty.setProperty("role", "muted")
        self._empty.setWordWrap(True)
        self._empty.setMargin(12)
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.setInterval(TIMES_EVERY_MS)
        self._lay_out()
        self._connect()
        self._read_trace()
        self._show()

    @property
    def dock_title(self) -> DockTitle:
        """What the dock's title bar shows."""
        plan = self._state.shown_plan
        if self._state.diff is not None:
            return DockTitle("Why here, was and now")
        if plan is None or not plan.n_nodes:
            return DockTitle("Why here")
        is_prompt = plan.batch is Batch.PROMPT
        word = self._state.reads if is_prompt else plan.batch.value
        fact = f"{word} {plan.shape.n_tokens}"
        return DockTitle("Why here", "one token" if fact == "token 1" else fact)

    def _lay_out(self) -> None:
        content = QWidget()
        content.setProperty("role", "sheet")
        column = self._column = QVBoxLayout(content)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        for widget in (self._empty, self.why, self.split):
            column.addWidget(widget)
        column.addStretch(1)
        area = self._area = QScrollArea()
        area.setWidgetResizable(True)
        area.setFrameShape(QFrame.Shape.NoFrame)
        area.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        area.setWidget(content)
        outer = QVBoxLayout(self)
        outer.setContentsMargins(0, 0, 0, 0)
        outer.addWidget(area)

    def _connect(self) -> None:
        state = self._state
        state.selection_changed.connect(self._on_change)
        state.shown_plan_changed.connect(self._on_plan)
        state.diff_changed.connect(self._on_diff)
        state.trace_changed.connect(self._on_trace)
        state.run_changed.connect(self._on_trace)
        self._theme.changed.connect(self._on_change)
        self.why.node_chosen.connect(state.select_node)
        self.split.cleared.connect(self._on_cleared)
        self._timer.timeout.connect(self._on_timer)

    def _on_change(self, _value: object) -> None:
        self._show()

    def _on_plan(self, _plan: object) -> None:
        self._read_trace()
        self._show()
        self.dock_title_changed.emit(self.dock_title)

    def _on_diff(self, _diff: object) -> None:
        self._show()
        self.dock_title_changed.emit(self.dock_title)

    def _on_trace(self, _value: object) -> None:
        if not self._timer.isActive():
            self._timer.start()

    def _on_timer(self) -> None:
        self._read_trace()
        self._show()

    def _on_cleared(self) -> None:
        self._state.select(Selection(node=self._state.selection.node))

    def _read_trace(self) -> None:
        trace, plan = self._state.trace, self._state.shown_plan
        running = self._state.run.state is not RunState.IDLE
        if trace is None or plan is None:
            self._times, self._spans, self._others = None, None, ()
        elif not (running and trace.n_spans > MAX_LIVE_SPANS):
            self._spans = trace.spans()
            self._times = split_times(self._spans, plan)
            # A long prompt has many plans: too many to sum up again and again while it runs.
            self._others = () if running else self._times_of_others(self._spans, plan)

    def _times_of_others(
        self, spans: Spans, plan: PlanTable
    ) -> tuple[tuple[PlanTable, SplitTimes], ...]:
        """What the other plans of the batch took: each graph of a pipeline has its own."""
        met = self._state.met_plans.values()
        plans = [it for it in met if it.batch is plan.batch and it.plan_id != plan.plan_id]
        found = ((other, split_times(spans, other)) for other in plans)
        return tuple((other, times) for other, times in found if times is not None)

    def _show(self) -> None:
        plan = self._state.shown_plan
        node_id = self._state.selected_node_id()
        has_node = plan is not None and node_id >= 0
        self._empty.setVisible(not has_node)
        is_placed_only = plan is not None and not plan.n_nodes
        self._empty.setText(PLACED_TEXT if is_placed_only else EMPTY_TEXT)
        self.why.setVisible(has_node)
        if plan is not None and node_id >= 0:
            self.why.set_subject(self._subject(plan, node_id))
        self._show_split(plan)

    def _put_first(self, card: QWidget) -> None:
        """What was asked for on top: a slice of the timeline asks what it took, a node why."""
        if self._column.indexOf(card) == 0:
            return
        self._column.removeWidget(card)
        self._column.insertWidget(0, card)
        self._area.verticalScrollBar().setValue(0)

    def _subject(self, plan: PlanTable, node_id: int) -> Subject:
        slot = plan.slot(node_id)
        return Subject(
            table=plan,
            slot=slot,
            looks=device_style(self._theme.palette, plan.devices),
            now=explain(plan, slot),
            was=self._explain_was(plan, plan.key(node_id)),
            time=time_words(self._spans, plan, node_id),
            was_looks=self._looks_before(plan),
        )

    def _looks_before(self, plan: PlanTable) -> tuple[DeviceLook, ...]:
        """A change of devices gives them other numbers, and so other letters."""
        diff = self._state.diff
        before = plan if diff is None else diff.was.plan(plan.batch)
        return device_style(self._theme.palette, before.devices)

    def _explain_was(self, plan: PlanTable, key: NodeKey) -> Explanation | None:
        """Why the node was where it was before the change that is being looked at."""
        diff = self._state.diff
        if diff is None:
            return None
        before = diff.was.plan(plan.batch)
        node_id = before.node_ids().get(key)
        return None if node_id is None else explain(before, before.slot(node_id))

    def _show_split(self, plan: PlanTable | None) -> None:
        split_id = self._state.selection.split_id
        times = self._times
        shows = plan is not None and times is not None and 0 <= split_id < len(plan.splits)
        self.split.setVisible(shows)
        self._put_first(self.split if shows and self._state.selection.step >= 0 else self.why)
        if plan is not None and times is not None and shows:
            looks = device_style(self._theme.palette, plan.devices)
            step = self._state.selection.step
            facts = split_facts(plan, times, split_id, step=step, others=self._others)
            self.split.set_facts(facts, looks)
