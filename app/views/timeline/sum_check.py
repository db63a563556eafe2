"""The line in which everything must add up. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from app.theme.text import THIN, count, plural
from engine.trace.metrics import Parts, step_summary, summaries, total_parts
from engine.trace.records import SpanKind, StepKind

if TYPE_CHECKING:
    from engine.trace.records import Spans

_UNIT_NS = 10_000


@dataclass(frozen=True, slots=True)
class SumCheck:
    """A step or the whole prompt, divided."""

    n_splits: int
    n_copies: int
    parts: Parts
    word: str


def check_of(spans: Spans, step: int) -> SumCheck | None:
    """The check of the step a selection is in, of the prompt for -1; None before it has ended."""
    if step < 0:
        found = summaries(spans, StepKind.PROMPT)
        if not found:
            return None
        return _made(spans, [one.step for one in found], total_parts(found), "prompt")
    summary = step_summary(spans, step)
    if summary is None:
        return None
    word = "prompt" if summary.kind is StepKind.PROMPT else f"token step {count(step)}"
    return _made(spans, [step], summary.parts, word)


def check_text(check: SumCheck) -> str:
    """The figures in hundredths of a ms; what no part covers is named, so that they add up."""
    parts = check.parts
    compute, copies, waits, wall = (
        round(ns / _UNIT_NS)
        for ns in (parts.compute_ns, parts.copy_ns, parts.wait_ns, parts.wall_ns)
    )
    rest = wall - compute - copies - waits
    terms = [
        f"{plural(check.n_splits, 'split')} {_ms(compute)}",
        f"{_copies_word(check.n_copies)} {_ms(copies)}",
        f"waits {_ms(waits)}",
    ]
    if rest:
        terms.append(f"rest {_ms(rest)}")
    return f"{'  +  '.join(terms)}  =  {_ms(wall)}{THIN}ms wall, {check.word}"


def lost_text(n_lost: int) -> str:
    """How complete the records are."""
    return f"{plural(n_lost, 'record')} lost · timing from 1 event a split and a copy"


def _made(spans: Spans, steps: list[int], parts: Parts, word: str) -> SumCheck:
    kinds = spans["kind"][np.isin(spans["step"], steps)]
    n_splits = int(np.count_nonzero(kinds == SpanKind.SPLIT))
    return SumCheck(n_splits, int(np.count_nonzero(kinds == SpanKind.COPY)), parts, word)


def _copies_word(n: int) -> str:
    return f"{count(n)} copy" if n == 1 else f"{count(n)} copies"


def _ms(units: int) -> str:
    return count(units / 100, 2)
