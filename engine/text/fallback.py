"""What stands in for a tokenizer that is not known: the longest listed token at each place.

It is no model's own way to cut text, but every model that lists its tokens can then be given text
and be measured. A character that is in no token becomes byte tokens, or ids of its bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.text.vocab import SPACE, Vocab, marked_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

_MAX_CHARS = 64
"""Longer tokens are not looked for: they would make every place of the text slow."""


class LongestTokenEncoder:
    """Text without special tokens to ids. Holds no state between calls."""

    def __init__(self, vocab: Vocab) -> None:
        self._vocab = vocab
        self._has_marks = any(text.startswith(SPACE) for text in vocab.tokens)
        self._max_chars = min(_MAX_CHARS, max(map(len, vocab.tokens), default=0))

    def encode(self, text: str) -> list[int]:
        """Ids of `text`."""
        text = text.replace(" ", SPACE) if self._has_marks else text
        out: list[int] = []
        start = 0
        while start < len(text):
            ends = range(min(len(text), start + self._max_chars), start, -1)
            end = next((end for end in ends if text[start:end] in self._vocab.ids), None)
            if end is None:
                end = start + 1
                out.extend(self._byte_ids(text[start]))
            else:
                out.append(self._vocab.ids[text[start:end]])
            start = end
        return out

    def token_bytes(self, token: int) -> bytes:
        """Bytes that a token adds to the text; b"" for unused ones."""
        return marked_bytes(self._vocab, token)

    def _byte_ids(self, char: str) -> Iterator[int]:
        n_tokens = len(self._vocab.tokens) or 256
        plain = char.replace(SPACE, " ") if self._has_marks else char
        for byte in plain.encode("utf-8"):
            yield self._vocab.ids.get(f"<0x{byte:02X}>", byte % n_tokens)
