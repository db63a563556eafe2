"""Vocab: token texts, kinds and special ids as a GGUF file states them, repaired as llama.cpp does.

Files state kinds poorly, so llama.cpp finds some special tokens by their text. The same rules are
applied here; where llama.cpp's choice depends on hash order, the lowest id is taken.
Source: llama-vocab.cpp, llama_vocab::impl::load.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from engine.errors import TextError
from engine.gguf import keys

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

PREFIX = "tokenizer.ggml."


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

_FIM_PAD_TEXTS = ("<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]")
_FIM_REP_TEXTS = ("<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>")
_FIM_SEP_TEXTS = ("<|file_sep|>",)

_ALWAYS_SHOWN = ("<|channel|>", "<|message|>", "<|start|>", "<|constrain|>")


@dataclass(frozen=True, slots=True)
class Vocab:
    """Token texts by id, ids by text, kinds by id, and the ids with a meaning.

    `end_ids` end a generation. `special_ids` are those to cut out of text, longest text first.
    `strip_after_ids` swallow the white space that follows them.
    """

    tokens: tuple[str, ...]
    ids: Mapping[str, int]
    kinds: tuple[Kind, ...]
    bos_id: int | None
    eos_id: int | None
    unk_id: int | None
    end_ids: frozenset[int]
    special_ids: tuple[int, ...]
    strip_after_ids: frozenset[int]


def read_vocab(metadata: Mapping[str, object], defaults: Mapping[str, int]) -> Vocab:
    """The vocabulary in `metadata`, whose keys are those of a GGUF file.

    `defaults` are ids a tokenizer model assumes when the file is silent, by short name ("bos").

    Raises:
        TextError: there is no token list, or fewer kinds than tokens.
    """
    tokens = _token_texts(metadata)
    ids = {text: token for token, text in enumerate(tokens)}
    kinds = _kinds(metadata, len(tokens))
    special = _SpecialIds(metadata, len(tokens), defaults)
    end_ids = _mark_end_tokens(special, ids, kinds)
    wanted = [token for token, kind in enumerate(kinds) if kind & SPECIAL]
    wanted.sort(key=lambda token: len(tokens[token].encode("utf-8", "surrogatepass")), reverse=True)
    return Vocab(
        tokens=tokens,
        ids=ids,
        kinds=tuple(kinds),
        bos_id=special.get("bos"),
        eos_id=special.get("eos"),
        unk_id=special.get("unknown"),
        end_ids=frozenset(end_ids),
        special_ids=tuple(wanted),
        strip_after_ids=_strip_after(metadata, wanted, ids),
    )


def flag(metadata: Mapping[str, object], name: str, *, default: bool) -> bool:
    """A yes or no of the tokenizer, such as "add_bos_token"."""
    return bool(metadata.get(PREFIX + name, default))


def broken(sentence: str) -> TextError:
    """The error for a tokenizer that the file describes incompletely."""
    return TextError(
        "This model's tokenizer cannot be used.",
        sentence,
        "The model can still be planned; convert it again to give it text.",
    )


def _token_texts(metadata: Mapping[str, object]) -> tuple[str, ...]:
    listed = cast("Sequence[str] | None", metadata.get(keys.TOKENIZER_TOKENS))
    if listed is None or len(listed) == 0:
        raise broken(f"The file has no list of tokens ({keys.TOKENIZER_TOKENS}).")
    return tuple(text or f"[EMPTY_{token}]" for token, text in enumerate(listed))


def _kinds(metadata: Mapping[str, object], n_vocab: int) -> list[Kind]:
    stated = cast("Sequence[int] | None", metadata.get(PREFIX + "token_type"))
    if stated is None:
        return [Kind.NORMAL] * n_vocab
    if len(stated) < n_vocab:
        raise broken(f"The file lists {n_vocab} tokens but only {len(stated)} token types.")
    plain = cast("list[int]", stated.tolist() if hasattr(stated, "tolist") else list(stated))
    return [_KIND_OF_FILE.get(value, Kind.UNDEFINED) for value in plain[:n_vocab]]


class _SpecialIds:
    """Ids the file names; ids beyond the vocabulary count as not stated."""

    def __init__(
        self, metadata: Mapping[str, object], n_vocab: int, defaults: Mapping[str, int]
    ) -> None:
        self._metadata = metadata
        self._n_vocab = n_vocab
        self._defaults = defaults

    def get(self, name: str) -> int | None:
        """The id for a short name such as "bos", "eot" or "fim_pad"."""
        stated = self._valid(self._metadata.get(f"{PREFIX}{name}_token_id"))
        return self._valid(self._defaults.get(name)) if stated is None else stated

    def _valid(self, value: object) -> int | None:
        if value is None:
            return None
        token = int(cast("int", value))
        return token if 0 <= token < self._n_vocab else None


def _mark_end_tokens(special: _SpecialIds, ids: Mapping[str, int], kinds: list[Kind]) -> set[int]:
    """Ids that end a generation; makes control tokens of those found by their text."""
    end_ids = set(_fim_ends(special, ids, kinds))
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


def _fim_ends(special: _SpecialIds, ids: Mapping[str, int], kinds: list[Kind]) -> Iterable[int]:
    """Fill-in-the-middle padding, repository and file separators end a generation too."""
    for name, texts in (
        ("fim_pad", _FIM_PAD_TEXTS),
        ("fim_rep", _FIM_REP_TEXTS),
        ("fim_sep", _FIM_SEP_TEXTS),
    ):
        stated = special.get(name)
        if stated is None:
            for token in sorted(_present(texts, ids))[:1]:
                kinds[token] |= Kind.CONTROL
                yield token
        else:
            yield stated


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


def _strip_after(
    metadata: Mapping[str, object], special_ids: Sequence[int], ids: Mapping[str, int]
) -> frozenset[int]:
    """Phi-3's special tokens swallow following white space; nothing in the file says so."""
    name = str(metadata.get(keys.NAME, "")).lower()
    if "phi-3" not in name and "phi3" not in name:
        return frozenset()
    kept = _present(("<unk>", "<s>", "<|endoftext|>"), ids)
    return frozenset({*special_ids, *_present(("</s>",), ids)}.difference(kept))


def _present(texts: Iterable[str], ids: Mapping[str, int]) -> list[int]:
    return [ids[text] for text in texts if text in ids]
