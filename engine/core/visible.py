"""visible: text from a file as it may be shown: nothing in it moves a cursor or turns a line round.

Names of tensors, models and tokens are whatever a file says; JSON has them as they are.
"""

from __future__ import annotations

import re

_HIDDEN = re.compile(
    # Control characters, marks of direction, separators of lines, halves of pairs.
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def visible(text: str, *, keeps: str = "") -> str:
    r"""The text with such characters written out, as `\x1b`; but for those of `keeps`."""

    def written_out(found: re.Match[str]) -> str:
        char = found.group()
        return char if char in keeps else char.encode("unicode_escape").decode()

    return _HIDDEN.sub(written_out, text)


def shown_word(text: str) -> str:
    """What was typed, as it stands in a sentence: nothing is called empty."""
    return text.strip() or "empty"
