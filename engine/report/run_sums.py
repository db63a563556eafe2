"""The sums of a run, from its spans.

Pure but for `settled_snapshot`, which waits for times that a driver still has to deliver.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.core.plan import Batch
from engine.core.summary import CopyTiming, RunSummary, SplitTiming, StopReason
from engine.report.run_progress import NS_PER_S
from engine.trace.records import SpanKind, Spans, StepKind

if TYPE_CHECKING:
    from engine.core.table import PlanTable
    from engine.trace.recorder import Recorder
    from engine.trace.snapshot import TraceSnapshot

SETTLE_S = 1.0
"""How long a snapshot waits for times that a driver's thread still has to deliver."""


def settled_snapshot(recorder: Recorder, plans: Mapping[int, PlanTable]) -> TraceSnapshot:
    """Everything recorded, once every split of every finished step has its time."""
    deadline = time.monotonic() + SETTLE_S
    while True:
        snapshot = recorder.snapshot()
        if _is_settled(snapshot, plans) or time.monotonic() > deadline:
            return snapshot
        time.sleep(0.001)


def _is_settled(snapshot: TraceSnapshot, plans: Mapping[int, PlanTable]) -> bool:
    if snapshot.lost:
        return True
    expected = sum(
        len(plans[int(plan_id)].splits)
        for plan_id in snapshot.of_kind(SpanKind.STEP)["plan_id"]
        if int(plan_id) in plans
    )
    return len(snapshot.of_kind(SpanKind.SPLIT)) >= expected


def run_summary(
    prompt: str,
    prompt_tokens: Sequence[int],
    tokens: Sequence[int],
    text: str,
    reason: StopReason,
    snapshot: TraceSnapshot,
    plans: Mapping[int, PlanTable],
) -> RunSummary:
    """The sums of a run from its spans."""
    steps = snapshot.of_kind(SpanKind.STEP)
    prompt_steps = steps[steps["peer"] == StepKind.PROMPT]
    token_steps = steps[steps["peer"] == StepKind.TOKEN]
    prefill_ns = int((prompt_steps["end_ns"] - prompt_steps["start_ns"]).sum())
    decode_ns = token_steps["end_ns"] - token_steps["start_ns"]
    prompt_plan = int(prompt_steps["plan_id"][-1]) if len(prompt_steps) else -1
    token_plan = int(token_steps["plan_id"][-1]) if len(token_steps) else -1
    shown = [
        (batch, plans[plan_id])
        for batch, plan_id in ((Batch.PROMPT, prompt_plan), (Batch.TOKEN, token_plan))
        if plan_id in plans
    ]
    n_prompt = int(prompt_steps["bytes"].sum())
    return RunSummary(
        prompt=prompt,
        prompt_tokens=tuple(prompt_tokens),
        tokens=tuple(tokens),
        text=text,
        stop_reason=reason,
        prefill_tokens_per_s=_rate(n_prompt, prefill_ns),
        decode_tokens_per_s=_rate(len(decode_ns), int(decode_ns.sum())),
        prefill_ns=prefill_ns,
        decode_step_ns=tuple(int(ns) for ns in decode_ns),
        prompt_plan_id=prompt_plan,
        token_plan_id=token_plan,
        splits=tuple(row for batch, plan in shown for row in _splits(batch, plan, snapshot)),
        copies=tuple(row for batch, plan in shown for row in _copies(batch, plan, snapshot)),
    )


def _rate(count: int, duration_ns: int) -> float:
    return count * NS_PER_S / duration_ns if duration_ns else 0.0


def _times(spans: Spans, plan: PlanTable) -> dict[int, list[int]]:
    times: dict[int, list[int]] = {}
    for span in spans[spans["plan_id"] == plan.plan_id]:
        times.setdefault(int(span["index"]), []).append(int(span["end_ns"] - span["start_ns"]))
    return times


def _splits(batch: Batch, plan: PlanTable, snapshot: TraceSnapshot) -> list[SplitTiming]:
    times = _times(snapshot.of_kind(SpanKind.SPLIT), plan)
    return [
        SplitTiming(
            batch=batch.value,
            id=split_id,
            backend=plan.devices[int(row["backend"])].name,
            start=int(row["start"]),
            stop=int(row["stop"]),
            n_nodes=int(row["stop"] - row["start"]),
            time_ns=tuple(times.get(split_id, ())),
        )
        for split_id, row in enumerate(plan.splits)
    ]


def _copies(batch: Batch, plan: PlanTable, snapshot: TraceSnapshot) -> list[CopyTiming]:
    times = _times(snapshot.of_kind(SpanKind.COPY), plan)
    return [
        CopyTiming(
            batch=batch.value,
            id=copy_id,
            name=plan.copy_name(copy_id),
            n_bytes=int(row["bytes"]),
            time_ns=tuple(times.get(copy_id, ())),
        )
        for copy_id, row in enumerate(plan.copies)
    ]
