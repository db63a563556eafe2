"""VirtualClock: time that only advances by the cost of work."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.core.tensor import Tensor

LAUNCH_NS = 5_000
"""What starting one operation costs."""

BYTES_PER_NS = 100
"""Memory bandwidth of a device on paper: 100 GB/s."""


@dataclass(slots=True)
class VirtualClock:
    """Nanoseconds since an arbitrary start; moved by whoever does work."""

    now_ns: int = 0

    def advance(self, duration_ns: int) -> tuple[int, int]:
        """(start, end) of work that takes `duration_ns` from now."""
        start_ns = self.now_ns
        self.now_ns += duration_ns
        return start_ns, self.now_ns


def node_cost_ns(node: Tensor) -> int:
    """What one node costs: its launch and every byte it reads and writes."""
    n_bytes = node.n_bytes + sum(source.n_bytes for source in node.src)
    return LAUNCH_NS + n_bytes // BYTES_PER_NS


def copy_cost_ns(n_bytes: int) -> int:
    """What a copy costs."""
    return LAUNCH_NS + n_bytes // BYTES_PER_NS
