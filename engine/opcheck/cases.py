"""Cases: one operation with parameters, types, shapes and strides. Pure values.

    case = case_of(build.mul_mat(weight, x))     # what one node is like
    counted_cases(prompt_graph, token_graph)     # the distinct ones of whole graphs
    case.tensors(buft)                           # the node anew, on memory of its own

A source is a window of memory that is its own: what shares memory in a model does not here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from engine.core.devices import BufferFacts
from engine.core.ops import EMPTY_OPS, Op, OpParams
from engine.core.tensor import Shape, Tensor, contiguous_strides, shape4, span_bytes

if TYPE_CHECKING:
    from engine.core.devices import BufferTypeFacts
    from engine.core.graph import Graph
    from engine.core.types import TensorType

ALIGNED_TO = 256
"""A window keeps its offset up to multiples of this many bytes."""


@dataclass(frozen=True, slots=True)
class Operand:
    """A window of memory: `nb` are byte strides, ne[0] first, from byte `offset` on."""

    type: TensorType
    ne: Shape
    nb: Shape
    offset: int = 0

    @property
    def is_whole(self) -> bool:
        """Whether it is all of its memory, without gaps and in order."""
        return self.offset == 0 and self.nb == contiguous_strides(self.type, self.ne)

    @property
    def memory_elems(self) -> int:
        """Elements of the memory that it is a window of."""
        end = self.offset + span_bytes(self.type, self.ne, self.nb)
        return -(-end // self.type.block_bytes) * self.type.block_elems

    def tensors(self, name: str, buft: BufferTypeFacts) -> tuple[Tensor, Tensor]:
        """Its memory as a leaf, and the window as a tensor; they are one where it is whole."""
        home = BufferFacts(buft)
        if self.is_whole:
            leaf = Tensor(self.type, self.ne, name=name, buffer=home)
            return leaf, leaf
        leaf = Tensor(self.type, shape4(self.memory_elems), name=name, buffer=home)
        window = Tensor(
            self.type, self.ne, nb=self.nb, op=Op.VIEW, src=(leaf,), view_src=leaf,
            view_offs=self.offset, name=f"{name} (view)",
        )  # fmt: skip
        return leaf, window


@dataclass(frozen=True, slots=True)
class CaseTensors:
    """A case's node and what it reads. `memory` are the leafs that own bytes, a source each."""

    node: Tensor
    memory: tuple[Tensor, ...]

    @property
    def result_memory(self) -> Tensor:
        """Whose bytes the result is in: the node's own, or a source's."""
        return self.node.base


@dataclass(frozen=True, slots=True)
class Case:
    """One operation. `result` is what it writes.

    `target` is the source whose memory the result lies in, as in SET_ROWS; None: memory of its
    own. `is_cast`: the node is its own second source, as ggml's casts are. `note` says what is
    special about it.
    """

    op: Op
    params: OpParams
    result: Operand
    sources: tuple[Operand, ...]
    target: int | None = None
    is_cast: bool = False
    note: str = field(default="", compare=False)

    def tensors(self, buft: BufferTypeFacts) -> CaseTensors:
        """The node anew, its sources in memory of the kind `buft`."""
        pairs = [source.tensors(f"source {i}", buft) for i, source in enumerate(self.sources)]
        memory = tuple(leaf for leaf, _ in pairs)
        result, view_src = self.result, None if self.target is None else memory[self.target]
        node = Tensor(
            result.type, result.ne, nb=result.nb, op=self.op, params=self.params,
            src=tuple(window for _, window in pairs), view_src=view_src,
            view_offs=result.offset, name=f"{self.op_desc} of a check",
        )  # fmt: skip
        if self.is_cast:
            node.src = (*node.src, node)
        return CaseTensors(node, memory)

    @property
    def op_desc(self) -> str:
        """The operation as ggml describes it."""
        shown = Tensor(self.result.type, self.result.ne, op=self.op, params=self.params)
        return shown.op_desc

    @property
    def type(self) -> str:
        """The type that decides which kernel it is: of weights, tables and caches."""
        match self.op:
            case Op.MUL_MAT | Op.MUL_MAT_ID | Op.GET_ROWS:
                return self.sources[0].type.label
            case Op.FLASH_ATTN_EXT:
                return _both(self.sources[1].type, self.sources[2].type, "/")
            case Op.CPY | Op.CONT:
                return _both(self.sources[0].type, self.result.type, ">")
        return self.result.type.label

    @property
    def types(self) -> frozenset[str]:
        """The types that take part in `type`."""
        return frozenset(self.type.replace(">", "/").split("/"))

    @property
    def n_bytes(self) -> int:
        """Bytes of all sources and of the result, each element once.

        Of tables only the rows that are read or written count.
        """
        if self.op is Op.SET_ROWS:
            rows, ids, table = self.sources
            moved = rows.ne[1] * rows.ne[2] * rows.ne[3] * table.type.row_bytes(table.ne[0])
            return _n_bytes(rows) + _n_bytes(ids) + moved
        if self.op is Op.GET_ROWS:
            table, ids = self.sources
            read = math.prod(ids.ne) * table.type.row_bytes(table.ne[0])
            return read + _n_bytes(ids) + _n_bytes(self.result)
        counted = [s for i, s in enumerate(self.sources) if i != self.target]
        return sum(_n_bytes(each) for each in (*counted, self.result))

    @property
    def n_flops(self) -> int:
        """Operations with floats of products and attention; 0 for others."""
        n_out = math.prod(self.result.ne)
        if self.op in (Op.MUL_MAT, Op.MUL_MAT_ID):
            return 2 * self.sources[0].ne[0] * n_out
        if self.op is Op.FLASH_ATTN_EXT:
            q, k, v = self.sources[:3]
            return 2 * (k.ne[0] + v.ne[0]) * k.ne[1] * math.prod(q.ne[1:])
        return 0


def case_of(node: Tensor, note: str = "") -> Case:
    """What a node is like; its sources may be views of anything."""
    sources = tuple(source for source in node.src if source is not node)
    target = _target_of(node, sources)
    operands = [_operand_of(source) for source in sources]
    if target is None:
        result = Operand(node.type, node.ne, node.nb)
    else:
        behind = node.view_offs - sources[target].view_offs
        result = Operand(node.type, node.ne, node.nb, operands[target].offset + behind)
    return Case(
        op=node.op,
        params=node.params,
        result=result,
        sources=tuple(operands),
        target=target,
        is_cast=len(sources) < len(node.src),
        note=note,
    )


@dataclass(frozen=True, slots=True)
class CountedCase:
    """A case, and how many nodes of the open model's graphs are like it."""

    case: Case
    n_prompt: int = 0
    n_token: int = 0


def cases_of(graph: Graph) -> dict[Case, int]:
    """The distinct cases among a graph's nodes that compute something, with their counts."""
    counts: dict[Case, int] = {}
    for node in graph.nodes:
        if node.op not in EMPTY_OPS:
            case = case_of(node)
            counts[case] = counts.get(case, 0) + 1
    return counts


def counted_cases(prompt: Graph, token: Graph) -> tuple[CountedCase, ...]:
    """The cases of a model's two graphs, those of the prompt first."""
    of_prompt, of_token = cases_of(prompt), cases_of(token)
    return tuple(
        CountedCase(case, of_prompt.get(case, 0), of_token.get(case, 0))
        for case in (of_prompt | of_token)
    )


def _operand_of(tensor: Tensor) -> Operand:
    # A contiguous one is like a tensor of its own, wherever it lies.
    if tensor.is_contiguous:
        return Operand(tensor.type, tensor.ne, contiguous_strides(tensor.type, tensor.ne))
    period = math.lcm(ALIGNED_TO, tensor.type.block_bytes)
    return Operand(tensor.type, tensor.ne, tensor.nb, tensor.view_offs % period)


def _target_of(node: Tensor, sources: tuple[Tensor, ...]) -> int | None:
    """The source that a node writes into: SET_ROWS names its table last, CPY its target."""
    if node.view_src is None:
        return None
    for i in reversed(range(len(sources))):
        if sources[i].base is node.view_src:
            return i
    return None


def _both(first: TensorType, second: TensorType, joint: str) -> str:
    return first.label if first is second else f"{first.label}{joint}{second.label}"


def _n_bytes(operand: Operand) -> int:
    return operand.type.row_bytes(operand.ne[0]) * math.prod(operand.ne[1:])
