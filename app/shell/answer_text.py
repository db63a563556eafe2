"""The answer: where the operations run, does it fit, what is copied; after a run, how fast.

Clauses in the markup of `markup`, most important first: a narrow window drops the last ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from app.shell.together_text import together_clauses
from app.theme.colours import is_on_paper
from app.theme.text import GIB, MIB, SPACE, bytes_text, count, duration_text, mib, plural, rate_text
from engine.core.devices import CUDA_MIN_BATCH, HOST_TYPES, DeviceType
from engine.core.memory_pool import memory_pool
from engine.core.plan import Batch
from engine.core.summary import RunState, StopReason
from engine.core.visible import visible
from engine.trace.metrics import StepSummary, steps_of_kind, steps_summary
from engine.trace.records import SpanKind, StepKind

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from app.state.app_state import RunInfo
    from engine.core.plan import MemoryLedger
    from engine.core.summary import ModelSummary, RunSummary
    from engine.core.table import DeviceRow, PlanSetTable, PlanTable
    from engine.trace.records import Spans

Clauses = tuple[str, ...]


NO_GRAPH = "**No operation** is planned: weights and caches alone have a place."


def plan_clauses(
    plans: PlanSetTable, batch: Batch, *, is_change: bool = False, makes_tokens: bool = True
) -> Clauses:
    """The answer of a plan; after a change of options it says "now".

    A model without a graph has weights and caches, and nothing else to count; one that gives
    embeddings has one kind of batch.
    """
    if not plans.prompt.n_nodes:
        return (NO_GRAPH, fit_clause(plans.prompt.devices, plans.memory))
    paper = paper_clause(plans)
    return (
        _operations(plans.plan(batch), _start(batch, is_change=is_change)),
        *((paper,) if paper else ()),
        fit_clause(plans.prompt.devices, plans.memory),
        *_cut_clauses(plans, makes_tokens=makes_tokens),
    )


def _cut_clauses(plans: PlanSetTable, *, makes_tokens: bool) -> Clauses:
    """Splits and copies of both batches, or of the only one."""
    splits = f"**{plural(len(plans.prompt.splits), 'split')}**"
    copied = f"**{bytes_text(plans.prompt.copied_bytes)}** copied per"
    if not makes_tokens:
        return (f"{splits}.", f"{copied} batch.")
    return (
        f"{splits} for the prompt, **{count(len(plans.token.splits))}** for a token.",
        f"{copied} prompt batch.",
        f", {bytes_text(plans.token.copied_bytes)} per token.",
    )


def no_plan(model: ModelSummary) -> Clauses:
    """The answer for a file that was read and cannot be planned."""
    tensors = f"{plural(len(model.tensors), 'tensor')}, {bytes_text(model.weight_bytes)}"
    return (f"**No plan** for {visible(model.arch) or 'this file'}.", f"Listed below: {tensors}.")


def plan_tooltip(plans: PlanSetTable, batch: Batch) -> str:
    """What the figures of the answer count."""
    plan = plans.plan(batch)
    n_views = plan.n_nodes - plan.n_computed
    return (
        f"{count(plan.n_nodes)} operations: {count(plan.n_computed)} compute, {count(n_views)} "
        f"are views. Memory is planned for the worst case, a full context of "
        f"{count(plans.n_ctx)} tokens."
    )


def run_note(reads: str, *, is_together: bool = False) -> str:
    """What the shares of a run mean; `reads` is "prompt" or "text".

    `is_together`: several devices computed, so that their shares overlap.
    """
    if is_together:
        return (
            f"Each share is of the whole time of the {reads}. Those of devices overlap: "
            '"at once" is the time in which several compute, "none" that in which no device does.'
        )
    return (
        f"The shares of the {reads}'s time add up to 100 %. Between splits no device computes: the "
        "host sets up inputs and launches the next piece of work."
    )


def paper_clause(plans: PlanSetTable) -> str:
    """That a device of the plan is not here, so that a run goes elsewhere; empty if all are."""
    names = [row.name for row in plans.prompt.devices if is_on_paper(row)]
    if not names:
        return ""
    others = [row.name for row in plans.prompt.devices if not is_on_paper(row)]
    return (
        f"**{' and '.join(names)} on paper**: this computer has no OpenCL device, "
        f"Run uses the {' and '.join(others)}."
    )


def fit_clause(devices: Sequence[DeviceRow], memory: MemoryLedger) -> str:
    """Whether every device has the memory it needs, and how much the fullest has to spare.

    Of devices that are joined each for itself; devices in one memory must fit together too.
    """
    needs = [need for need in _needs(devices, memory) if need.free_bytes]
    for need in needs:
        if need.spare_bytes < 0:
            return (
                f"**Does not fit:** {need.name} needs {mib(need.bytes)}{SPACE}MiB and has "
                f"{mib(need.free_bytes)}, over by {count(-need.spare_bytes / MIB)}{SPACE}MiB."
            )
    if any(device.type is DeviceType.CPU for device in devices):
        pool = memory_pool(memory, devices)
        if pool.is_over:
            over = pool.needed_bytes - pool.free_bytes
            return (
                f"**Does not fit:** {' and '.join(pool.devices)} work in one memory, over by "
                f"{count(over / MIB)}{SPACE}MiB."
            )
    asked = [need for need in needs if need.type is not DeviceType.CPU] or needs
    if not asked:
        return "No device says how much memory is free."
    tightest = min(asked, key=lambda need: need.spare_bytes)
    spare = tightest.spare_bytes
    where = f" on {tightest.name}" if len(asked) > 1 else ""
    words = bytes_text(spare) if spare >= GIB else f"{mib(spare)}{SPACE}MiB"
    return f"It fits, {words} to spare{where}."


class _Need(NamedTuple):
    name: str
    type: DeviceType
    bytes: int
    free_bytes: int

    @property
    def spare_bytes(self) -> int:
        return self.free_bytes - self.bytes


def _needs(devices: Sequence[DeviceRow], memory: MemoryLedger) -> Iterator[_Need]:
    """What each device needs; instead of one that joins others, what each of these does."""
    held = {share.device: share.needed_bytes for share in memory.shares}
    for device in devices:
        joined = [member for member in device.members if member.name in held]
        for member in joined:
            yield _Need(member.name, member.type, held[member.name], member.memory_free)
        if not joined:
            yield _Need(device.name, device.type, memory.total(device.name), device.memory_free)


def live_clauses(run: RunInfo, reads: str = "prompt") -> Clauses:
    """The answer while something runs."""
    if run.state is RunState.PREPARING:
        return ("Preparing: loading weights and compiling kernels.",)
    if run.state is RunState.PROMPT:
        return (f"Reading the {reads}, {plural(run.n_prompt_tokens, 'token')}.",)
    return (
        f"Prompt **{rate_text(run.prefill_tokens_per_s)}**.",
        f"Generating, **{count(run.n_tokens)}** of {count(run.n_predict)} tokens, "
        f"**{rate_text(run.decode_tokens_per_s)}** so far.",
    )


def run_clauses(
    summary: RunSummary,
    plan: PlanTable | None,
    spans: Spans | None,
    paper: Sequence[str] = (),
    *,
    note: str = "",
    reads: str = "prompt",
) -> Clauses:
    """The answer after a run. `plan` is the prompt's, for the names of lanes.

    `reads` is "prompt", or "text" for one that was embedded.
    `paper` names devices that were planned with and are not here; `note` is one more clause.
    """
    clauses = [
        f"{reads.capitalize()} **{rate_text(summary.prefill_tokens_per_s)}** "
        f"({_read_words(summary)} in {duration_text(summary.prefill_ns)})."
    ]
    if summary.decode_step_ns:
        median_ns = float(np.median(summary.decode_step_ns))
        clauses.append(
            f"Generation **{rate_text(summary.decode_tokens_per_s)}** "
            f"({plural(len(summary.decode_step_ns), 'step')}, median {duration_text(median_ns)})."
        )
    if summary.stop_reason is StopReason.STOPPED:
        clauses.append(f"Stopped after {_stop_words(summary, reads)}.")
    if paper and plan is not None:
        ran_on = " and ".join(row.name for row in plan.devices)
        clauses.insert(0, f"Ran on the **{ran_on}**: {' and '.join(paper)} is on paper.")
    if note:
        clauses.append(note)
    if spans is not None and plan is not None:
        clauses += _time_clauses(spans, plan, reads)
    return tuple(clauses)


def _time_clauses(spans: Spans, plan: PlanTable, reads: str) -> list[str]:
    """Where the prompt's time went: of several devices what each did, else parts of a whole."""
    found = together_clauses(spans, plan, reads)
    if found:
        return found
    shares = prompt_shares(spans)
    return _shares_clauses(shares, plan, reads) if shares else []


def _read_words(summary: RunSummary) -> str:
    """The prompt's tokens, and how many of them were read where that is not all."""
    tokens = plural(len(summary.prompt_tokens), "token")
    return f"{count(summary.n_prompt_read)} of {tokens}" if summary.n_unread else tokens


def _stop_words(summary: RunSummary, reads: str) -> str:
    if summary.n_unread:
        return f"{_read_words(summary)} of the {reads}"
    return plural(len(summary.tokens), "token")


def offload_clause(plans: PlanSetTable, plan: PlanTable | None, n_tokens: int) -> str:
    """That a prompt of `n_tokens` was too short for op_offload; empty where it was not.

    Also where there is nothing to offload: `plan`, the one that ran, has no GPU, or it has all
    layers.
    """
    options = plans.options
    has_gpu = plan is not None and any(d.type not in HOST_TYPES for d in plan.devices)
    has_cpu_layers = 0 <= options.n_gpu_layers < plans.n_layers
    if not (options.op_offload and has_gpu and has_cpu_layers and n_tokens < CUDA_MIN_BATCH):
        return ""
    return (
        f"op_offload had no effect: {plural(n_tokens, 'token')}, the rule starts at "
        f"{CUDA_MIN_BATCH}."
    )


COPIES, WAITS, PLANNING, REST = -1, -2, -3, -4
"""Places in `prompt_shares` that are no lane."""


def prompt_shares(spans: Spans) -> dict[int, int]:
    """Tenths of a percent of the prompt's time by lane and COPIES .. REST; 1000 in all.

    Empty without a prompt step.
    """
    prompt = prompt_summary(spans)
    if prompt is None or not prompt.wall_ns:
        return {}
    parts = prompt.parts
    amounts = {lane.lane: lane.exclusive_ns for lane in prompt.lanes}
    amounts |= {COPIES: parts.copy_ns, WAITS: parts.wait_ns, PLANNING: parts.plan_ns}
    amounts[REST] = parts.rest_ns
    return _tenths(amounts)


def prompt_summary(spans: Spans) -> StepSummary | None:
    """The summary of the prompt's steps; None without any."""
    steps = steps_of_kind(spans, StepKind.PROMPT)
    return steps_summary(spans[spans["kind"] != SpanKind.NODE], steps)


def _tenths(amounts: dict[int, int]) -> dict[int, int]:
    """Tenths of a percent by the largest remainder, so that the sum is exact."""
    total = sum(amounts.values())
    shares = {key: 1000 * amount // total for key, amount in amounts.items()}
    by_remainder = sorted(amounts, key=lambda key: -(1000 * amounts[key] % total))
    for key in by_remainder[: 1000 - sum(shares.values())]:
        shares[key] += 1
    return shares


def _shares_clauses(shares: dict[int, int], plan: PlanTable, reads: str) -> list[str]:
    """The largest share as a sentence, each other as a clause that goes on with it."""
    largest_first = sorted((k for k in shares if shares[k]), key=lambda key: -shares[key])
    clauses = []
    for place, key in enumerate(largest_first):
        figure = f"{shares[key] / 10:.1f}{SPACE}%"
        if place == 0:
            verb = " computing" if key >= 0 else ""
            clauses.append(f"Of the {reads}, **{figure}** is {_share_name(key, plan)}{verb}.")
        else:
            clauses.append(f", {figure} {_share_name(key, plan)}.")
    return clauses


def _share_name(key: int, plan: PlanTable) -> str:
    names = {COPIES: "copies", WAITS: "waits", PLANNING: "planning", REST: "between splits"}
    if key in names:
        return names[key]
    return f"{{{key}}} {plan.devices[key].name}"


def _start(batch: Batch, *, is_change: bool) -> str:
    if batch is Batch.TOKEN:
        return "For one token, now " if is_change else "For one token, "
    return "Now " if is_change else ""


def _operations(plan: PlanTable, start: str) -> str:
    counts = plan.nodes_per_device()
    used = [backend_id for backend_id, n in enumerate(counts) if n]
    names = {b: f"{{{b}}} {plan.devices[b].name}" for b in used}
    if len(used) == 1:
        word = "all" if start else "All"
        return f"{start}**{word} {count(plan.n_nodes)}** operations run on {names[used[0]]}."
    first, *others = used
    more = ", ".join(f"**{count(counts[b])}** on {names[b]}" for b in others)
    return (
        f"{start}**{count(counts[first])} of {count(plan.n_nodes)}** operations run on "
        f"{names[first]}, {more}."
    )
