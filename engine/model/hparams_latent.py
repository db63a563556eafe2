"""Keys of attention whose keys and values are unpacked from short rows. Source: ARCH.md 4."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from engine.model.arch_keys import VOCAB_SIZE
from engine.model.hparams_parts import LatentAttention, Temperature

if TYPE_CHECKING:
    from engine.core.ops import RopeParams
    from engine.model.arch_keys import ArchKeys
    from engine.model.hparams import Hparams

LITE_LAYERS = (26, 27)
"""Models of so many layers have one matrix for queries, and no key that says so."""

LITE_OF_48 = 128256
"""So have those of 48 layers with this vocabulary."""

LOG_MULTIPLIER_SCALE = 0.1
"""Files have the multiplier of the logarithm times this."""

KEY_LENGTH, VALUE_LENGTH = "attention.key_length_mla", "attention.value_length_mla"


class Stretch(NamedTuple):
    """What a stretched context does: a factor of rotated elements, and one of Q and of K."""

    rotation: float
    attention: float


def read_latent(keys: ArchKeys, hparams: Hparams) -> LatentAttention:
    """The sizes; with head sizes of their own, the unpacking is part of queries and answers."""
    layer = hparams.layers[0]
    n_head_k = keys.count(KEY_LENGTH, 0, low=0)
    n_head_v = keys.count(VALUE_LENGTH, 0, low=0)
    if bool(n_head_k) != bool(n_head_v):
        key = VALUE_LENGTH if n_head_k else KEY_LENGTH
        raise keys.wrong(key, 0, "above 0, since the other one is")
    is_absorbed = n_head_k > 0
    latent = LatentAttention(
        n_lora_q=0 if _is_lite(keys, hparams) else keys.count("attention.q_lora_rank", low=0),
        n_lora_kv=keys.count("attention.kv_lora_rank"),
        n_head_k=n_head_k or layer.n_embd_head_k,
        n_head_v=n_head_v or layer.n_embd_head_v,
        n_rope=layer.rope.n_dims,
        is_absorbed=is_absorbed,
    )
    if latent.n_nope < 1:
        allowed = f"below {latent.n_head_k}, the size of a head"
        raise keys.wrong("rope.dimension_count", latent.n_rope, allowed)
    _check_cached_sizes(keys, hparams, latent)
    return latent


def _check_cached_sizes(keys: ArchKeys, hparams: Hparams, latent: LatentAttention) -> None:
    """ModelError unless the sizes that the cache goes by are those of what is written there."""
    layer = hparams.layers[0]
    sizes = {"attention.head_count_kv": (layer.n_head_kv, layer.n_head)}
    if latent.is_absorbed:
        n_row = latent.n_lora_kv + latent.n_rope
        sizes = {
            "attention.head_count_kv": (layer.n_head_kv, 1),
            "attention.key_length": (layer.n_embd_head_k, n_row),
            "attention.value_length": (layer.n_embd_head_v, latent.n_lora_kv),
        }
    for key, (found, wanted) in sizes.items():
        if found != wanted:
            raise keys.wrong(key, found, str(wanted))


def _is_lite(keys: ArchKeys, hparams: Hparams) -> bool:
    n_layer, n_vocab = hparams.n_layer, stated_vocabulary(keys, hparams)
    return n_layer in LITE_LAYERS or (n_layer == 48 and n_vocab == LITE_OF_48)


def stated_vocabulary(keys: ArchKeys, hparams: Hparams) -> int:
    """The vocabulary's size by which models are recognised: here the key comes before the list."""
    return keys.count(VOCAB_SIZE, hparams.n_vocab)


def stretched_magnitude(keys: ArchKeys, rope: RopeParams) -> Stretch:
    """The factors of a stretched context, which YaRN's operation multiplies into again."""
    log_mul = keys.number("rope.scaling.yarn_log_multiplier", 0.0) / LOG_MULTIPLIER_SCALE
    stretch = math.log(1.0 / rope.freq_scale)
    rotation = rope.attn_factor
    if rope.ext_factor and log_mul:
        # One multiplier serves for both magnitudes, so that they cancel.
        rotation = keys.number("rope.scaling.attn_factor", 1.0) / (1.0 + 0.1 * stretch)
    return Stretch(rotation, rotation * (1.0 + 0.1 * stretch) * (1.0 + 0.1 * log_mul * stretch))


def read_temperature(keys: ArchKeys) -> Temperature | None:
    """How attention grows sharper with the position, where a file says so."""
    scale = keys.number("attention.temperature_scale", 0.0)
    if not scale:
        return None
    return Temperature(keys.count("attention.temperature_length"), scale, offset=0.0)
