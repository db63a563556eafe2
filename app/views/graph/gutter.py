"""The figures right of the matrix: what layers have in common, what a layer took, what changed.

`gutter_of` is pure and says what stands where; `paint_gutter` paints it.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QFont, QPainter, QPen

from app.theme.fonts import TINY_PX, fixed_font, general_font
from app.theme.text import KIB, MIB, ms, plural, signed
from app.views.graph.layout import HEADS_PX
from app.views.graph.placed import AlikeRun, alike_runs
from app.views.graph.words import EN_DASH, size_range

if TYPE_CHECKING:
    from PySide6.QtGui import QColor

    from app.views.graph.scene import Scene

LINE_PX = 14.0
TEXT_LEFT_PX = 22.0
BRACKET_PX = (8.0, 12.0)
RIGHT_PX = 8.0
BAR_LEFT_PX = 10.0
LAST_WIDER_PX = 6.0
BAR_MAX_PX = 40.0


class Tone(enum.Enum):
    """What a word is."""

    STRONG = "strong"
    PLAIN = "plain"
    COPY = "copy"
    LESS = "less"
    MORE = "more"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Words:
    """A line of text and what it is."""

    text: str
    tone: Tone


@dataclass(frozen=True, slots=True)
class Entry:
    """What is said of rows [start, stop). One line or several; figures stand in columns."""

    start: int
    stop: int
    lines: tuple[Words, ...] = ()
    figures: tuple[Words, ...] = ()
    share: float = -1.0
    """Length of a bar, 0 to 1; negative for none."""


@dataclass(frozen=True, slots=True)
class Gutter:
    """Heads of its columns, right aligned, and the entries."""

    heads: tuple[str, ...]
    entries: tuple[Entry, ...]


def gutter_of(scene: Scene) -> Gutter:
    """A difference says what moved, a run says ms, else alike layers say what they share.

    Where no operation is planned nothing is said.
    """
    if not scene.plan.n_nodes:
        return Gutter((), ())
    if scene.changed is not None:
        return _change_gutter(scene)
    if scene.row_ms.size:
        return _time_gutter(scene)
    return _alike_gutter(scene)


def _open_row(scene: Scene) -> int:
    return -1 if scene.layout.opened is None else scene.layout.opened.row


def _alike_gutter(scene: Scene) -> Gutter:
    runs = alike_runs(scene.placed.same_as_previous, _open_row(scene))
    return Gutter((), tuple(_alike_entry(scene, run) for run in runs))


def _alike_entry(scene: Scene, run: AlikeRun) -> Entry:
    rows = slice(run.start, run.stop)
    copied = scene.placed.copied_of_row[rows]
    n_splits = int(scene.placed.splits_of_row[run.start])
    size = size_range(int(copied.min()), int(copied.max()))
    room = _height(scene, run.start, run.stop)
    copies = (Words(size, Tone.COPY),) if copied.max() else ()
    if len(run) == 1 or room < 5 * LINE_PX:
        words = copies or (Words("no copies", Tone.PLAIN),)
        many = (Words(plural(n_splits, "split"), Tone.PLAIN),) if n_splits else ()
        return Entry(run.start, run.stop, figures=(*many, *words))
    first, last = scene.shape.row_label(run.start), scene.shape.row_label(run.stop - 1)
    lines = [Words(f"layers {first}{EN_DASH}{last}", Tone.STRONG), Words("are alike", Tone.STRONG)]
    if n_splits:
        lines.append(Words(f"{plural(n_splits, 'split')} each", Tone.PLAIN))
    if copies:
        lines += [*copies, Words("copied each", Tone.PLAIN)]
    else:
        lines.append(Words("no copies", Tone.PLAIN))
    return Entry(run.start, run.stop, lines=tuple(lines))


def _time_gutter(scene: Scene) -> Gutter:
    longest = float(scene.row_ms.max()) or 1.0
    entries = []
    for row in range(scene.shape.n_rows):
        value = float(scene.row_ms[row])
        if value <= 0 or row == _open_row(scene):
            continue
        fits = scene.layout.row_h[row] >= LINE_PX - 4 or value == longest
        figures = (Words(ms(value * 1e6), Tone.STRONG),) if fits else ()
        entries.append(Entry(row, row + 1, figures=figures, share=value / longest))
    return Gutter(("ms",), tuple(entries))


def _change_gutter(scene: Scene) -> Gutter:
    changed = scene.changed
    assert changed is not None
    table = np.stack([changed.moved_of_row, changed.splits_of_row, changed.copied_of_row], axis=1)
    # A change under 1 MiB would read as 0.
    most = int(np.abs(changed.copied_of_row).max(initial=0))
    unit, word = (KIB, "KiB") if 0 < most < MIB else (MIB, "MiB")
    entries: list[Entry] = []
    for row in range(1, scene.shape.n_rows - 1):
        if row == _open_row(scene):
            continue
        last = entries[-1] if entries else None
        alike = last is not None and last.stop == row and (table[row] == table[row - 1]).all()
        tight = scene.layout.row_h[row] < LINE_PX - 4
        start = last.start if alike and tight and last is not None else row
        if start != row:
            entries.pop()
        moved, splits, copied = (int(value) for value in table[row])
        figures = (
            Words(str(moved), Tone.MORE if moved else Tone.NONE),
            _change(signed(splits), splits),
            _change(signed(copied / unit, 2), copied),
        )
        entries.append(Entry(start, row + 1, figures=figures))
    return Gutter(("moved", "splits", word), tuple(entries))


def _change(text: str, value: int) -> Words:
    return Words(text, Tone.LESS if value < 0 else Tone.MORE if value > 0 else Tone.NONE)


def _height(scene: Scene, start: int, stop: int) -> float:
    layout = scene.layout
    return float(layout.row_y[stop - 1] + layout.row_h[stop - 1] - layout.row_y[start])


def paint_gutter(painter: QPainter, scene: Scene) -> None:
    """Paint the entries that are inside the canvas."""
    layout = scene.layout
    gutter = gutter_of(scene)
    painter.save()
    left, width = layout.matrix_right, float(layout.gutter)
    _paint_column_heads(painter, scene, gutter.heads)
    painter.setClipRect(QRectF(left, HEADS_PX, width, layout.viewport.height - HEADS_PX))
    if layout.opened is not None:
        free = painter.clipRegion().subtracted(
            QRectF(0, layout.opened.top, layout.viewport.width, layout.opened.height).toRect()
        )
        painter.setClipRegion(free)
    for entry in gutter.entries:
        _paint_entry(painter, scene, entry, len(gutter.heads))
    painter.restore()


def _paint_column_heads(painter: QPainter, scene: Scene, heads: tuple[str, ...]) -> None:
    painter.setFont(general_font(TINY_PX))
    painter.setPen(scene.palette.ink2)
    for place, text in zip(_columns(scene, len(heads)), heads, strict=True):
        painter.drawText(
            QRectF(place - 60, 16, 60, 15),
            Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter,
            text,
        )


def _columns(scene: Scene, n: int) -> list[float]:
    """Right edges of the figure columns; the last one, with the longest figures, is wider."""
    right = scene.layout.viewport.width - RIGHT_PX
    step = (scene.layout.gutter - RIGHT_PX) / max(n, 1)
    edges = [right - (n - 1 - i) * step for i in range(n)]
    return [*edges[:1], *(edge - LAST_WIDER_PX for edge in edges[1:-1]), *edges[1:][-1:]]


def _paint_entry(painter: QPainter, scene: Scene, entry: Entry, n_columns: int) -> None:
    layout = scene.layout
    top = max(float(layout.row_y[entry.start]), HEADS_PX)
    bottom = float(layout.row_y[entry.stop - 1] + layout.row_h[entry.stop - 1])
    bottom = min(bottom, layout.viewport.height)
    if bottom < HEADS_PX or top > layout.viewport.height or bottom <= top:
        return
    middle = (top + bottom) / 2
    if entry.share >= 0:
        wide = entry.share * BAR_MAX_PX
        bar = QRectF(layout.matrix_right + BAR_LEFT_PX, round(top), wide, round(bottom - top))
        painter.fillRect(bar, scene.palette.sel)
    if entry.stop - entry.start > 1:
        _paint_bracket(painter, scene, top, bottom)
    if n_columns:
        _paint_figures(painter, scene, entry, middle, n_columns)
    elif entry.lines:
        _paint_lines(painter, scene, entry.lines, middle)
    elif bottom - top >= LINE_PX - 6:
        _paint_sentence(painter, scene, entry.figures, middle)


def _paint_bracket(painter: QPainter, scene: Scene, top: float, bottom: float) -> None:
    first, last = (scene.layout.matrix_right + x for x in BRACKET_PX)
    painter.setPen(QPen(scene.palette.ctl, 1))
    points = [
        QPointF(first, top),
        QPointF(last, top),
        QPointF(last, bottom),
        QPointF(first, bottom),
    ]
    painter.drawPolyline(points)


def _paint_figures(
    painter: QPainter, scene: Scene, entry: Entry, middle: float, n_columns: int
) -> None:
    painter.setFont(fixed_font(TINY_PX))
    for place, words in zip(_columns(scene, n_columns), entry.figures, strict=False):
        painter.setPen(_tone(scene, words.tone))
        painter.drawText(
            QRectF(place - 70, middle - 8, 70, 16),
            Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter,
            words.text,
        )


def _paint_lines(painter: QPainter, scene: Scene, lines: tuple[Words, ...], middle: float) -> None:
    top = middle - len(lines) * LINE_PX / 2
    left = scene.layout.matrix_right + TEXT_LEFT_PX
    for i, words in enumerate(lines):
        painter.setFont(_font(words.tone))
        painter.setPen(_tone(scene, words.tone))
        place = QRectF(left, top + i * LINE_PX, scene.layout.gutter - TEXT_LEFT_PX, LINE_PX)
        painter.drawText(place, Qt.AlignmentFlag.AlignVCenter, words.text)


def _paint_sentence(
    painter: QPainter, scene: Scene, words: tuple[Words, ...], middle: float
) -> None:
    """Several words on one line, the last ones dropped where they do not fit."""
    left = scene.layout.matrix_right + TEXT_LEFT_PX
    for one in words:
        painter.setFont(_font(one.tone))
        width = painter.fontMetrics().horizontalAdvance(one.text)
        if left + width > scene.layout.viewport.width - 2:
            return
        painter.setPen(_tone(scene, one.tone))
        place = QRectF(left, middle - 8, width + 2, 16)
        painter.drawText(place, Qt.AlignmentFlag.AlignVCenter, one.text)
        left += width + 6


def _font(tone: Tone) -> QFont:
    if tone is Tone.COPY:
        return fixed_font(TINY_PX)
    weight = QFont.Weight.DemiBold if tone is Tone.STRONG else QFont.Weight.Normal
    return general_font(TINY_PX, weight)


def _tone(scene: Scene, tone: Tone) -> QColor:
    palette = scene.palette
    return {
        Tone.STRONG: palette.ink,
        Tone.PLAIN: palette.ink2,
        Tone.COPY: palette.copy_text,
        Tone.LESS: palette.less.text,
        Tone.MORE: palette.more.text,
        Tone.NONE: palette.ink3,
    }[tone]
