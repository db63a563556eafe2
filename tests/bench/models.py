"""The models that are measured, and what a token reads of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.gguf.reader import open_gguf
from engine.model.fetch import fetch_known
from engine.model.manifest import DEMO, load_manifest

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from engine.core.summary import Progress
    from tests.bench.race import Say

MODELS = (DEMO, "gemma", "qwen", "qwen-1.5b")
EMBEDDINGS, OUTPUT = "token_embd.weight", "output.weight"


def model_path(name: str, say: Say) -> Path:
    """A model's file, fetched where it is not here."""
    entry = load_manifest()[name]
    seen = set[str]()

    def tell(progress: Progress) -> None:
        if progress.label not in seen:
            seen.add(progress.label)
            say(f"{progress.label} (licence: {entry.licence})")

    return fetch_known(name, tell)


def token_bytes(path: Path) -> int:
    """Bytes of weights that one token reads."""
    with open_gguf(path) as file:
        return read_bytes({info.name: info.n_bytes for info in file.tensors})


def read_bytes(sizes: Mapping[str, int]) -> int:
    """All but the table of embeddings, of which a token reads a row; tied, it is the output too."""
    return sum(size for name, size in sizes.items() if name != EMBEDDINGS or OUTPUT not in sizes)
