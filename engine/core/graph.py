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
        seen, stack = self._seen, [tensor]
        while stack:
            current = stack[-1]
            # A cast is its own source.
            missing = next((s for s in current.src if id(s) not in seen and s is not current), None)
            if missing is not None:
                stack.append(missing)
                continue
            stack.pop()
            if id(current) not in seen:
                seen.add(id(current))
                self._append(current)

    def _append(self, tensor: Tensor) -> None:
        if tensor.op is Op.NONE:
            tensor.name = tensor.name or f"leaf_{len(self._leafs)}"
            self._leafs.append(tensor)
            return
        tensor.name = tensor.name or f"node_{len(self._nodes)}"
        # Most have no flag yet, and joining two is slow.
        none = tensor.flags is Flag.NONE
        tensor.flags = Flag.COMPUTE if none else tensor.flags | Flag.COMPUTE
        self._nodes.append(tensor)

    def build(self) -> Graph:
        """The graph so far."""
        return Graph(tuple(self._nodes), tuple(self._leafs))
