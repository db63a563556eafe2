"""Small graphs drawn by hand, backends on paper, and the passes over them by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.core import build
from engine.core.devices import (
    BackendView,
    BufferFacts,
    BufferTypeFacts,
    BufferUsage,
    DeviceFacts,
    DeviceType,
    TableRules,
)
from engine.core.graph import Graph, GraphBuilder
from engine.core.tensor import Flag, Tensor, shape4
from engine.core.types import TensorType
from engine.sched.passes.problem import Problem, number_tensors
from engine.sched.split_graph import split_graph

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from engine.core.placement import Cause, SplitTrace

N = 32
"""Rows and columns of every weight, so that any tensor fits any other."""

CPU_BUFT = BufferTypeFacts("CPU", alignment=32, is_host=True)
GPU0_BUFT = BufferTypeFacts("GPU0", alignment=128)
GPU1_BUFT = BufferTypeFacts("GPU1", alignment=128)
REPACK_BUFT = BufferTypeFacts("CPU_REPACK", alignment=64)


def backend(
    name: str,
    buft: BufferTypeFacts,
    device_type: DeviceType = DeviceType.GPU,
    *,
    ops: Iterable[str] | None = None,
    not_ops: Iterable[str] = (),
    bufts: Iterable[str] = (),
    host_bufts: bool = False,
    offload: int | None = None,
) -> BackendView:
    rules = TableRules(
        ops=None if ops is None else frozenset(ops),
        not_ops=frozenset(not_ops),
        bufts=frozenset({buft.name, *bufts}),
        host_bufts=host_bufts,
        offload_min_batch=offload,
    )
    facts = DeviceFacts(name, name, device_type, "NULL", buft, rules)
    return BackendView(name, facts, buft)


def gpu(name: str = "GPU0", **rules) -> BackendView:
    return backend(name, {"GPU0": GPU0_BUFT, "GPU1": GPU1_BUFT}[name], **rules)


def cpu(**rules) -> BackendView:
    rules.setdefault("bufts", ("CPU_REPACK",))
    return backend("CPU", CPU_BUFT, DeviceType.CPU, host_bufts=True, **rules)


def blas(**rules) -> BackendView:
    rules.setdefault("ops", ("MUL_MAT",))
    return backend("BLAS", CPU_BUFT, DeviceType.ACCEL, host_bufts=True, **rules)


def weight(name: str, buft: BufferTypeFacts, *ne: int) -> Tensor:
    home = BufferFacts(buft, BufferUsage.WEIGHTS, "weights")
    return Tensor(TensorType.F32, shape4(*(ne or (N, N))), name=name, buffer=home)


def cache(name: str, buft: BufferTypeFacts, *ne: int) -> Tensor:
    home = BufferFacts(buft, BufferUsage.ANY, "KV cache")
    return Tensor(TensorType.F32, shape4(*(ne or (N, N))), name=name, buffer=home)


def given(name: str, *ne: int, tensor_type: TensorType = TensorType.F32) -> Tensor:
    """An input of the graph."""
    return Tensor(tensor_type, shape4(*(ne or (N, N))), name=name, flags=Flag.INPUT)


def constant(name: str, *ne: int) -> Tensor:
    """A leaf without a home that nobody declared an input."""
    return Tensor(TensorType.F32, shape4(*(ne or (N, N))), name=name)


def named(name: str, tensor: Tensor) -> Tensor:
    tensor.name = name
    return tensor


def norm(name: str, x: Tensor) -> Tensor:
    return named(name, build.rms_norm(x, 1e-5))


def matmul(name: str, w: Tensor, x: Tensor) -> Tensor:
    return named(name, build.mul_mat(w, x))


def graph_of(*outputs: Tensor) -> Graph:
    builder = GraphBuilder()
    for output in outputs:
        builder.expand(output)
    return builder.build()


@dataclass(frozen=True)
class Solved:
    """A problem, what the passes gave, and both by tensor name."""

    problem: Problem
    trace: SplitTrace

    def slot(self, name: str) -> int:
        return [t.name for t in self.problem.graph.tensors].index(name)

    def backend(self, name: str) -> str:
        backend_id = self.trace.final.backend_ids[self.slot(name)]
        return self.problem.backends[backend_id].name if backend_id >= 0 else ""

    def cause(self, name: str) -> Cause:
        return self.trace.final.causes[self.slot(name)]

    def tag(self, name: str) -> str:
        return self.cause(name).tag

    def neighbour(self, name: str) -> str:
        return self.problem.graph.tensors[self.cause(name).neighbour].name

    def at(self, step: str, name: str) -> str:
        """The backend of a tensor after a step."""
        state = dict(self.trace.steps)[step]
        backend_id = state.backend_ids[self.slot(name)]
        return self.problem.backends[backend_id].name if backend_id >= 0 else ""

    def splits(self) -> list[tuple[str, list[str], list[str]]]:
        """(backend, inputs, nodes) of every split, by name."""
        tensors, first = self.problem.graph.tensors, self.problem.graph.n_leafs
        return [
            (
                self.problem.backends[split.backend_id].name,
                [tensors[copy.slot].name for copy in split.inputs],
                [t.name for t in tensors[first + split.start : first + split.stop]],
            )
            for split in self.trace.cut.splits
        ]


def solve(
    *outputs: Tensor,
    on: tuple[BackendView, ...],
    pins: Mapping[str, int] | None = None,
    **settings,
) -> Solved:
    slots = number_tensors(graph_of(*outputs))
    names = [tensor.name for tensor in slots.tensors]
    user = {names.index(name): backend_id for name, backend_id in (pins or {}).items()}
    problem = Problem(slots, on, user=user, **settings)
    return Solved(problem, split_graph(problem))
