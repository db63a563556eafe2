"""TimelineView: the parts together, tied to the trace and the selection."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtGui import QPalette
from PySide6.QtWidgets import QFrame, QGridLayout, QLabel, QScrollArea, QStackedLayout, QWidget

from app.models.dock_title import DockTitle
from app.models.plan_words import first_computed
from app.state.app_state import Selection
from app.theme.fonts import TINY_PX, general_font
from app.views.timeline import scale
from app.views.timeline.analysis import rows_of_things
from app.views.timeline.device_words import path_words, run_words
from app.views.timeline.findings import Findings
from app.views.timeline.foot import Foot
from app.views.timeline.keys import Command
from app.views.timeline.lane_canvas import ZOOM_STEP, LaneCanvas
from app.views.timeline.lane_heads import PAD_PX, LaneHeads
from app.views.timeline.lanes import HEAD_PX, lanes_height, place_lanes
from app.views.timeline.navigation import downstream, next_row, upstream
from app.views.timeline.overview import OverviewCanvas
from app.views.timeline.ruler import RulerCanvas
from app.views.timeline.scene import Scene
from app.views.timeline.sum_check import check_of, check_text, lost_text, steps_of
from engine.core.summary import RunState
from engine.trace.idle import IdleCause
from engine.trace.records import SpanKind

if TYPE_CHECKING:
    from PySide6.QtGui import QResizeEvent

    from app.state.app_state import AppState
    from app.theme.theme import Theme
    from app.views.timeline.scale import TimeView
    from engine.core.table import PlanSetTable
    from engine.trace.lanes import Thing

EMPTY_TEXT = "Nothing measured yet. {verb} (F5) shows each split and copy here."
NEVER_TEXT = "Nothing can be measured: this model is placed, not run."
BUDGET_S = 0.008
"""GUI time of one update; after a dearer one the next updates are left out."""

PAN_SHARE = 0.15

SHORT_PX = 200
"""A lower pane keeps its room for the lanes."""

_CHOSEN = (SpanKind.SPLIT, SpanKind.COPY, SpanKind.SHARD, SpanKind.EXCHANGE)
"""Spans that belong to a split, which is selected with them."""


class TimelineView(QWidget):
    """Overview, ruler, lanes and the sum check. Follows a run until a person moves the view."""

    dock_title_changed = Signal(object)

    def __init__(self, state: AppState, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("timeline")
        self._state = state
        self.scene = Scene(state, theme)
        self._follows = True
        self._checked: tuple[int, ...] = ()
        self.overview = OverviewCanvas(self.scene)
        self.ruler = RulerCanvas(self.scene)
        self.heads = LaneHeads(self.scene)
        self.lanes = LaneCanvas(self.scene)
        self.foot = Foot(theme)
        self.check, self.lost = self.foot.check, self.foot.lost
        self.findings = Findings(state, self.scene, self)
        self._empty = QLabel()
        self._empty.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self._empty.setProperty("role", "muted")
        self._late = QTimer(self)
        self._late.setSingleShot(True)
        self._lay_out()
        self._connect()
        self._on_plans(state.plans)
        self._on_trace(state.trace)

    @property
    def dock_title(self) -> DockTitle:
        """What the dock's title bar shows."""
        scene = self.scene
        if scene.store.is_empty:
            return DockTitle("Timeline")
        running = self._state.run.state is not RunState.IDLE
        shown = scale.shown_text(scene.view, scene.bounds)
        chip = ""
        if scene.range is not None:
            low, high = (
                scale.moment_text(t, scene.origin_ns, scene.range)
                for t in (scene.range.t0, scene.range.t1)
            )
            chip = f"range {low}\u2013{high} ms"
        return DockTitle("Timeline", "measuring" if running else "measured", shown, chip)

    def clear_chip(self) -> None:
        """End the selected range."""
        self._set_range(None)

    def resizeEvent(self, event: QResizeEvent) -> None:  # noqa: D102 - Qt calls it
        super().resizeEvent(event)
        self._place()

    # Building.

    def _lay_out(self) -> None:
        body = QWidget()
        body.setProperty("role", "sheet")
        grid = QGridLayout(body)
        grid.setContentsMargins(0, 0, PAD_PX, 0)
        grid.setSpacing(0)
        grid.setColumnMinimumWidth(0, HEAD_PX)
        grid.setColumnStretch(1, 1)
        grid.setRowStretch(2, 1)
        grid.addWidget(_head("whole run"), 0, 0)
        grid.addWidget(self.overview, 0, 1)
        grid.addWidget(self.ruler, 1, 1)
        grid.addWidget(self._lane_area(), 2, 0, 1, 2)
        grid.addWidget(self.foot, 3, 0, 1, 2)
        self._empty.setAutoFillBackground(True)
        self._empty.setBackgroundRole(QPalette.ColorRole.Base)
        self._stack = QStackedLayout(self)
        self._stack.addWidget(self._empty)
        self._stack.addWidget(body)

    def _lane_area(self) -> QScrollArea:
        content = QWidget()
        row = QGridLayout(content)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(0)
        row.setColumnStretch(1, 1)
        row.addWidget(self.heads, 0, 0)
        row.addWidget(self.lanes, 0, 1)
        self._area = QScrollArea()
        self._area.setFrameShape(QFrame.Shape.NoFrame)
        self._area.setWidgetResizable(True)
        self._area.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self._area.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self._area.setWidget(content)
        return self._area

    def _connect(self) -> None:
        state = self._state
        state.trace_changed.connect(self._on_trace)
        state.run_changed.connect(self._on_run)
        state.plans_changed.connect(self._on_plans)
        state.selection_changed.connect(self._on_selection)
        state.shown_plan_changed.connect(self._on_plan)
        self.scene.theme.changed.connect(self._on_theme)
        self.overview.moved.connect(self._on_moved)
        self.overview.commanded.connect(self._on_command)
        self.lanes.commanded.connect(self._on_command)
        self.lanes.row_chosen.connect(self.choose_row)
        self.lanes.idle_chosen.connect(self.choose_idle)
        self.lanes.piece_chosen.connect(self._on_piece)
        self.lanes.nothing_chosen.connect(self._on_nothing)
        self.lanes.range_dragged.connect(self._set_range)
        self.lanes.panned.connect(self._on_panned)
        self.lanes.zoomed.connect(self.zoom)
        self._late.timeout.connect(self._on_late)
        state.path_changed.connect(self._on_path)
        self.findings.changed.connect(self._on_findings)
        self.foot.fault_asked.connect(self._go_to_fault)
        self.foot.height_changed.connect(self._on_foot)

    # What the state says.

    def _on_trace(self, _trace: object) -> None:
        if not self._late.isActive():
            self._take_over()

    def _on_plans(self, plans: PlanSetTable | None) -> None:
        """Say what would fill the pane."""
        is_placed_only = plans is not None and not plans.prompt.n_nodes
        verb = "Embed" if self._state.embeds else "Run"
        self._empty.setText(NEVER_TEXT if is_placed_only else EMPTY_TEXT.format(verb=verb))

    def _on_late(self) -> None:
        self._take_over()

    def _take_over(self) -> None:
        """Show what is new; leave out the next updates if that took long."""
        begun = time.perf_counter()
        trace, scene = self._state.trace, self.scene
        was_empty = scene.store.is_empty
        has_news = scene.store.update(trace)
        if has_news:
            scene.marks = () if trace is None else trace.marks
            if was_empty:
                self._follows = True
            self._stack.setCurrentIndex(0 if scene.store.is_empty else 1)
            if self._follows:
                scene.view = self._followed()
            scene.read_selection()
        # Before anything is painted: what was found of another run has rows of that.
        self.findings.read()
        if has_news:
            self._place()
            self._refresh()
        took = time.perf_counter() - begun + self.lanes.paint_s
        if took > BUDGET_S:
            self._late.start(round(4000 * took))

    def _followed(self) -> TimeView:
        bounds = self.scene.bounds
        if self._state.run.state is RunState.IDLE:
            return bounds
        return scale.following(bounds.t0, bounds.t1)

    def _on_run(self, _run: object) -> None:
        if self._state.run.state is RunState.IDLE and not self.scene.store.is_empty:
            self._take_over()
            if self._follows:
                self._set_view(self.scene.bounds, follow=True)
            self._refresh()

    def _on_plan(self, _plan: object) -> None:
        self._place()
        self.scene.read_selection()
        self.findings.read_path()
        self._refresh()

    def _on_selection(self, selection: Selection) -> None:
        if selection != Selection():
            self.scene.idle_id = -1
        self.scene.read_selection()
        self.findings.read_path()
        self._refresh()

    def _on_path(self, _shows: object) -> None:
        self.findings.read_path()

    def _on_findings(self) -> None:
        self._place()
        self._refresh()

    def _on_theme(self, _palette: object) -> None:
        self._place()
        self._refresh()

    def _on_foot(self) -> None:
        self._place()
        self._refresh()

    # What a person does.

    def choose_row(self, row: int) -> None:
        """Select a slice everywhere, showing the plan it belongs to."""
        span, plan = self.scene.store.spans[row], self.scene.plan(row)
        if plan is None or span["kind"] not in (*_CHOSEN, SpanKind.STEP):
            return
        state = self._state
        if plan.batch is not state.batch:
            state.set_batch(plan.batch)
        if state.shown_plan is not plan:
            state.show_plan(plan)
        if span["kind"] == SpanKind.STEP:
            state.select(Selection(step=int(span["step"])))
            return
        index, is_copy = int(span["index"]), span["kind"] == SpanKind.COPY
        split_id = int(plan.copies[index]["split"]) if is_copy else index
        node = plan.key(int(first_computed(plan)[split_id]))
        copy_id = index if is_copy else -1
        state.select(Selection(node, split_id, copy_id, int(span["step"])))

    def choose_idle(self, idle_id: int) -> None:
        """Select an idle moment: what was at fault is said below the lanes."""
        self._state.select(Selection())
        self.scene.idle_id = idle_id
        self._refresh()

    def _on_piece(self, piece_id: int) -> None:
        self._go_to(self.scene.path.pieces[piece_id].thing)

    def _go_to_fault(self) -> None:
        """Select what the idle moment waited for."""
        idle = self.scene.idle
        if idle is not None and idle.fault is not None:
            self._go_to(idle.fault)

    def _go_to(self, thing: Thing) -> None:
        """Select a thing where it can be, and bring it into view."""
        rows = rows_of_things(self.scene.store.spans, [thing])
        if len(rows):
            self.choose_row(int(rows[-1]))
            self._show_row(int(rows[-1]))

    def zoom(self, factor: float, at_ns: float) -> None:
        """Zoom around a moment."""
        self._set_view(scale.zoomed(self.scene.view, factor, at_ns, self.scene.bounds))

    def _on_panned(self, by_ns: float) -> None:
        self._set_view(scale.panned(self.scene.view, by_ns, self.scene.bounds))

    def _on_moved(self, at_ns: float) -> None:
        view = self.scene.view
        self._on_panned(at_ns - (view.t0 + view.t1) / 2)

    def _on_nothing(self) -> None:
        self._set_range(None)

    def _on_command(self, command: Command) -> None:
        view = self.scene.view
        middle = (view.t0 + view.t1) / 2
        if command is Command.ZOOM_IN:
            self.zoom(ZOOM_STEP, middle)
        elif command is Command.ZOOM_OUT:
            self.zoom(1 / ZOOM_STEP, middle)
        elif command in (Command.LEFT, Command.RIGHT):
            self._on_panned(PAN_SHARE * view.span * (1 if command is Command.RIGHT else -1))
        elif command is Command.WHOLE:
            self._set_view(self.scene.bounds)
        elif command is Command.FRAME:
            self._frame()
        elif command is Command.CLEAR:
            self._clear()
        elif command is Command.FAULT:
            self._go_to_fault()
        else:
            self._step(command)

    def _frame(self) -> None:
        """Frame the range or the first selected slice whole; framed already, the whole run."""
        scene = self.scene
        target = scene.range
        if target is None and len(scene.selected_rows):
            spans = scene.store.spans[scene.pieces(int(scene.selected_rows[0]))]
            start_ns, end_ns = float(spans["start_ns"].min()), float(spans["end_ns"].max())
            target = scale.framed(start_ns, end_ns, scene.bounds)
        if target is not None:
            self._set_view(scene.bounds if target == scene.view else target)

    def _clear(self) -> None:
        if self.scene.range is not None:
            self._set_range(None)
        elif self.scene.idle_id >= 0:
            self.scene.idle_id = -1
            self._refresh()
        else:
            self._state.select(Selection())

    def _step(self, command: Command) -> None:
        """Go to a neighbour on the lane, or along the flow, and keep it in view."""
        scene = self.scene
        if not len(scene.selected_rows):
            return
        row = int(scene.selected_rows[0])
        spans, plan = scene.store.spans, scene.plan(row)
        if spans[row]["kind"] not in (SpanKind.SPLIT, SpanKind.COPY):
            plan = None
        if command is Command.UPSTREAM and plan is not None:
            row = upstream(spans, plan, row)
        elif command is Command.DOWNSTREAM and plan is not None:
            row = downstream(spans, plan, row)
        elif command in (Command.PREVIOUS, Command.NEXT):
            key = scene.store.key_at(row)
            assert key is not None, spans[row]
            row = next_row(scene.store.lanes[key], row, 1 if command is Command.NEXT else -1)
        self.choose_row(row)
        self._show_row(row)

    def _show_row(self, row: int) -> None:
        """Pan so that a slice is in view."""
        span, view = self.scene.store.spans[row], self.scene.view
        middle = (float(span["start_ns"]) + float(span["end_ns"])) / 2
        if not view.t0 <= middle <= view.t1:
            self._on_panned(middle - (view.t0 + view.t1) / 2)

    # What changes.

    def _set_view(self, view: TimeView, *, follow: bool = False) -> None:
        self._follows = follow
        if view != self.scene.view:
            self.scene.view = view
            self._refresh()

    def _set_range(self, found: TimeView | None) -> None:
        if found != self.scene.range:
            self.scene.range = found
            self._refresh()

    def _place(self) -> None:
        """Place the lanes of the devices there are now, with their looks."""
        scene = self.scene
        scene.restyle()
        self.foot.set_short(is_short=self.height() < SHORT_PX)
        above = self.overview.height() + self.ruler.height()
        height = self.height() - above - self.foot.height_px
        scene.lanes = place_lanes(scene.devices(), scene.shown(), height)
        needed = round(lanes_height(scene.lanes))
        self.lanes.setMinimumHeight(needed)
        self.heads.setMinimumHeight(needed)
        self.lanes.scrolls = needed > height

    def _refresh(self) -> None:
        self._say_devices()
        for part in (self.overview, self.ruler, self.heads, self.lanes):
            part.update()
        self._say_sums()
        self._describe()
        self.dock_title_changed.emit(self.dock_title)

    def _say_devices(self) -> None:
        """How the run's devices spent it, the critical path, the selected idle moment."""
        scene, foot = self.scene, self.foot
        before_px = foot.height_px
        analysis = scene.analysis
        lanes = (lane.key.lane for lane in scene.lanes if lane.is_device)
        summary = self._state.run.summary
        together = None if summary is None else summary.together
        found: tuple[str, ...] = ()
        if analysis is not None:
            found = run_words(analysis, lanes, scene.lane_name, together)
        foot.say_devices(found)
        path = path_words(scene.path.pieces)
        foot.say(foot.path, f"{path} of {scene.path_of_words()}" if path else "")
        idle = scene.idle
        words = "" if idle is None else scene.idle_words(scene.idle_id)
        foot.say(foot.idle, ": ".join(words.splitlines()))
        foot.fault.setVisible(idle is not None and idle.cause is not IdleCause.NOTHING)
        if foot.height_px != before_px:
            self._place()

    def _say_sums(self) -> None:
        """The sum check of the selection's step; counted again only when a step has ended."""
        store, trace = self.scene.store, self._state.trace
        steps = steps_of(store.steps(), self._state.selection.step)
        key = (self._state.trace.epoch if self._state.trace else -1, *steps)
        if key != self._checked:
            self._checked = key
            check = check_of(store.spans, steps, self._state.reads)
            self.check.setText("this step has not ended" if check is None else check_text(check))
        n_lost = 0 if trace is None else trace.lost
        self.lost.setText(lost_text(n_lost))
        self.lost.setToolTip("Records that found the recorder full")
        role = "alert" if n_lost else "tiny"
        if self.lost.property("role") != role:
            self.lost.setProperty("role", role)
            self.lost.style().polish(self.lost)

    def _describe(self) -> None:
        rows = self.scene.selected_rows
        text = self.scene.tip(int(rows[0])) if len(rows) else "nothing selected"
        self.lanes.setAccessibleDescription(text)


def _head(text: str) -> QLabel:
    label = QLabel(text)
    label.setFont(general_font(TINY_PX))
    label.setProperty("role", "tiny")
    label.setContentsMargins(PAD_PX, 0, 0, 0)
    return label
