"""Which lanes there are and where they stand. Pure; sizes in logical px."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from app.views.timeline.store import LaneKey, LaneKind
from engine.core.devices import DeviceType
from engine.trace.records import HOST_LANE, MEMBER_LANE, placed_lanes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from engine.core.table import DeviceRow, PlanTable

DEVICE_PX = 52
SMALL_PX = 28
STEP_PX = 16
PATH_PX = 17
LEAST_DEVICE_PX = 28
LEAST_SMALL_PX = 14
LEAST_PATH_PX = 12
LEAST_STEP_PX = 6
"""Steps are still told apart without their names."""

SUBTITLE_FROM_PX = 34
"""A head has two lines from here on."""

_LEAST_PX = {
    DEVICE_PX: LEAST_DEVICE_PX,
    SMALL_PX: LEAST_SMALL_PX,
    STEP_PX: LEAST_STEP_PX,
    PATH_PX: LEAST_PATH_PX,
}

GAP_PX = 6
LEAST_GAP_PX = 2
HEAD_PX = 124


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

    @property
    def is_device(self) -> bool:
        """Whether it shows a whole device: then its idle time stands in it too."""
        kind = self.key.kind
        is_member = kind is LaneKind.SHARES and self.key.lane >= MEMBER_LANE
        return kind is LaneKind.SPLITS or is_member


class Member(NamedTuple):
    """A device that a backend joins, and that backend's id."""

    lane: int
    name: str
    owner: int


@dataclass(frozen=True, slots=True)
class Shown:
    """What lanes there are besides those of backends.

    `links` are (target, source); `sharing` the backends that compute shares of splits themselves;
    `members` the devices that backends join; `n_step_rows` is above 1 where steps overlap.
    """

    links: frozenset[tuple[int, int]] = frozenset()
    sharing: frozenset[int] = frozenset()
    members: tuple[Member, ...] = ()
    n_step_rows: int = 1
    has_path: bool = False
    """Whether the critical path has a lane of its own."""
    subtitles: Mapping[int, str] = field(default_factory=dict)
    """What stands below the names of devices, by lane; without it what the lane shows."""


def members_of(devices: Sequence[DeviceRow]) -> tuple[Member, ...]:
    """The devices that backends join, in the order of their lanes."""
    placed = placed_lanes(devices)
    return tuple(Member(p.lane, p.device.name, p.owner) for p in placed if p.lane >= MEMBER_LANE)


def planned_links(plan: PlanTable) -> set[tuple[int, int]]:
    """(target, source) of every link that a plan copies over: into every member of what joins."""
    members: dict[int, list[int]] = {}
    for member in members_of(plan.devices):
        members.setdefault(member.owner, []).append(member.lane)
    codes = plan.copies["target"].astype(np.int64) * 256 + plan.copies["source"]
    pairs = (divmod(code, 256) for code in np.unique(codes).tolist())
    return {(lane, source) for target, source in pairs for lane in members.get(target, [target])}


class _Spec(NamedTuple):
    key: LaneKey
    title: str
    subtitle: str
    full_px: int


def place_lanes(
    devices: Sequence[DeviceRow], shown: Shown, height: float
) -> tuple[PlacedLane, ...]:
    """Steps that overlap, then devices with the links into them, the CPU last.

    Where `height` is short gaps shrink first, then lanes, down to where a name still fits.
    """
    specs = _specs(devices, shown)
    if not specs:
        return ()
    total = sum(spec.full_px for spec in specs)
    n_gaps = len(specs) - 0.5
    gap = min(max((height - LEAST_GAP_PX - total) / n_gaps, LEAST_GAP_PX), GAP_PX)
    room = height - LEAST_GAP_PX - n_gaps * gap
    placed = []
    y = gap / 2
    for key, title, subtitle, full_px in specs:
        least_px = _LEAST_PX[full_px]
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


def _specs(devices: Sequence[DeviceRow], shown: Shown) -> list[_Spec]:
    cpus = [i for i, device in enumerate(devices) if device.type is DeviceType.CPU]
    others = [i for i in range(len(devices)) if i not in cpus]
    names = {i: device.name for i, device in enumerate(devices)}
    names |= {member.lane: member.name for member in shown.members}
    is_plain = len(others) == 1 and not shown.members
    specs = _run_specs(shown)
    for i in others:
        words = shown.subtitles.get(i, "compute")
        specs.append(_Spec(LaneKey(LaneKind.SPLITS, i), names[i], words, DEVICE_PX))
        if i in shown.sharing:
            specs.append(_Spec(LaneKey(LaneKind.SHARES, i), "its share", "", SMALL_PX))
        specs += _link_specs(i, shown, names, plain="copies in" if is_plain else "")
        for member in shown.members:
            if member.owner == i:
                specs += _member_specs(member, shown, names)
    for i in cpus:
        if others:
            specs += _link_specs(i, shown, names, plain="copies out" if is_plain else "")
        lane_px = SMALL_PX if others else DEVICE_PX
        specs.append(_Spec(LaneKey(LaneKind.SPLITS, i), names[i], "", lane_px))
    return specs


def _run_specs(shown: Shown) -> list[_Spec]:
    """What belongs to the run and not to a device."""
    specs = []
    if shown.has_path:
        specs.append(_Spec(LaneKey(LaneKind.PATH, HOST_LANE), "critical path", "", PATH_PX))
    for row in range(shown.n_step_rows if shown.n_step_rows > 1 else 0):
        title = "" if row else "graphs"
        specs.append(_Spec(LaneKey(LaneKind.STEPS, HOST_LANE, row), title, "", STEP_PX))
    return specs


def _member_specs(member: Member, shown: Shown, names: Mapping[int, str]) -> list[_Spec]:
    words = shown.subtitles.get(member.lane, "its share")
    own = _Spec(LaneKey(LaneKind.SHARES, member.lane), member.name, words, DEVICE_PX)
    return [own, *_link_specs(member.lane, shown, names)]


def _link_specs(
    target: int, shown: Shown, names: Mapping[int, str], plain: str = ""
) -> list[_Spec]:
    """A lane for each link into a device; `plain` is what it is called where there is one GPU."""
    sources = sorted(source for end, source in shown.links if end == target)
    return [
        _Spec(
            LaneKey(LaneKind.COPIES, target, source),
            plain or f"from {names.get(source, '?')}",
            "",
            SMALL_PX,
        )
        for source in sources
    ]
