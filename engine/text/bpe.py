"""BPE: words to tokens by merge rank.

Most vocabularies write a word's UTF-8 bytes as 256 printable characters (GPT-2's alphabet), some
take it as it is. Neighbours join in the order of the merge list, leftmost first among equals.
Source: llama-vocab.cpp, llm_tokenizer_bpe_session.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import regex

from engine.text.merging import merge_parts
from engine.text.pretokenize import Form
from engine.text.vocab import SPACE, Kind, Vocab, marked_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from engine.text.pretokenize import PreTokenizer

_MAX_CACHED_WORDS = 50_000
_MAX_CACHED_CHARS = 64
"""Longer words are rare and would let one text fill the memory."""


def _alphabet() -> list[str]:
    """Character by byte: printable Latin-1 bytes stand for themselves, others follow from 256."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    spare = iter(range(256, 512))
    return [chr(byte) if byte in printable else chr(next(spare)) for byte in range(256)]


ALPHABET = _alphabet()
_ENCODE = dict(enumerate(ALPHABET))
_DECODE = {char: byte for byte, char in enumerate(ALPHABET)}


def bytes_to_chars(data: bytes) -> str:
    """Bytes in GPT-2's printable alphabet."""
    return data.decode("latin-1").translate(_ENCODE)


def chars_to_bytes(text: str) -> bytes:
    """The inverse; a character outside the alphabet stands for its own UTF-8 bytes."""
    try:
        return bytes(map(_DECODE.__getitem__, text))
    except KeyError:
        parts = (
            bytes((_DECODE[char],)) if char in _DECODE else char.encode("utf-8", "replace")
            for char in text
        )
        return b"".join(parts)


class BytePairEncoder:
    """Text without special tokens to ids. Keeps the words it has seen. One thread at a time.

    `lowercase` is asked of a vocabulary without white space only.
    """

    def __init__(
        self, vocab: Vocab, merges: Iterable[str], pre: PreTokenizer, *, lowercase: bool = False
    ) -> None:
        self._vocab = vocab
        self._pre = pre
        self._lowercase = lowercase
        self._merges = merges
        self._seen: dict[str, tuple[int, ...]] = {}

    def encode(self, text: str) -> list[int]:
        """Ids of `text`.

        What is left of a word that is no token gives an id a byte where there is a token for it,
        and nothing otherwise, as llama.cpp does: a vocabulary without one loses that byte.
        """
        out: list[int] = []
        seen = self._seen
        for word in self._words(text):
            ids = seen.get(word)
            if ids is None:
                ids = self._word_ids(word)
                if len(word) <= _MAX_CACHED_CHARS and len(seen) < _MAX_CACHED_WORDS:
                    seen[word] = ids
            out.extend(ids)
        return out

    def token_bytes(self, token: int) -> bytes:
        """Bytes that a token adds to the text; b"" for unused ones."""
        text = self._vocab.tokens[token]
        kind = self._vocab.kinds[token]
        is_named = kind & (Kind.UNKNOWN | Kind.CONTROL | Kind.USER_DEFINED)
        if kind & Kind.NORMAL and not is_named and self._pre.form is not Form.MARKED:
            return chars_to_bytes(text)
        return marked_bytes(self._vocab, token)

    def _words(self, text: str) -> Iterable[str]:
        """Words as they are written for merging, but for GPT-2's alphabet."""
        if self._pre.form is Form.MARKED:
            return self._pre.words(text.replace(" ", SPACE))
        if self._pre.form is Form.SPACELESS:
            text = "".join(char.lower()[0] for char in text) if self._lowercase else text
            return (word for part in regex.split(r"\s+", text) for word in self._pre.words(part))
        return self._pre.words(text)

    @cached_property
    def _ranks(self) -> dict[tuple[str, str], int]:
        """Made on first use: vocabularies have up to half a million merges."""
        return _ranks(self._merges)

    def _rank_of(self, left: str, right: str) -> int | None:
        return self._ranks.get((left, right))

    def _word_ids(self, word: str) -> tuple[int, ...]:
        is_bytes = self._pre.form is Form.BYTES
        chars = bytes_to_chars(word.encode("utf-8")) if is_bytes else word
        token_ids = self._vocab.ids
        if chars in token_ids and self._pre.is_whole(word):
            return (token_ids[chars],)
        out: list[int] = []
        for part in merge_parts(chars, self._rank_of):
            token = token_ids.get(part)
            if token is not None:
                out.append(token)
            else:
                names = filter(str.isascii, part) if is_bytes else _byte_names(part)
                out.extend(token_ids[name] for name in names if name in token_ids)
        return tuple(out)


def _byte_names(part: str) -> Iterator[str]:
    return (f"<0x{byte:02X}>" for byte in part.encode("utf-8"))


def _ranks(merges: Iterable[str]) -> dict[tuple[str, str], int]:
    """Rank by pair; the first of two equal pairs counts."""
    ranks: dict[tuple[str, str], int] = {}
    for rank, merge in enumerate(merges):
        cut = merge.find(" ", 1)
        if cut > 0:
            ranks.setdefault((merge[:cut], merge[cut + 1 :]), rank)
    return ranks
