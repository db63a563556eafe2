"""Scene: what all parts of the pane draw from. Owned by the view, read by the canvases."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from app.models.expert_words import piece_lines
from app.models.plan_words import copies_of, plan_of
from app.theme.colours import DeviceLook, lane_looks
from app.theme.text import SPACE, bytes_text, count, duration_text, percent_text, plural
from app.views.timeline.analysis import Analysis, Path, rows_of_things
from app.views.timeline.device_words import CAUSE_WORDS, link_tip, thing_words, use_tip
from app.views.timeline.lanes import Shown, members_of, planned_links
from app.views.timeline.navigation import rows_of
from app.views.timeline.scale import TimeView, whole
from app.views.timeline.store import LaneKey, LaneKind, TraceStore, key_of
from engine.trace.idle import IdleCause
from engine.trace.records import MEMBER_LANE, SpanKind, StepKind

if TYPE_CHECKING:
    import numpy.typing as npt

    from app.state.app_state import AppState
    from app.theme.theme import Theme
    from app.views.timeline.lanes import PlacedLane
    from engine.core.table import DeviceRow, PlanTable
    from engine.trace.idle import Idle
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
    looks: dict[int, DeviceLook] = field(default_factory=dict)
    """By lane."""
    marks: tuple[Mark, ...] = ()
    selected_rows: Ints = field(default_factory=_no_rows)
    """Splits of the selection, or the selected copies."""
    flow_rows: Ints = field(default_factory=_no_rows)
    """The other end of the selection's flow: copies of a split, the split of a copy."""
    range: TimeView | None = None
    analysis: Analysis | None = None
    """What the ended run says of its devices; None before that is known."""
    path: Path = field(default_factory=Path)
    path_rows: dict[LaneKey, Ints] = field(default_factory=dict)
    """Rows of what is on the critical path, by lane."""
    idle_id: int = -1
    """The selected idle moment, a place in the analysis's; -1 for none."""
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

    def shown(self) -> Shown:
        """What lanes there are: links by plan or by trace, shares and steps by trace."""
        plans = [*self.state.met_plans.values()]
        if not plans and self.state.shown_plan is not None:
            plans = [self.state.shown_plan]
        links = {pair for plan in plans for pair in planned_links(plan)}
        links |= {(k.lane, k.peer) for k in self.store.lanes if k.kind is LaneKind.COPIES}
        sharing = {k.lane for k in self.store.lanes if k.kind is LaneKind.SHARES}
        return Shown(
            links=frozenset(links),
            sharing=frozenset(lane for lane in sharing if lane < MEMBER_LANE),
            members=members_of(self.devices()),
            n_step_rows=self.store.n_step_rows,
            has_path=bool(self.path.pieces),
            subtitles=self._subtitles(),
        )

    def _subtitles(self) -> dict[int, str]:
        """What stands below a device's name: how much of the run it computed."""
        if self.analysis is None:
            return {}
        return {
            lane: f"busy {percent_text(use.busy_ns / use.wall_ns)}"
            for lane, use in self.analysis.uses.items()
            if use.wall_ns
        }

    def restyle(self) -> None:
        """Read the devices' looks from the theme in use: of those that lanes are placed for."""
        looks = lane_looks(self.theme.palette, self.devices())
        if looks != self.looks:
            self.looks = looks
            self.version += 1

    def lane_name(self, lane: int) -> str:
        """The device of a lane."""
        look = self.looks.get(lane)
        return "host" if look is None else look.name

    def plan(self, row: int) -> PlanTable | None:
        """The plan that a span belongs to."""
        return plan_of(self.state, int(self.store.spans[row]["plan_id"]))

    def set_analysis(self, analysis: Analysis | None) -> None:
        """What an ended run says of its devices, or that it is not known."""
        self.analysis, self.idle_id = analysis, -1
        self.version += 1

    def set_path(self, path: Path) -> None:
        """The critical path that is shown; one without pieces is none."""
        rows = rows_of_things(self.store.spans, [piece.thing for piece in path.pieces])
        found: dict[LaneKey, list[int]] = {}
        for row in rows.tolist():
            key = key_of(self.store.spans[row])
            if key is not None:
                found.setdefault(key, []).append(row)
        self.path = path
        self.path_rows = {key: np.array(mine, np.int64) for key, mine in found.items()}
        self.version += 1

    def plan_by_id(self, plan_id: int) -> PlanTable | None:
        """The plan of that number."""
        return plan_of(self.state, plan_id)

    def head_tip(self, lane: PlacedLane) -> str:
        """What a lane's head says besides its name."""
        key, found = lane.key, self.analysis
        if key.kind is LaneKind.COPIES:
            title = f"From {self.lane_name(key.peer)} to {self.lane_name(key.lane)}"
            link = None if found is None else found.link(key.peer, key.lane)
            return title if link is None else link_tip(link, self.lane_name)
        use = None if found is None or not lane.is_device else found.uses.get(key.lane)
        if use is None:
            return lane.title
        return use_tip(use, self.lane_name(key.lane), self.plan_by_id, self.lane_name)

    @property
    def idle(self) -> Idle | None:
        """The selected idle moment."""
        if self.analysis is None or self.idle_id < 0:
            return None
        return self.analysis.idle[self.idle_id]

    def idle_words(self, idle_id: int) -> str:
        """An idle moment in two lines: how long and why, and what is at fault."""
        assert self.analysis is not None
        idle = self.analysis.idle[idle_id]
        head = (
            f"{self.lane_name(idle.lane)} idle {duration_text(idle.duration_ns)}: "
            f"{CAUSE_WORDS[idle.cause]}"
        )
        if idle.cause is IdleCause.NOTHING:
            return head
        return f"{head}\n{thing_words(idle.fault, self.plan_by_id, self.lane_name)}"

    def piece_words(self, piece_id: int) -> str:
        """A piece of the critical path in two lines."""
        piece = self.path.pieces[piece_id]
        what = thing_words(piece.thing, self.plan_by_id, self.lane_name)
        return f"{what}\n{duration_text(piece.duration_ns)} on the critical path"

    def read_selection(self) -> None:
        """Find the rows of what is selected."""
        self.selected_rows, self.flow_rows = _no_rows(), _no_rows()
        plan, selection = self.state.shown_plan, self.state.selection
        spans = self.store.spans
        if plan is None or not 0 <= selection.split_id < len(plan.splits):
            is_step = (spans["kind"] == SpanKind.STEP) & (spans["step"] == selection.step)
            if self.store.n_step_rows > 1:
                self.selected_rows = np.flatnonzero(is_step)
            return
        split_rows = rows_of(
            spans, SpanKind.SPLIT, plan.plan_id, [selection.split_id], selection.step
        )
        ids = [selection.copy_id]
        if selection.copy_id < 0:
            ids = list(copies_of(plan, selection.split_id))
        copy_rows = rows_of(spans, SpanKind.COPY, plan.plan_id, ids, selection.step)
        shares, exchanges = (
            rows_of(spans, kind, plan.plan_id, [selection.split_id], selection.step)
            for kind in (SpanKind.SHARD, SpanKind.EXCHANGE)
        )
        if selection.copy_id < 0:
            self.selected_rows = np.concatenate((split_rows, shares))
            self.flow_rows = np.concatenate((copy_rows, exchanges))
        else:
            self.selected_rows, self.flow_rows = copy_rows, split_rows

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
        if span["kind"] == SpanKind.STEP:
            return self.step_words(int(span["step"]))
        if span["kind"] == SpanKind.COPY:
            return plan.copy_name(index)
        return plan.split_name(index)

    def figures(self, *rows: int) -> str:
        """A slice's figures: "#99  3.34 ms"; size, time and rate of the pieces of a copy."""
        spans = self.store.spans[list(rows)]
        took_ns = int((spans["end_ns"] - spans["start_ns"]).sum())
        n_bytes = int(spans["bytes"].sum())
        if spans[0]["kind"] == SpanKind.STEP:
            return f"{plural(n_bytes, 'token')}  {duration_text(took_ns)}"
        if spans[0]["kind"] not in (SpanKind.COPY, SpanKind.EXCHANGE):
            return f"#{int(spans[0]['index'])}  {duration_text(took_ns)}"
        rate = f"  {count(n_bytes / took_ns, 1)}{SPACE}GB/s" if took_ns else ""
        return f"{bytes_text(n_bytes)}  {duration_text(took_ns)}{rate}"

    def tip(self, row: int) -> str:
        """A slice in a few lines."""
        span = self.store.spans[row]
        if span["kind"] == SpanKind.STEP:
            return f"{self.name(row)}\n{self.figures(row)}"
        step = self.step_words(int(span["step"]))
        plan = self.plan(row)
        experts = [] if plan is None else piece_lines(plan, self.store.spans, row)
        lines = [self.name(row), self.figures(row), f"{self._where(span)}, {step}", *experts]
        return "\n".join(lines)

    def _where(self, span: np.void) -> str:
        """What a span did where: "copied into OpenCL0 from CPU"."""
        where = self.lane_name(int(span["lane"]))
        if span["kind"] in (SpanKind.COPY, SpanKind.EXCHANGE):
            verb = "copied" if span["kind"] == SpanKind.COPY else "handed over"
            return f"{verb} into {where} from {self.lane_name(int(span['peer']))}"
        share = "its share " if span["kind"] == SpanKind.SHARD else ""
        return f"{share}computed on {where}"

    def path_of_words(self) -> str:
        """Of what the critical path is: a step, a whole prompt, or what is known of it."""
        path, steps = self.path, self.store.steps()
        if path.n_steps == 1:
            return self.step_words(path.step)
        n_steps = int(np.count_nonzero(steps["peer"] == StepKind.PROMPT))
        which = (
            f"all {n_steps}" if path.n_steps == n_steps else f"the last {path.n_steps} of {n_steps}"
        )
        return f"the {self.state.reads}, {which} graphs"

    def step_words(self, step: int) -> str:
        """A step in words."""
        steps = self.store.steps()
        frame = steps[steps["step"] == step]
        if not len(frame):
            return f"step {step}"
        if frame[0]["peer"] != StepKind.PROMPT:
            return f"token step {step}"
        prompt = np.unique(steps["step"][steps["peer"] == StepKind.PROMPT])
        place = int(np.searchsorted(prompt, step)) + 1
        part = f", graph {place} of {len(prompt)}" if len(prompt) > 1 else ""
        return f"{self.state.reads}{part}"
