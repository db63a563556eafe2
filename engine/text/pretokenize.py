"""How a BPE vocabulary cuts text into words before merging.

A rule is a list of patterns applied in turn, each inside the pieces the one before left; what a
pattern does not match stays as pieces of its own. Which vocabulary has which rule is in
`pre_rules`. Letters and numbers are those of the `regex` package's Unicode version, which is newer
than llama.cpp's (15.0): text in scripts assigned since then may be cut elsewhere.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import regex

if TYPE_CHECKING:
    from collections.abc import Iterator


class Form(enum.Enum):
    """How a vocabulary writes the text that it merges."""

    BYTES = "bytes"
    """UTF-8 bytes as 256 printable characters, GPT-2's alphabet."""
    MARKED = "marked"
    """As it is, with U+2581 for a space, as SentencePiece does."""
    SPACELESS = "spaceless"
    """As it is, without its white space."""


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """A rule: its patterns, and what the vocabulary's family does besides.

    `ignore_merges`: a word that is a token is taken whole. `whole_newlines`: only one of newlines
    is. `add_bos`: the default for a file that does not say; `always_bos`: whatever the file says.
    `has_bos`: a file that does not name its first token has one nevertheless.
    """

    patterns: tuple[str, ...]
    form: Form = Form.BYTES
    ignore_merges: bool = False
    whole_newlines: bool = False
    add_bos: bool = False
    always_bos: bool = False
    has_bos: bool = True

    def words(self, text: str) -> list[str]:
        """The text in pieces; joined they are the text."""
        pieces = [text] if text else []
        for pattern in self.patterns:
            compiled = _compiled(pattern)
            pieces = [part for piece in pieces for part in _cut(compiled, piece)]
        return pieces

    def is_whole(self, word: str) -> bool:
        """Whether a word is taken whole where it is a token."""
        return self.ignore_merges or (self.whole_newlines and not word.strip("\n"))


@cache
def _compiled(pattern: str) -> regex.Pattern[str]:
    return regex.compile(pattern)


def _cut(compiled: regex.Pattern[str], piece: str) -> Iterator[str]:
    """Matches and the gaps between them, in order."""
    start = 0
    for match in compiled.finditer(piece):
        if match.start() > start:
            yield piece[start : match.start()]
        if match.end() > match.start():
            yield match.group()
        start = match.end()
    if start < len(piece):
        yield piece[start:]
