"""Numbers that some models have: pooling, experts, temperature, latent attention."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt


class Pooling(enum.IntEnum):
    """How the embeddings of a text's tokens become one; the values are those of files."""

    NONE = 0
    """They stay as they are."""
    MEAN = 1
    CLS = 2
    """That of the first token is the text's."""
    LAST = 3
    RANK = 4
    """A classifier makes scores of them, which this version does not."""


class Gating(enum.IntEnum):
    """How a router's logits become the experts' weights; the values are those of files."""

    SOFTMAX = 1
    SIGMOID = 2
    SOFTMAX_WEIGHT = 3
    """Softmax over the logits of the chosen experts alone."""


@dataclass(frozen=True, slots=True)
class ExpertRouting:
    """How each token finds its experts. Source: ARCH.md 1.11."""

    gating: Gating = Gating.SOFTMAX
    normalises: bool = True
    """Whether the weights of the chosen experts are divided by their sum."""
    scale: float = 0.0
    """What the weights are multiplied by; 0 is off."""
    n_group: int = 0
    """Experts come in so many groups, of which the best are looked at; 0 or 1: all are."""
    n_group_used: int = 0
    weighs_input: bool = False
    """Whether experts are chosen by raw logits and weights multiply what they are given."""


@dataclass(frozen=True, slots=True)
class Temperature:
    """Attention grows sharper with the position: ln(floor((p + offset) / length) + 1) scale + 1."""

    length: int
    scale: float
    offset: float

    def factors(self, positions: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        """What queries at `positions` are multiplied by."""
        steps = np.floor((positions + self.offset) / self.length)
        return (np.log(steps + 1.0) * self.scale + 1.0).astype(np.float32)


@dataclass(frozen=True, slots=True)
class LatentAttention:
    """Keys and values are unpacked from one short row a token (MLA). Sizes in elements."""

    n_lora_q: int
    """Rank of the product that gives queries; 0: it is one matrix."""
    n_lora_kv: int
    n_head_k: int
    """Of a head of K once unpacked: a part without rotation, then `n_rope` with it."""
    n_head_v: int
    n_rope: int
    is_absorbed: bool
    """Whether the cache holds packed rows, and the unpacking is part of queries and results."""

    @property
    def n_nope(self) -> int:
        """Elements of a head of K that are not rotated."""
        return self.n_head_k - self.n_rope
