"""Compare logits, tokens and embeddings of plain runs with recorded ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from engine.trace.records import StepKind
from tests.oracle.node_values import nmse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine.model.context import ModelContext
    from tests.oracle.numeric_folder import Output

LOGIT_BAR = 2e-2
"""With float32 weights. Random quantised models are judged by their nodes alone."""

SLACK = {False: 0.02, True: 0.5}
"""Quantised or not -> how much a recorded token may fall short of our highest logit."""


@dataclass(frozen=True)
class OutputResult:
    """One recorded output; `tokens` says which token differs, `faults` what else."""

    name: str
    is_text: bool
    largest_difference: float
    tokens: str = ""
    faults: tuple[str, ...] = ()


def compare_output(
    context: ModelContext, output: Output, *, bar: float, is_quantized: bool
) -> OutputResult:
    """Run the recorded prompt from empty caches, and the recorded tokens after it."""
    context.clear()
    if output.is_text:
        return _compare_text(context, output, is_quantized=is_quantized)
    return _compare_embeddings(context, output, bar)


def _compare_text(context: ModelContext, output: Output, *, is_quantized: bool) -> OutputResult:
    recorded = np.load(output.values).reshape(-1)
    logits = context.decode(output.facts["prompt_tokens"], StepKind.PROMPT)
    if logits.shape != recorded.shape:
        fault = f"{output.name}: {logits.size} logits, {recorded.size} are recorded"
        return OutputResult(output.name, output.is_text, np.inf, faults=(fault,))
    largest = float(np.abs(logits - recorded).max())
    is_far = not is_quantized and not largest <= LOGIT_BAR
    faults = (f"{output.name}: {largest:.2g} apart, the bar is {LOGIT_BAR:g}",) if is_far else ()
    tokens = _different_token(context, logits, output, SLACK[is_quantized])
    return OutputResult(output.name, output.is_text, largest, tokens, faults)


def _different_token(
    context: ModelContext, logits: np.ndarray, output: Output, slack: float
) -> str:
    """Feed the recorded tokens; the first that our logits do not choose, within the slack."""
    greedy: Sequence[int] = output.facts["greedy"]
    gaps: Sequence[float] = output.facts["top1_gap"]
    for i, (token, gap) in enumerate(zip(greedy, gaps, strict=True)):
        best = int(np.argmax(logits))
        shortfall = float(logits[best] - logits[token])
        if not shortfall <= slack or (gap >= slack and best != token):
            return f"{output.name} token {i}: {best}, not {token} ({shortfall:.2g} below)"
        if i + 1 < len(greedy):
            logits = context.decode([token], StepKind.TOKEN)
    return ""


def _compare_embeddings(context: ModelContext, output: Output, bar: float) -> OutputResult:
    recorded = np.load(output.values)
    ours = context.embed(output.facts["prompt_tokens"])
    if ours.size != recorded.size:
        fault = f"{output.name}: {ours.size} numbers, {recorded.size} are recorded"
        return OutputResult(output.name, output.is_text, np.inf, faults=(fault,))
    ours = ours.reshape(recorded.shape)
    error = nmse(ours, recorded)
    faults = () if error <= bar else (f"{output.name}: NMSE {error:.2g}, the bar is {bar:g}",)
    return OutputResult(
        output.name, output.is_text, float(np.abs(ours - recorded).max()), faults=faults
    )
