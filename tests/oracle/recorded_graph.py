"""Nodes of a recorded run by themselves: sources that hold the recorded values, and the result.

Sources are laid out in memory as they were, with all their strides. A device's test computes the
nodes and compares:

    with recorded_graph("mamba", "fa1") as recorded:
        node = recorded.alone(12)                     # its sources are leafs
        recorded.bytes[node.src[0]]                   # what a leaf holds
        error_of(node, result, recorded.values.value("n12"))
"""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING

import numpy as np

from engine.core.ops import EMPTY_OPS, Op
from engine.core.tensor import Tensor
from engine.core.types import TensorType
from engine.gguf.reader import open_gguf
from tests.oracle import golden
from tests.oracle.graph_text import planned_graph
from tests.oracle.node_values import nmse
from tests.oracle.recorded_nodes import RecordedNodes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engine.gguf.reader import GgufFile

ENCODERS = ("bert", "nomic-bert")
DECODERS = (
    *("deepseek2", "deepseek2-nomla", "falcon-h1", "gemma3", "gemma4", "gemma4-moe", "glm4moe"),
    *("gpt-oss", "gptneox", "gptneox-seq", "granitemoe", "llama4", "mamba", "phi3", "qwen3"),
    *("qwen35", "qwen35moe"),
)
CASES = [
    *((model, batch) for model in DECODERS for batch in ("fa0", "fa1", "tg-fa0", "tg-fa1")),
    *((model, batch) for model in ENCODERS for batch in ("fa0", "fa1")),
]
"""(model, batch): a prompt or one token, without and with flash attention."""

_NUMPY_TYPE: dict[TensorType, type[np.generic]] = {
    TensorType.F32: np.float32,
    TensorType.F16: np.float16,
    TensorType.I32: np.int32,
    TensorType.I64: np.int64,
}


class RecordedGraph:
    """The graph of a recorded run, its values, and the bytes of leafs made of them."""

    def __init__(self, model: str, batch: str, file: GgufFile) -> None:
        folder = golden.path(f"arch/numeric/{model}/nodes-{batch}/nodes.tsv").parent
        self.values = RecordedNodes(folder, file)
        self.bytes: dict[Tensor, np.ndarray] = {}
        self._file = file
        self._leafs: dict[Tensor, Tensor] = {}
        first_line = (folder / "nodes.tsv").read_text(encoding="utf-8").partition("\n")[0]
        columns = re.search(r"\[\d+,(\d+),", first_line)
        assert columns is not None, first_line
        self.graph = planned_graph(
            golden.path(f"arch/models/{model}.gguf"),
            1 if batch.startswith("tg-") else int(columns.group(1)),
            flash_attn=batch.endswith("fa1"),
            n_ctx=256,
        )

    @property
    def working(self) -> list[int]:
        """Nodes that compute something."""
        nodes = enumerate(self.graph.nodes)
        return [i for i, node in nodes if node.op not in EMPTY_OPS and node.n_elems > 0]

    def alone(self, node_id: int) -> Tensor:
        """The node with leafs as sources, which hold the recorded values; its result is new."""
        node = self.graph.nodes[node_id]
        n_read = {Op.SET_ROWS: 2, Op.CPY: 1}.get(node.op, len(node.src))
        keys = [key for key in self.values.nodes[node_id].sources if key != "-"]
        leafs = [self._leaf(*pair) for pair in zip(node.src[:n_read], keys, strict=False)]
        return Tensor(
            node.type, node.ne, nb=node.nb, op=node.op, params=node.params, src=tuple(leafs)
        )

    def _leaf(self, source: Tensor, key: str) -> Tensor:
        if source not in self._leafs:
            leaf = Tensor(source.type, source.ne, nb=source.nb)
            self._leafs[source] = leaf
            self.bytes[leaf] = self._laid_out(source, key)
        return self._leafs[source]

    def _laid_out(self, source: Tensor, key: str) -> np.ndarray:
        if source.type not in _NUMPY_TYPE:
            return np.array(self._file.tensor_bytes(self._file.tensor(source.name)))
        raw = np.zeros(source.n_bytes, np.uint8)
        strided(source, raw)[...] = self.values.value(key).reshape(source.ne[::-1])
        return raw


@contextlib.contextmanager
def recorded_graph(model: str, batch: str) -> Iterator[RecordedGraph]:
    """A recorded run, whose files are closed afterwards."""
    with open_gguf(golden.path(f"arch/models/{model}.gguf")) as file:
        recorded = RecordedGraph(model, batch, file)
        yield recorded
        recorded.values.close()


def strided(tensor: Tensor, raw: np.ndarray) -> np.ndarray:
    """Bytes as the elements of a tensor, numpy's order of dimensions."""
    return np.ndarray(tensor.ne[::-1], _NUMPY_TYPE[tensor.type], raw.data, strides=tensor.nb[::-1])


def error_of(node: Tensor, result: np.ndarray, recorded: np.ndarray) -> float:
    """The normalised error; of a table those rows count that were written, others being NaN."""
    ours, theirs = result.astype(np.float32), recorded.reshape(result.shape).astype(np.float32)
    if node.op is Op.SET_ROWS:
        written = ~np.isnan(ours)
        assert np.count_nonzero(written) == node.src[0].n_elems, node
        ours, theirs = ours[written], theirs[written]
    finite = np.isfinite(theirs)
    assert np.array_equal(ours[~finite], theirs[~finite]), node
    return nmse(ours[finite], theirs[finite])
