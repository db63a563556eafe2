"""Runs for people and for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine.cli.output import mib, plain

if TYPE_CHECKING:
    from engine.core.summary import RunSummary


def run_data(summary: RunSummary, note: str) -> dict[str, Any]:
    """A run for programs; `note` says where it differs from the plan."""
    result: dict[str, Any] = plain(summary)
    for copy in result["copies"]:
        copy["bytes"] = copy.pop("n_bytes")
    return result | ({"note": note} if note else {})


def print_run(summary: RunSummary) -> None:
    """Speeds and sums of a run."""
    decode = f"{summary.decode_tokens_per_s:.1f} tokens/s" if summary.decode_step_ns else "not run"
    print(
        f"prompt {len(summary.prompt_tokens)} tokens, {summary.prefill_tokens_per_s:.1f} tokens/s"
        f" · generation {len(summary.tokens)} tokens, {decode} · ended: {summary.stop_reason.value}"
    )
    for words, plan_id in (("prompt", summary.prompt_plan_id), ("token", summary.token_plan_id)):
        n_splits = sum(row.plan == plan_id for row in summary.splits)
        copied = [row.n_bytes for row in summary.copies if row.plan == plan_id]
        if n_splits:
            print(
                f"{words}: {n_splits} splits, {len(copied)} copies, {mib(sum(copied))} MiB a graph"
            )
