"""Runs for people and for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine.cli.output import counted, mib, plain

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
    # The first token is the prompt's own: with it alone no step was measured.
    speed = f", {summary.decode_tokens_per_s:.1f} tokens/s" if summary.decode_step_ns else ""
    print(
        f"prompt {counted(len(summary.prompt_tokens), 'token')}, "
        f"{summary.prefill_tokens_per_s:.1f} tokens/s · "
        f"generation {counted(len(summary.tokens), 'token')}{speed} · "
        f"ended: {summary.stop_reason.value}"
    )
    for words, plan_id in (("prompt", summary.prompt_plan_id), ("token", summary.token_plan_id)):
        n_splits = sum(row.plan == plan_id for row in summary.splits)
        copied = [row.n_bytes for row in summary.copies if row.plan == plan_id]
        if n_splits:
            n_copies = f"{len(copied)} cop{'y' if len(copied) == 1 else 'ies'}"
            print(
                f"{words}: {counted(n_splits, 'split')}, {n_copies}, {mib(sum(copied))} MiB a graph"
            )
