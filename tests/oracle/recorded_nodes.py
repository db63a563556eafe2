"""Values of every node of a recorded graph, with what each was computed from.

A folder holds nodes.tsv (source ids, offsets, parameters), leafs.tsv and nodes.npz; weights are in
the model's file.
"""

import struct
import zipfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from engine.core.quants import dequantize
from engine.gguf.reader import GgufFile


@dataclass(frozen=True)
class RecordedNode:
    """A line of nodes.tsv. `sources` are keys such as n12 or l3, "-" where there is none."""

    index: int
    op: str
    name: str
    type: str
    ne: tuple[int, ...]
    sources: tuple[str, ...]
    params: tuple[int, ...]

    @property
    def key(self) -> str:
        return f"n{self.index}"

    def float_param(self, i: int) -> float:
        """A parameter that is a float; those that are not written are zero."""
        bits = self.params[i] if i < len(self.params) else 0
        value: float = struct.unpack("<f", struct.pack("<i", bits))[0]
        return value


class RecordedNodes:
    """One recorded graph. `inputs` are the names of what the host wrote, by leaf."""

    def __init__(self, folder: Path, model: GgufFile) -> None:
        self._archive = zipfile.ZipFile(folder / "nodes.npz")
        self._model = model
        self._names = {_key_of(name): name for name in self._archive.namelist()}
        lines = (folder / "leafs.tsv").read_text(encoding="utf-8").splitlines()
        self._leafs = {f"l{line.split(chr(9))[0]}": line.split("\t")[2] for line in lines}
        kinds = {f"l{line.split(chr(9))[0]}": line.split("\t")[1] for line in lines}
        self.inputs = {key: self._leafs[key] for key, kind in kinds.items() if kind == "input"}
        self._table = (folder / "nodes.tsv").read_text(encoding="utf-8")

    @cached_property
    def nodes(self) -> list[RecordedNode]:
        return [_node_of(line.split("\t")) for line in self._table.splitlines()]

    def value(self, key: str) -> np.ndarray:
        """The values of a node or leaf, numpy's order of dimensions."""
        if key in self._names:
            with self._archive.open(self._names[key]) as file:
                return np.asarray(np.load(file))
        info = self._model.tensor(self._leafs[key])
        flat = dequantize(info.type, self._model.tensor_bytes(info), int(np.prod(info.ne)))
        return flat.reshape(info.ne[::-1])

    def sources(self, node: RecordedNode) -> list[np.ndarray]:
        """The values of those sources that are there."""
        return [self.value(key) for key in node.sources if key not in ("-", "?")]

    def close(self) -> None:
        self._archive.close()


def _key_of(name: str) -> str:
    if name.startswith("leaf"):
        return f"l{int(name[4:].split('_')[0])}"
    return f"n{int(name[:4])}"


def _node_of(fields: list[str]) -> RecordedNode:
    values = {key: value for key, _, value in (field.partition("=") for field in fields[5:])}
    return RecordedNode(
        index=int(fields[0]),
        op=fields[1].strip(),
        name=fields[2].strip(),
        type=fields[3].strip(),
        ne=_numbers(fields[4]),
        sources=tuple(values["srcid"].rstrip(";").split(";")),
        params=_numbers(values["params"]),
    )


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.strip("[] ").split(",") if part)
