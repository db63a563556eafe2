"""The shown time and how it moves. Pure; times in ns of the trace's clock."""

from __future__ import annotations

import math
from dataclasses import dataclass

from app.theme.text import SPACE, count

MIN_SPAN_NS = 1_000.0
MARGIN = 0.02
"""How much of the shown time may lie outside the run."""

FRAMED_SHARE = 0.2
"""How much of the view a framed slice takes."""

MIN_TICK_PX = 90
LIVE_NS = 2_000_000_000
"""How much of a run is shown while it goes on."""

_MS = 1e6


@dataclass(frozen=True, slots=True)
class TimeView:
    """The shown time [t0, t1)."""

    t0: float
    t1: float

    @property
    def span(self) -> float:
        """How much time is shown."""
        return self.t1 - self.t0

    def x_of(self, t_ns: float, width: float) -> float:
        """The pixel of a moment."""
        return (t_ns - self.t0) / self.span * width

    def t_of(self, x: float, width: float) -> float:
        """The moment of a pixel."""
        return self.t0 + x / width * self.span


@dataclass(frozen=True, slots=True)
class Tick:
    """A moment of the axis and its label."""

    t_ns: float
    label: str


def whole(begin_ns: float, end_ns: float) -> TimeView:
    """The whole run."""
    return TimeView(begin_ns, max(end_ns, begin_ns + MIN_SPAN_NS))


def following(begin_ns: float, end_ns: float) -> TimeView:
    """The end of a run that goes on."""
    return whole(max(begin_ns, end_ns - LIVE_NS), end_ns)


def zoomed(view: TimeView, factor: float, at_ns: float, bounds: TimeView) -> TimeView:
    """The view `factor` times as near, `at_ns` staying where it is."""
    span = min(max(view.span / factor, MIN_SPAN_NS), bounds.span)
    t0 = at_ns - (at_ns - view.t0) / view.span * span
    return clamped(TimeView(t0, t0 + span), bounds)


def panned(view: TimeView, by_ns: float, bounds: TimeView) -> TimeView:
    """The view moved, not past the run."""
    return clamped(TimeView(view.t0 + by_ns, view.t1 + by_ns), bounds)


def clamped(view: TimeView, bounds: TimeView) -> TimeView:
    """The view with at most a margin outside the run; one as long as the run shows all of it."""
    margin = view.span * MARGIN
    if view.span >= bounds.span:
        return bounds
    shift = max(bounds.t0 - margin - view.t0, 0) + min(bounds.t1 + margin - view.t1, 0)
    return TimeView(view.t0 + shift, view.t1 + shift)


def framed(start_ns: float, end_ns: float, bounds: TimeView) -> TimeView:
    """A view in which a slice stands in the middle with its neighbours."""
    span = max((end_ns - start_ns) / FRAMED_SHARE, MIN_SPAN_NS)
    middle = (start_ns + end_ns) / 2
    return clamped(TimeView(middle - span / 2, middle + span / 2), bounds)


def ticks(view: TimeView, width: float, origin_ns: float) -> list[Tick]:
    """Round moments at least MIN_TICK_PX apart, counted from the run's start."""
    step = _round_step(view.span * MIN_TICK_PX / max(width, 1))
    first = math.ceil((view.t0 - origin_ns) / step)
    last = math.floor((view.t1 - origin_ns) / step)
    return [Tick(origin_ns + i * step, _tick_label(i * step, step)) for i in range(first, last + 1)]


def moment_text(t_ns: float, origin_ns: float, view: TimeView) -> str:
    """A moment in ms since the run's start, as finely as the view shows it."""
    return count((t_ns - origin_ns) / _MS, _decimals(view.span / 1000))


def shown_text(view: TimeView, bounds: TimeView) -> str:
    """How much is shown: "17.6 ms of 1 167.4 ms shown"."""
    shown = min(view.span, bounds.span) / _MS
    decimals = 1 if shown >= 1 else 3
    return f"{count(shown, decimals)} ms of {count(bounds.span / _MS, 1)} ms shown"


def _round_step(least_ns: float) -> float:
    power = 10.0 ** math.floor(math.log10(max(least_ns, 1e-3)))
    return next(power * f for f in (1, 2, 5, 10) if power * f >= least_ns * 0.999)


def _tick_label(t_ns: float, step_ns: float) -> str:
    return f"{count(t_ns / _MS, _decimals(step_ns))}{SPACE}ms"


def _decimals(step_ns: float) -> int:
    return max(0, min(6, -math.floor(math.log10(step_ns / _MS) + 1e-9)))
