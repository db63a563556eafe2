"""What is kept of a run whose engine is gone, under plan ids that no other engine gives. Pure.

An engine counts its plans from 1, so a new one would give the ids of the old one's plans to others,
and the times of the kept run would be shown for them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from engine.core.summary import RunSummary
    from engine.core.table import PlanTable
    from engine.trace.records import Spans
    from engine.trace.snapshot import TraceSnapshot


def kept_plans(plans: Mapping[int, PlanTable]) -> dict[int, PlanTable]:
    """The plans that were met, under ids below 0."""
    kept = (replace(plan, plan_id=_kept(plan.plan_id)) for plan in plans.values())
    return {plan.plan_id: plan for plan in kept}


def kept_trace(trace: TraceSnapshot) -> TraceSnapshot:
    """The trace that names those plans; its epoch is none that an engine counts to."""
    chunks = tuple(_kept_spans(chunk) for chunk in trace.chunks)
    return replace(trace, chunks=chunks, epoch=-1 - abs(trace.epoch))


def kept_summary(summary: RunSummary) -> RunSummary:
    """The summary that names those plans."""
    return replace(
        summary,
        prompt_plan_id=_kept(summary.prompt_plan_id),
        token_plan_id=_kept(summary.token_plan_id),
    )


def _kept(plan_id: int) -> int:
    """The id to keep a plan by; one that is kept already stays."""
    return -abs(plan_id)


def _kept_spans(spans: Spans) -> Spans:
    kept = spans.copy()
    kept["plan_id"] = -np.abs(kept["plan_id"])
    kept.flags.writeable = False
    return kept
