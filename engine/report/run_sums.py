"""The sums of a run, from its spans.

Pure but for `settled_snapshot`, which waits for times that a driver still has to deliver.
"""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from engine.core.summary import CopyTiming, ExchangeSum, RunSummary, SplitTiming, StopReason
from engine.report.run_progress import NS_PER_S
from engine.trace.expert_use import expert_pieces, expert_use
from engine.trace.metrics import step_sums, union_ns
from engine.trace.records import SpanKind, Spans, StepKind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from engine.core.experts import ExpertUse, Run
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


def settled_snapshot(recorder: Recorder) -> TraceSnapshot:
    """Everything recorded, once every split and copy that was begun has its time."""
    deadline = time.monotonic() + SETTLE_S
    while not recorder.is_settled and time.monotonic() < deadline:
        time.sleep(0.001)
    return recorder.snapshot()


def run_summary(
    generated: Generated, snapshot: TraceSnapshot, plans: Mapping[int, PlanTable]
) -> RunSummary:
    """The sums of a run; splits and copies are those of every plan that a finished step used."""
    steps = snapshot.of_kind(SpanKind.STEP)
    prompt_steps = steps[steps["peer"] == StepKind.PROMPT]
    token_steps = steps[steps["peer"] == StepKind.TOKEN]
    # In a pipeline the steps of a prompt overlap.
    prefill_ns = union_ns(prompt_steps["start_ns"], prompt_steps["end_ns"])
    decode_ns = token_steps["end_ns"] - token_steps["start_ns"]
    used = set(steps["plan_id"].tolist())
    met = [plan for plan_id, plan in plans.items() if plan_id in used]
    copies = snapshot.of_kind(SpanKind.COPY)
    n_measured = int(prompt_steps["bytes"].sum())
    return RunSummary(
        prompt=generated.prompt,
        prompt_tokens=tuple(generated.prompt_tokens),
        tokens=tuple(generated.tokens),
        text=generated.text,
        stop_reason=generated.stop_reason,
        prefill_tokens_per_s=_rate(n_measured, prefill_ns),
        decode_tokens_per_s=_rate(len(decode_ns), int(decode_ns.sum())),
        prefill_ns=prefill_ns,
        decode_step_ns=tuple(int(ns) for ns in decode_ns),
        prompt_plan_id=_last_plan(prompt_steps),
        token_plan_id=_last_plan(token_steps),
        splits=_splits(met, snapshot.of_kind(SpanKind.SPLIT)),
        copies=_copies(met, copies),
        prompt_experts=_experts(plans, _of_steps(copies, prompt_steps)),
        token_experts=_experts(plans, _of_steps(copies, token_steps)),
        n_unread=_unread(generated, n_measured),
        exchanges=_exchanges(met, snapshot.of_kind(SpanKind.EXCHANGE)),
    )


def run_notes(notes: Sequence[str], generated: Generated, n_ctx: int) -> tuple[str, ...]:
    """Those of `notes` that say something, and that fewer tokens fit than were asked for."""
    is_full = generated.stop_reason is StopReason.CONTEXT_FULL
    full = context_note(len(generated.tokens), n_ctx) if is_full else ""
    return tuple(note for note in (*notes, full) if note)


def context_note(n_tokens: int, n_ctx: int) -> str:
    """After how many generated tokens the context is full, and what gives more."""
    tokens = f"{n_tokens:,} generated token{'' if n_tokens == 1 else 's'}"
    return f"the context of {n_ctx:,} tokens is full after {tokens}: a longer one (-c) takes more"


def _unread(generated: Generated, n_measured: int) -> int:
    """Tokens of the prompt that no finished step had: none where one was generated from it."""
    if generated.stop_reason is not StopReason.STOPPED or generated.tokens:
        return 0
    return len(generated.prompt_tokens) - n_measured


def _last_plan(steps: Spans) -> int:
    return int(steps["plan_id"][-1]) if len(steps) else -1


def _rate(count: int, duration_ns: int) -> float:
    return count * NS_PER_S / duration_ns if duration_ns else 0.0


def _of_steps(spans: Spans, steps: Spans) -> Spans:
    mine: Spans = spans[np.isin(spans["step"], steps["step"])]
    return mine


def _experts(plans: Mapping[int, PlanTable], spans: Spans) -> ExpertUse | None:
    """The expert copies of several steps, whatever plans those had."""
    used = [expert_use(_of_plan(spans, plan), plan.copies) for plan in plans.values()]
    found = [use for use in used if use is not None]
    return sum(found[1:], found[0]) if found else None


def _of_plan(spans: Spans, plan: PlanTable) -> Spans:
    mine: Spans = spans[spans["plan_id"] == plan.plan_id]
    return mine


@dataclass(frozen=True, slots=True)
class _Measured:
    """One split or copy in the order of the steps; `experts` has the runs of those it copied."""

    time_ns: list[int] = field(default_factory=list)
    n_bytes: list[int] = field(default_factory=list)
    experts: dict[int, list[Run]] = field(default_factory=dict)


def _measured(spans: Spans, plan: PlanTable) -> defaultdict[int, _Measured]:
    """What was measured of a plan, by split or copy id; drivers report in any order."""
    mine = _of_plan(spans, plan)
    found: defaultdict[int, _Measured] = defaultdict(_Measured)
    sums = step_sums(mine)
    columns = (sums.item_id, sums.duration_ns, sums.n_bytes)
    for index, span_ns, n_bytes in zip(*(c.tolist() for c in columns), strict=True):
        found[index].time_ns.append(span_ns)
        found[index].n_bytes.append(n_bytes)
    pieces = expert_pieces(mine)
    pieces = pieces[np.lexsort((pieces["first_expert"], pieces["step"]))]
    names = ("index", "step", "first_expert", "last_expert")
    for index, step, *run in zip(*(pieces[name].tolist() for name in names), strict=True):
        found[index].experts.setdefault(step, []).append((run[0], run[1]))
    return found


def _exchanges(plans: Sequence[PlanTable], spans: Spans) -> tuple[ExchangeSum, ...]:
    found = []
    for plan in plans:
        mine = _of_plan(spans, plan)
        if len(mine):
            last = mine[mine["step"] == mine["step"].max()]
            found.append(ExchangeSum(plan.plan_id, len(last), int(last["bytes"].sum())))
    return tuple(found)


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
            time_ns=tuple(measured[split_id].time_ns),
        )
        for plan in plans
        for measured in (_measured(spans, plan),)
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
            time_ns=tuple(measured[copy_id].time_ns),
            n_experts=int(row["n_experts"]),
            copied_bytes=tuple(measured[copy_id].n_bytes) if row["n_experts"] else (),
            experts=tuple(tuple(runs) for runs in measured[copy_id].experts.values()),
        )
        for plan in plans
        for measured in (_measured(spans, plan),)
        for copy_id, row in enumerate(plan.copies)
    )
