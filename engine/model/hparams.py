"""The numbers of a model, from its metadata. Source: llama-hparams, ARCH.md 1.9 and 1.14."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from engine.core.ops import MULTI_ROPES, RopeParams
from engine.errors import ModelError
from engine.gguf.keys import TOKENIZER_TOKENS
from engine.model.arch_keys import (
    LARGEST,
    LOOK_HINT,
    TOKEN_EMBEDDING,
    VOCAB_SIZE,
    vocabulary_size,
)
from engine.model.hparams_parts import ExpertRouting, Pooling
from engine.model.rope_keys import (
    FREQ_BASE,
    freq_base,
    freq_scale,
    head_size_origin,
    read_rope,
    rope_scaling,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    import numpy.typing as npt

    from engine.model.arch_keys import ArchKeys
    from engine.model.hparams_encoder import Encoder
    from engine.model.hparams_parts import LatentAttention, Temperature
    from engine.model.hparams_recurrent import Recurrence

MOST_LAYERS = 512
"""llama.cpp's LLAMA_MAX_LAYERS."""

MOST_EXPERTS = 1024
"""llama.cpp's LLAMA_MAX_EXPERTS."""

MOST_PER_HEAD = 2**16
"""Heads, and elements of a head; keeps every size below 2**63 bytes."""


class WindowKind(enum.Enum):
    """How a sliding window is cut. Source: ARCH.md 1.5."""

    STANDARD = enum.auto()
    CHUNKED = enum.auto()
    SYMMETRIC = enum.auto()


@dataclass(frozen=True, slots=True)
class Window:
    """A sliding window: a token sees few others."""

    n_swa: int
    kind: WindowKind = WindowKind.STANDARD

    def hides(
        self, p0: npt.NDArray[np.int64], p1: npt.NDArray[np.int64] | int
    ) -> npt.NDArray[np.bool_]:
        """Whether the token at position p1 does not see the one at p0, which is not later."""
        if self.kind is WindowKind.CHUNKED:
            return p0 < p1 // self.n_swa * self.n_swa
        reach = self.n_swa - 1 if self.kind is WindowKind.STANDARD else self.n_swa // 2
        return p1 - p0 > reach


@dataclass(frozen=True, slots=True)
class LayerHparams:
    """The numbers of one layer; layers that are alike share one."""

    n_head: int
    n_head_kv: int
    n_embd_head_k: int
    n_embd_head_v: int
    n_ff: int
    rope: RopeParams
    n_ff_exp: int = 0
    n_expert_used: int = 0
    """0: its feed-forward has no experts."""
    rotates: bool = True
    """Whether positions turn queries and keys."""
    is_swa: bool = False
    """Whether it sees through the model's sliding window."""
    attends: bool = True
    """Whether it has attention."""
    is_recurrent: bool = False
    """Whether it carries a state from token to token; a layer may have attention beside it."""

    @property
    def n_embd_q(self) -> int:
        """Elements of a row of Q."""
        return self.n_embd_head_k * self.n_head

    @property
    def n_embd_k(self) -> int:
        """Elements of a row of the K cache."""
        return self.n_embd_head_k * self.n_head_kv

    @property
    def n_embd_v(self) -> int:
        """Elements of a row of the V cache."""
        return self.n_embd_head_v * self.n_head_kv

    @property
    def n_embd_attended(self) -> int:
        """Elements of a row that attention gives, before its output projection."""
        return self.n_embd_head_v * self.n_head


@dataclass(frozen=True, slots=True)
class Hparams:
    """What a graph needs to know; counts, sizes in elements. `layers` has one entry a layer."""

    arch: str
    n_ctx_train: int
    n_embd: int
    n_vocab: int
    layers: tuple[LayerHparams, ...]
    norm_eps: float
    rope_scaling: str = "linear"
    n_expert: int = 0
    routing: ExpertRouting = field(default_factory=ExpertRouting)
    n_ff_shared: int = 0
    """Width of the expert that every token uses; 0: there is none."""
    window: Window | None = None
    latent: LatentAttention | None = None
    temperature: Temperature | None = None
    nextn_layers: tuple[LayerHparams, ...] = ()
    """Layers behind the last that guess further tokens; they are neither loaded nor computed."""
    attention_scale: float = 0.0
    """What Q K^T is multiplied by, where it is not 1 / sqrt(head size); 0 where it is."""
    final_logit_softcap: float = 0.0
    """Logits x become c tanh(x / c); 0 is off."""
    embedding_scale: float = 0.0
    """What token embeddings are multiplied by; 0 is off, as it is for the next two."""
    residual_scale: float = 0.0
    """What attention and feed-forward are multiplied by before they are added."""
    logit_scale: float = 0.0
    """What logits are multiplied by."""
    is_parallel: bool = False
    """Whether attention and feed-forward both read a layer's input."""
    n_layer_shared_kv: int = 0
    """Last layers without keys and values of their own: they read those of a layer before them."""
    n_embd_per_layer: int = 0
    """Elements of a token's embedding that each layer has for itself; 0: there are none."""
    recurrence: Recurrence | None = None
    """Sizes of the recurrent layers; None: there are none."""
    encoder: Encoder | None = None
    """Set for models that see a whole text at once, and have no logits."""
    pooling: Pooling | None = None
    """How the embeddings of a text's tokens become one; None where the file does not say."""
    n_cls_out: int = 1
    """Scores that the classifier of a model that ranks texts gives."""

    @property
    def n_layer(self) -> int:
        """Number of layers."""
        return len(self.layers)

    @property
    def every_layer(self) -> tuple[LayerHparams, ...]:
        """The layers, and those behind the last."""
        return (*self.layers, *self.nextn_layers)

    @property
    def n_layer_all(self) -> int:
        """Number of layers that a file counts, those behind the last included."""
        return len(self.layers) + len(self.nextn_layers)

    @property
    def n_pos_per_token(self) -> int:
        """Positions that a rotation takes for a token."""
        return 4 if self.layers[0].rope.mode in MULTI_ROPES else 1

    @property
    def gives_embeddings(self) -> bool:
        """Whether embeddings are what it is for, by its file; any other model can give them too."""
        return self.encoder is not None or self.pooling not in (None, Pooling.NONE)

    @property
    def has_cache(self) -> bool:
        """Whether keys and values of earlier tokens are kept."""
        return self.encoder is None

    @property
    def has_state(self) -> bool:
        """Whether any layer carries a state from token to token."""
        return self.recurrence is not None

    def cache_layer(self, il: int) -> int:
        """The layer whose keys and values layer `il` reads: itself, or an earlier one of its kind.

        Of the layers with keys the last is a full one, and the one before it slides.
        """
        n_owners = self.n_layer - self.n_layer_shared_kv
        if il < n_owners:
            return il
        return n_owners - (2 if self.layers[il].is_swa else 1)

    @property
    def caches_packed_rows(self) -> bool:
        """Whether the cache holds packed rows, of which keys and values are made."""
        return self.latent is not None and self.latent.is_absorbed

    @property
    def n_rope_freqs(self) -> int:
        """Rotations in a head."""
        return self.layers[0].rope.n_dims // 2

    @property
    def n_embd_v_max(self) -> int:
        """The longest row of V of any layer."""
        return max(layer.n_embd_v for layer in self.layers)


RMS_EPS = "attention.layer_norm_rms_epsilon"
LAYER_NORM_EPS = "attention.layer_norm_epsilon"


def read_common(
    keys: ArchKeys,
    *,
    rope_mode: int,
    needs_ff: bool = True,
    eps_key: str = RMS_EPS,
    attends: bool = True,
    rotates: bool = True,
) -> Hparams:
    """The numbers that all architectures have; theirs alone are added by each.

    `needs_ff`: whether feed_forward_length must be there; `attends`: whether any layer has
    attention; `rotates`: whether positions turn queries and keys. Raises ModelError, which names
    the key.
    """
    n_layer = keys.count("block_count", high=MOST_LAYERS)
    n_embd = keys.count("embedding_length")
    heads = _Heads((0,) * n_layer, (0,) * n_layer)
    if attends:
        heads = _read_heads(keys, n_layer, n_embd, rope_mode, rotates=rotates)
    n_expert, n_used = _expert_counts(keys, n_layer)
    layers = _read_layers(keys, heads, n_used, needs_ff=needs_ff, rotates=rotates)
    n_trunk = n_layer - keys.count("nextn_predict_layers", 0, low=0, high=n_layer - 1)
    return Hparams(
        arch=keys.arch,
        n_ctx_train=keys.count("context_length"),
        n_embd=n_embd,
        n_vocab=_vocabulary_size(keys),
        layers=layers[:n_trunk],
        nextn_layers=layers[n_trunk:],
        norm_eps=keys.number(eps_key, low=0.0),
        rope_scaling=rope_scaling(keys),
        n_expert=n_expert,
        routing=_groups(keys, n_expert),
        pooling=_pooling(keys),
        n_cls_out=keys.length("classifier.output_labels") or 1,
    )


def _pooling(keys: ArchKeys) -> Pooling | None:
    key = "pooling_type"
    if not keys.has(key):
        return None
    known = {kind.value: f"{kind.value} ({kind.name.lower()})" for kind in Pooling}
    return Pooling(keys.choice(key, known))


def _vocabulary_size(keys: ArchKeys) -> int:
    n_vocab = vocabulary_size(keys)
    if not n_vocab:
        raise ModelError(
            "The file has no vocabulary.",
            f"Neither {TOKENIZER_TOKENS} nor {keys.full(VOCAB_SIZE)} nor the tensor "
            f"{TOKEN_EMBEDDING} is there.",
            LOOK_HINT,
        )
    return n_vocab


def check_heads_alike(keys: ArchKeys, hparams: Hparams, *, rotates_all: bool) -> None:
    """ModelError unless K and V heads are of one size, which rotation takes whole if it must."""
    layer = hparams.layers[0]
    if layer.n_embd_head_v != layer.n_embd_head_k:
        allowed = f"{layer.n_embd_head_k}, as long as a key{head_size_origin(keys)}"
        raise keys.wrong("attention.value_length", layer.n_embd_head_v, allowed)
    if rotates_all and layer.rope.n_dims != layer.n_embd_head_k:
        allowed = f"{layer.n_embd_head_k}, the size of a head{head_size_origin(keys)}"
        raise keys.wrong("rope.dimension_count", layer.rope.n_dims, allowed)


def check_has_experts(keys: ArchKeys, hparams: Hparams) -> None:
    """ModelError unless there are experts."""
    if not hparams.n_expert:
        raise keys.wrong("expert_count", 0, f"a whole number from 1 to {MOST_EXPERTS}")


def with_expert_width(keys: ArchKeys, hparams: Hparams) -> Hparams:
    """`hparams` with the width of an expert: its key's, else a share of feed_forward_length.

    ModelError unless there are experts and they have a width.
    """
    check_has_experts(keys, hparams)

    def widen(layer: LayerHparams) -> LayerHparams:
        width = layer.n_ff_exp or layer.n_ff // layer.n_expert_used
        if not width:
            raise keys.wrong("expert_feed_forward_length", 0, f"a whole number from 1 to {LARGEST}")
        return replace(layer, n_ff_exp=width)

    everywhere = (True,) * hparams.n_layer_all
    every_layer = changed((*hparams.layers, *hparams.nextn_layers), everywhere, widen)
    return replace(
        hparams,
        layers=every_layer[: hparams.n_layer],
        nextn_layers=every_layer[hparams.n_layer :],
    )


def with_dense_layers(hparams: Hparams, dense: Sequence[bool]) -> Hparams:
    """`hparams` with one truth value a layer, those behind the last included: no experts there."""

    def plain(layer: LayerHparams) -> LayerHparams:
        return replace(layer, n_expert_used=0)

    n_layer = hparams.n_layer
    return replace(
        hparams,
        layers=changed(hparams.layers, dense[:n_layer], plain),
        nextn_layers=changed(hparams.nextn_layers, dense[n_layer:], plain),
    )


def with_window(
    keys: ArchKeys,
    hparams: Hparams,
    window: Window,
    *,
    pattern: int,
    keeps_rope: bool = False,
) -> Hparams:
    """`hparams` with a window over some layers, whose rotation has a base of its own.

    `keeps_rope`: base and scale are the model's where the file says nothing else. `pattern` is the
    architecture's: layer il slides where il % pattern < pattern - 1; 0 means all. A file may give
    another pattern, or one truth value a layer.
    """
    key = "attention.sliding_window_pattern"
    slides = keys.layer_flags(key, hparams.n_layer)
    if slides is None:
        every = keys.count(key, pattern, low=0)
        slides = tuple(not every or il % every < every - 1 for il in range(hparams.n_layer))
    own = hparams.layers[0].rope
    rope = replace(
        own,
        freq_base=freq_base(keys, "rope.freq_base_swa", own.freq_base if keeps_rope else FREQ_BASE),
        freq_scale=freq_scale(keys) if keeps_rope else 1.0,
    )

    def slide(layer: LayerHparams) -> LayerHparams:
        return replace(layer, is_swa=True, rope=rope)

    return replace(hparams, window=window, layers=changed(hparams.layers, slides, slide))


def changed(
    layers: tuple[LayerHparams, ...],
    where: Sequence[bool],
    change: Callable[[LayerHparams], LayerHparams],
) -> tuple[LayerHparams, ...]:
    """`layers` with a change in those `where` it is wanted; layers that are alike share one."""
    known: dict[LayerHparams, LayerHparams] = {}
    return tuple(
        known.setdefault(layer, change(layer)) if is_changed else layer
        for layer, is_changed in zip(layers, where, strict=True)
    )


class _Heads(NamedTuple):
    """Heads of each layer, elements of a head of K and of V, and how they are rotated."""

    counts: tuple[int, ...]
    counts_kv: tuple[int, ...]
    size_k: int = 0
    size_v: int = 0
    rope: RopeParams = RopeParams(0)


def _read_layers(
    keys: ArchKeys,
    heads: _Heads,
    n_used: tuple[int, ...],
    *,
    needs_ff: bool,
    rotates: bool,
) -> tuple[LayerHparams, ...]:
    """Every layer that the file counts; those that are alike are one."""
    n_layer = len(n_used)
    ff_default = None if needs_ff else 0
    ff = keys.counts("feed_forward_length", n_layer, ff_default, low=int(needs_ff))
    ff_exp = keys.counts("expert_feed_forward_length", n_layer, 0, low=0)
    rows = tuple(zip(heads.counts, heads.counts_kv, ff, ff_exp, n_used, strict=True))

    def layer(row: tuple[int, int, int, int, int]) -> LayerHparams:
        n_head, n_head_kv, n_ff, n_ff_exp, n_expert_used = row
        return LayerHparams(
            n_head, n_head_kv, heads.size_k, heads.size_v, n_ff, heads.rope, n_ff_exp,
            n_expert_used, rotates=rotates, attends=n_head > 0,
        )  # fmt: skip

    known = {row: layer(row) for row in set(rows)}
    return tuple(known[row] for row in rows)


def _read_heads(
    keys: ArchKeys, n_layer: int, n_embd: int, rope_mode: int, *, rotates: bool
) -> _Heads:
    counts = keys.counts("attention.head_count", n_layer, high=MOST_PER_HEAD)
    counts_kv = keys.counts("attention.head_count_kv", n_layer, counts)
    size_k, size_v = _head_sizes(keys, n_embd, counts[0], rotates=rotates)
    _check_groups(keys, counts, counts_kv)
    rope = read_rope(keys, size_k, keys.count("context_length"), rope_mode, rotates=rotates)
    return _Heads(counts, counts_kv, size_k, size_v, rope)


def _head_sizes(keys: ArchKeys, n_embd: int, n_head: int, *, rotates: bool) -> tuple[int, int]:
    """Elements of a head of K and of V; where a key is missing, the embedding's share."""
    sizes = []
    for key in ("attention.key_length", "attention.value_length"):
        if not keys.has(key) and n_embd % n_head:
            raise keys.wrong("attention.head_count", n_head, f"a divisor of {n_embd}")
        sizes.append(keys.count(key, n_embd // n_head, high=MOST_PER_HEAD))
    if rotates and sizes[0] % 2 and not keys.has("rope.dimension_count"):
        if keys.has("attention.key_length"):
            raise keys.wrong("attention.key_length", sizes[0], "even")
        allowed = f"such that {n_embd} elements give heads of an even size"
        raise keys.wrong("attention.head_count", n_head, allowed)
    return sizes[0], sizes[1]


def _check_groups(keys: ArchKeys, heads: tuple[int, ...], heads_kv: tuple[int, ...]) -> None:
    for n_head, n_head_kv in zip(heads, heads_kv, strict=True):
        if n_head % n_head_kv:
            raise keys.wrong("attention.head_count_kv", n_head_kv, f"a divisor of {n_head}")


def _expert_counts(keys: ArchKeys, n_layer: int) -> tuple[int, tuple[int, ...]]:
    n_expert = keys.count("expert_count", 0, low=0, high=MOST_EXPERTS)
    used = keys.counts("expert_used_count", n_layer, 0, low=0)
    most = max(used)
    if most and not n_expert:
        allowed = f"a whole number from {most} to {MOST_EXPERTS}, as expert_used_count is {most}"
        raise keys.wrong("expert_count", n_expert, allowed)
    if most > n_expert:
        raise keys.wrong("expert_used_count", most, f"at most {n_expert}, the expert_count")
    if n_expert and not min(used):
        raise keys.wrong("expert_used_count", 0, f"a whole number from 1 to {n_expert}")
    return n_expert, used


def _groups(keys: ArchKeys, n_expert: int) -> ExpertRouting:
    n_group = keys.count("expert_group_count", 0, low=0)
    n_used = keys.count("expert_group_used_count", 0, low=0)
    if n_group > 1:
        if n_group >= n_expert or n_expert % n_group:
            allowed = f"a divisor of {n_expert}, the expert_count, and below it"
            raise keys.wrong("expert_group_count", n_group, allowed)
        if not 0 < n_used < n_group:
            raise keys.wrong("expert_group_used_count", n_used, f"from 1 to {n_group - 1}")
    return ExpertRouting(n_group=n_group, n_group_used=n_used)
