"""What a run on paper would take, from its spans: predicted, nothing is measured. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.report.run_progress import NS_PER_S
from engine.trace.lanes import extent
from engine.trace.records import SpanKind, StepKind

if TYPE_CHECKING:
    from engine.core.summary import Together
    from engine.trace.records import Spans


@dataclass(frozen=True, slots=True)
class Prediction:
    """What a run on paper would take.

    The first of `n_tokens` is the prompt's own, so that there is a step less than that, and a
    speed from the second on. `notes` say what is not known.
    """

    n_prompt_tokens: int
    n_tokens: int
    n_ubatch: int
    prompt_ns: int
    generation_ns: int
    together: Together
    notes: tuple[str, ...] = ()

    @property
    def prompt_tokens_per_s(self) -> float:
        """Speed of the prompt."""
        return _rate(self.n_prompt_tokens, self.prompt_ns)

    @property
    def tokens_per_s(self) -> float:
        """Speed of the tokens after the first; 0 without any."""
        return _rate(self.n_tokens - 1, self.generation_ns)


def steps_ns(spans: Spans, kind: StepKind) -> int:
    """From the first step of a kind to the end of the last one; those of a prompt may overlap."""
    start_ns, end_ns = extent(spans[(spans["kind"] == SpanKind.STEP) & (spans["peer"] == kind)])
    return end_ns - start_ns


def _rate(count: int, duration_ns: int) -> float:
    return count * NS_PER_S / duration_ns if duration_ns else 0.0
