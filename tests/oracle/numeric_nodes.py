"""Compare the nodes of a real run with recorded ones, value by value.

Twice where that is needed. First a whole run, as anyone's: what is wrong early shows in all that
follows. Where it left the bar, a second run in which every node, once compared, is overwritten
with its recorded values: then each node is computed from the recorded ones. A cache of f16 is why
both are needed: the last bit of a float32 sum decides how a value there is rounded, and sharp
attention makes ten times as much of it in each layer (llama.cpp itself would, on a processor with
other instructions). Experts whose scores are that near may change places, and their rows with them.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from tests.oracle.node_values import NodeValue, floats, nmse, overwrite, watch_nodes
from tests.oracle.recorded_nodes import RecordedNodes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from engine.gguf.reader import GgufFile
    from engine.model.context import ModelContext
    from engine.trace.records import StepKind
    from tests.oracle.recorded_nodes import RecordedNode

FLOAT_BAR = 1e-6
QUANTIZED_BAR = 5e-4
INPUT_BAR = 1e-6
"""Of each value that the host writes; some come from a logarithm."""
LARGEST_DRIFT = 1e-4
"""What a node of float32 weights may differ by that is right when its sources are the recorded."""


@dataclass(frozen=True)
class NodeResult:
    """A recorded node, and how far ours is from it."""

    dump: str
    node_id: int
    op: str
    name: str
    error: float
    note: str = ""
    is_reordered: bool = False
    """Whether near-equal values changed places in an order."""

    def __str__(self) -> str:
        text = self.note or f"NMSE {self.error:.2g}"
        return f"{self.dump} {self.node_id} {self.op} {self.name}: {text}"


@dataclass
class DumpResult:
    """The nodes of one dump, all of them; `faults` are inputs that differ, and nodes too many."""

    dump: str
    nodes: list[NodeResult] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


def bar_of(file: GgufFile) -> float:
    """The error that a node may have."""
    return QUANTIZED_BAR if any(info.type.is_quantized for info in file.tensors) else FLOAT_BAR


def compare_dump(
    context: ModelContext, file: GgufFile, folder: Path, kind: StepKind, *, forced: bool
) -> DumpResult:
    """Compute the recorded tokens, after what was computed before, and compare every node.

    With `forced` every node is computed from recorded sources.
    """
    tokens = recorded_tokens(folder, file)
    with closing(RecordedNodes(folder, file)) as recorded:
        comparison = _Comparison(context, recorded, DumpResult(folder.name), forced=forced)
        watch_nodes(context, comparison.take)
        if context.planner.model.pooling is None:
            context.decode(tokens, kind)
        else:
            context.embed(tokens)
        comparison.finish()
    return comparison.result


@dataclass
class _Comparison:
    """Compares what one run shows, node by node."""

    context: ModelContext
    recorded: RecordedNodes
    result: DumpResult
    forced: bool
    n_taken: int = 0

    def take(self, node: NodeValue) -> None:
        """Compare a node that was just computed."""
        if node.node_id == 0:
            self.result.faults = list(self._different_inputs())
        self.n_taken = node.node_id + 1
        if node.node_id >= len(self.recorded.nodes):
            return
        recorded = self.recorded.nodes[node.node_id]
        theirs = self.recorded.value(recorded.key)
        note = _why_not_comparable(node, recorded)
        found = NodeResult(self.result.dump, node.node_id, recorded.op, recorded.name, np.inf, note)
        if not note:
            found = self._compared(found, recorded, node.values.reshape(theirs.shape), theirs)
        self.result.nodes.append(found)
        if self.forced and not note and not node.tensor.is_view_op:
            overwrite(self.context, node.node_id, node.tensor, theirs)

    def _compared(
        self, found: NodeResult, recorded: RecordedNode, ours: np.ndarray, theirs: np.ndarray
    ) -> NodeResult:
        """The error of finite values; of an order, that of the values that it puts in order."""
        values = ordered_values(self.recorded, recorded)
        if values is None:
            error, note = _error(ours, theirs.astype(np.float32))
            return replace(found, error=error, note=note)
        error, note = _error(_in_order(values, ours), _in_order(values, theirs))
        changed = not np.array_equal(ours, theirs)
        return replace(found, error=error, note=note, is_reordered=changed)

    def finish(self) -> None:
        """Count the recorded nodes that our graph does not have, and tell of more than those."""
        n_more = self.n_taken - len(self.recorded.nodes)
        if n_more > 0:
            nodes = "node" if n_more == 1 else "nodes"
            self.result.faults.append(f"{self.result.dump}: ours has {n_more} more {nodes}")
        for recorded in self.recorded.nodes[len(self.result.nodes) :]:
            self.result.nodes.append(
                NodeResult(
                    self.result.dump, recorded.index, recorded.op, recorded.name, np.inf,
                    "our graph ends before it",
                )
            )  # fmt: skip

    def _different_inputs(self) -> Iterator[str]:
        """What the host wrote otherwise; each input is found through the nodes that read it."""
        graph, seen = self.context.last_plan.graph, set[str]()
        inputs = self.context.input_values()
        for node, recorded in zip(graph.nodes, self.recorded.nodes, strict=False):
            keys = [key for key in recorded.sources if key != "-"]
            for source, key in zip(node.src, keys, strict=False):
                if key in self.recorded.inputs and key not in seen and source in inputs:
                    seen.add(key)
                    ours = floats(source, inputs[source]).reshape(-1)
                    theirs = self.recorded.value(key).astype(np.float32).reshape(-1)
                    if ours.shape != theirs.shape or not np.allclose(ours, theirs, INPUT_BAR, 0):
                        yield f"{self.result.dump} input {self.recorded.inputs[key]} differs"


def ordered_values(graph: RecordedNodes, node: RecordedNode) -> np.ndarray | None:
    """The recorded values that an ARGSORT, or a view of one, puts in order; None for others."""
    while node.op == "VIEW" and node.sources[0].startswith("n"):
        node = graph.nodes[int(node.sources[0][1:])]
    return graph.value(node.sources[0]) if node.op == "ARGSORT" else None


def _in_order(values: np.ndarray, order: np.ndarray) -> np.ndarray:
    places = np.clip(order.astype(np.int64), 0, values.shape[-1] - 1)
    return np.take_along_axis(values, places, -1)


def judge(
    whole: DumpResult, single: DumpResult, bar: float
) -> tuple[list[NodeResult], list[NodeResult]]:
    """The nodes of a whole run that differ, and those that only what came before made differ.

    `single` has the same nodes computed from recorded sources. Where near-equal values changed
    places, the rows that follow their order may be far away.
    """
    outside, drifted = [], []
    limit = max(LARGEST_DRIFT, bar)
    for node, own in zip(whole.nodes, single.nodes, strict=True):
        if node.is_reordered and node.error <= limit:
            limit = np.inf
        if node.error <= bar:
            continue
        if own.error > bar:
            outside.append(own)
        elif node.error > limit:
            outside.append(node)
        else:
            drifted.append(node)
    return outside, drifted


def _why_not_comparable(node: NodeValue, recorded: RecordedNode) -> str:
    """What our node is, where it is not the recorded one."""
    # The table's columns are padded: names lose the spaces around them.
    ours = (node.tensor.op_desc, node.tensor.name.strip(), node.tensor.ne)
    if ours == (recorded.op, recorded.name, recorded.ne):
        return ""
    return f"ours is {ours[0]} {ours[1]} {list(ours[2])}, not {list(recorded.ne)}"


def _error(ours: np.ndarray, theirs: np.ndarray) -> tuple[float, str]:
    """The normalised error of the finite values; a note where others are in the way."""
    finite = np.isfinite(theirs)
    if not np.array_equal(ours[~finite], theirs[~finite], equal_nan=True):
        return np.inf, "finite where the recording is not, or the other way round"
    error = nmse(ours[finite], theirs[finite]) if finite.any() else 0.0
    return (error, "") if np.isfinite(error) else (np.inf, "not a number where there should be one")


def n_recorded(folder: Path) -> int:
    """How many nodes a dump has."""
    return len((folder / "nodes.tsv").read_text(encoding="utf-8").splitlines())


def recorded_tokens(folder: Path, file: GgufFile) -> list[int]:
    """The tokens that a dump was made of."""
    with closing(RecordedNodes(folder, file)) as recorded:
        key = next(key for key, name in recorded.inputs.items() if name == "inp_tokens")
        return [int(token) for token in recorded.value(key).reshape(-1)]
