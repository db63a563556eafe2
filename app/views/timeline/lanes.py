"""Which lanes there are and where they stand. Pure; sizes in logical px."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from app.views.timeline.store import LaneKey, LaneKind
from engine.core.devices import DeviceType

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from engine.core.table import DeviceRow

DEVICE_PX = 52
SMALL_PX = 28
LEAST_DEVICE_PX = 28
LEAST_SMALL_PX = 14
SUBTITLE_FROM_PX = 34
"""A head has two lines from here on."""

GAP_PX = 6
LEAST_GAP_PX = 2
HEAD_PX = 116


@dataclass(frozen=True, slots=True)
class PlacedLane:
    """A lane at its height; `title` and `subtitle` name it in its head."""

    key: LaneKey
    title: str
    subtitle: str
    y: float
    height: float

    @property
    def bottom(self) -> float:
        """Its lower edge."""
        return self.y + self.height


def place_lanes(
    devices: Sequence[DeviceRow], targets: Collection[int], height: float
) -> tuple[PlacedLane, ...]:
    """Devices with the copies into them, the CPU last; `targets` are devices copied into.

    Where `height` is short gaps shrink first, then lanes, down to where a name still fits.
    """
    specs = _specs(devices, targets)
    if not specs:
        return ()
    total = sum(lane_px for *_, lane_px in specs)
    n_gaps = len(specs) - 0.5
    gap = min(max((height - LEAST_GAP_PX - total) / n_gaps, LEAST_GAP_PX), GAP_PX)
    room = height - LEAST_GAP_PX - n_gaps * gap
    placed = []
    y = gap / 2
    for key, title, subtitle, full_px in specs:
        least_px = LEAST_DEVICE_PX if full_px == DEVICE_PX else LEAST_SMALL_PX
        lane_px = min(max(math.floor(full_px * room / total + 1e-6), least_px), full_px)
        words = subtitle if lane_px >= SUBTITLE_FROM_PX else ""
        placed.append(PlacedLane(key, title, words, y, lane_px))
        y += lane_px + gap
    return tuple(placed)


def lanes_height(lanes: Sequence[PlacedLane]) -> float:
    """The height that all lanes need."""
    return lanes[-1].bottom + LEAST_GAP_PX if lanes else 0.0


def lane_at(lanes: Sequence[PlacedLane], y: float) -> int:
    """The lane at a height, -1 for none."""
    return next((i for i, lane in enumerate(lanes) if lane.y <= y <= lane.bottom), -1)


def _specs(
    devices: Sequence[DeviceRow], targets: Collection[int]
) -> list[tuple[LaneKey, str, str, int]]:
    cpus = [i for i, device in enumerate(devices) if device.type is DeviceType.CPU]
    others = [i for i in range(len(devices)) if i not in cpus]
    specs: list[tuple[LaneKey, str, str, int]] = []
    for i in others:
        specs.append((LaneKey(LaneKind.SPLITS, i), devices[i].name, "compute", DEVICE_PX))
        if i in targets:
            title = "copies in" if len(others) == 1 else f"into {devices[i].name}"
            specs.append((LaneKey(LaneKind.COPIES, i), title, "", SMALL_PX))
    for i in cpus:
        if i in targets and others:
            title = "copies out" if len(others) == 1 else f"into {devices[i].name}"
            specs.append((LaneKey(LaneKind.COPIES, i), title, "", SMALL_PX))
        lane_px = SMALL_PX if others else DEVICE_PX
        specs.append((LaneKey(LaneKind.SPLITS, i), devices[i].name, "", lane_px))
    return specs
