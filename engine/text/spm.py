"""SentencePiece BPE: characters to tokens by score.

Spaces are written as U+2581; neighbours whose joined text is a token join, highest score first,
leftmost among equals; characters that are no token become byte tokens. Source: llama-vocab.cpp,
llm_tokenizer_spm_session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.text.merging import merge_parts
from engine.text.vocab import SPACE, Vocab, marked_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence


class SentencePieceEncoder:
    """Text without special tokens to ids. Holds no state between calls.

    `scores` has a number for every token.
    """

    def __init__(self, vocab: Vocab, scores: Sequence[float]) -> None:
        self._vocab = vocab
        self._scores = scores
        self._byte_ids = [self._byte_token(byte) for byte in range(256)]

    def encode(self, text: str) -> list[int]:
        """Ids of `text`. A byte without a token becomes the unknown token, or is left out."""
        out: list[int] = []
        for part in merge_parts(text.replace(" ", SPACE), self._rank_of):
            token = self._vocab.ids.get(part)
            if token is not None:
                out.append(token)
            else:
                fallback = (self._byte_ids[byte] for byte in part.encode("utf-8"))
                out.extend(token for token in fallback if token is not None)
        return out

    def token_bytes(self, token: int) -> bytes:
        """Bytes that a token adds to the text; b"" for unused ones."""
        return marked_bytes(self._vocab, token)

    def _byte_token(self, byte: int) -> int | None:
        ids = self._vocab.ids
        plain = ids.get(chr(byte)) if byte < 0x80 else None
        return ids.get(f"<0x{byte:02X}>", self._vocab.unk_id if plain is None else plain)

    def _rank_of(self, left: str, right: str) -> float | None:
        token = self._vocab.ids.get(left + right)
        return None if token is None else -self._scores[token]
