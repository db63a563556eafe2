"""One file an architecture: its weights and its graph. The table is what this version can run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.errors import ModelError
from engine.model.arch import llama
from engine.model.hparams import LOOK_HINT

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.model.blocks import BuiltGraph, GraphContext
    from engine.model.weights import WeightKind


@dataclass(frozen=True, slots=True)
class Architecture:
    """What differs from one architecture to another."""

    name: str
    weights: tuple[WeightKind, ...]
    build: Callable[[GraphContext], BuiltGraph]


ARCHITECTURES: dict[str, Architecture] = {
    "llama": Architecture("llama", llama.WEIGHTS, llama.build),
}


def find_architecture(name: str, *, n_expert: int = 0) -> Architecture:
    """The architecture of that name; ModelError when this version has no graph for it."""
    if name in ARCHITECTURES and n_expert == 0:
        return ARCHITECTURES[name]
    what = f"{name} with experts" if name in ARCHITECTURES else name
    raise ModelError(
        f"This version cannot plan {what} models.",
        f"It has graphs for {', '.join(ARCHITECTURES)} without experts.",
        LOOK_HINT,
    )
