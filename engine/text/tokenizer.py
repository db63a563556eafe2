"""Tokenizer and StreamDecoder: text to ids and back, by what a GGUF file says of its vocabulary."""

from __future__ import annotations

import codecs
from typing import TYPE_CHECKING

from engine.text.kinds import TextKind, read_kind
from engine.text.vocab import Kind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_C_SPACE = " \t\n\v\f\r"


class Tokenizer:
    """Text to ids and back. Build it with `from_metadata`. One thread at a time.

    Example: `tokenizer.encode("Hello", add_special=True, parse_special=False)`.
    """

    def __init__(self, kind: TextKind) -> None:
        self._kind = kind
        self._vocab = kind.vocab
        self._encoder = kind.encoder

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, object]) -> Tokenizer:
        """The tokenizer that a GGUF file's keys describe, or what stands in for it."""
        return cls(read_kind(metadata))

    @property
    def faults(self) -> tuple[str, ...]:
        """What is wrong with the file's description and what is used instead, as sentences."""
        return self._kind.faults

    @property
    def n_vocab(self) -> int:
        """Tokens the file lists; a model's logits may be longer."""
        return len(self._vocab.tokens)

    @property
    def bos_id(self) -> int | None:
        """The token that begins a text, if there is one."""
        return self._vocab.bos_id

    @property
    def eos_id(self) -> int | None:
        """The token that ends a text, if there is one."""
        return self._vocab.eos_id

    @property
    def end_ids(self) -> frozenset[int]:
        """Every token that ends a generation."""
        return self._vocab.end_ids

    def is_end(self, token: int) -> bool:
        """Whether a generation stops at this token."""
        return token in self._vocab.end_ids

    def encode(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        """Ids of `text`.

        `add_special` puts the tokens around it that the vocabulary asks for. With `parse_special`
        the text of a control token becomes that token; without it, it is ordinary text. Lone
        surrogates become U+FFFD.
        """
        kind = self._kind
        out = [kind.first_id] if add_special and kind.first_id is not None else []
        after_special = True
        for piece in self._pieces(_without_surrogates(text), parse_special=parse_special):
            if isinstance(piece, int):
                out.append(piece)
                after_special = True
                continue
            prefix = " " if kind.space_prefix and after_special else ""
            out.extend(self._encoder.encode(prefix + piece))
            after_special = False
        if add_special and kind.last_id is not None:
            out.append(kind.last_id)
        return out

    def decode(self, ids: Iterable[int]) -> str:
        """The text of `ids`, special tokens by their names; bytes that are no UTF-8 give U+FFFD.

        For a vocabulary that begins texts with a space (Llama's), that space is kept.
        """
        return b"".join(map(self.token_bytes, ids)).decode("utf-8", "replace")

    def token_bytes(self, token: int) -> bytes:
        """The bytes a token adds to the text; b"" for ids the file lists no token for."""
        if not 0 <= token < self.n_vocab:
            return b""
        return self._encoder.token_bytes(token)

    def token_text(self, token: int) -> str:
        r"""The token for display: its text, bytes of cut characters as "\xe2"."""
        if not 0 <= token < self.n_vocab:
            return f"[{token}]"
        return self.token_bytes(token).decode("utf-8", "backslashreplace")

    def stream(self) -> StreamDecoder:
        """A decoder for tokens that come one by one."""
        return StreamDecoder(self)

    def _pieces(self, text: str, *, parse_special: bool) -> Iterable[str | int]:
        """The text with special tokens cut out, longest first over the whole text."""
        pieces: list[str | int] = [text] if text else []
        for token in self._vocab.special_ids:
            kind = self._vocab.kinds[token]
            if not parse_special and kind & (Kind.CONTROL | Kind.UNKNOWN):
                continue
            name = self._vocab.tokens[token]
            if name not in text:
                continue
            pieces = [
                part
                for piece in pieces
                for part in ((piece,) if isinstance(piece, int) else self._split(piece, token))
            ]
        return pieces

    def _split(self, piece: str, token: int) -> Iterator[str | int]:
        """The piece around each occurrence of a special token's text; empty ones are left out."""
        parts = piece.split(self._vocab.tokens[token])
        strips_after = token in self._vocab.strip_after_ids
        strips_before = token in self._vocab.strip_before_ids
        for i, part in enumerate(parts):
            if i:
                yield token
            kept = part.lstrip(_C_SPACE) if i and strips_after else part
            kept = kept.rstrip(_C_SPACE) if i + 1 < len(parts) and strips_before else kept
            if kept:
                yield kept


class StreamDecoder:
    """Text of tokens that come one by one: holds back the bytes of a character not yet whole."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token: int) -> str:
        """The characters that are whole now; may be ""."""
        return self._decoder.decode(self._tokenizer.token_bytes(token))

    def finish(self) -> str:
        """What is left at the end: U+FFFD for a character that stayed incomplete, else ""."""
        return self._decoder.decode(b"", final=True)


def _without_surrogates(text: str) -> str:
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
