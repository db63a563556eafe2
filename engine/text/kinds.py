"""Which kind of vocabulary a GGUF file describes, and what encodes its text.

A file that names a kind which is not known here, or describes one incompletely, gets a stand-in,
and `Text.faults` says what is wrong and what was used instead: a model can always be given text.
Source of defaults: llama-vocab.cpp, llama_vocab::impl::load.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from engine.text.bpe import BytePairEncoder
from engine.text.fallback import LongestTokenEncoder
from engine.text.pre_rules import PRE_TOKENIZERS
from engine.text.spm import SentencePieceEncoder
from engine.text.unigram import Normalizer, UnigramEncoder
from engine.text.vocab import Kind, Vocab, VocabReader, ids_of_kind
from engine.text.wordpiece import WordPieceEncoder

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from engine.text.pretokenize import PreTokenizer


class TextEncoder(Protocol):
    """What a kind of vocabulary does between special tokens."""

    def encode(self, text: str) -> list[int]:
        """Ids of text without special tokens."""
        ...

    def token_bytes(self, token: int) -> bytes:
        """Bytes that a token adds to the text."""
        ...


@dataclass(frozen=True, slots=True)
class TextKind:
    """A vocabulary and how text is written with it.

    `first_id` and `last_id` go around a text where the vocabulary asks for them. `space_prefix`:
    text after a special token begins with a space. `faults` are sentences.
    """

    vocab: Vocab
    encoder: TextEncoder
    first_id: int | None = None
    last_id: int | None = None
    space_prefix: bool = False
    faults: tuple[str, ...] = ()


def read_kind(metadata: Mapping[str, object]) -> TextKind:
    """The vocabulary that a GGUF file's keys describe, or what stands in for it."""
    reader = VocabReader(metadata)
    model = reader.word("model")
    make = _KINDS.get(model, _unknown) if reader.n_tokens else _unlisted
    return make(reader)


def _byte_pair(reader: VocabReader) -> TextKind:
    pre = _pre_tokenizer(reader)
    is_gemma = reader.word("model") == "gemma4"
    merges = () if _needs_no_merges(reader) else reader.merges()
    vocab = reader.vocab({} if is_gemma else {"bos": 11, "eos": 11} if pre.has_bos else {"eos": 11})
    add_bos = reader.flag("add_bos_token", default=pre.add_bos) or pre.always_bos
    add_eos = reader.flag("add_eos_token", default=False)
    lowercase = reader.flag("normalizer.lowercase", default=True)
    return TextKind(
        vocab,
        BytePairEncoder(vocab, merges, pre, lowercase=lowercase),
        first_id=vocab.bos_id if add_bos else None,
        last_id=vocab.eos_id if add_eos else None,
        faults=tuple(reader.faults),
    )


def _sentence_piece(reader: VocabReader) -> TextKind:
    vocab = reader.vocab({"bos": 1, "eos": 2, "unknown": 0})
    return TextKind(
        vocab,
        SentencePieceEncoder(vocab, reader.scores()),
        first_id=vocab.bos_id if reader.flag("add_bos_token", default=True) else None,
        last_id=vocab.eos_id if reader.flag("add_eos_token", default=False) else None,
        space_prefix=reader.flag("add_space_prefix", default=True),
        faults=tuple(reader.faults),
    )


def _word_piece(reader: VocabReader) -> TextKind:
    """BERT's text is always between its two tokens, whatever the file says of adding them."""
    vocab = reader.vocab({"bos": 101, "unknown": 100, "seperator": 102})
    lowercase = reader.flag("normalizer.lowercase", default=True)
    strip_accents = reader.flag("normalizer.strip_accents", default=lowercase)
    return TextKind(
        vocab,
        WordPieceEncoder(vocab, lowercase=lowercase, strip_accents=strip_accents),
        first_id=vocab.bos_id,
        last_id=vocab.sep_id,
        faults=tuple(reader.faults),
    )


def _unigram(reader: VocabReader) -> TextKind:
    vocab = reader.vocab({"eos": 1, "unknown": 2})
    normalizer = Normalizer(
        reader.charsmap(),
        [vocab.tokens[token] for token in ids_of_kind(vocab.kinds, Kind.USER_DEFINED)],
        space_prefix=reader.flag("add_space_prefix", default=False),
        merge_spaces=reader.flag("remove_extra_whitespaces", default=False),
    )
    return TextKind(
        vocab,
        UnigramEncoder(vocab, reader.scores(), normalizer),
        first_id=vocab.bos_id if reader.flag("add_bos_token", default=False) else None,
        last_id=vocab.eos_id if reader.flag("add_eos_token", default=True) else None,
        faults=tuple(reader.faults),
    )


def _unknown(reader: VocabReader) -> TextKind:
    name = reader.word("model")
    found = f'Its tokenizer is "{name}"' if name else "The file names no tokenizer"
    reader.faults.append(
        f"{found}; known are {', '.join(sorted(_KINDS))}. The longest listed token at each place "
        "is used instead: the model can be measured, what it gives may make no sense."
    )
    return _longest(reader)


def _unlisted(reader: VocabReader) -> TextKind:
    kind = _longest(reader)
    fault = (
        "The bytes of the text are used as tokens instead; those that the model answers with have "
        "no text."
    )
    return TextKind(kind.vocab, kind.encoder, faults=(*kind.faults, fault))


def _longest(reader: VocabReader) -> TextKind:
    vocab = reader.vocab({})
    first = vocab.bos_id if reader.flag("add_bos_token", default=False) else None
    return TextKind(
        vocab, LongestTokenEncoder(vocab), first_id=first, faults=tuple(reader.faults)
    )  # fmt: skip


_KINDS: dict[str, Callable[[VocabReader], TextKind]] = {
    "bert": _word_piece,
    "gemma4": _byte_pair,
    "gpt2": _byte_pair,
    "llama": _sentence_piece,
    "t5": _unigram,
    "whitespace": _byte_pair,
}
"""By the name in "tokenizer.ggml.model"."""


def _needs_no_merges(reader: VocabReader) -> bool:
    """Kimi's files may come without merges: its words are then single bytes."""
    return reader.word("pre") == "kimi-k2" and not reader.has("merges")


_NO_PRE = "The file names no pre-tokenizer (tokenizer.ggml.pre)"


def _pre_tokenizer(reader: VocabReader) -> PreTokenizer:
    if reader.word("model") == "gemma4":
        return PRE_TOKENIZERS["gemma4"]
    name = reader.word("pre")
    rule = PRE_TOKENIZERS.get(name)
    if rule is not None:
        return rule
    found = f'Its pre-tokenizer is "{name}", which is not known' if name else _NO_PRE
    reader.faults.append(f'{found}; "default" is used instead, which may cut words elsewhere.')
    return PRE_TOKENIZERS["default"]
