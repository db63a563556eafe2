"""Encoder: what differs in models that see a whole text at once. Source: ARCH.md 6."""

from __future__ import annotations

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


@dataclass(frozen=True, slots=True)
class Encoder:
    """A model that sees a whole text at once."""

    n_token_types: int
    n_positions: int = 0
    """Positions that have an embedding; 0: positions turn queries and keys instead."""
    hides_later: bool = False
    """Whether a token does not see those after it, which is rare."""


def read_encoder(keys: ArchKeys, *, has_positions: bool) -> Hparams:
    """The numbers of an encoder; ModelError names the key that cannot be used.

    `has_positions`: whether positions have embeddings, and turn nothing.
    """
    hp = read_common(keys, rope_mode=ROPE_NEOX, eps_key=LAYER_NORM_EPS, rotates=not has_positions)
    check_heads_alike(keys, hp, rotates_all=False)
    return replace(
        hp,
        encoder=Encoder(
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
