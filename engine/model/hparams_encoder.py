"""Encoder: what differs in models that give embeddings instead of logits. Source: ARCH.md 6."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from engine.core.ops import ROPE_NEOX
from engine.errors import ModelError
from engine.gguf.keys import TOKENIZER_TOKEN_TYPE_COUNT
from engine.model.arch_keys import COPY_HINT, LARGEST
from engine.model.hparams import LAYER_NORM_EPS, check_heads_alike, read_common

if TYPE_CHECKING:
    from engine.model.arch_keys import ArchKeys
    from engine.model.hparams import Hparams

ENCODER_TEXTS = 256
"""Texts that llama.cpp's embedding tool makes room for."""


class Pooling(enum.IntEnum):
    """How the embeddings of a text's tokens become one; the values are those of files."""

    NONE = 0
    """They stay as they are."""
    MEAN = 1
    CLS = 2
    """That of the first token is the text's."""
    LAST = 3


@dataclass(frozen=True, slots=True)
class Encoder:
    """A model that sees a whole text at once."""

    pooling: Pooling
    n_token_types: int
    n_positions: int = 0
    """Positions that have an embedding; 0: positions turn queries and keys instead."""
    hides_later: bool = False
    """Whether a token does not see those after it, which is rare."""


def read_encoder(keys: ArchKeys, *, has_positions: bool) -> Hparams:
    """The numbers of an encoder; ModelError names the key that cannot be used.

    `has_positions`: whether positions have embeddings.
    """
    hp = read_common(keys, rope_mode=ROPE_NEOX, eps_key=LAYER_NORM_EPS)
    check_heads_alike(keys, hp, rotates_all=False)
    pooling = keys.count("pooling_type", Pooling.NONE.value, low=0, high=LARGEST)
    if pooling not in list(Pooling):
        known = ", ".join(f"{kind.value} ({kind.name.lower()})" for kind in Pooling)
        raise keys.wrong("pooling_type", pooling, f"one of {known}")
    return replace(
        hp,
        encoder=Encoder(
            pooling=Pooling(pooling),
            n_token_types=_token_types(keys),
            n_positions=hp.n_ctx_train if has_positions else 0,
            hides_later=keys.flag("attention.causal", default=True),
        ),
    )


def _token_types(keys: ArchKeys) -> int:
    count = keys.file.metadata.get(TOKENIZER_TOKEN_TYPE_COUNT)
    if isinstance(count, int) and 0 < count <= LARGEST:
        return count
    found = "missing" if count is None else count
    raise ModelError(
        f"The key {TOKENIZER_TOKEN_TYPE_COUNT} cannot be used.",
        f"It is {found}; it must be a whole number from 1 to {LARGEST}.",
        COPY_HINT,
    )
