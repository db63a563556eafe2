"""What a run on paper would take, from its spans: predicted, nothing is measured. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.report.run_progress import NS_PER_S
from engine.trace.lanes import computing
from engine.trace.metrics import union_ns
from engine.trace.records import SpanKind, StepKind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from engine.core.summary import Together
    from engine.trace.records import Spans


@dataclass(frozen=True, slots=True)
class DeviceLoad:
    """How long a device computes, and how long another one does so meanwhile.

    `busy_ns` and `idle_ns` add up to the whole run; `overlapped_ns` is a part of `busy_ns`.
    """

    name: str
    busy_ns: int
    idle_ns: int
    overlapped_ns: int


@dataclass(frozen=True, slots=True)
class Prediction:
    """What a run on paper would take.

    The first of `n_tokens` is the prompt's own, so that there is a step less than that, and a
    speed from the second on. `pipeline_off` is why graphs follow one another; empty where up to
    `n_copies` are under way at once. `notes` say what is not known.
    `together` is there for several devices beside the CPU.
    """

    n_prompt_tokens: int
    n_tokens: int
    n_ubatch: int
    prompt_ns: int
    generation_ns: int
    devices: tuple[DeviceLoad, ...]
    n_copies: int
    pipeline_off: str
    notes: tuple[str, ...] = ()
    together: Together | None = None

    @property
    def prompt_tokens_per_s(self) -> float:
        """Speed of the prompt."""
        return _rate(self.n_prompt_tokens, self.prompt_ns)

    @property
    def tokens_per_s(self) -> float:
        """Speed of the tokens after the first; 0 without any."""
        return _rate(self.n_tokens - 1, self.generation_ns)


def device_loads(spans: Spans, names: Mapping[int, str]) -> tuple[DeviceLoad, ...]:
    """The load of each device from the first step to the last one's end; `names` are by lane."""
    work = computing(spans)
    all_ns, wall_ns = _union(work), _extent(spans[spans["kind"] == SpanKind.STEP])
    loads = []
    for lane, name in names.items():
        is_own = work["lane"] == lane
        busy_ns = _union(work[is_own])
        alone_ns = all_ns - _union(work[~is_own])
        loads.append(DeviceLoad(name, busy_ns, wall_ns - busy_ns, busy_ns - alone_ns))
    return tuple(loads)


def steps_ns(spans: Spans, kind: StepKind) -> int:
    """From the first step of a kind to the end of the last one; those of a prompt may overlap."""
    return _extent(spans[(spans["kind"] == SpanKind.STEP) & (spans["peer"] == kind)])


def _extent(spans: Spans) -> int:
    return int(spans["end_ns"].max() - spans["start_ns"].min()) if len(spans) else 0


def _union(spans: Spans) -> int:
    return union_ns(spans["start_ns"], spans["end_ns"])


def _rate(count: int, duration_ns: int) -> float:
    return count * NS_PER_S / duration_ns if duration_ns else 0.0
