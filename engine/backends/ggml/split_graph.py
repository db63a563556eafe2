"""One split as a ggml graph: built once, computed token after token.

Nodes keep their order. What the split reads from outside becomes a leaf at its place, even where it
is another split's result: only nodes of the split are computed. A node that somebody outside reads
is flagged OUTPUT, so that no kernel leaves it out when it fuses it with the next one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.backends.ggml.c_api import TensorStruct
from engine.backends.ggml.tensors import Context, put, put_view, set_op
from engine.core.ops import EMPTY_OPS
from engine.core.tensor import Flag, Tensor
from engine.errors import DeviceError

if TYPE_CHECKING:
    from engine.backend.interface import SplitGraph
    from engine.backends.ggml.base import Base
    from engine.backends.ggml.memory import Memory

NO_GRADIENTS = False


class SplitProgram:
    """A split as the library computes it. `address` is its graph, None where nothing computes."""

    def __init__(self, context: Context | None = None, address: int | None = None) -> None:
        self._context = context
        self.address = address


def build_split(base: Base, memory: Memory, split: SplitGraph) -> SplitProgram:
    """The split as a ggml graph; DeviceError when the device refuses a tensor."""
    if all(node.op in EMPTY_OPS for node in split.nodes):
        return SplitProgram()
    return _Builder(base, memory, split).build()


class _Builder:
    def __init__(self, base: Base, memory: Memory, split: SplitGraph) -> None:
        self._base = base
        self._memory = memory
        self._split = split
        self._own = frozenset(split.nodes)
        self._read_outside = split.read_outside()
        self._at: dict[Tensor, int] = {}
        named = {source for node in split.nodes for source in (*node.src, node.view_src) if source}
        # One number for the graph's nodes and one for its leafs: each is at most this.
        self._n_tensors = len(self._own | named)
        self._context = Context(base, self._n_tensors, n_nodes=self._n_tensors)

    def build(self) -> SplitProgram:
        api, context = self._base.api, self._context
        graph = api.ggml_new_graph_custom(context.address, self._n_tensors, NO_GRADIENTS)
        for node in self._split.nodes:
            if node.op not in EMPTY_OPS or self._is_in_reach(node):
                api.ggml_build_forward_expand(graph, self._of(node))
        return SplitProgram(context, graph)

    def _is_in_reach(self, view: Tensor) -> bool:
        """Whether a view is of memory that the library knows; else nobody here reads it."""
        return self._memory.resolve(self._split.place_of(view)) is not None

    def _of(self, tensor: Tensor) -> int:
        """The ggml tensor of a node, or of something outside that it reads."""
        known = self._at.get(tensor)
        if known is not None:
            return known
        at = self._at[tensor] = self._context.new(tensor)
        if tensor in self._own:
            self._make_node(at, tensor)
        else:
            self._put(at, tensor)
        return at

    def _make_node(self, at: int, node: Tensor) -> None:
        set_op(self._base, at, node, [self._of(source) for source in node.src])
        if node in self._read_outside:
            TensorStruct.from_address(at).flags |= Flag.OUTPUT
        if node.view_src is None:
            self._put(at, node)
        else:
            put_view(self._base, at, self._of(node.view_src), node.view_offs)

    def _put(self, at: int, tensor: Tensor) -> None:
        found = self._memory.resolve(self._split.place_of(tensor))
        if found is None:
            raise DeviceError(
                f"The ggml library cannot reach {tensor.name}.",
                "It lies in memory that is neither the library's nor the computer's.",
                "Leave out the rule for its memory (-ot), or the device (-dev).",
            )
        put(self._base, at, *found)
