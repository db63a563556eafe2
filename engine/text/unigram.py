"""Unigram SentencePiece: the tokens whose scores sum up highest, as T5 and XLM-RoBERTa do.

The text is first rewritten by the vocabulary's own map of characters, then the best path through
all tokens is found. Source: llama-vocab.cpp, llm_tokenizer_ugm_session.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import numpy as np

from engine.text.vocab import SPACE, Kind, Vocab, ids_of_kind, marked_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_UNKNOWN_PENALTY = 10.0


class UnigramEncoder:
    """Text without special tokens to ids. Holds no state between calls.

    `scores` has a number for every token.
    """

    def __init__(
        self,
        vocab: Vocab,
        scores: Sequence[float],
        normalizer: Normalizer,
    ) -> None:
        self._vocab = vocab
        self._normalizer = normalizer
        tokens = vocab.tokens
        matched = ids_of_kind(vocab.kinds, Kind.NORMAL | Kind.UNUSED)
        self._scores = {tokens[token]: (scores[token], token) for token in matched}
        # What the user defined scores 0, so that it wins over any words.
        for token in ids_of_kind(vocab.kinds, Kind.USER_DEFINED):
            self._scores[tokens[token]] = (0.0, token)
        lowest = min((scores[i] for i in ids_of_kind(vocab.kinds, Kind.NORMAL)), default=0.0)
        self._unknown_score = float(np.float32(lowest - _UNKNOWN_PENALTY))
        self._max_chars: dict[str, int] = {}
        for text in self._scores:
            self._max_chars[text[0]] = max(len(text), self._max_chars.get(text[0], 0))

    def encode(self, text: str) -> list[int]:
        """Ids of `text`; unknown characters in a row are one unknown token."""
        normal = self._normalizer.normalize(text)
        ids: list[int | None] = []
        for token in reversed(list(self._best_backwards(normal))):
            if token is not None or not ids or ids[-1] is not None:
                ids.append(token)
        unknown = self._vocab.unk_id
        named = (unknown if token is None else token for token in ids)
        return [token for token in named if token is not None]

    def token_bytes(self, token: int) -> bytes:
        """Bytes that a token adds to the text; b"" for unused ones."""
        return marked_bytes(self._vocab, token)

    def _best_backwards(self, text: str) -> Iterator[int | None]:
        """Tokens of the best path from its end; None for an unknown character."""
        n = len(text)
        best: list[tuple[float, int, int | None]] = [(-np.inf, 0, None)] * (n + 1)
        best[0] = (0.0, 0, None)
        for start in range(n):
            so_far = best[start][0]
            for end in range(start + 1, start + 1 + self._longest(text, start)):
                found = self._scores.get(text[start:end])
                if found is not None and so_far + found[0] > best[end][0]:
                    best[end] = (so_far + found[0], start, found[1])
            is_known = text[start] in self._scores
            if not is_known and so_far + self._unknown_score > best[start + 1][0]:
                best[start + 1] = (so_far + self._unknown_score, start, None)
        while n:
            _, n, token = best[n]
            yield token

    def _longest(self, text: str, start: int) -> int:
        return min(self._max_chars.get(text[start], 0), len(text) - start)


class Normalizer:
    """Rewrites text before it is cut: a map of characters, and what becomes of spaces.

    `charsmap` is SentencePiece's compiled map (b"" for none): the size of a double array, the
    array, then texts that end with a zero. Texts in `kept` are left as they are.
    """

    def __init__(
        self, charsmap: bytes, kept: Sequence[str], *, space_prefix: bool, merge_spaces: bool
    ) -> None:
        size = struct.unpack_from("<I", charsmap)[0] if len(charsmap) >= 4 else 0
        self._array = np.frombuffer(charsmap[4 : 4 + size // 4 * 4], dtype="<u4").tolist()
        self._texts = charsmap[4 + size :]
        self._space_prefix = space_prefix
        self._merge_spaces = merge_spaces
        texts = [text.encode("utf-8", "replace") for text in kept]
        self._kept_starts = {text[:end] for text in texts for end in range(1, len(text) + 1)}

    def normalize(self, text: str) -> str:
        """`text` rewritten, with U+2581 for spaces."""
        rewritten = b"".join(self._rewritten(text.encode("utf-8"))).decode("utf-8", "replace")
        out: list[str] = []
        in_word = has_prefix = False
        for char in rewritten:
            if char == " ":
                in_word = False
                out.extend(() if self._merge_spaces else (SPACE,))
                continue
            if not in_word:
                wants_prefix = self._space_prefix and not has_prefix
                in_word = True
                if wants_prefix or self._merge_spaces:
                    out.append(SPACE)
                    has_prefix = True
            out.append(char)
        return "".join(out)

    def _rewritten(self, data: bytes) -> Iterator[bytes]:
        at = 0
        while at < len(data):
            n_taken, text = self._prefix(data, at)
            yield text
            at += n_taken

    def _prefix(self, data: bytes, at: int) -> tuple[int, bytes]:
        """How many bytes are rewritten next, and into what."""
        n_kept = 0
        while at + n_kept < len(data) and data[at : at + n_kept + 1] in self._kept_starts:
            n_kept += 1
        if n_kept:
            return n_kept, data[at : at + n_kept]
        n_matched, text_at = self._longest_match(data, at)
        if n_matched:
            end = self._texts.find(b"\0", text_at)
            return n_matched, self._texts[text_at : end if end >= 0 else None]
        n_char = _n_bytes(data[at])
        return n_char, data[at : at + n_char]

    def _longest_match(self, data: bytes, at: int) -> tuple[int, int]:
        """Length of the longest mapped prefix and where its text stands; (0, 0) for none.

        A node holds its character in bits 0 to 7, whether a text ends there in bit 8, and where its
        children are in the rest; source: XOR-compressed double arrays (Kanda 2018).
        """
        array, n_matched, text_at = self._array, 0, 0
        node = _children(array[0]) if array else 0
        for i_byte in range(at, len(data) if array else at):
            node ^= data[i_byte]
            if node >= len(array) or array[node] & 0x800000FF != data[i_byte]:
                break
            has_text = array[node] >> 8 & 1
            node ^= _children(array[node])
            if has_text and node < len(array):
                n_matched, text_at = i_byte + 1 - at, array[node] & 0x7FFFFFFF
        return n_matched, text_at


def _children(packed: int) -> int:
    return (packed >> 10) << ((packed & 1 << 9) >> 6)


def _n_bytes(first: int) -> int:
    """Bytes of the UTF-8 character that begins with this one."""
    return 1 if first < 0xC0 else 2 if first < 0xE0 else 3 if first < 0xF0 else 4
