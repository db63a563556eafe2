"""The numbers of a model, from its metadata. Source: llama-hparams, ARCH.md 1.9."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from engine.core.ops import RopeParams
from engine.errors import ModelError
from engine.gguf import keys

if TYPE_CHECKING:
    from collections.abc import Mapping

    from engine.gguf.reader import GgufFile

LARGEST = 2**24
"""No count of a real model is above this; a larger one is a broken file."""

LOOK_HINT = "Its tensors and sizes can still be looked at: python -m engine tensors FILE"

MOST_LAYERS = 512
"""llama.cpp's LLAMA_MAX_LAYERS."""

MOST_PER_HEAD = 2**16
"""Heads, and elements of a head; keeps every size below 2**63 bytes."""


@dataclass(frozen=True, slots=True)
class Hparams:
    """What every graph needs to know; counts, sizes in elements."""

    arch: str
    n_layer: int
    n_ctx_train: int
    n_embd: int
    n_ff: int
    n_head: int
    n_head_kv: int
    n_embd_head: int
    n_vocab: int
    n_expert: int
    norm_eps: float
    rope: RopeParams

    @property
    def n_embd_q(self) -> int:
        """Elements of a row of Q."""
        return self.n_embd_head * self.n_head

    @property
    def n_rope_freqs(self) -> int:
        """Rotations in a head."""
        return self.rope.n_dims // 2

    @property
    def n_embd_kv(self) -> int:
        """Elements of a row of the K or V cache."""
        return self.n_embd_head * self.n_head_kv


def architecture(metadata: Mapping[str, Any]) -> str:
    """The architecture a file names; ModelError when it names none."""
    arch = metadata.get(keys.ARCHITECTURE)
    if not isinstance(arch, str) or not arch:
        raise ModelError(
            "The file does not say which architecture it is.",
            f"The key {keys.ARCHITECTURE} is missing.",
            LOOK_HINT,
        )
    return arch


def read_hparams(file: GgufFile) -> Hparams:
    """The numbers of a model; ModelError names the key that is missing or out of range."""
    reader = _Reader(file.metadata, architecture(file.metadata))
    n_embd = reader.count("embedding_length")
    n_head = reader.count("attention.head_count", high=MOST_PER_HEAD)
    if n_embd % n_head:
        raise reader.wrong("attention.head_count", n_head, f"a divisor of {n_embd}")
    n_embd_head = reader.count("attention.key_length", n_embd // n_head, high=MOST_PER_HEAD)
    n_head_kv = reader.count("attention.head_count_kv", n_head)
    if n_head % n_head_kv:
        raise reader.wrong("attention.head_count_kv", n_head_kv, f"a divisor of {n_head}")
    n_ctx_train = reader.count("context_length")
    return Hparams(
        arch=reader.arch,
        n_layer=reader.count("block_count", high=MOST_LAYERS),
        n_ctx_train=n_ctx_train,
        n_embd=n_embd,
        n_ff=reader.count("feed_forward_length"),
        n_head=n_head,
        n_head_kv=n_head_kv,
        n_embd_head=n_embd_head,
        n_vocab=_vocabulary_size(file),
        n_expert=reader.count("expert_count", 0, low=0),
        norm_eps=reader.number("attention.layer_norm_rms_epsilon"),
        rope=_rope(reader, n_embd_head, n_ctx_train),
    )


def _rope(reader: _Reader, n_embd_head: int, n_ctx_train: int) -> RopeParams:
    scaling = reader.text("rope.scaling.type", "linear")
    factor = reader.number("rope.scaling.factor", reader.number("rope.scale_linear", 0.0))
    n_dims = reader.count("rope.dimension_count", n_embd_head)
    if n_dims > n_embd_head or n_dims % 2:
        raise reader.wrong("rope.dimension_count", n_dims, f"even and at most {n_embd_head}")
    freq_scale = 1.0 if scaling == "none" or factor == 0.0 else 1.0 / factor
    attn_factor = reader.number("rope.scaling.attn_factor", 1.0)
    return RopeParams(
        n_dims=n_dims,
        mode=0,
        n_ctx_orig=reader.count("rope.scaling.original_context_length", n_ctx_train),
        freq_base=reader.number("rope.freq_base", 10000.0),
        freq_scale=freq_scale,
        ext_factor=1.0 if scaling == "yarn" else 0.0,
        attn_factor=attn_factor,
    )


def _vocabulary_size(file: GgufFile) -> int:
    tokens = file.metadata.get(keys.TOKENIZER_TOKENS)
    if tokens is not None and not isinstance(tokens, str | int | float) and len(tokens):
        return len(tokens)
    if "token_embd.weight" in file:
        return file.tensor("token_embd.weight").ne[1]
    raise ModelError(
        "The file has no vocabulary.",
        f"Neither {keys.TOKENIZER_TOKENS} nor the tensor token_embd.weight is there.",
        "Its tensors and sizes can still be looked at.",
    )


class _Reader:
    """Reads keys of one architecture, checked."""

    def __init__(self, metadata: Mapping[str, Any], arch: str) -> None:
        self._metadata = metadata
        self.arch = arch

    def count(
        self, key: str, default: int | None = None, *, low: int = 1, high: int = LARGEST
    ) -> int:
        value = self._get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise self.wrong(key, value, f"a whole number from {low} to {high}")
        return int(value)

    def number(self, key: str, default: float | None = None) -> float:
        value = self._get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.wrong(key, value, "a number")
        return float(value)

    def text(self, key: str, default: str) -> str:
        value = self._get(key, default)
        if not isinstance(value, str):
            raise self.wrong(key, value, "a text")
        return value

    def _get(self, key: str, default: Any) -> Any:
        value = self._metadata.get(f"{self.arch}.{key}", default)
        if value is None:
            raise self.wrong(key, "missing", "present")
        return value

    def wrong(self, key: str, found: object, allowed: str) -> ModelError:
        return ModelError(
            f"The key {self.arch}.{key} cannot be used.",
            f"It is {found}; it must be {allowed}.",
            "Convert the model again, or download another copy.",
        )
