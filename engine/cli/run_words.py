"""Runs and embeddings' sums, for people and for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine.cli.output import counted, mib, ms, plain
from engine.cli.together_words import print_together, together_data
from engine.report.run_progress import NS_PER_S

if TYPE_CHECKING:
    from engine.core.experts import ExpertUse
    from engine.core.summary import RunSummary

GIB = 2**30


def run_data(summary: RunSummary, note: str) -> dict[str, Any]:
    """A run for programs; `note` says where it differs from the plan."""
    result: dict[str, Any] = plain(summary)
    for copy in result["copies"]:
        copy["bytes"] = copy.pop("n_bytes")
    for words, use in _experts(summary):
        result[f"{words}_experts"] = _experts_data(use)
    result["together"] = together_data(summary.together)
    result["n_prompt_read"] = summary.n_prompt_read
    return result | ({"note": note} if note else {})


def timing_data(summary: RunSummary) -> dict[str, Any]:
    """What was measured of a text that was embedded, by the names that a run's data has."""
    data = run_data(summary, "")
    names = ("prefill_ns", "prefill_tokens_per_s", "splits", "copies", "notes")
    return {name: data[name] for name in names}


def _experts(summary: RunSummary) -> list[tuple[str, ExpertUse]]:
    """Copies of used experts by batch, where there were any."""
    both = (("prompt", summary.prompt_experts), ("token", summary.token_experts))
    return [(words, use) for words, use in both if use is not None]


def _experts_data(use: ExpertUse) -> dict[str, Any]:
    """Sums over all steps, measured; what all experts would have taken is an estimate."""
    data: dict[str, Any] = plain(use)
    if use.bytes_per_ns:
        data["measured_bytes_per_s"] = use.bytes_per_ns * NS_PER_S
        data["estimated_all_ns"] = use.whole_ns
    return data


def experts_words(use: ExpertUse) -> str:
    """What was copied of the experts in a step on average, and what all would have taken."""
    n, rate = use.n_steps, use.bytes_per_ns * NS_PER_S / GIB
    used, of = use.n_used / use.n_copies, use.n_experts / use.n_copies
    words = (
        f"{mib(use.copied_bytes // n)} of {mib(use.whole_bytes // n)} MiB copied a step "
        f"({used:.1f} of {of:g} experts a weight on average)"
    )
    if not rate:
        return words
    return (
        f"{words} in {ms(use.copy_ns / n)} ms, measured; "
        f"all would take about {ms(use.whole_ns / n)} ms at these {rate:.1f} GiB/s, estimated"
    )


def print_run(summary: RunSummary) -> None:
    """Speeds and sums of a run."""
    # The first token is the prompt's own: with it alone no step was measured.
    speed = f", {summary.decode_tokens_per_s:.1f} tokens/s" if summary.decode_step_ns else ""
    print(
        f"prompt {_prompt_words(summary)}, "
        f"{summary.prefill_tokens_per_s:.1f} tokens/s · "
        f"generation {counted(len(summary.tokens), 'token')}{speed} · "
        f"ended: {_end_words(summary)}"
    )
    experts = dict(_experts(summary))
    for words, plan_id in (("prompt", summary.prompt_plan_id), ("token", summary.token_plan_id)):
        graph = _graph_words(summary, plan_id)
        if graph:
            print(f"{words}: {graph}{' with all experts' if words in experts else ''}")
        if words in experts:
            print(f"{words} experts: {experts_words(experts[words])}")
    if summary.together is not None:
        print_together(summary.together)


def _prompt_words(summary: RunSummary) -> str:
    """The prompt's tokens, and how many of them were read where that is not all."""
    tokens = counted(len(summary.prompt_tokens), "token")
    return f"{summary.n_prompt_read:,} of {tokens}" if summary.n_unread else tokens


def _end_words(summary: RunSummary) -> str:
    reason = summary.stop_reason.value
    return f"{reason} after {_prompt_words(summary)}" if summary.n_unread else reason


def embed_lines(summary: RunSummary) -> list[str]:
    """Time and sums of a text that was embedded."""
    tokens = counted(len(summary.prompt_tokens), "token")
    speed = f"{summary.prefill_tokens_per_s:.1f} tokens/s"
    return [
        f"text {tokens} in {ms(summary.prefill_ns)} ms, {speed}",
        f"text: {_graph_words(summary, summary.prompt_plan_id)}",
    ]


def _graph_words(summary: RunSummary, plan_id: int) -> str:
    """Splits and copies of a plan that ran; empty where none did."""
    n_splits = sum(row.plan == plan_id for row in summary.splits)
    copied = [row.n_bytes for row in summary.copies if row.plan == plan_id]
    n_copies = f"{len(copied)} cop{'y' if len(copied) == 1 else 'ies'}"
    sums = f"{counted(n_splits, 'split')}, {n_copies}, {mib(sum(copied))} MiB a graph"
    for found in summary.exchanges:
        if found.plan == plan_id:
            sums += f", and {counted(found.n_exchanges, 'exchange')}, {mib(found.n_bytes)} MiB"
    return sums if n_splits else ""
