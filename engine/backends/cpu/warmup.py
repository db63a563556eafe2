"""Which kernels a run needs, known before it begins: its rows are made, without their memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.backend.host_buffer import CACHE_LINE, HostBuffer, aligned_bytes
from engine.backend.interface import Place, SplitGraph
from engine.backends.cpu.jit import Kernel
from engine.backends.cpu.kernels.catalog import KERNELS
from engine.backends.cpu.table import lowered
from engine.core.devices import BufferTypeFacts, BufferUsage
from engine.core.tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_BUFT = BufferTypeFacts("CPU", alignment=CACHE_LINE, is_host=True)


def needed_kernels(
    nodes: Iterable[Tensor], supports_op: Callable[[Tensor], bool]
) -> dict[str, Kernel]:
    """The kernels of those `nodes` that the CPU could compute, by name, in order of first use."""
    unlike = {_traits_of(node): node for node in nodes}.values()
    graph = SplitGraph(tuple(node for node in unlike if supports_op(node)), _Anywhere())
    needed: dict[str, Kernel] = {}
    for row in lowered(graph).rows:
        pieces = (value for value in row.params if isinstance(value, Kernel))
        needed.update((kernel.name, kernel) for kernel in (KERNELS[row.kernel], *pieces))
    return needed


def _traits_of(node: Tensor) -> tuple[object, ...]:
    """What its kernels depend on, and more; nodes of different layers are alike."""
    sources = tuple((source.type, source.ne, source.nb) for source in node.src)
    return node.op, node.params, node.type, node.ne, node.nb, sources


class _Anywhere(dict[Tensor, Place]):
    """Every tensor in the same place: rows are read, never computed."""

    def __init__(self) -> None:
        super().__init__()
        memory = aligned_bytes(CACHE_LINE, CACHE_LINE)
        self._place = Place(HostBuffer(_BUFT, memory, BufferUsage.ANY), 0)

    def __missing__(self, _tensor: Tensor) -> Place:
        return self._place
