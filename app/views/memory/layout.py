"""Facts to shapes: where segments, labels and capacity marks stand. Pure; sizes in logical px."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from app.theme.text import SPACE, count, mib, signed
from app.views.memory.facts import (
    MIB,
    PART_NOTES,
    PART_WORDS,
    DeviceMemory,
    MemoryFacts,
    Part,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    Measure = Callable[[str], float]

NEAR = 0.6
"""From this share of the free memory on, capacity is drawn at its real place."""

PITCH_PX = 32
BAR_PX = 22
MIN_PITCH_PX = 20
MIN_BAR_PX = 16
TOP_PX = 8
PAD_PX = 12
BADGE_PX = 16
GAP_PX = 8
LABEL_PAD_PX = 6
BREAK_PX = 22
MIN_SEGMENT_PX = 2.0
NOTE_PX = 18


class Role(enum.StrEnum):
    """How a shape is filled."""

    SEGMENT = "segment"
    SAME = "same"
    LESS = "less"
    MORE = "more"
    OVER = "over"


@dataclass(frozen=True, slots=True)
class Rect:
    """A rectangle."""

    x: float
    y: float
    width: float
    height: float

    @property
    def right(self) -> float:
        """Its right edge."""
        return self.x + self.width


@dataclass(frozen=True, slots=True)
class Payload:
    """What a shape stands for."""

    lane: int
    part: Part | None
    tip: str


@dataclass(frozen=True, slots=True)
class Shape:
    """A piece of a bar. `label` stands inside and fits; `tint` counts parts from 0."""

    rect: Rect
    role: Role
    tint: int
    label: str
    payload: Payload


class Ink(enum.StrEnum):
    """The colour of a text."""

    PLAIN = "plain"
    MUTED = "muted"
    LESS = "less"
    MORE = "more"
    ALERT = "alert"


@dataclass(frozen=True, slots=True)
class Text:
    """Words beside a bar; aligned right at the rect's right edge if `right`."""

    rect: Rect
    text: str
    ink: Ink = Ink.MUTED
    mono: bool = False
    right: bool = False


@dataclass(frozen=True, slots=True)
class BarLine:
    """One device: badge, bar, words, and the x of its capacity (a line) or axis break."""

    lane: int
    badge: Rect
    shapes: tuple[Shape, ...]
    texts: tuple[Text, ...]
    capacity_x: float | None
    break_x: float | None


@dataclass(frozen=True, slots=True)
class Layout:
    """Everything that is drawn."""

    lines: tuple[BarLine, ...]
    note: Text | None
    height: float


@dataclass(frozen=True, slots=True)
class _Frame:
    """Columns that all bars share."""

    bar_x: float
    width: float
    total_x: float
    px_per_byte: float
    measure: Measure


def lay_out(
    facts: MemoryFacts, width: float, height: float, measure: Measure, measure_mono: Measure
) -> Layout:
    """All bars in `width` x `height`; `measure` gives the width of a text in a font."""
    n = max(len(facts.devices), 1)
    note_px = NOTE_PX if facts.problem else 0
    pitch = min(max((height - TOP_PX - note_px) / n, MIN_PITCH_PX), PITCH_PX)
    bar_px = min(max(pitch - 10, MIN_BAR_PX), BAR_PX)
    frame = _frame(facts, width, measure, measure_mono)
    lines = tuple(
        _line(device, frame, Rect(0, TOP_PX + i * pitch, width, bar_px))
        for i, device in enumerate(facts.devices)
    )
    bottom = TOP_PX + n * pitch
    note = None
    if facts.problem:
        area = Rect(frame.bar_x, bottom - 4, width - frame.bar_x - PAD_PX, NOTE_PX)
        note = Text(area, facts.problem, Ink.ALERT)
    return Layout(lines, note, bottom + note_px)


def is_near(device: DeviceMemory) -> bool:
    """Whether the capacity is close enough to be drawn at its real place."""
    return device.free > 0 and device.widest > NEAR * device.free


def spare_text(device: DeviceMemory) -> str:
    """What stands at the right end of a device's line."""
    if not device.free:
        return "free memory not reported"
    if device.over:
        return f"over by {_mib(device.over)}{SPACE}MiB"
    return f"{_mib(device.free - device.total)} spare of {_mib(device.free)}{SPACE}MiB"


def _mib(n_bytes: int) -> str:
    """MiB of a capacity: whole from 1 GiB on."""
    return count(round(n_bytes / MIB)) if n_bytes >= 1000 * MIB else mib(n_bytes)


def _frame(facts: MemoryFacts, width: float, measure: Measure, measure_mono: Measure) -> _Frame:
    names = max((measure(device.title) for device in facts.devices), default=0.0)
    totals = max((measure_mono(mib(device.total)) for device in facts.devices), default=0.0)
    total_x = PAD_PX + BADGE_PX + GAP_PX + names + GAP_PX + totals
    bar_x = total_x + GAP_PX + 2
    spare = max((measure(spare_text(device)) for device in facts.devices), default=0.0)
    room = max(width - PAD_PX - spare - BREAK_PX - GAP_PX - bar_x, 40.0)
    px_per_byte = _scale(facts, room, dict.fromkeys(facts.devices, 0.0))
    for _ in range(2):
        # Words after a bar need room, and the room decides which words stand inside.
        after = {d: _after_px(d, px_per_byte, measure) for d in facts.devices}
        px_per_byte = _scale(facts, room, after)
    return _Frame(bar_x, width, total_x, px_per_byte, measure)


def _scale(facts: MemoryFacts, room: float, after: dict[DeviceMemory, float]) -> float:
    """The pixels of a byte at which every bar and the words after it have room."""
    scales = [
        max(room - after[device], 40.0) / _reach(device)
        for device in facts.devices
        if _reach(device)
    ]
    return min(scales, default=0.0)


def _after_px(device: DeviceMemory, px_per_byte: float, measure: Measure) -> float:
    if device.was is not None:
        words = [_change_words(device, part) for part in _changed(device)]
    else:
        words = [_outside_words(device, _left_over(device, px_per_byte, measure))]
    return sum(measure(word) + GAP_PX + 2 for word in words if word)


def _left_over(device: DeviceMemory, px_per_byte: float, measure: Measure) -> list[Part]:
    """Kinds whose labels do not fit into their segments."""
    return [
        part
        for part in Part
        if part in device.now
        and measure(_label(device, part)) + 2 * LABEL_PAD_PX > device.now[part] * px_per_byte
    ]


def _label(device: DeviceMemory, part: Part) -> str:
    return f"{PART_WORDS[part]} {mib(device.now[part])}"


def _reach(device: DeviceMemory) -> int:
    """Bytes at the right end of this device's scale."""
    return max(device.widest, device.free) if is_near(device) else device.widest


def _line(device: DeviceMemory, frame: _Frame, row: Rect) -> BarLine:
    badge = Rect(PAD_PX, row.y + (row.height - BADGE_PX) / 2, BADGE_PX, BADGE_PX)
    if device.was is None:
        shapes, outside = _segments(device, frame, row)
    else:
        shapes, outside = _changes(device, frame, row)
    end = max((shape.rect.right for shape in shapes), default=frame.bar_x)
    near = is_near(device)
    capacity_x = frame.bar_x + device.free * frame.px_per_byte if near else None
    texts = (*_head(device, frame, row), *_tail(device, frame, row, outside, end))
    over = _over_shape(device, frame, row, capacity_x)
    break_x = None if near or not device.free else _spare_x(device, frame) - BREAK_PX
    return BarLine(device.lane, badge, (*shapes, *over), texts, capacity_x, break_x)


def _segments(
    device: DeviceMemory, frame: _Frame, row: Rect
) -> tuple[tuple[Shape, ...], tuple[Text, ...]]:
    """The bar, and the parts whose labels found no room in it."""
    shapes: list[Shape] = []
    left_over = _left_over(device, frame.px_per_byte, frame.measure)
    x = frame.bar_x
    for tint, part in enumerate(Part):
        if part not in device.now:
            continue
        width = max(device.now[part] * frame.px_per_byte, MIN_SEGMENT_PX)
        label = "" if part in left_over else _label(device, part)
        rect = Rect(x, row.y, width, row.height)
        shapes.append(Shape(rect, Role.SEGMENT, tint, label, _payload(device, part)))
        x += width
    words = _outside_words(device, left_over)
    return tuple(shapes), (Text(row, words),) if words else ()


def _changes(
    device: DeviceMemory, frame: _Frame, row: Rect
) -> tuple[tuple[Shape, ...], tuple[Text, ...]]:
    """What stayed in grey, what changed in the colours of a difference."""
    assert device.was is not None
    shapes: list[Shape] = []
    x = frame.bar_x
    for tint, part in enumerate(Part):
        now, was = device.now.get(part, 0), device.was.get(part, 0)
        changed = Role.LESS if now < was else Role.MORE
        for role, n_bytes in ((Role.SAME, min(now, was)), (changed, abs(now - was))):
            if not n_bytes:
                continue
            width = max(n_bytes * frame.px_per_byte, MIN_SEGMENT_PX)
            label = f"{PART_WORDS[part]} {mib(now)}" if role is Role.SAME else PART_WORDS[part]
            fits = frame.measure(label) + 2 * LABEL_PAD_PX <= width
            rect = Rect(x, row.y, width, row.height)
            payload = _payload(device, part)
            shapes.append(Shape(rect, role, tint, label if fits else "", payload))
            x += width
    texts = tuple(
        Text(row, _change_words(device, part), _change_ink(device, part), mono=False)
        for part in _changed(device)
    )
    return tuple(shapes), texts


def _changed(device: DeviceMemory) -> list[Part]:
    was = device.was or {}
    return [part for part in Part if device.now.get(part, 0) != was.get(part, 0)]


def _change(device: DeviceMemory, part: Part) -> int:
    return device.now.get(part, 0) - (device.was or {}).get(part, 0)


def _change_words(device: DeviceMemory, part: Part) -> str:
    change = _change(device, part) / MIB
    # Half a hundredth goes away from zero, so that was plus change is now as printed.
    return f"{PART_WORDS[part]} {signed(change + math.copysign(1e-9, change), 2)}"


def _change_ink(device: DeviceMemory, part: Part) -> Ink:
    return Ink.LESS if _change(device, part) < 0 else Ink.MORE


def _outside_words(device: DeviceMemory, parts: list[Part]) -> str:
    """What stands after a bar: parts without room in it, and the device's share."""
    words = [_label(device, part) for part in parts]
    return " · ".join([*words, device.share.words] if device.share is not None else words)


def _head(device: DeviceMemory, frame: _Frame, row: Rect) -> tuple[Text, Text]:
    name_x = PAD_PX + BADGE_PX + GAP_PX
    name = Text(Rect(name_x, row.y, frame.total_x - name_x, row.height), device.title, Ink.PLAIN)
    area = Rect(name_x, row.y, frame.total_x - name_x, row.height)
    return name, Text(area, mib(device.total), Ink.PLAIN, mono=True, right=True)


def _tail(
    device: DeviceMemory, frame: _Frame, row: Rect, outside: tuple[Text, ...], end: float
) -> tuple[Text, ...]:
    """The words after the bar, then the capacity at the right edge."""
    texts = []
    x = end + GAP_PX
    if is_near(device) and not device.over:
        x = max(x, frame.bar_x + device.free * frame.px_per_byte + GAP_PX)
    for text in outside:
        width = frame.measure(text.text) + 2
        texts.append(Text(Rect(x, row.y, width, row.height), text.text, text.ink))
        x += width + GAP_PX
    right = frame.width - PAD_PX
    ink = Ink.ALERT if device.over else Ink.MUTED
    area = Rect(_spare_x(device, frame), row.y, right - _spare_x(device, frame), row.height)
    texts.append(Text(area, spare_text(device), ink, right=True))
    return tuple(texts)


def _spare_x(device: DeviceMemory, frame: _Frame) -> float:
    return frame.width - PAD_PX - frame.measure(spare_text(device)) - 2


def _over_shape(
    device: DeviceMemory, frame: _Frame, row: Rect, capacity_x: float | None
) -> tuple[Shape, ...]:
    if not device.over or capacity_x is None:
        return ()
    width = max(device.over * frame.px_per_byte, MIN_SEGMENT_PX)
    tip = f"{device.name}: over by {_mib(device.over)}{SPACE}MiB"
    rect = Rect(capacity_x, row.y, width, row.height)
    return (Shape(rect, Role.OVER, 0, "", Payload(device.lane, None, tip)),)


def _payload(device: DeviceMemory, part: Part) -> Payload:
    words = PART_WORDS[Part.MODEL if part is Part.REPACK else part]
    tip = f"{words} on {device.name}: {mib(device.now.get(part, 0))}{SPACE}MiB"
    buft = device.bufts.get(part)
    if buft:
        tip += f" in {buft}"
    if part in PART_NOTES:
        tip += f"\n{PART_NOTES[part]}"
    if device.share is not None and part in (Part.MODEL, Part.HELD):
        tip += f"\n{device.share.tip}"
    if device.was is not None:
        tip += f"\nwas {mib(device.was.get(part, 0))}{SPACE}MiB"
    return Payload(device.lane, part, tip)
