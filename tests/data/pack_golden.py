"""Pack the small golden set of this folder out of the big one.

    python -m tests.data.pack_golden ORACLE_FOLDER

Only needed when the choice changes. The result is a function of the big set alone: files go in by
name, without times or owners.
"""

import io
import json
import lzma
import re
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.archives import unpack_tar

GOLDEN = Path(__file__).parent / "golden"
OLD = "af6528e6d"
SMOLLM2 = "smollm2-135m-q4_1"
PLACEMENT_CASES = (
    "cpu-norpc",
    "ngl0-norepack",
    "ngl2-offload",
    "ngl2-no-op-offload",
    "ngl-all-1dev",
)
NUMERIC_MODELS = ("nano-llama-f32", SMOLLM2, "smollm2-f32")
N_CORPUS = 100
MAX_PARALLEL = 30

# Most of numeric.tar.xz are float32 values: xz models them better when told that they are 4 wide.
TEXT_FILTER: list[dict[str, Any]] = [
    {"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME},
]
FLOAT_FILTER: list[dict[str, Any]] = [
    {"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "lc": 0, "lp": 2},
]


def pack(archive: Path, members: dict[str, bytes], filters: list[dict[str, Any]]) -> None:
    """Write `members` (path in the archive -> content) as one reproducible .tar.xz."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name in sorted(members):
            info = tarfile.TarInfo(name)
            info.size = len(members[name])
            tar.addfile(info, io.BytesIO(members[name]))
    archive.write_bytes(lzma.compress(raw.getvalue(), format=lzma.FORMAT_XZ, filters=filters))


def features(script: str, results: str) -> Iterator[str]:
    """Name what a corpus case exercises: its statements and options, the causes that came out."""
    for line in script.splitlines():
        word, *rest = line.partition("#")[0].split() or [""]
        if word == "op":
            yield f"op {rest[1]}"
        elif word not in {"", "tensor"}:
            yield word
        yield from (f"{word} {m}" for m in re.findall(r"(?:parallel|op_offload|type)=\w+", line))
        yield from (f"{word} {m}" for m in re.findall(r"\b(\w+)=", line))
    yield from (f"cause {m}" for m in re.findall(r'"cause": ?"([^"]*)"', results))
    yield from (f"splits {min(int(m), 12)}" for m in re.findall(r'"n_splits": ?(\d+)', results))


def choose_corpus(corpus: Path, old: Path) -> list[str]:
    """Return the names of the cases that cover most pairs of features for their size.

    Greedy: a pair that is covered already counts a quarter each time.
    """
    pairs: dict[str, set[tuple[str, str]]] = {}
    size: dict[str, int] = {}
    parallel = set()
    for path in sorted(corpus.glob("*.txt")):
        script, results = path.read_text(), path.with_suffix(".jsonl").read_text()
        found = set(features(script, results))
        if (old / f"{path.stem}.jsonl").read_text() != results:
            found.add("versions differ")
        pairs[path.stem] = {(a, b) for a in found for b in found if a <= b}
        size[path.stem] = len(script) + len(results)
        if "parallel=1" in script:
            parallel.add(path.stem)
    chosen: list[str] = []
    covered: Counter[tuple[str, str]] = Counter()
    while len(chosen) < N_CORPUS:
        full = len(parallel.intersection(chosen)) >= MAX_PARALLEL
        rest = [n for n in pairs if n not in chosen and not (full and n in parallel)]
        gain = {n: sum(0.25 ** covered[p] for p in pairs[n]) / size[n] ** 0.5 for n in rest}
        best = max(rest, key=lambda n: (gain[n], n))
        chosen.append(best)
        covered.update(pairs[best])
    return sorted(chosen)


def read(root: Path, pattern: str) -> dict[str, bytes]:
    """Return the files below `root` that match, by their path relative to it."""
    files = (p for p in root.glob(pattern) if p.is_file())
    return {p.relative_to(root).as_posix(): p.read_bytes() for p in files}


def scheduler_members(big: Path) -> dict[str, bytes]:
    """Return the scenarios of both versions and the chosen corpus cases of both."""
    members = read(big, "sched_scenarios/*") | read(big, f"sched_scenarios_{OLD}/*")
    for name in choose_corpus(big / "sched_corpus", big / f"sched_corpus_{OLD}"):
        members |= read(big, f"sched_corpus/{name}.*") | read(big, f"sched_corpus_{OLD}/{name}.*")
    return members


def planning_members(big: Path, oracle: Path) -> dict[str, bytes]:
    """Return headers, placement logs, node lists, tokenizer cases and the registry's print-out."""
    members = {"headers/sizes.json": (big / "headers/sizes.json").read_bytes()}
    members |= read(big, f"headers/{SMOLLM2}.gguf-header")
    for case in PLACEMENT_CASES:
        members |= read(big, f"placements/{SMOLLM2}/{case}.log")
        members |= read(big, f"placements/{SMOLLM2}/{case}.sum")
    lines = (big / f"placements/{SMOLLM2}/COMMANDS.txt").read_bytes().splitlines(keepends=True)
    kept = [line for line in lines if line.partition(b":")[0].decode() in PLACEMENT_CASES]
    members[f"placements/{SMOLLM2}/COMMANDS.txt"] = b"".join(kept)
    members |= read(oracle, "nodes/smollm2*.tsv") | read(oracle, "tokenize/*.tsv")
    return members | read(oracle, "registry/*")


def numeric_members(big: Path, oracle: Path) -> dict[str, bytes]:
    """Return the nano model, its nodes, and tokens and logits of the models that anyone can get."""
    members = read(oracle, "models/nano-llama-f32.gguf")
    tokens = json.loads((oracle / "numeric/tokens.json").read_text())
    kept = {name: tokens[name] for name in NUMERIC_MODELS}
    members["numeric/tokens.json"] = json.dumps(kept, ensure_ascii=False).encode()
    for name in NUMERIC_MODELS:
        members |= read(oracle, f"numeric/{name}.*.logits.npy")
    nodes = read(big, "nodes-nano-llama-f32-fa[01]/*")
    return members | {f"numeric/{name}": data for name, data in nodes.items()}


def main() -> None:
    """Write the three archives of tests/data/golden."""
    oracle = Path(sys.argv[1])
    GOLDEN.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        big = Path(folder)
        for archive in sorted([*oracle.glob("*.tar.xz"), *oracle.glob("numeric/*.tar.xz")]):
            unpack_tar(archive, big)
        pack(GOLDEN / "scheduler.tar.xz", scheduler_members(big), TEXT_FILTER)
        pack(GOLDEN / "planning.tar.xz", planning_members(big, oracle), TEXT_FILTER)
        pack(GOLDEN / "numeric.tar.xz", numeric_members(big, oracle), FLOAT_FILTER)
    total = sum(p.stat().st_size for p in GOLDEN.iterdir())
    sys.stdout.write(f"{total} bytes in {GOLDEN}\n")


if __name__ == "__main__":
    main()
