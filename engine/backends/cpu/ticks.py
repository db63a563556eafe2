"""Ticks of the rows of a split, and the host clock that they stand for.

The processor's counter costs less to read than the clock and says no time of day. The interpreter
therefore reads the clock before and behind the first tick and the last one, and what lies between
them is interpolated: nothing is calibrated in advance, and no error outlives its split.
"""

from __future__ import annotations

import platform
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

ANCHOR_WORDS = 4
"""Behind the ticks: the clock, ns, before and behind the first tick, then the last one."""


@dataclass(frozen=True, slots=True, eq=False)
class TickTimes:
    """Host monotonic clock of each tick, ns, and how far off the ends may be."""

    ns: npt.NDArray[np.int64]
    error_ns: int


def new_ticks(n_rows: int) -> npt.NDArray[np.int64]:
    """Room for the ticks of so many rows and their anchors."""
    return np.zeros(n_rows + 1 + ANCHOR_WORDS, dtype=np.int64)


def host_times(ticks: npt.NDArray[np.int64]) -> TickTimes:
    """The clock at each tick of a split that was computed to its end, rounded to whole ns.

    A tick lies in the middle of the two readings around it; the error is half of their distance,
    at the end where that is larger.
    """
    readings, anchors = ticks[:-ANCHOR_WORDS], ticks[-ANCHOR_WORDS:].tolist()
    first_ns, last_ns = (anchors[0] + anchors[1]) // 2, (anchors[2] + anchors[3]) // 2
    error_ns = (max(anchors[1] - anchors[0], anchors[3] - anchors[2]) + 1) // 2
    n_ticks = int(readings[-1]) - int(readings[0])
    ns_per_tick = (last_ns - first_ns) / n_ticks if n_ticks > 0 else 0.0
    ns = np.rint((readings - readings[0]) * ns_per_tick).astype(np.int64)
    ns += first_ns
    return TickTimes(ns, error_ns)


def has_steady_counter() -> bool:
    """Whether ticks of this processor can be interpolated; see `is_steady`."""
    try:
        facts = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        facts = ""
    return is_steady(platform.machine(), sys.platform, facts)


def is_steady(machine: str, system: str, facts: str) -> bool:
    """Whether the counter runs at one speed, asleep or awake, on every core.

    `facts` is what Linux says of the processor; elsewhere every x86 of today counts steadily.
    """
    if machine.lower() not in ("x86_64", "amd64"):
        return False
    if system != "linux":
        return True
    lines = (line for line in facts.splitlines() if line.startswith("flags"))
    return {"constant_tsc", "nonstop_tsc"} <= set(next(lines, "").split())
