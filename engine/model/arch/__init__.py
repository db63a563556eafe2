"""One file a family, and the table of the architectures that this version has graphs for.

A family has three functions: `hparams` reads its keys, `weights` says what it asks of a file,
`build` makes the graph of one batch. To add one, write its file and a line in the table. What a
family is like stands at the top of its file, which is read when a model needs it.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.errors import ModelError
from engine.model.arch_keys import ArchKeys

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from engine.gguf.reader import GgufFile
    from engine.model.blocks.graph_context import BuiltGraph, GraphContext
    from engine.model.hparams import Hparams
    from engine.model.weights import WeightKind


@dataclass(frozen=True, slots=True)
class Architecture:
    """What differs from one architecture to another."""

    name: str
    hparams: Callable[[ArchKeys], Hparams]
    weights: Callable[[Hparams], tuple[WeightKind, ...]]
    build: Callable[[GraphContext], BuiltGraph]

    def read_hparams(self, file: GgufFile) -> Hparams:
        """The numbers of a model; ModelError names the key that is missing or out of range."""
        return self.hparams(ArchKeys(file))


class ArchitectureTable(Mapping[str, Architecture]):
    """Architectures by name, from pairs of a name and the file of its family.

    ValueError for a name that comes twice. A file is imported when an architecture of it is asked
    for: most runs need one.
    """

    def __init__(self, lines: Iterable[tuple[str, str]]) -> None:
        self.files: dict[str, str] = {}
        for name, file in lines:
            if name in self.files:
                raise ValueError(f"two lines for {name}")
            self.files[name] = file
        self._known: dict[str, Architecture] = {}

    def __getitem__(self, name: str) -> Architecture:
        """The architecture; KeyError for one that has no line."""
        if name not in self._known:
            family = importlib.import_module(f"{__name__}.{self.files[name]}")
            self._known[name] = Architecture(name, family.hparams, family.weights, family.build)
        return self._known[name]

    def __contains__(self, name: object) -> bool:
        """Whether it has a line; nothing is imported."""
        return name in self.files

    def __iter__(self) -> Iterator[str]:
        """The names, in the order of the lines."""
        return iter(self.files)

    def __len__(self) -> int:
        """How many there are."""
        return len(self.files)


ARCHITECTURES = ArchitectureTable((
    ("llama", "llama"),
    ("qwen2", "qwen2"),
    ("qwen3", "qwen3"),
    ("qwen3moe", "qwen3moe"),
    ("olmoe", "olmoe"),
    ("phi3", "phi3"),
    ("gptneox", "gptneox"),
    ("starcoder2", "starcoder2"),
    ("command-r", "command_r"),
    ("granite", "granite"),
    ("granitemoe", "granite"),
    ("glm4moe", "glm4moe"),
    ("deepseek2", "deepseek2"),
    ("llama4", "llama4"),
    ("gpt-oss", "gpt_oss"),
    ("gemma3", "gemma3"),
    ("gemma4", "gemma4"),
    ("bert", "bert"),
    ("nomic-bert", "nomic_bert"),
    ("mamba", "mamba"),
    ("qwen35", "qwen35"),
    ("qwen35moe", "qwen35"),
    ("falcon-h1", "falcon_h1"),
))  # fmt: skip


def find_architecture(name: str) -> Architecture:
    """The architecture of that name; ModelError when this version has no graph for it."""
    if name in ARCHITECTURES:
        return ARCHITECTURES[name]
    raise ModelError(
        f"This version has no graph for {name} models. They can be placed, not run.",
        "Weights are placed by their layer (blk.N), caches by the keys that are there; operations, "
        "splits and compute memory are missing.",
        f"It has graphs for {', '.join(ARCHITECTURES)}.",
    )
