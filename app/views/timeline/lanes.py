"""Which lanes there are and where they stand. Pure; sizes in logical px."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from app.views.timeline.store import LaneKey, LaneKind
from engine.core.devices import DeviceType

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from engine.core.table import DeviceRow

DEVICE_PX = 52
SMALL_PX = 28
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

    Gaps shrink where `height` is short; lanes do not.
    """
    specs = _specs(devices, targets)
    total = sum(lane_px for *_, lane_px in specs)
    gap = min(max((height - total) / max(len(specs), 1), LEAST_GAP_PX), GAP_PX)
    placed = []
    y = gap / 2
    for key, title, subtitle, lane_px in specs:
        placed.append(PlacedLane(key, title, subtitle, y, lane_px))
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
