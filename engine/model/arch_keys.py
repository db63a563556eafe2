"""ArchKeys: the keys of one architecture, read and checked. Every fault names its key."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.errors import ModelError
from engine.gguf import keys

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from engine.gguf.reader import GgufFile

LARGEST = 2**24
"""No count of a real model is above this; a larger one is a broken file."""

VOCAB_SIZE = "vocab_size"
TOKEN_EMBEDDING = "token_embd.weight"

LOOK_HINT = "Its tensors and sizes can still be looked at: python -m engine tensors FILE"
COPY_HINT = "Convert the model again, or download another copy."


def architecture(metadata: Mapping[str, Any]) -> str:
    """The architecture a file names; ModelError when it names none."""
    arch = metadata.get(keys.ARCHITECTURE)
    if not isinstance(arch, str) or not arch:
        found = "missing" if arch is None else f"{arch!r}; it must be a name"
        raise ModelError(
            "The file does not say which architecture it is.",
            f"The key {keys.ARCHITECTURE} is {found}.",
            LOOK_HINT,
        )
    return arch


class ArchKeys:
    """The keys of a file's architecture, without its name: `count("block_count")`.

    A value without a default must be there. Every method raises ModelError that names the key,
    what was found and what is allowed.
    """

    def __init__(self, file: GgufFile) -> None:
        self.arch = architecture(file.metadata)
        self.file = file
        self._metadata: Mapping[str, Any] = file.metadata

    def count(
        self, key: str, default: int | None = None, *, low: int = 1, high: int = LARGEST
    ) -> int:
        """A whole number from `low` to `high`."""
        value = self._get(key, default)
        if not _is_count(value, low, high):
            raise self.wrong(key, value, f"a whole number from {low} to {high}")
        return int(value)

    def counts(
        self,
        key: str,
        n_layer: int,
        default: int | Sequence[int] | None = None,
        *,
        low: int = 1,
        high: int = LARGEST,
    ) -> tuple[int, ...]:
        """One whole number a layer; a file may give a single one for all of them."""
        value = self._get(key, default)
        if not _is_array(value):
            return (self.count(key, value, low=low, high=high),) * n_layer
        self._check_length(key, value, n_layer)
        for il, item in enumerate(value):
            if not _is_count(item, low, high):
                raise self.wrong(
                    key, f"{item} for layer {il}", f"a whole number from {low} to {high}"
                )
        return tuple(int(item) for item in value)

    def integers(
        self, key: str, n: int, default: Sequence[int] | None = None, *, low: int = 0
    ) -> tuple[int, ...]:
        """An array of `n` whole numbers of at least `low`."""
        value = self._get(key, default)
        allowed = f"an array of {n} whole numbers from {low} on"
        if not _is_array(value):
            raise self.wrong(key, value, allowed)
        if len(value) != n:
            raise self.wrong(key, f"an array of {len(value)}", allowed)
        if not all(_is_count(item, low, LARGEST) for item in value):
            raise self.wrong(key, ", ".join(str(item) for item in value), allowed)
        return tuple(int(item) for item in value)

    def layer_flags(
        self, key: str, n_layer: int, *, required: bool = False
    ) -> tuple[bool, ...] | None:
        """One truth value a layer, or None where the file gives no array and none is `required`."""
        value = self._metadata.get(self.full(key))
        allowed = f"an array of {n_layer} values, one a layer"
        if value is None or not _is_array(value):
            if required:
                raise self.wrong(key, value, allowed)
            return None
        if required and len(value) != n_layer:
            raise self.wrong(key, f"an array of {len(value)}", allowed)
        self._check_length(key, value, n_layer)
        for il, item in enumerate(value):
            if not isinstance(item, bool | np.bool_ | int | np.integer):
                raise self.wrong(key, f"{item} for layer {il}", "true or false")
        return tuple(bool(item) for item in value)

    def number(self, key: str, default: float | None = None, *, low: float = -math.inf) -> float:
        """A finite number of at least `low`."""
        value = self._get(key, default)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not math.isfinite(value):
            raise self.wrong(key, value, "a number")
        if value < low:
            raise self.wrong(key, value, f"at least {low:g}")
        return float(value)

    def text(self, key: str, default: str, *, choices: Sequence[str]) -> str:
        """One of `choices`."""
        value = self._get(key, default)
        if not isinstance(value, str) or value not in choices:
            raise self.wrong(key, value, f"one of {', '.join(choices)}")
        return value

    def choice(self, key: str, known: Mapping[int, str]) -> int:
        """One of the whole numbers that are `known`, whose words are for people."""
        value = self._get(key, None)
        if not _is_count(value, min(known), max(known)) or value not in known:
            raise self.wrong(key, value, f"one of {', '.join(known.values())}")
        return int(value)

    def length(self, key: str) -> int:
        """How long the array is that the file gives; 0 for anything else."""
        value: Any = self._metadata.get(self.full(key))
        return len(value) if _is_array(value) else 0

    def flag(self, key: str, default: bool | None = None) -> bool:
        """True or false."""
        value = self._get(key, default)
        if not isinstance(value, bool | np.bool_):
            raise self.wrong(key, value, "true or false")
        return bool(value)

    def has(self, key: str) -> bool:
        """Whether the file has the key."""
        return self.full(key) in self._metadata

    def full(self, key: str) -> str:
        """The key as it stands in the file."""
        return f"{self.arch}.{key}"

    def wrong(self, key: str, found: object, allowed: str) -> ModelError:
        """The error for a key that cannot be used: for what was found, or for its absence."""
        return ModelError(
            f"The key {self.full(key)} cannot be used.",
            f"It is {found if self.has(key) else 'missing'}; it must be {allowed}.",
            COPY_HINT,
        )

    def _get(self, key: str, default: Any) -> Any:
        value = self._metadata.get(self.full(key), default)
        if value is None:
            raise self.wrong(key, "missing", "present")
        return value

    def _check_length(self, key: str, value: Sequence[object], n_layer: int) -> None:
        if len(value) != n_layer:
            raise self.wrong(
                key, f"an array of {len(value)}", f"one value, or {n_layer} of them, one a layer"
            )


def vocabulary_size(keys_of_file: ArchKeys) -> int:
    """Tokens that a model knows; 0 where its file says nothing of them.

    Those that its tokenizer lists, else what its key says, else what its embedding has rows for.
    """
    file = keys_of_file.file
    tokens: Any = file.metadata.get(keys.TOKENIZER_TOKENS)
    if _is_array(tokens) and len(tokens):
        return len(tokens)
    if keys_of_file.has(VOCAB_SIZE):
        return keys_of_file.count(VOCAB_SIZE)
    return file.tensor(TOKEN_EMBEDDING).ne[1] if TOKEN_EMBEDDING in file else 0


def _is_array(value: object) -> bool:
    return hasattr(value, "__len__") and not isinstance(value, str)


def _is_count(value: object, low: int, high: int) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        return False
    return low <= int(value) <= high
