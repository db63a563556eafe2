"""The sums of a run, from its spans.

Pure but for `settled_snapshot`, which waits for times that a driver still has to deliver.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from engine.core.summary import CopyTiming, RunSummary, SplitTiming, StopReason
from engine.report.run_progress import NS_PER_S
from engine.trace.records import SpanKind, Spans, StepKind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from engine.core.table import PlanTable
    from engine.trace.recorder import Recorder
    from engine.trace.snapshot import TraceSnapshot

SETTLE_S = 1.0
"""How long a snapshot waits for times that a driver's thread still has to deliver."""


@dataclass(frozen=True, slots=True)
class Generated:
    """What a run read and wrote, and why it ended."""

    prompt: str
    prompt_tokens: Sequence[int]
    tokens: Sequence[int]
    text: str
    stop_reason: StopReason


def settled_snapshot(recorder: Recorder, plans: Mapping[int, PlanTable]) -> TraceSnapshot:
    """Everything recorded, once every split and copy of every finished step has its time."""
    deadline = time.monotonic() + SETTLE_S
    while True:
        snapshot = recorder.snapshot()
        if _is_settled(snapshot, plans) or time.monotonic() > deadline:
            return snapshot
        time.sleep(0.001)


def _is_settled(snapshot: TraceSnapshot, plans: Mapping[int, PlanTable]) -> bool:
    if snapshot.lost:
        return True
    done = [
        plans[int(plan_id)]
        for plan_id in snapshot.of_kind(SpanKind.STEP)["plan_id"]
        if int(plan_id) in plans
    ]
    n_splits, n_copies = sum(len(p.splits) for p in done), sum(len(p.copies) for p in done)
    return (
        len(snapshot.of_kind(SpanKind.SPLIT)) >= n_splits
        and len(snapshot.of_kind(SpanKind.COPY)) >= n_copies
    )


def run_summary(
    generated: Generated, snapshot: TraceSnapshot, plans: Mapping[int, PlanTable]
) -> RunSummary:
    """The sums of a run; splits and copies are those of every plan that a finished step used."""
    steps = snapshot.of_kind(SpanKind.STEP)
    prompt_steps = steps[steps["peer"] == StepKind.PROMPT]
    token_steps = steps[steps["peer"] == StepKind.TOKEN]
    prefill_ns = int((prompt_steps["end_ns"] - prompt_steps["start_ns"]).sum())
    decode_ns = token_steps["end_ns"] - token_steps["start_ns"]
    used = set(steps["plan_id"].tolist())
    met = [plan for plan_id, plan in plans.items() if plan_id in used]
    return RunSummary(
        prompt=generated.prompt,
        prompt_tokens=tuple(generated.prompt_tokens),
        tokens=tuple(generated.tokens),
        text=generated.text,
        stop_reason=generated.stop_reason,
        prefill_tokens_per_s=_rate(int(prompt_steps["bytes"].sum()), prefill_ns),
        decode_tokens_per_s=_rate(len(decode_ns), int(decode_ns.sum())),
        prefill_ns=prefill_ns,
        decode_step_ns=tuple(int(ns) for ns in decode_ns),
        prompt_plan_id=_last_plan(prompt_steps),
        token_plan_id=_last_plan(token_steps),
        splits=_splits(met, snapshot.of_kind(SpanKind.SPLIT)),
        copies=_copies(met, snapshot.of_kind(SpanKind.COPY)),
    )


def _last_plan(steps: Spans) -> int:
    return int(steps["plan_id"][-1]) if len(steps) else -1


def _rate(count: int, duration_ns: int) -> float:
    return count * NS_PER_S / duration_ns if duration_ns else 0.0


def _times(spans: Spans, plan: PlanTable) -> dict[int, list[int]]:
    """Times by split or copy id, in the order of the steps: drivers report in any order."""
    own = spans[spans["plan_id"] == plan.plan_id]
    own = own[np.argsort(own["step"], kind="stable")]
    times: dict[int, list[int]] = {}
    for index, span_ns in zip(own["index"], own["end_ns"] - own["start_ns"], strict=True):
        times.setdefault(int(index), []).append(int(span_ns))
    return times


def _splits(plans: Sequence[PlanTable], spans: Spans) -> tuple[SplitTiming, ...]:
    return tuple(
        SplitTiming(
            plan=plan.plan_id,
            batch=plan.batch.value,
            id=split_id,
            backend=plan.devices[int(row["backend"])].name,
            start=int(row["start"]),
            stop=int(row["stop"]),
            n_nodes=int(row["stop"] - row["start"]),
            time_ns=tuple(times.get(split_id, ())),
        )
        for plan in plans
        for times in (_times(spans, plan),)
        for split_id, row in enumerate(plan.splits)
    )


def _copies(plans: Sequence[PlanTable], spans: Spans) -> tuple[CopyTiming, ...]:
    return tuple(
        CopyTiming(
            plan=plan.plan_id,
            batch=plan.batch.value,
            id=copy_id,
            name=plan.copy_name(copy_id),
            n_bytes=int(row["bytes"]),
            time_ns=tuple(times.get(copy_id, ())),
        )
        for plan in plans
        for times in (_times(spans, plan),)
        for copy_id, row in enumerate(plan.copies)
    )
