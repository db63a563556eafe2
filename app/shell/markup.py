"""The small markup of clauses: bold, monospace, badges, and the two sides of a difference.

**bold**   `figures`   {0} the badge of lane 0   {less:figures}   {more:figures}
"""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING

from app.theme.fonts import fixed_font
from app.theme.paint import badge_html

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from app.theme.colours import DeviceLook, Palette

_TOKEN = re.compile(r"\*\*(.+?)\*\*|`(.+?)`|\{(\d+)\}|\{(less|more):(.+?)\}")


def to_plain(markup: str) -> str:
    """The text alone, for tooltips and screen readers."""
    return re.sub(" +", " ", _TOKEN.sub(_plain_token, markup)).strip()


def to_html(markup: str, palette: Palette, looks: Mapping[int, DeviceLook], ratio: float) -> str:
    """Rich text for a QLabel; `ratio` is the screen's device pixel ratio."""

    def token(match: re.Match[str]) -> str:
        bold, mono, lane, side, change = match.groups()
        if bold:
            return f"<b>{bold}</b>"
        if mono:
            return f"<span style=\"font-family:'{fixed_font().family()}'\">{mono}</span>"
        if lane:
            return _badge(looks, int(lane), ratio)
        colour = (palette.less if side == "less" else palette.more).text.name()
        return f'<b style="color:{colour}">{change}</b>'

    return _TOKEN.sub(token, html.escape(markup, quote=False))


def joined(clauses: Sequence[str]) -> str:
    """Clauses as one text; one that starts with a comma goes on with the sentence before it."""
    text = ""
    for clause in clauses:
        if clause.startswith(","):
            text = text.removesuffix(".") + clause
        else:
            text = f"{text} {clause}" if text else clause
    return text


def _plain_token(match: re.Match[str]) -> str:
    bold, mono, _, _, change = match.groups()
    return bold or mono or change or ""


def _badge(looks: Mapping[int, DeviceLook], lane: int, ratio: float) -> str:
    return badge_html(looks[lane], ratio=ratio) if lane in looks else ""
