"""The facts in the status bar, most important first. Pure."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from app.theme.text import bytes_text, count, duration_text, plural
from engine.core.visible import visible

if TYPE_CHECKING:
    from app.state.app_state import AppState
    from engine.core.summary import ModelSummary


def status_facts(state: AppState) -> tuple[str, ...]:
    """Model, what it is, context, planning time, size of the plan."""
    model, plans = state.model, state.plans
    if model is None:
        devices = (plural(len(state.devices), "device"),) if state.devices else ()
        return ("No model open", *devices)
    facts = [
        visible(file_title(model)),
        f"{model.quantization.upper()} · {visible(model.arch)} · "
        f"{plural(model.n_layers, 'layer')} · {bytes_text(model.weight_bytes)}",
    ]
    if plans is not None:
        plan = plans.plan(state.batch)
        facts += [
            f"context {count(plans.n_ctx)}",
            f"plan {duration_text(plans.plan_ns)}, exact" if plans.plan_ns else "plan exact",
            f"{count(plan.n_nodes)} nodes",
        ]
    return tuple(facts)


def file_title(model: ModelSummary) -> str:
    """The file's name without what the next fact says: its ending and its type."""
    stem = Path(model.path).stem
    type_ending = model.quantization.upper()
    if stem.upper().endswith(type_ending):
        stem = stem[: -len(type_ending)].rstrip(".-_")
    return stem or model.name


def measured_text(state: AppState) -> str:
    """What was measured, and whether records were lost."""
    trace, summary = state.trace, state.run.summary
    if summary is None and (trace is None or not trace.n_spans):
        return "nothing measured yet" if state.model is not None else ""
    lost = 0 if trace is None else trace.lost
    return f"{count(lost)} lost"
