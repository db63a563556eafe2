"""Planning: open a model, plan it again with other options, undo, difference mode.

At most one request to plan is under way; while it is, newer wishes replace one another, and the
newest is sent when the answer comes, at most 30 times a second. So dragging a slider never queues.
The engine plans during a run as well: op_offload then acts from the next graph on, what moves
weights or caches applies at the next run, and the difference says so.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, fields, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QObject, QTimer, Signal
from PySide6.QtGui import QUndoCommand, QUndoStack

from app.shell.change_text import AT_NEXT_RUN, change_note, change_title
from app.shell.first_selection import first_node
from app.shell.messages import failed_message, model_message, recalled_message, unfit_message
from app.state.app_state import DiffMode
from app.state.option_changes import changed_fields
from app.state.settings import RecentFile
from engine.core.diff import diff_sets
from engine.core.options import DEFAULTS, Options
from engine.core.summary import RunState
from engine.core.visible import visible
from engine.service.messages import DEMO, Failed, ModelOpened, OpenModel, Planned, Replan

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from app.bridge.bridge import Bridge
    from app.shell.messages import Message
    from app.state.app_state import AppState
    from app.state.option_memory import OptionMemory
    from engine.core.summary import ModelSummary
    from engine.core.table import PlanSetTable

REPLAN_INTERVAL_MS = 33

STOPPED_TITLE = "Stopped."
"""The engine's title for what a person stopped: no news to them."""


class Show(enum.Enum):
    """What is shown when a plan arrives."""

    PLAN = enum.auto()
    DIFFERENCE = enum.auto()


@dataclass(frozen=True, slots=True)
class _Wish:
    """A plan somebody wants. `base` is what a difference is taken against."""

    options: Options
    show: Show
    base: PlanSetTable | None
    step: _ChangeOptions | None = None
    """The undo step it belongs to."""
    title: str = ""
    """What the difference is called where no option made it."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Options that were asked for and cannot be planned; those of `before` hold."""

    asked: Options
    before: Options
    message: Message


@dataclass(frozen=True, slots=True)
class _Before:
    """What was so before a change: the options asked for, and the plans shown."""

    options: Options
    plans: PlanSetTable


@dataclass(slots=True)
class _Opening:
    """A file being opened; `is_reopened` after the engine was restarted.

    `recalled` are the options it had last time, if those are asked for.
    """

    request_id: int
    path: str
    is_reopened: bool
    recalled: Options | None = None
    model: ModelSummary | None = None


class Planning(QObject):
    """Wishes about models and options. GUI thread only."""

    message = Signal(object)
    """Carries a Message."""
    refused = Signal(object)
    """Carries a Refusal."""
    settled = Signal()
    """Controls should show `options` and whether something is being opened."""
    opened = Signal(object)
    """Carries a RecentFile: a model was opened and may be remembered."""

    def __init__(
        self,
        state: AppState,
        bridge: Bridge,
        parent: QObject | None = None,
        memory: OptionMemory | None = None,
    ) -> None:
        """Without a `memory` every model is opened with options of its own."""
        super().__init__(parent)
        self._state = state
        self._bridge = bridge
        self._memory = memory
        self.undo_stack = QUndoStack(self)
        self._path = ""
        self._opening: _Opening | None = None
        self._under_way: tuple[int, _Wish] | None = None
        self._wanted: _Wish | None = None
        self._drag_from: _Before | None = None
        self._pause = QTimer(self)
        self._pause.setSingleShot(True)
        self._pause.setInterval(REPLAN_INTERVAL_MS)
        self._pause.timeout.connect(self._send_wanted)

    def dispose(self) -> None:
        """Say nothing more: the window is going."""
        self._pause.stop()
        self.undo_stack.blockSignals(True)

    # What is so.

    @property
    def options(self) -> Options:
        """The newest options asked for."""
        if self._wanted is not None:
            return self._wanted.options
        if self._under_way is not None:
            return self._under_way[1].options
        return self._state.plans.options if self._state.plans is not None else Options()

    @property
    def is_opening(self) -> bool:
        """Whether a model is being opened."""
        return self._opening is not None

    @property
    def doing(self) -> str:
        """What the engine does for us, in words: "while opening x.gguf"."""
        if self._opening is not None:
            name = "the demo model" if self._opening.path == DEMO else self._opening.path
            return f"while opening {name}"
        return "while planning" if self._under_way is not None else ""

    # Wishes.

    def open(self, path: str) -> None:
        """Open a file by its absolute path, or `DEMO`; what is open stays if that fails."""
        recalled = None if self._memory is None else self._memory.recall(path)
        self._open(path, recalled, is_reopened=False)

    def reopen(self) -> None:
        """Open the same model with the same options in an engine that was restarted."""
        # What was being opened or planned is not tried again: it may be what ended the engine.
        wishes = [w for w in (self._wanted, self._under_way and self._under_way[1]) if w]
        self._opening, self._under_way, self._wanted = None, None, None
        options = self.options
        if any(wish.step is not None for wish in wishes):
            self._pop_steps_until(lambda step: step.now == options)
        self.settled.emit()
        if self._path and self._state.model is not None:
            self._open(self._path, options, is_reopened=True)

    def on_engine_died(self) -> None:
        """Nothing that was asked for will be answered."""
        self._pause.stop()
        self._drag_from = None

    def begin_drag(self) -> None:
        """A control is being moved: plans follow, one undo step comes at its end."""
        if self._drag_from is None:
            self._drag_from = self._before()

    def preview(self, **changes: Any) -> None:
        """Plan while a control is being moved."""
        self.begin_drag()
        self.plan_with(replace(self.options, **changes), Show.PLAN, None)

    def change(self, **changes: Any) -> None:
        """Change options: plan, show the difference, and remember an undo step."""
        before, self._drag_from = self._drag_from or self._before(), None
        if before is None:
            return
        options = replace(self.options, **changes)
        if options == before.options:
            self.plan_with(options, Show.PLAN, None)
            return
        title = self._title(before.options, options, before.plans.n_layers)
        self.undo_stack.push(_ChangeOptions(self, before, options, title))

    def reset(self) -> None:
        """Change every option to llama.cpp's default."""
        self.change(**{item.name: getattr(DEFAULTS, item.name) for item in fields(Options)})

    def _before(self) -> _Before | None:
        plans = self._state.plans
        return None if plans is None else _Before(self.options, plans)

    def plan_with(
        self,
        options: Options,
        show: Show,
        base: PlanSetTable | None,
        step: _ChangeOptions | None = None,
        title: str = "",
    ) -> None:
        """Ask for a plan; it replaces a wish that was not sent yet."""
        self._wanted = _Wish(options, show, base, step, title)
        if self._under_way is None and not self._pause.isActive():
            self._send_wanted()

    @property
    def shown_plans(self) -> PlanSetTable | None:
        """The plans that are shown: what the next difference is taken against."""
        return self._state.plans

    def see_devices(self, names: Sequence[str], title: str) -> None:
        """Plan for the devices that are here now, and show what that changes as `title`.

        Without a title the plan alone is shown. Options that name a device which is gone name it
        no longer.
        """
        plans = self._state.plans
        if plans is not None and self._opening is None:
            options = without_missing(self.options, names)
            show = Show.DIFFERENCE if title else Show.PLAN
            self.plan_with(options, show, plans, title=title)

    def keep(self) -> None:
        """Leave difference mode with the new plan."""
        self._state.set_diff(None)
        self._state.return_to_run()

    def undo(self) -> None:
        """Take the last change back."""
        if self.can_step(back=True):
            self.undo_stack.undo()

    def redo(self) -> None:
        """Make it again."""
        if self.can_step(back=False):
            self.undo_stack.redo()

    # Answers.

    def on_model_opened(self, answer: ModelOpened) -> None:
        """Hold the model back until its plan is here, so that panes never see half of both."""
        opening = self._opening
        if opening is None or answer.request_id != opening.request_id:
            return
        opening.model = answer.model
        if answer.model.plan_problem:
            self._finish_opening(None)

    def on_planned(self, answer: Planned) -> None:
        """Show a plan that was asked for; one nobody waits for any more is dropped."""
        if self._opening is not None and answer.request_id == self._opening.request_id:
            self._finish_opening(answer.plans)
        elif self._under_way is not None and answer.request_id == self._under_way[0]:
            wish, self._under_way = self._under_way[1], None
            self._show(wish, answer.plans)
            self._go_on()

    def on_failed(self, answer: Failed) -> bool:
        """Say what could not be done; gives back whether it was ours."""
        if self._opening is not None and answer.request_id == self._opening.request_id:
            self._on_opening_failed(self._opening, answer)
        elif self._under_way is not None and answer.request_id == self._under_way[0]:
            wish, self._under_way = self._under_way[1], None
            plans = self._state.plans
            holds = DEFAULTS if plans is None else plans.options
            self._take_back(wish, holds)
            self._go_on()
            self.refused.emit(Refusal(wish.options, holds, failed_message(answer, "options")))
        else:
            return False
        return True

    def _on_opening_failed(self, opening: _Opening, answer: Failed) -> None:
        is_stopped = answer.title == STOPPED_TITLE
        if opening.model is None:
            self._opening = None
            self.settled.emit()
        elif opening.recalled is not None and not is_stopped:
            # What fitted last time does not now: the model is here, so its own options are tried.
            assert self._memory is not None
            self._memory.forget(opening.path)
            self._open(opening.path, None, is_reopened=False)
            self.message.emit(unfit_message(answer))
            return
        else:
            self._finish_opening(None)
        if not is_stopped:
            self.message.emit(failed_message(answer, "model"))

    def _take_back(self, wish: _Wish, holds: Options) -> None:
        """Take a change that is impossible off the undo stack; `holds` are the options planned.

        Changes from before and after it that were not planned yet are asked for without it.
        """
        failed, stack = wish.step, self.undo_stack
        if failed is None or all(stack.command(i) is not failed for i in range(stack.index())):
            return
        later = self._pop_steps_until(lambda step: step is failed)
        self._pop_steps_until(lambda step: step is not failed)
        self._wanted = None
        if failed.was != holds:
            self.plan_with(failed.was, Show.DIFFERENCE, wish.base, self._top_step())
        for changes in reversed(later):
            self.change(**changes)

    def _pop_steps_until(self, is_kept: Callable[[_ChangeOptions], bool]) -> list[dict[str, Any]]:
        """Take steps off the undo stack without undoing them; gives their changes, newest first."""
        popped = []
        while (step := self._top_step()) is not None and not is_kept(step):
            popped.append(step.changes)
            # Qt drops a step that is obsolete in place of undoing it.
            step.setObsolete(True)
            self.undo_stack.undo()
        return popped

    def _top_step(self) -> _ChangeOptions | None:
        """The step that would be undone."""
        stack = self.undo_stack
        step = stack.command(stack.index() - 1) if stack.index() else None
        return step if isinstance(step, _ChangeOptions) else None

    # Inside.

    def _open(self, path: str, options: Options | None, *, is_reopened: bool) -> None:
        request_id = self._bridge.next_id()
        recalled = None if is_reopened else options
        self._opening = _Opening(request_id, path, is_reopened, recalled)
        self._bridge.send(OpenModel(request_id, path, options))
        self.settled.emit()

    def _finish_opening(self, plans: PlanSetTable | None) -> None:
        opening, self._opening = self._opening, None
        assert opening is not None
        assert opening.model is not None
        model = opening.model
        if opening.is_reopened:
            self._state.set_plans(plans)
            self._state.set_diff(None)
        else:
            self._path = opening.path
            self._show_model(model, plans)
            self.opened.emit(_recent_file(opening.path, model))
        message = model_message(model) or recalled_message(opening.recalled)
        if message is not None and not opening.is_reopened:
            self.message.emit(message)
        self.settled.emit()

    def _show_model(self, model: ModelSummary, plans: PlanSetTable | None) -> None:
        self.undo_stack.clear()
        self._drag_from = None
        state = self._state
        state.set_model(model)
        state.set_plans(plans)
        if plans is not None:
            state.select_node(first_node(plans.prompt))

    def _show(self, wish: _Wish, plans: PlanSetTable) -> None:
        self._state.set_plans(plans)
        if self._memory is not None:
            self._memory.remember(self._path, plans.options)
        if wish.show is Show.DIFFERENCE and wish.base is not None and _is_news(wish, plans):
            title = self._title(wish.base.options, plans.options, plans.n_layers)
            title = ", ".join(part for part in (wish.title, title) if part)
            self._state.set_diff(DiffMode(wish.base, plans, title, note=self._note(wish, plans)))
            return
        if self._state.diff is not None:
            self._state.set_diff(None)
        if self._drag_from is None:
            self._state.return_to_run()

    def _note(self, wish: _Wish, plans: PlanSetTable) -> str:
        """When a change that is made during a run acts."""
        if self._state.run.state is RunState.IDLE or wish.base is None:
            return ""
        return AT_NEXT_RUN if wish.title else change_note(wish.base.options, plans.options)

    def _title(self, was: Options, now: Options, n_layers: int) -> str:
        model = self._state.model
        return change_title(was, now, n_layers, 0 if model is None else model.n_ctx_train)

    def _go_on(self) -> None:
        if self._wanted is not None and not self._pause.isActive():
            self._send_wanted()
        self.settled.emit()

    def _send_wanted(self) -> None:
        wish = self._wanted
        if wish is None or self._under_way is not None or self._opening is not None:
            return
        self._wanted = None
        request_id = self._bridge.next_id()
        self._under_way = (request_id, wish)
        self._bridge.send(Replan(request_id, wish.options))
        self._pause.start()

    def can_step(self, *, back: bool) -> bool:
        """Whether undo or redo is possible now."""
        stack = self.undo_stack
        i_step = stack.index() - 1 if back else stack.index()
        if not 0 <= i_step < stack.count():
            return False
        waits = isinstance(stack.command(i_step), IdleStep) and self._state.is_computing
        return not waits


class IdleStep(QUndoCommand):
    """A step that waits for the end of a run."""


class _ChangeOptions(QUndoCommand):
    """One change of options."""

    def __init__(self, planning: Planning, before: _Before, options: Options, title: str) -> None:
        super().__init__(title)
        self._planning = planning
        self.was = before.options
        self.now = options
        self._base: PlanSetTable | None = before.plans

    @property
    def changes(self) -> dict[str, Any]:
        """The values it gives, by option."""
        return {name: getattr(self.now, name) for name in changed_fields(self.was, self.now)}

    def redo(self) -> None:
        """Plan with the new options and show the difference."""
        base, self._base = self._base or self._planning.shown_plans, None
        self._planning.plan_with(self.now, Show.DIFFERENCE, base, self)

    def undo(self) -> None:
        """Plan with the old options."""
        self._planning.plan_with(self.was, Show.PLAN, None)


def without_missing(options: Options, names: Sequence[str]) -> Options:
    """The options without devices that are not among `names`; with none left as by default."""
    if not options.devices:
        return options
    here = {"none", *(name.lower() for name in names)}
    left = tuple(name for name in options.devices if name.lower() in here)
    return options if left == options.devices else replace(options, devices=left or None)


def _is_news(wish: _Wish, plans: PlanSetTable) -> bool:
    """Whether a difference has anything to show; one of options has its title at least."""
    if wish.base is None or not wish.title:
        return True
    diff = diff_sets(wish.base, plans)
    moves_memory = any(row.was_bytes != row.now_bytes for row in diff.memory)
    return moves_memory or not (diff.prompt.is_empty and diff.token.is_empty)


def _recent_file(path: str, model: ModelSummary) -> RecentFile:
    return RecentFile(
        path=path,
        name=visible(Path(model.path).name),
        facts=f"{visible(model.arch)} · {model.quantization.upper()}",
        n_bytes=model.file_bytes,
        when=datetime.now().astimezone().isoformat(timespec="minutes"),
    )
