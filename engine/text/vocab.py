"""Vocab: token texts, kinds and special ids as a GGUF file states them, repaired as llama.cpp does.

Files state kinds poorly, so llama.cpp finds some special tokens by their text. The same rules are
applied here; where llama.cpp's choice depends on hash order, the lowest id is taken. What a file
states wrongly is replaced, and `VocabReader.faults` says by what.
Source: llama-vocab.cpp, llama_vocab::impl::load.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from engine.gguf import keys
from engine.gguf.strings import LENGTH_BYTES, StringArray

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import numpy.typing as npt

PREFIX = "tokenizer.ggml."

SPACE = "▁"
"""What SentencePiece writes for a space."""


class Kind(enum.IntFlag):
    """What a token is; a token whose file says NORMAL may turn out to be CONTROL as well."""

    UNDEFINED = 0
    UNKNOWN = 1
    UNUSED = 2
    NORMAL = 4
    CONTROL = 8
    USER_DEFINED = 16
    BYTE = 32


_KIND_OF_FILE = {
    1: Kind.NORMAL,
    2: Kind.UNKNOWN,
    3: Kind.CONTROL,
    4: Kind.USER_DEFINED,
    5: Kind.UNUSED,
    6: Kind.BYTE,
}

SPECIAL = Kind.UNKNOWN | Kind.CONTROL | Kind.USER_DEFINED
"""Kinds that are cut out of the text before anything else."""

_END_TEXTS = (
    *("<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>"),
    *("<end_of_turn>", "<|endoftext|>", "</s>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]"),
    *("<|end_of_text|>", "<end_of_utterance>", "<eos>", "<turn|>", "<|tool_response>"),
    *("<｜end▁of▁sentence｜>", "[e~["),  # noqa: RUF001 - DeepSeek's token has these bars
)

# Fill in the middle: the id a file may state -> texts that name the token where it does not.
_FIM_TEXTS = {
    "fim_pre": (
        *("<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<PRE>", "▁<PRE>", "<|code_prefix|>"),
        *("<|prefix|>", "<｜fim▁begin｜>"),  # noqa: RUF001 - DeepSeek's token has these bars
    ),
    "fim_suf": (
        *("<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<SUF>", "▁<SUF>", "<|code_suffix|>"),
        *("<|suffix|>", "<｜fim▁hole｜>"),  # noqa: RUF001 - DeepSeek's token has these bars
    ),
    "fim_mid": (
        *("<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<MID>", "▁<MID>", "<|code_middle|>"),
        *("<|middle|>", "<｜fim▁end｜>"),  # noqa: RUF001 - DeepSeek's token has these bars
    ),
    "fim_pad": ("<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"),
    "fim_rep": ("<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"),
    "fim_sep": ("<|file_sep|>",),
}
_FIM_ENDS = ("fim_pad", "fim_rep", "fim_sep")
_OLD_FIM_NAMES = {"fim_pre": "prefix", "fim_suf": "suffix", "fim_mid": "middle"}

_ALWAYS_SHOWN = ("<|channel|>", "<|message|>", "<|start|>", "<|constrain|>")


@dataclass(frozen=True, slots=True)
class Vocab:
    """Token texts by id, ids by text, kinds by id, and the ids with a meaning.

    `end_ids` end a generation. `special_ids` are those to cut out of text, longest text first.
    `strip_after_ids` and `strip_before_ids` swallow the white space that follows or precedes them.
    """

    tokens: tuple[str, ...]
    ids: Mapping[str, int]
    kinds: tuple[Kind, ...]
    bos_id: int | None
    eos_id: int | None
    unk_id: int | None
    sep_id: int | None
    end_ids: frozenset[int]
    special_ids: tuple[int, ...]
    strip_after_ids: frozenset[int]
    strip_before_ids: frozenset[int]


def ids_of_kind(kinds: Sequence[Kind], wanted: Kind) -> list[int]:
    """Tokens that are of any of these kinds."""
    # The operator of flags takes a microsecond, a second for a large vocabulary.
    bits = int(wanted)
    return [token for token, kind in enumerate(kinds) if int.__and__(kind, bits)]


def marked_bytes(vocab: Vocab, token: int) -> bytes:
    """Bytes that a token adds to the text where U+2581 is a space; b"" for unused ones."""
    text, kind = vocab.tokens[token], vocab.kinds[token]
    if kind & SPECIAL:
        return text.encode("utf-8", "replace")
    if kind & Kind.NORMAL:
        return text.replace(SPACE, " ").encode("utf-8", "replace")
    if kind & Kind.BYTE:
        return _byte_of(text)
    return b""


def _byte_of(text: str) -> bytes:
    """The byte of a token written "<0x0A>"; b"" when it is written otherwise."""
    try:
        return bytes((int(text[3:5], 16),))
    except ValueError:
        return b""


class VocabReader:
    """What the tokenizer keys of a GGUF file state, and in `faults` what was used instead."""

    def __init__(self, metadata: Mapping[str, object]) -> None:
        self._metadata = metadata
        self.faults: list[str] = []
        listed = self.strings("tokens")
        self._tokens = tuple(text or f"[EMPTY_{token}]" for token, text in enumerate(listed))

    @property
    def n_tokens(self) -> int:
        """Tokens the file lists."""
        return len(self._tokens)

    def vocab(self, defaults: Mapping[str, int]) -> Vocab:
        """The vocabulary; `defaults` are the ids that a silent file means, such as "bos"."""
        tokens = self._tokens
        ids = {text: token for token, text in enumerate(tokens)}
        kinds = self._kinds(len(tokens))
        special = _SpecialIds(self, len(tokens), defaults)
        end_ids = _mark_end_tokens(special, ids, kinds)
        wanted = ids_of_kind(kinds, SPECIAL)
        wanted.sort(key=lambda token: -len(tokens[token].encode("utf-8", "surrogatepass")))
        return Vocab(
            tokens=tokens,
            ids=ids,
            kinds=tuple(kinds),
            bos_id=special.get("bos"),
            eos_id=special.get("eos"),
            unk_id=special.get("unknown"),
            sep_id=special.get("seperator"),
            end_ids=frozenset(end_ids),
            special_ids=tuple(wanted),
            strip_after_ids=self._strip_after(wanted, ids),
            strip_before_ids=self._strip_before(ids),
        )

    def flag(self, name: str, *, default: bool) -> bool:
        """A yes or no of the tokenizer, such as "add_bos_token"."""
        value = self._metadata.get(PREFIX + name)
        return bool(value) if isinstance(value, int) else default

    def has(self, name: str) -> bool:
        """Whether the file states something of that name."""
        return PREFIX + name in self._metadata

    def word(self, name: str) -> str:
        """A word of the tokenizer, such as "pre"; "" where there is none."""
        value = self._metadata.get(PREFIX + name)
        return value if isinstance(value, str) else ""

    def number(self, name: str) -> int | None:
        """A number of the tokenizer, such as "bos_token_id"."""
        value = self._metadata.get(PREFIX + name)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def strings(self, name: str) -> Sequence[str]:
        """A list of texts, such as "tokens"; empty, and a fault, where there is none."""
        listed = self._metadata.get(PREFIX + name)
        if isinstance(listed, StringArray):
            return listed
        if isinstance(listed, list | tuple) and all(isinstance(item, str) for item in listed):
            return listed
        self.faults.append(
            f"{PREFIX}{name} is not a list of texts; it counts as empty."
            if self.has(name)
            else f"The file has no list of {name} ({PREFIX}{name}); it counts as empty."
        )
        return ()

    def merges(self) -> Sequence[str]:
        """The list of merges; a fault tells of those that are not two parts."""
        listed = self.strings("merges")
        broken = _without_one_space(listed)
        if len(broken):
            first = int(broken[0])
            self.faults.append(
                f"Of the file's {len(listed)} merges ({PREFIX}merges) {len(broken)} are not two "
                f'parts with a space between, such as number {first}, "{listed[first]}"; they join '
                "nothing."
            )
        return listed

    def scores(self) -> list[float]:
        """A score for every token, rounded to float32; 0 where the file states none."""
        scores = self._numbers("scores", np.float32)[: self.n_tokens]
        missing = self.n_tokens - len(scores)
        if missing > 0:
            self._too_few("scores", len(scores), "score 0")
        return [*scores, *[0.0] * missing]

    def tell_wrong_id(self, name: str, instead: int | None) -> None:
        """Note that a special token is none of those listed, and what it is taken for; once."""
        used = "it counts as not stated" if instead is None else f"token {instead} is used instead"
        fault = (
            f"{PREFIX}{name} is {self._metadata.get(PREFIX + name)}, which is none of the "
            f"{self.n_tokens} tokens; {used}."
        )
        if fault not in self.faults:
            self.faults.append(fault)

    def charsmap(self) -> bytes:
        """How a unigram vocabulary rewrites characters, compiled; b"" for none."""
        bytes_of = self._numbers("precompiled_charsmap", np.uint8)
        return bytes(map(int, bytes_of))

    def _numbers(self, name: str, dtype: type[np.generic]) -> list[float]:
        listed = self._metadata.get(PREFIX + name)
        if listed is None:
            return []
        try:
            return [float(value) for value in np.asarray(listed, dtype).reshape(-1).tolist()]
        except (OverflowError, TypeError, ValueError):
            self.faults.append(
                f"{PREFIX}{name} is not a list of numbers; it counts as not being there."
            )
            return []

    def _kinds(self, n_vocab: int) -> list[Kind]:
        stated = self._numbers("token_type", np.int64)
        kinds = [_KIND_OF_FILE.get(int(value), Kind.UNDEFINED) for value in stated[:n_vocab]]
        if stated and len(stated) < n_vocab:
            self._too_few("token types", len(stated), "count as normal")
        return [*kinds, *[Kind.NORMAL] * (n_vocab - len(kinds))]

    def _too_few(self, what: str, n_found: int, instead: str) -> None:
        self.faults.append(
            f"The file lists {self.n_tokens} tokens but only {n_found} {what}; the rest {instead}."
        )

    def _strip_after(self, special_ids: Sequence[int], ids: Mapping[str, int]) -> frozenset[int]:
        """Phi-3's special tokens swallow following white space; nothing in the file says so."""
        name = self._general(keys.NAME)
        if self._mask_name() or ("phi-3" not in name and "phi3" not in name):
            return frozenset()
        kept = _present(("<unk>", "<s>", "<|endoftext|>"), ids)
        return frozenset({*special_ids, *_present(("</s>",), ids)}.difference(kept))

    def _strip_before(self, ids: Mapping[str, int]) -> frozenset[int]:
        """The mask token of some encoders swallows preceding white space."""
        return frozenset(_present((self._mask_name(),), ids))

    def _mask_name(self) -> str:
        arch = self._general(keys.ARCHITECTURE)
        by_pre = any(name in self.word("pre") for name in ("jina-v2-de", "jina-v2-es"))
        if by_pre or "jina-v2-code" in self.word("pre"):
            return "<mask>"
        if "nomic-bert-moe" in arch or "jina-bert-v3" in arch:
            return "<mask>"
        return "[MASK]" if "modern-bert" in self._general(keys.NAME) else ""

    def _general(self, key: str) -> str:
        value = self._metadata.get(key)
        return value.lower() if isinstance(value, str) else ""


def _without_one_space(listed: Sequence[str]) -> npt.NDArray[np.int64]:
    """Places of texts without exactly one space behind their first byte.

    Counted in the packed bytes: decoding half a million texts would take most of a second.
    """
    packed = listed if isinstance(listed, StringArray) else StringArray.of(listed)
    spaces = np.flatnonzero(np.frombuffer(packed.blob, np.uint8) == ord(" "))
    owners = np.searchsorted(packed.starts, spaces, "right") - 1
    is_inside = spaces - packed.starts[owners] > LENGTH_BYTES
    counts = np.bincount(owners[is_inside], minlength=len(packed))
    return np.flatnonzero(counts != 1)


class _SpecialIds:
    """Ids the file names; ids beyond the vocabulary count as not stated, which is told."""

    def __init__(self, reader: VocabReader, n_vocab: int, defaults: Mapping[str, int]) -> None:
        self._reader = reader
        self._n_vocab = n_vocab
        self._defaults = defaults

    def get(self, name: str) -> int | None:
        """The id for a short name such as "bos", "eot" or "fim_pad"."""
        key = f"{name}_token_id"
        stated = self._valid(self._reader.number(key))
        if stated is not None:
            return stated
        default = self._valid(self._defaults.get(name))
        if self._reader.has(key) and self._n_vocab:
            self._reader.tell_wrong_id(key, default)
        return default

    def _valid(self, token: int | None) -> int | None:
        return token if token is not None and 0 <= token < self._n_vocab else None


def _mark_end_tokens(special: _SpecialIds, ids: Mapping[str, int], kinds: list[Kind]) -> set[int]:
    """Ids that end a generation; makes control tokens of those found by their text."""
    end_ids = _mark_fim_tokens(special, ids, kinds)
    for token in _present(_END_TEXTS, ids):
        end_ids.add(token)
        kinds[token] |= Kind.CONTROL
    for token in _present(_ALWAYS_SHOWN, ids):
        kinds[token] = Kind.USER_DEFINED
    stated = (special.get(name) for name in ("eos", "eot", "eom"))
    end_ids.update(token for token in stated if token is not None)
    _unmark_harmony_end(end_ids, ids, kinds)
    _unmark_plain_slash_s(end_ids, ids, kinds)
    return end_ids


def _mark_fim_tokens(special: _SpecialIds, ids: Mapping[str, int], kinds: list[Kind]) -> set[int]:
    """Padding, repository and file separators, which end a generation; all become control."""
    ends = set()
    for name, texts in _FIM_TEXTS.items():
        token = special.get(name)
        if token is None and name in _OLD_FIM_NAMES:
            token = special.get(_OLD_FIM_NAMES[name])
        if token is None:
            token = min(_present(texts, ids), default=None)
            if token is not None:
                kinds[token] |= Kind.CONTROL
        if token is not None and name in _FIM_ENDS:
            ends.add(token)
    return ends


def _unmark_harmony_end(end_ids: set[int], ids: Mapping[str, int], kinds: list[Kind]) -> None:
    """Where <|return|> and <|call|> end a turn, <|end|> only ends a message."""
    present = {text for text in _END_TEXTS if ids.get(text) in end_ids}
    has_call = not present.isdisjoint({"<|call|>", "<|calls|>"})
    if has_call and "<|end|>" in present and not present.isdisjoint({"<|return|>", "<|flush|>"}):
        end_ids.discard(ids["<|end|>"])
        kinds[ids["<|end|>"]] = Kind.USER_DEFINED


def _unmark_plain_slash_s(end_ids: set[int], ids: Mapping[str, int], kinds: list[Kind]) -> None:
    """Vocabularies with these markers have "</s>" as ordinary text."""
    markers = _present(("<|tool_response>", "<|plamo:eos|>"), ids)
    if "</s>" in ids and ids["</s>"] in end_ids and not end_ids.isdisjoint(markers):
        end_ids.discard(ids["</s>"])
        kinds[ids["</s>"]] = Kind.NORMAL


def _present(texts: Iterable[str], ids: Mapping[str, int]) -> list[int]:
    return [ids[text] for text in texts if text in ids]
