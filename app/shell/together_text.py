"""What several devices did during a prompt, as clauses of the answer. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from app.theme.text import percent_text
from engine.core.devices import HOST_TYPES
from engine.trace.lanes import busy, computing, overlap
from engine.trace.metrics import steps_of_kind, union_ns
from engine.trace.records import SpanKind, StepKind, placed_lanes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from engine.core.table import PlanTable
    from engine.trace.records import Spans

LEAST_SHARE = 0.0005
"""Less would be shown as 0.0 %."""


@dataclass(frozen=True, slots=True)
class PromptUse:
    """Shares of a prompt's time, fractions of 1: those of devices overlap.

    `busy` by lane; `at_once`: at least two devices compute; `idle`: none does; `planning`: the part
    of `idle` in which the host plans.
    """

    busy: Mapping[int, float]
    at_once: float
    idle: float
    planning: float


def prompt_use(spans: Spans) -> PromptUse | None:
    """What each device did in the prompt's time; None without a finished step of it."""
    mine = spans[np.isin(spans["step"], steps_of_kind(spans, StepKind.PROMPT))]
    frames = mine[mine["kind"] == SpanKind.STEP]
    wall_ns = union_ns(frames["start_ns"], frames["end_ns"])
    if not wall_ns:
        return None
    work, plans = computing(mine), mine[mine["kind"] == SpanKind.PLAN]
    some_ns = union_ns(work["start_ns"], work["end_ns"])
    both = np.concatenate((work, plans))
    planning_ns = union_ns(both["start_ns"], both["end_ns"]) - some_ns
    return PromptUse(
        busy={lane: found.total_ns / wall_ns for lane, found in busy(mine).items()},
        at_once=overlap(mine).total_ns / wall_ns,
        idle=max(wall_ns - some_ns, 0) / wall_ns,
        planning=planning_ns / wall_ns,
    )


def together_clauses(spans: Spans, plan: PlanTable, reads: str = "prompt") -> list[str]:
    """How much of the prompt each device computes, several at once and none; the largest first.

    Empty where fewer than two devices beside the CPU compute: then shares can add up.
    """
    use = prompt_use(spans)
    if use is None:
        return []
    placed = {lane: device for lane, device, _ in placed_lanes(plan.devices) if lane in use.busy}
    hosts = {lane for lane, device in placed.items() if device.type in HOST_TYPES}
    if len(placed) - len(hosts) < 2:
        return []
    largest_first = sorted(placed, key=lambda lane: (lane in hosts, -use.busy[lane]))
    shares = {lane: use.busy[lane] for lane in largest_first if use.busy[lane] >= LEAST_SHARE}
    first, *others = [f"{{{lane}}} {placed[lane].name}" for lane in shares]
    amounts = [percent_text(share) for share in shares.values()]
    clauses = [f"Of the {reads}, {first} computes **{amounts[0]}**."]
    clauses += [f", {name} {share}." for name, share in zip(others, amounts[1:], strict=True)]
    n_gpus = sum(lane not in hosts for lane in shares)
    clauses[n_gpus:n_gpus] = [
        f", at once **{percent_text(use.at_once)}**.",
        f", none {percent_text(use.idle)}{_planning_words(use)}.",
    ]
    return clauses


def _planning_words(use: PromptUse) -> str:
    if use.planning < LEAST_SHARE:
        return ""
    return f" (planning {percent_text(use.planning)})"
