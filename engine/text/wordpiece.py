"""WordPiece: words to the longest tokens that make them up, as BERT does.

Text is cut at white space and around punctuation and Chinese characters; a word begins with
U+2581 and takes the longest token at each place. A word that leaves a rest becomes the unknown
token. Source: llama-vocab.cpp, llm_tokenizer_wpm_session.
"""

from __future__ import annotations

import unicodedata
from functools import cache
from typing import TYPE_CHECKING

import regex

from engine.text.vocab import SPACE, Vocab, marked_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

_IS_SPACE = regex.compile(r"\s")

# llama.cpp's ranges; the fifth begins where the original Rust code has it.
_CHINESE = regex.compile(
    r"[\u4E00-\u9FFF\u3400-\u4DBF\U00020000-\U0002A6DF\U0002A700-\U0002B73F"
    r"\U0002B740-\U0002B81F\U0002B920-\U0002CEAF\uF900-\uFAFF\U0002F800-\U0002FA1F]"
)


class WordPieceEncoder:
    """Text without special tokens to ids. Holds no state between calls."""

    def __init__(self, vocab: Vocab, *, lowercase: bool, strip_accents: bool) -> None:
        self._vocab = vocab
        self._lowercase = lowercase
        self._strip_accents = strip_accents
        self._max_chars = max(map(len, vocab.tokens), default=0)

    def encode(self, text: str) -> list[int]:
        """Ids of `text`; a word that has none is left out where there is no unknown token."""
        unknown = [] if self._vocab.unk_id is None else [self._vocab.unk_id]
        out: list[int] = []
        for word in self._words(text):
            out.extend(self._word_ids(SPACE + word) or unknown)
        return out

    def token_bytes(self, token: int) -> bytes:
        """Bytes that a token adds to the text; b"" for unused ones."""
        return marked_bytes(self._vocab, token)

    def _words(self, text: str) -> Iterator[str]:
        word = ""
        for char in text:
            kept, stands_alone = _normal(
                char, lowercase=self._lowercase, strip_accents=self._strip_accents
            )
            if not stands_alone:
                word += kept
                continue
            if word:
                yield word
            word = ""
            if kept:
                yield kept
        if word:
            yield word

    def _word_ids(self, word: str) -> list[int]:
        """Ids of a word, or none when a part of it is no token."""
        out: list[int] = []
        start = 0
        while start < len(word):
            ends = range(min(len(word), start + self._max_chars), start, -1)
            end = next((end for end in ends if word[start:end] in self._vocab.ids), None)
            if end is None:
                return []
            out.append(self._vocab.ids[word[start:end]])
            start = end
        return out


@cache
def _normal(char: str, *, lowercase: bool, strip_accents: bool) -> tuple[str, bool]:
    """A character as words have it, "" for none, and whether it ends the word before it.

    llama.cpp keeps only the first character of a decomposition and of a lower case.
    """
    if strip_accents:
        char = unicodedata.normalize("NFD", char)[0]
    if _IS_SPACE.match(char):
        return "", True
    category = unicodedata.category(char)
    is_accent = strip_accents and category[0] == "M"
    if is_accent or char in "\0\ufffd" or category in ("Cc", "Cf", "Co", "Cs"):
        return "", False
    is_sign = category[0] == "P" or (char < "\x7f" and category[0] == "S")
    kept = char.lower()[0] if lowercase else char
    return kept, is_sign or _CHINESE.match(char) is not None
