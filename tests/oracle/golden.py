"""Golden data recorded from real llama.cpp, wherever it lies on this machine.

    golden.scenarios()                         19 named scheduler cases
    golden.corpus()                            100 random ones, 700 where the big set is present
    golden.placement(model, case)              the log of one real run and its key lines
    golden.header(model)                       path of a GGUF header without data
    golden.model("nano-llama-f32")             path of a whole model
    golden.tokens()[model][prompt]             tokens, top 10, greedy tokens, gaps, text
    golden.logits(model, prompt)               float32 logits of the last prompt position
    golden.nodes_dir("nano-llama-f32-fa0")     folder of node values
    golden.node_list("smollm2-135m-q4_1.p1.fa1")
    golden.path("arch/models/mamba.gguf")      anything else, by its place in the set

A small set is committed in tests/data/golden. The big one is looked for in $SPLITSCOPE_ORACLE,
shared/oracle and ../shared/oracle; a test that asks for something only the big set has is
skipped with the reason MISSING. What each file holds is described in tests/data/README.md.
"""

import atexit
import functools
import json
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from engine.paths import oracle_dir
from tests.archives import unpack_tar

VERSION = "0c1e57098"
OLD_VERSION = "af6528e6d"
MISSING = "the big golden set is not here (SPLITSCOPE_ORACLE)"

_REPOSITORY = Path(__file__).parents[2]
_SMALL_ARCHIVES = _REPOSITORY / "tests" / "data" / "golden"

# Start of a path in the set -> (archive in the big set, folder it unpacks into).
_ARCHIVES = {
    "arch/graphs/": ("arch/graphs.tar.xz", "arch"),
    "arch/headers/": ("arch/headers.tar.xz", "arch"),
    "arch/numeric/": ("arch/numeric.tar.xz", "arch"),
    "arch/placements/": ("arch/placements.tar.xz", "arch"),
    "numeric/nodes-": ("numeric/nodes.tar.xz", "numeric"),
    "sched_corpus_af6528e6d/": ("sched_corpus_af6528e6d.tar.xz", "."),
    "sched_corpus/": ("sched_corpus.tar.xz", "."),
    "sched_scenarios": ("sched_scenarios.tar.xz", "."),
    "placements/": ("placements.tar.xz", "."),
    "headers/": ("headers.tar.xz", "."),
    "vulkan/": ("vulkan.tar.xz", "."),
}


@dataclass(frozen=True, slots=True)
class SchedulerCase:
    """One script and what the real scheduler of one version did with it."""

    name: str
    version: str
    script: str
    results: str  # one JSON object a line

    def records(self) -> list[dict[str, Any]]:
        """Return the results, decoded."""
        return [json.loads(line) for line in self.results.splitlines()]


class Placement(NamedTuple):
    """What one real run printed: everything, and its key lines."""

    log: str
    sum: str


def scenarios(version: str = VERSION) -> list[SchedulerCase]:
    """Return the named cases; the older version has 16 of the 19."""
    return _scheduler_cases("sched_scenarios", version)


def corpus(version: str = VERSION) -> list[SchedulerCase]:
    """Return the random cases that are present: all 700, or the 100 committed ones."""
    return _scheduler_cases("sched_corpus", version)


def placements(model: str) -> list[str]:
    """Return the names of the recorded cases of one model that are present."""
    folder = _largest(f"placements/{model}/")
    return sorted(p.stem for p in folder.glob("*.log")) if folder else []


def placement(model: str, case: str) -> Placement:
    """Return one recorded run. Sampled text between the dumps may not be valid UTF-8."""
    log = path(f"placements/{model}/{case}.log").read_text(encoding="utf-8", errors="replace")
    return Placement(log, path(f"placements/{model}/{case}.sum").read_text(errors="replace"))


def placement_commands(model: str) -> dict[str, str]:
    """Return case -> the command line it was recorded with."""
    folder = _largest(f"placements/{model}/") or _missing(f"placements/{model}/")
    lines = (folder / "COMMANDS.txt").read_text(encoding="utf-8").splitlines()
    return {case: command.strip() for case, _, command in (s.partition(":") for s in lines)}


def header(model: str) -> Path:
    """Return the header (metadata and tensor table) of a model as a file of its own."""
    return path(f"headers/{model}.gguf-header")


def header_sizes() -> dict[str, dict[str, int]]:
    """Return model -> header_bytes and file_bytes of the real file."""
    sizes: dict[str, dict[str, int]] = json.loads(path("headers/sizes.json").read_text())
    return sizes


def model(name: str) -> Path:
    """Return a whole model with random weights."""
    return path(f"models/{name}.gguf")


def tokens() -> dict[str, dict[str, Any]]:
    """Return model -> prompt (p1, p2, p4, p5) -> what was recorded, for the models present."""
    found: dict[str, dict[str, Any]] = json.loads(
        (_largest("numeric/tokens.json") or _missing("numeric/tokens.json")).read_text()
    )
    return found


def logits(model: str, prompt: str) -> NDArray[np.float32]:
    """Return the logits of the last prompt position: [n_vocab]."""
    values: NDArray[np.float32] = np.load(path(f"numeric/{model}.{prompt}.logits.npy"))
    return values


def nodes_dir(name: str) -> Path:
    """Return the folder with nodes.tsv and one .npy a node; `name` is MODEL-fa0 or MODEL-fa1."""
    return path(f"numeric/nodes-{name}/nodes.tsv").parent


def node_list(name: str) -> Path:
    """Return the table of a real model's nodes; `name` is MODEL.PROMPT.fa0 or fa1."""
    return path(f"nodes/{name}.tsv")


def has_big_set() -> bool:
    """Say whether the big set is on this machine."""
    return oracle_dir() is not None


def path(relative: str) -> Path:
    """Return a file or folder of the set, unpacked if need be; skip the test where it is absent."""
    small = _small_set() / relative
    if small.exists():
        return small
    big = _in_big_set(relative)
    return big if big is not None else _missing(relative)


def _missing(relative: str) -> Path:
    if has_big_set():
        raise FileNotFoundError(f"no {relative} in the golden set at {oracle_dir()}")
    pytest.skip(f"{MISSING}: {relative}")


def _largest(relative: str) -> Path | None:
    """Return a folder or file that both sets have in different sizes, the big set's first."""
    small = _small_set() / relative
    return _in_big_set(relative) or (small if small.exists() else None)


def _scheduler_cases(folder: str, version: str) -> list[SchedulerCase]:
    scripts = _largest(f"{folder}/") or _missing(folder)
    suffix = "" if version == VERSION else f"_{version}"
    results = _largest(f"{folder}{suffix}/") or _missing(folder + suffix)
    return [
        SchedulerCase(p.stem, version, (scripts / f"{p.stem}.txt").read_text(), p.read_text())
        for p in sorted(results.glob("*.jsonl"))
    ]


def _in_big_set(relative: str) -> Path | None:
    root = oracle_dir()
    if root is None:
        return None
    for start, (archive, folder) in _ARCHIVES.items():
        if relative.startswith(start):
            unpacked = _work_folder() / "big"
            _unpack(root / archive, unpacked / folder)
            return unpacked / relative if (unpacked / relative).exists() else None
    return root / relative if (root / relative).exists() else None


@functools.cache
def _small_set() -> Path:
    folder = _work_folder() / "small"
    for archive in sorted(_SMALL_ARCHIVES.glob("*.tar.xz")):
        _unpack(archive, folder)
    return folder


@functools.cache
def _unpack(archive: Path, folder: Path) -> None:
    """Unpack an archive, once a process."""
    folder.mkdir(parents=True, exist_ok=True)
    unpack_tar(archive, folder)


@functools.cache
def _work_folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="splitscope-golden-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
