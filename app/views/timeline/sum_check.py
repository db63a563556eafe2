"""The line in which everything must add up. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from app.theme.text import SPACE, count, plural
from engine.trace.metrics import Parts, step_sums, steps_summary
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


def steps_of(steps: Spans, step: int) -> list[int]:
    """The ended steps a check is made of: the one asked for, the prompt's for -1."""
    mine = steps["peer"] == StepKind.PROMPT if step < 0 else steps["step"] == step
    found: list[int] = steps["step"][mine].tolist()
    return found


def check_of(spans: Spans, steps: list[int], reads: str = "prompt") -> SumCheck | None:
    """The check of some steps of one kind; None without steps. `reads` is a prompt or a text."""
    mine = spans[np.isin(spans["step"], steps)]
    found = steps_summary(mine, steps)
    if found is None:
        return None
    is_prompt = found.kind is StepKind.PROMPT
    return SumCheck(
        n_splits=_n_things(mine, SpanKind.SPLIT),
        n_copies=_n_things(mine, SpanKind.COPY),
        parts=found.parts,
        word=reads if is_prompt else f"token step {count(steps[0])}",
    )


def _n_things(spans: Spans, kind: SpanKind) -> int:
    """How many there were in all steps, however many pieces each had."""
    return len(step_sums(spans[spans["kind"] == kind]).step)


def check_text(check: SumCheck) -> str:
    """The figures in hundredths of a ms; what no part covers is named, so that they add up."""
    parts = check.parts
    compute, copies, waits, planning, wall = (
        round(ns / _UNIT_NS)
        for ns in (
            parts.compute_ns,
            parts.copy_ns,
            parts.wait_ns,
            parts.plan_ns,
            parts.wall_ns,
        )
    )
    rest = wall - compute - copies - waits - planning
    terms = [
        f"{plural(check.n_splits, 'split')} {_ms(compute)}",
        f"{_copies_word(check.n_copies)} {_ms(copies)}",
        f"waits {_ms(waits)}",
    ]
    if planning:
        terms.append(f"planning {_ms(planning)}")
    if rest:
        terms.append(f"between splits {_ms(rest)}")
    return f"{' + '.join(terms)} = {_ms(wall)}{SPACE}ms, {check.word}"


def lost_text(n_lost: int) -> str:
    """How complete the records are."""
    return f"{plural(n_lost, 'record')} lost" if n_lost else "0 lost"


def _copies_word(n: int) -> str:
    return f"{count(n)} copy" if n == 1 else f"{count(n)} copies"


def _ms(units: int) -> str:
    return count(units / 100, 2)
