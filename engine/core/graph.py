"""Graph: nodes and leafs in execution order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.core.ops import Op
from engine.core.tensor import Flag

if TYPE_CHECKING:
    from engine.core.tensor import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Graph:
    """Tensors of one batch shape: `nodes` compute or view, `leafs` are inputs, weights, caches."""

    nodes: tuple[Tensor, ...]
    leafs: tuple[Tensor, ...]


class GraphBuilder:
    """Collects tensors in ggml's order: sources first, depth first, in source order."""

    def __init__(self) -> None:
        self._nodes: list[Tensor] = []
        self._leafs: list[Tensor] = []
        self._seen: set[int] = set()

    def expand(self, tensor: Tensor) -> None:
        """Append `tensor` after everything it needs that is not there yet.

        An unnamed node is named `node_K`, an unnamed leaf `leaf_K`, K its index.
        Source: ggml_build_forward_expand.
        """
        stack: list[tuple[Tensor, int]] = [(tensor, 0)]
        while stack:
            current, i_src = stack.pop()
            if i_src == 0:
                if id(current) in self._seen:
                    continue
                self._seen.add(id(current))
            if i_src < len(current.src):
                stack.append((current, i_src + 1))
                source = current.src[i_src]
                if id(source) not in self._seen:
                    stack.append((source, 0))
                continue
            self._append(current)

    def _append(self, tensor: Tensor) -> None:
        if tensor.op is Op.NONE:
            tensor.name = tensor.name or f"leaf_{len(self._leafs)}"
            self._leafs.append(tensor)
            return
        tensor.name = tensor.name or f"node_{len(self._nodes)}"
        tensor.flags |= Flag.COMPUTE
        self._nodes.append(tensor)

    def build(self) -> Graph:
        """The graph so far."""
        return Graph(tuple(self._nodes), tuple(self._leafs))
