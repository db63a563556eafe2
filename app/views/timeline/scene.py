"""Scene: what all parts of the pane draw from. Owned by the view, read by the canvases."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from app.models.expert_words import piece_lines
from app.models.plan_words import copies_of, plan_of
from app.theme.colours import DeviceLook, device_style
from app.theme.text import SPACE, bytes_text, count, duration_text
from app.views.timeline.navigation import rows_of
from app.views.timeline.scale import TimeView, whole
from app.views.timeline.store import LaneKind, TraceStore
from engine.trace.records import SpanKind, StepKind

if TYPE_CHECKING:
    import numpy.typing as npt

    from app.state.app_state import AppState
    from app.theme.theme import Theme
    from app.views.timeline.lanes import PlacedLane
    from engine.core.table import DeviceRow, PlanTable
    from engine.trace.records import Mark

    Ints = npt.NDArray[np.int64]


def _no_rows() -> Ints:
    return np.zeros(0, np.int64)


def _no_time() -> TimeView:
    return TimeView(0.0, 1.0)


@dataclass(eq=False)
class Scene:
    """The trace, the shown time, the selection as rows, a range. GUI thread only.

    `version` moves with everything that a background depends on besides the shown time.
    """

    state: AppState
    theme: Theme
    store: TraceStore = field(default_factory=TraceStore)
    view: TimeView = field(default_factory=_no_time)
    lanes: tuple[PlacedLane, ...] = ()
    looks: tuple[DeviceLook, ...] = ()
    marks: tuple[Mark, ...] = ()
    selected_rows: Ints = field(default_factory=_no_rows)
    """Splits of the selection, or the selected copies."""
    flow_rows: Ints = field(default_factory=_no_rows)
    """The other end of the selection's flow: copies of a split, the split of a copy."""
    range: TimeView | None = None
    version: int = 0

    @property
    def bounds(self) -> TimeView:
        """The whole run."""
        return whole(self.store.begin_ns, self.store.end_ns)

    @property
    def origin_ns(self) -> int:
        """The moment that the axis calls 0."""
        return self.store.begin_ns

    def devices(self) -> tuple[DeviceRow, ...]:
        """The backends whose lanes there are."""
        plan = self.any_plan()
        return () if plan is None else plan.devices

    def any_plan(self) -> PlanTable | None:
        """A plan that the run met, else the shown one."""
        if self.state.met_plans:
            return next(iter(self.state.met_plans.values()))
        return self.state.shown_plan

    def targets(self) -> set[int]:
        """Devices that something is copied into, by plan or by trace."""
        plans = [*self.state.met_plans.values()]
        if not plans and self.state.shown_plan is not None:
            plans = [self.state.shown_plan]
        planned = {int(target) for plan in plans for target in np.unique(plan.copies["target"])}
        seen = {key.backend_id for key in self.store.lanes if key.kind is LaneKind.COPIES}
        return planned | seen

    def restyle(self) -> None:
        """Read the devices' looks from the theme in use."""
        self.looks = device_style(self.theme.palette, self.devices())
        self.version += 1

    def plan(self, row: int) -> PlanTable | None:
        """The plan that a span belongs to."""
        return plan_of(self.state, int(self.store.spans[row]["plan_id"]))

    def read_selection(self) -> None:
        """Find the rows of what is selected."""
        self.selected_rows, self.flow_rows = _no_rows(), _no_rows()
        plan, selection = self.state.shown_plan, self.state.selection
        spans = self.store.spans
        if plan is None or not 0 <= selection.split_id < len(plan.splits):
            return
        split_rows = rows_of(
            spans, SpanKind.SPLIT, plan.plan_id, [selection.split_id], selection.step
        )
        ids = [selection.copy_id]
        if selection.copy_id < 0:
            ids = list(copies_of(plan, selection.split_id))
        copy_rows = rows_of(spans, SpanKind.COPY, plan.plan_id, ids, selection.step)
        both = (split_rows, copy_rows) if selection.copy_id < 0 else (copy_rows, split_rows)
        self.selected_rows, self.flow_rows = both

    def pieces(self, row: int) -> list[int]:
        """The selected rows, or those of their flow, that a row is one of the pieces of."""
        rows = np.concatenate((self.selected_rows, self.flow_rows))
        spans, span = self.store.spans[rows], self.store.spans[row]
        same = [spans[name] == span[name] for name in ("kind", "plan_id", "index", "step")]
        found: list[int] = rows[np.logical_and.reduce(same)].tolist()
        return found

    def name(self, row: int) -> str:
        """A slice's name: a split's first node, or what is copied."""
        span, plan = self.store.spans[row], self.plan(row)
        index = int(span["index"])
        if plan is None:
            return f"#{index}"
        if span["kind"] == SpanKind.COPY:
            return plan.copy_name(index)
        return plan.split_name(index)

    def figures(self, *rows: int) -> str:
        """A slice's figures: "#99  3.34 ms"; size, time and rate of the pieces of a copy."""
        spans = self.store.spans[list(rows)]
        took_ns = int((spans["end_ns"] - spans["start_ns"]).sum())
        if spans[0]["kind"] != SpanKind.COPY:
            return f"#{int(spans[0]['index'])}  {duration_text(took_ns)}"
        n_bytes = int(spans["bytes"].sum())
        rate = f"  {count(n_bytes / took_ns, 1)}{SPACE}GB/s" if took_ns else ""
        return f"{bytes_text(n_bytes)}  {duration_text(took_ns)}{rate}"

    def tip(self, row: int) -> str:
        """A slice in a few lines."""
        span = self.store.spans[row]
        devices = self.devices()
        where = devices[int(span["lane"])].name if int(span["lane"]) < len(devices) else "?"
        verb = "copied into" if span["kind"] == SpanKind.COPY else "computed on"
        step = self.step_words(int(span["step"]))
        plan = self.plan(row)
        experts = [] if plan is None else piece_lines(plan, self.store.spans, row)
        lines = [self.name(row), self.figures(row), f"{verb} {where}, {step}", *experts]
        return "\n".join(lines)

    def step_words(self, step: int) -> str:
        """A step in words."""
        steps = self.store.steps()
        frame = steps[steps["step"] == step]
        if not len(frame):
            return f"step {step}"
        is_prompt = frame[0]["peer"] == StepKind.PROMPT
        return self.state.reads if is_prompt else f"token step {step}"
