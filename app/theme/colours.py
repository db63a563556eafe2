"""The colours of both themes. Painters read a `Palette`; the style sheet is made from one.

Colour means a device or a difference; everything else is ink. `base` of a device is too pale for
lines and text on white: use `edge` and `text`.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

from PySide6.QtGui import QColor

from engine.core.devices import DeviceType
from engine.trace.records import placed_lanes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine.core.table import DeviceRow


class Hatch(enum.StrEnum):
    """A device's pattern, so that colour is never alone."""

    LINES = "lines"
    PLAIN = "plain"
    DOTS = "dots"
    CROSS = "cross"


@dataclass(frozen=True, slots=True)
class DeviceColours:
    """A device's colours.

    `base` for badges, `fill` for areas, `edge` for outlines and marks, `text` for letters and
    figures, `band` behind a split.
    """

    base: QColor
    on_base: QColor
    fill: QColor
    edge: QColor
    text: QColor
    band: QColor
    hatch: Hatch


@dataclass(frozen=True, slots=True)
class DiffColours:
    """One side of a difference."""

    mark: QColor
    text: QColor
    fill: QColor


@dataclass(frozen=True, slots=True)
class Palette:
    """Every colour of a theme. `devices`: CPU, first GPU, second GPU, any other."""

    name: str
    bg0: QColor
    bg1: QColor
    bg2: QColor
    line: QColor
    line2: QColor
    ctl: QColor
    ink: QColor
    ink2: QColor
    ink3: QColor
    sel: QColor
    hover: QColor
    track: QColor
    inv: QColor
    invt: QColor
    alert: QColor
    devices: tuple[DeviceColours, ...]
    copy_mark: QColor
    copy_text: QColor
    copy_fill: QColor
    less: DiffColours
    more: DiffColours


@dataclass(frozen=True, slots=True)
class DeviceLook:
    """How one backend of a plan is drawn."""

    letter: str
    name: str
    colours: DeviceColours
    on_paper: bool = False
    """Whether it was planned with and is not here."""


ON_PAPER = "on paper"
"""How the description of a device begins that exists in plans only."""

LETTERS = "GHJKLMNPQRSTUVWXYZ"
"""Letters of devices other than the CPU, in order; I and O read as digits."""

_CPU, _GPU0, _GPU1, _OTHER = range(4)


def is_on_paper(row: DeviceRow) -> bool:
    """Whether a device was planned with that this computer does not have."""
    return row.description.startswith(ON_PAPER)


def device_style(palette: Palette, rows: Sequence[DeviceRow]) -> tuple[DeviceLook, ...]:
    """The look of each backend of a plan; the index is the backend id."""
    looks = lane_looks(palette, rows)
    return tuple(looks[backend_id] for backend_id in range(len(rows)))


def lane_looks(palette: Palette, rows: Sequence[DeviceRow]) -> dict[int, DeviceLook]:
    """The look of each lane of a trace: backends, and the devices that META devices join.

    Joined or not, a device has the same look: META devices come last.
    """
    looks = {}
    others: list[tuple[int, DeviceRow]] = []
    for lane, row, _ in placed_lanes(rows):
        if row.type is DeviceType.CPU:
            looks[lane] = DeviceLook("C", row.name, palette.devices[_CPU], is_on_paper(row))
        else:
            others.append((lane, row))
    others.sort(key=lambda other: bool(other[1].members))
    for place, (lane, row) in enumerate(others):
        looks[lane] = _other_look(palette, row, place)
    return looks


def _other_look(palette: Palette, row: DeviceRow, place: int) -> DeviceLook:
    """The look of a device other than the CPU, by its place among them."""
    colours = palette.devices[min(_GPU0 + place, _OTHER)]
    return DeviceLook(LETTERS[place % len(LETTERS)], row.name, colours, is_on_paper(row))


CIVIDIS = tuple(
    QColor(code)
    for code in ("#00204C", "#213D6B", "#555B6C", "#7B7A77", "#A59C74", "#D3C064", "#FFE945")
)
"""Stops of the sequential scale (time, bytes, error), the same in both themes."""


def sequential(share: float) -> QColor:
    """The colour of `share` (0 to 1) on the sequential scale."""
    place = min(max(share, 0.0), 1.0) * (len(CIVIDIS) - 1)
    below = min(int(place), len(CIVIDIS) - 2)
    low, high, rest = CIVIDIS[below], CIVIDIS[below + 1], place - below
    channels = zip(low.getRgb()[:3], high.getRgb()[:3], strict=True)  # type: ignore[index]
    return QColor(*(round(a + (b - a) * rest) for a, b in channels))


def contrast(one: QColor, other: QColor) -> float:
    """WCAG contrast ratio of two opaque colours, 1 to 21."""
    lighter, darker = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(colour: QColor) -> float:
    parts = (colour.redF(), colour.greenF(), colour.blueF())
    r, g, b = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def _device(codes: str, hatch: Hatch) -> DeviceColours:
    """Colours from "base on_base fill edge text band"."""
    base, on_base, fill, edge, text, band = map(QColor, codes.split())
    return DeviceColours(base, on_base, fill, edge, text, band, hatch)


def _diff(codes: str) -> DiffColours:
    """Colours from "mark text fill"."""
    mark, text, fill = map(QColor, codes.split())
    return DiffColours(mark, text, fill)


LIGHT = Palette(
    name="light",
    bg0=QColor("#F1F2F4"),
    bg1=QColor("#FFFFFF"),
    bg2=QColor("#F7F8FA"),
    line=QColor("#DCDFE4"),
    line2=QColor("#B3B9C3"),
    ctl=QColor("#8B939F"),
    ink=QColor("#16191D"),
    ink2=QColor("#535B66"),
    ink3=QColor("#767E8A"),
    sel=QColor("#E4E7EB"),
    hover=QColor("#EFF1F3"),
    track=QColor("#D5D9DF"),
    inv=QColor("#16191D"),
    invt=QColor("#FFFFFF"),
    alert=QColor("#B3261E"),
    devices=(
        _device("#0072B2 #FFFFFF #BBD8EA #0072B2 #00588A #E8F1F7", Hatch.LINES),
        _device("#E69F00 #1A1200 #F8DFA6 #B87D00 #835800 #FDF5E2", Hatch.PLAIN),
        _device("#009E73 #00130D #ABDDCD #00855F #00664A #E4F4EE", Hatch.DOTS),
        _device("#CC79A7 #1A0A12 #EBCDDD #9A4A78 #8F3F6E #F8EEF4", Hatch.CROSS),
    ),
    copy_mark=QColor("#D55E00"),
    copy_text=QColor("#A34700"),
    copy_fill=QColor("#F3C4A0"),
    less=_diff("#2F5BCB #244BB0 #C6D3F4"),
    more=_diff("#C25700 #984300 #F5CFAE"),
)

DARK = Palette(
    name="dark",
    bg0=QColor("#141618"),
    bg1=QColor("#1B1E21"),
    bg2=QColor("#212529"),
    line=QColor("#31373E"),
    line2=QColor("#545D69"),
    ctl=QColor("#717A87"),
    ink=QColor("#E9EBEE"),
    ink2=QColor("#A6AEBA"),
    ink3=QColor("#7E8794"),
    sel=QColor("#323942"),
    hover=QColor("#282D33"),
    track=QColor("#3A414A"),
    inv=QColor("#E9EBEE"),
    invt=QColor("#16191D"),
    alert=QColor("#FF8A80"),
    devices=(
        _device("#0072B2 #FFFFFF #174B69 #3E9CD4 #82C3EB #182833", Hatch.LINES),
        _device("#E69F00 #1A1200 #6A4B07 #E69F00 #F4C263 #2A2415", Hatch.PLAIN),
        _device("#009E73 #00130D #0B4F3D #12B787 #4FD0AB #152822", Hatch.DOTS),
        _device("#CC79A7 #1A0A12 #55304A #CC79A7 #E3A6C6 #2A1F27", Hatch.CROSS),
    ),
    copy_mark=QColor("#E9702A"),
    copy_text=QColor("#F79A63"),
    copy_fill=QColor("#693110"),
    less=_diff("#6F93F2 #93AEF7 #263B74"),
    more=_diff("#EB8B3A #F5A96A #6B3A10"),
)
