"""Facts of a plan that several panes say, in words. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from app.models.expert_words import expert_words
from app.theme.text import kib
from engine.core.placement import SplitReason
from engine.core.plan import Batch

if TYPE_CHECKING:
    import numpy.typing as npt

    from app.models.split_times import SplitTimes
    from app.state.app_state import AppState
    from engine.core.table import PlanTable

REASON_WORDS = {
    SplitReason.FIRST: "it is the first",
    SplitReason.BACKEND_CHANGED: "the device changes",
    SplitReason.WEIGHT_ELSEWHERE: "weight on another device",
    SplitReason.TOO_MANY_INPUTS: "too many inputs for one split",
}

BATCH_WORDS = {Batch.PROMPT: "prompt", Batch.TOKEN: "token"}


def first_computed(table: PlanTable) -> npt.NDArray[np.int64]:
    """The first node of each split that computes; the first of all where only views are."""
    start, stop = table.splits["start"], table.splits["stop"]
    computed = _computed_nodes(table)
    place = np.searchsorted(computed, start)
    padded = np.append(computed, table.n_nodes)
    found: npt.NDArray[np.int64] = np.where(padded[place] < stop, padded[place], start)
    return found


def n_computed(table: PlanTable) -> npt.NDArray[np.int64]:
    """How many nodes of each split compute."""
    computed = _computed_nodes(table)
    ends = np.searchsorted(computed, (table.splits["start"], table.splits["stop"]))
    counts: npt.NDArray[np.int64] = ends[1] - ends[0]
    return counts


def split_tip(table: PlanTable, split_id: int, times: SplitTimes | None = None) -> str:
    """A split in a few lines: where, which nodes, why it begins, what is copied in.

    With `times` also what was copied of a weight with experts.
    """
    split = table.splits[split_id]
    device = table.devices[int(split["backend"])].name
    first, last = int(split["start"]), int(split["stop"]) - 1
    nodes = f"node #{first}" if first == last else f"nodes #{first} to #{last}"
    lines = [
        f"Split {split_id} on {device}, {nodes}",
        f"Begins because: {REASON_WORDS[table.split_reason(split_id)]}",
    ]
    lines += [f"Copied in: {copy_words(table, copy_id)}" for copy_id in copies_of(table, split_id)]
    copy_id = expert_copy_of(table, split_id)
    words = None if times is None else expert_words(table, times.spans, copy_id)
    if words is not None:
        lines.append(f"Measured: {words.moved} of {words.whole}, experts {words.which}")
    return "\n".join(lines)


def copies_of(table: PlanTable, split_id: int) -> range:
    """The copies made before a split."""
    split = table.splits[split_id]
    first = int(split["first_copy"])
    return range(first, first + int(split["n_copies"]))


def expert_copy_of(table: PlanTable, split_id: int) -> int:
    """The copy of a split that moves used experts only; -1 for none. There is one at most."""
    ids = copies_of(table, split_id)
    return next((i for i in ids if table.copies[i]["n_experts"]), -1)


def copy_words(table: PlanTable, copy_id: int) -> str:
    """A copy: what and how much; of experts at most that."""
    copy = table.copies[copy_id]
    words = f"{table.copy_name(copy_id)}, {kib(int(copy['bytes']))} KiB"
    n_experts = int(copy["n_experts"])
    return f"{words} for all {n_experts} experts, only used ones copied" if n_experts else words


def plan_of(state: AppState, plan_id: int) -> PlanTable | None:
    """The plan a span belongs to: one the run met, or one that is planned."""
    met = state.met_plans.get(plan_id)
    if met is not None:
        return met
    planned = () if state.plans is None else (state.plans.prompt, state.plans.token)
    known = (*planned, *((state.shown_plan,) if state.shown_plan is not None else ()))
    return next((plan for plan in known if plan.plan_id == plan_id), None)


def _computed_nodes(table: PlanTable) -> npt.NDArray[np.int64]:
    views = table.is_view_op[table.n_leafs : table.n_leafs + table.n_nodes]
    computed: npt.NDArray[np.int64] = np.flatnonzero(~views)
    return computed
