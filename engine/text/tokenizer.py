"""Tokenizer and StreamDecoder: text to ids and back, by what a GGUF file says of its vocabulary."""

from __future__ import annotations

import codecs
from typing import TYPE_CHECKING, Protocol, cast

import numpy as np

from engine.errors import TextError
from engine.text.bpe import BytePairEncoder
from engine.text.pretokenize import PRE_TOKENIZERS, PreTokenizer
from engine.text.spm import SentencePieceEncoder
from engine.text.vocab import PREFIX, Kind, Vocab, broken, flag, read_vocab

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

MODELS = ("gpt2", "llama")
"""Values of "tokenizer.ggml.model" that text can be written with."""

_C_SPACE = " \t\n\v\f\r"


class TextEncoder(Protocol):
    """What a kind of vocabulary does between special tokens."""

    def encode(self, text: str) -> list[int]:
        """Ids of text without special tokens."""
        ...

    def token_bytes(self, token: int) -> bytes:
        """Bytes that a token adds to the text."""
        ...


class Tokenizer:
    """Text to ids and back. Build it with `from_metadata`. One thread at a time.

    Example: `tokenizer.encode("Hello", add_special=True, parse_special=False)`.
    """

    def __init__(
        self,
        vocab: Vocab,
        encoder: TextEncoder,
        *,
        add_bos: bool = False,
        add_eos: bool = False,
        space_prefix: bool = False,
    ) -> None:
        self._vocab = vocab
        self._encoder = encoder
        self._add_bos = add_bos and vocab.bos_id is not None
        self._add_eos = add_eos and vocab.eos_id is not None
        self._space_prefix = space_prefix

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, object]) -> Tokenizer:
        """The tokenizer that a GGUF file's keys describe.

        Raises:
            TextError: no tokenizer, a kind that is not supported, or lists that do not fit.
        """
        model = metadata.get(PREFIX + "model")
        if model == "gpt2":
            return cls._byte_pair(metadata)
        if model == "llama":
            return cls._sentence_piece(metadata)
        raise _unsupported("tokenizer", model, MODELS)

    @classmethod
    def _byte_pair(cls, metadata: Mapping[str, object]) -> Tokenizer:
        pre = _pre_tokenizer(metadata)
        merges = metadata.get(PREFIX + "merges")
        if merges is None:
            raise broken("The file has no list of merges (tokenizer.ggml.merges).")
        vocab = read_vocab(metadata, {"bos": 11, "eos": 11})
        return cls(
            vocab,
            BytePairEncoder(vocab, cast("Sequence[str]", merges), pre),
            add_bos=flag(metadata, "add_bos_token", default=pre.add_bos),
            add_eos=flag(metadata, "add_eos_token", default=False),
        )

    @classmethod
    def _sentence_piece(cls, metadata: Mapping[str, object]) -> Tokenizer:
        vocab = read_vocab(metadata, {"bos": 1, "eos": 2, "unknown": 0})
        scores = np.asarray(metadata.get(PREFIX + "scores", ()), dtype=np.float32)
        return cls(
            vocab,
            SentencePieceEncoder(vocab, cast("list[float]", scores.tolist())),
            add_bos=flag(metadata, "add_bos_token", default=True),
            add_eos=flag(metadata, "add_eos_token", default=False),
            space_prefix=flag(metadata, "add_space_prefix", default=True),
        )

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
        out: list[int] = []
        if add_special and self._add_bos:
            out.append(cast("int", self._vocab.bos_id))
        after_special = True
        for piece in self._pieces(_without_surrogates(text), parse_special=parse_special):
            if isinstance(piece, int):
                out.append(piece)
                after_special = True
                continue
            prefix = " " if self._space_prefix and after_special else ""
            out.extend(self._encoder.encode(prefix + piece))
            after_special = False
        if add_special and self._add_eos:
            out.append(cast("int", self._vocab.eos_id))
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
            strip = token in self._vocab.strip_after_ids
            pieces = [
                part
                for piece in pieces
                for part in (
                    (piece,) if isinstance(piece, int) else _split(piece, name, token, strip=strip)
                )
            ]
        return pieces


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


def _split(piece: str, name: str, token: int, *, strip: bool) -> Iterator[str | int]:
    """The piece around each occurrence of a special token's name; empty texts are left out."""
    first, *rest = piece.split(name)
    if first:
        yield first
    for text in rest:
        yield token
        kept = text.lstrip(_C_SPACE) if strip else text
        if kept:
            yield kept


def _without_surrogates(text: str) -> str:
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _pre_tokenizer(metadata: Mapping[str, object]) -> PreTokenizer:
    name = metadata.get(PREFIX + "pre") or "default"
    rule = PRE_TOKENIZERS.get(str(name))
    if rule is None:
        raise _unsupported("pre-tokenizer", name, sorted(PRE_TOKENIZERS))
    return rule


def _unsupported(what: str, name: object, supported: Iterable[str]) -> TextError:
    found = f'Its {what} is "{name}"' if name else f"The file names no {what}"
    return TextError(
        "This model cannot be given text.",
        f"{found}; supported are {', '.join(supported)}.",
        "The model can still be planned.",
    )
