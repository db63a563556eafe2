"""A folder of recorded values of the form of oracle/arch, made of the committed ones of nano."""

import json
import shutil
import zipfile
from pathlib import Path

import numpy as np

from tests.oracle import golden

MODEL = "nano-llama-f32"
DUMP = "nodes-c512-fa0"
N_NODES = 114
LEAFS = """0	weight	token_embd.weight	f32	[64,1024,1,1]
1	input	inp_tokens	i32	[11,1,1,1]
2	input	inp_pos	i32	[11,1,1,1]
"""
SOURCES = {0: "l0;l1;", 5: "n4;l2;"}


def write_root(root: Path, **changed: np.ndarray) -> Path:
    """Write models and numeric; `changed` are values by array, such as `n0007` or `leaf02`."""
    (root / "models").mkdir(parents=True)
    shutil.copy(golden.model(MODEL), root / "models")
    folder = root / "numeric" / MODEL
    (folder / DUMP).mkdir(parents=True)
    tokens = golden.tokens()[MODEL]["p1"]
    (folder / "p1.c512.fa0.json").write_text(json.dumps(tokens))
    np.save(folder / "p1.c512.fa0.logits.npy", golden.logits(MODEL, "p1"))
    _write_dump(folder / DUMP, tokens["prompt_tokens"], changed)
    return root


def recorded_values(node_id: int) -> np.ndarray:
    """The values of a node of the recording."""
    (path,) = golden.nodes_dir(f"{MODEL}-fa0").glob(f"{node_id:04d}_*.npy")
    values: np.ndarray = np.load(path)
    return values


def _write_dump(folder: Path, tokens: list[int], changed: dict[str, np.ndarray]) -> None:
    recorded = golden.nodes_dir(f"{MODEL}-fa0")
    lines = [
        f"{line}\tsrcid={SOURCES.get(i, '-;')}\tviewoffs=0\tparams="
        for i, line in enumerate((recorded / "nodes.tsv").read_text().splitlines())
    ]
    (folder / "nodes.tsv").write_text("\n".join(lines) + "\n")
    (folder / "leafs.tsv").write_text(LEAFS)
    arrays = {path.name: np.load(path) for path in sorted(recorded.glob("*.npy"))}
    arrays["leaf01_inp_tokens.npy"] = np.array(tokens, np.int32)
    arrays["leaf02_inp_pos.npy"] = np.arange(len(tokens), dtype=np.int32)
    for key, values in changed.items():
        (name,) = [name for name in arrays if name.startswith(f"{key.removeprefix('n')}_")]
        arrays[name] = values
    with zipfile.ZipFile(folder / "nodes.npz", "w") as archive:
        for name, values in arrays.items():
            with archive.open(name, "w") as file:
                np.save(file, values)
