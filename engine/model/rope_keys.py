"""Keys of the rotation of queries and keys. Source: llama-hparams, ARCH.md 1.9 and 1.14."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from engine.core.ops import RopeParams

if TYPE_CHECKING:
    from engine.model.arch_keys import ArchKeys

MOST_ROTATED = 2**16
"""Elements of a head that are rotated."""

MOST_STRETCH = 1e6
"""No context was ever stretched or shrunk by more."""

FREQ_BASE = 10000.0
"""Where a file does not say another."""

ROPE_SCALINGS = ("none", "linear", "yarn", "longrope")


def read_rope(
    keys: ArchKeys, n_embd_head: int, n_ctx_train: int, mode: int, *, rotates: bool
) -> RopeParams:
    """The rotation of heads of `n_embd_head`; ModelError names the key that cannot be used.

    `rotates`: whether positions turn them, which takes pairs of elements.
    """
    n_dims = keys.count("rope.dimension_count", n_embd_head, high=MOST_ROTATED)
    if rotates and (n_dims > n_embd_head or n_dims % 2):
        allowed = f"even and at most {n_embd_head}{head_size_origin(keys)}"
        raise keys.wrong("rope.dimension_count", n_dims, allowed)
    scaling = rope_scaling(keys)
    is_yarn = scaling == "yarn"
    scale = 1.0 if scaling == "none" else freq_scale(keys)
    attn_factor = keys.number("rope.scaling.attn_factor", 1.0)
    return RopeParams(
        n_dims=n_dims,
        mode=mode,
        n_ctx_orig=keys.count("rope.scaling.original_context_length", n_ctx_train),
        freq_base=freq_base(keys, "rope.freq_base"),
        freq_scale=scale,
        ext_factor=1.0 if is_yarn else 0.0,
        attn_factor=attn_factor * _yarn_magnitude(scale) if is_yarn else attn_factor,
    )


def head_size_origin(keys: ArchKeys) -> str:
    """Words that follow the size of a head of K where no key of its own says it."""
    if keys.has("attention.key_length"):
        return ""
    share = "embedding_length over attention.head_count"
    return f" ({share}, as attention.key_length is missing)"


def rope_scaling(keys: ArchKeys) -> str:
    """How a longer context is made to fit, by its name."""
    return keys.text("rope.scaling.type", "linear", choices=ROPE_SCALINGS)


def freq_scale(keys: ArchKeys) -> float:
    """What angles are multiplied by; 1 where the file says nothing."""
    key = "rope.scaling.factor" if keys.has("rope.scaling.factor") else "rope.scale_linear"
    factor = keys.number(key, 0.0)
    if factor and not 1 / MOST_STRETCH <= factor <= MOST_STRETCH:
        raise keys.wrong(key, factor, f"0, or from {1 / MOST_STRETCH:g} to {MOST_STRETCH:g}")
    return 1.0 / factor if factor else 1.0


def freq_base(keys: ArchKeys, key: str, default: float = FREQ_BASE) -> float:
    """The base of the frequencies."""
    base = keys.number(key, default)
    if base <= 0.0:
        raise keys.wrong(key, base, "above 0")
    return base


def _yarn_magnitude(freq_scale: float) -> float:
    """What undoes the factor that the operation multiplies by itself (ARCH.md 1.9)."""
    stretch = 0.1 * math.log(1.0 / freq_scale)
    wanted = 1.0 + stretch if freq_scale < 1.0 else 1.0
    return wanted / (1.0 + stretch)
