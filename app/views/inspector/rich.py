"""Sentences as rich text. Pure."""

from __future__ import annotations

import html
import re

_BOLD = re.compile(r"\*\*(.+?)\*\*")


def rich_sentence(sentence: str) -> str:
    """HTML of a sentence in which `**` marks what matters."""
    return _BOLD.sub(r"<b>\1</b>", html.escape(sentence))


def link(target: str, text: str, colour: str) -> str:
    """A link in ink: colour never tells that something is a link, the underline does."""
    return f'<a href="{html.escape(target)}" style="color: {colour}">{html.escape(text)}</a>'
