"""A backend to begin with: slow, plain, and right. Copy this file and change it.

    python -m engine devices --load splitscope_backend_slow.py
    python -m engine run demo -p Hello --load splitscope_backend_slow.py --devices Slow -ngl 2

It has one device, which takes layers as a GPU does. What it cannot compute, the CPU does: the
scheduler asks `supports_op` for every operation. Import from engine.core and engine.backend only.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.backend.host_buffer import HostBufferType
from engine.backend.interface import Backend, BackendReg, Completion, Device, DoneEvent, NodeTimes
from engine.core.devices import BufferTypeFacts, DeviceFacts, DeviceType, TableRules
from engine.core.ops import EMPTY_OPS, GluOp, Op, UnaryOp
from engine.core.quants import dequantize
from engine.core.types import TensorType

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.backend.interface import BufferType, Event, Place, SplitGraph
    from engine.core.tensor import Tensor

API_VERSION = 2
"""The version of the contract (engine.backend.interface) that this was written for."""

BINARY = {Op.ADD: np.add, Op.SUB: np.subtract, Op.MUL: np.multiply, Op.DIV: np.divide}
OPS = {*BINARY, Op.SCALE, Op.RMS_NORM, Op.MUL_MAT, UnaryOp.SILU, GluOp.SWIGLU}
MEMORY = BufferTypeFacts("Slow", alignment=64, is_host=True)
"""Ordinary memory under a name of its own: the CPU may work in it too."""


def backend_init() -> BackendReg:
    """The family; called once by the loader."""
    return SlowReg()


def backend_score() -> int:
    """How well it fits this computer: variants compete with it, and 0 means not at all."""
    return 1


class SlowRules(TableRules):
    """What the device can do. Asked while planning: pure, and about facts only."""

    def supports_op(self, tensor: Tensor) -> bool:
        """Whether it is in the table, with types that `compute` reads and writes."""
        if tensor.op in EMPTY_OPS or not super().supports_op(tensor):
            return tensor.op in EMPTY_OPS
        first, *others = tensor.src
        are_f32 = all(each.type is TensorType.F32 for each in (tensor, *others))
        is_weight = tensor.op is Op.MUL_MAT and first.is_contiguous
        return are_f32 and (is_weight or first.type is TensorType.F32)


RULES = SlowRules(ops=frozenset(OPS), bufts=frozenset({MEMORY.name}))
"""Whatever lies in other memory is copied in; operations of the CPU are never asked for."""


class SlowBackend(Backend):
    """A stream that computes a node when it is told to, and is then done."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.name = device.facts.name

    def graph_compute(self, graph: SplitGraph) -> Event:
        """Compute the nodes in order, and take the time of each."""
        computed = [i for i, node in enumerate(graph.nodes) if node.op not in EMPTY_OPS]
        starts, ends = np.zeros((2, len(computed)), np.int64)
        begin_ns = time.monotonic_ns()
        for i, i_node in enumerate(computed):
            starts[i] = time.monotonic_ns()
            compute(graph.nodes[i_node], graph.place_of)
            ends[i] = time.monotonic_ns()
        times = NodeTimes(np.array(computed, np.int64), lambda: (starts, ends, 0))
        return DoneEvent(Completion(begin_ns, time.monotonic_ns(), times))


def compute(node: Tensor, place_of: Callable[[Tensor], Place]) -> None:
    """Write a node; arrays have numpy's order, so ne[0] is the last axis."""
    sources = [values(source, place_of(source)) for source in node.src]
    out, x = values(node, place_of(node)), sources[0].astype(np.float64)
    p: Any = node.params
    if node.op in BINARY:
        out[:] = BINARY[node.op](x, np.tile(sources[1], np.array(x.shape) // sources[1].shape))
    elif node.op is Op.SCALE:
        out[:] = x * p.scale + p.bias
    elif node.op is Op.RMS_NORM:
        out[:] = x / np.sqrt((x * x).mean(-1, keepdims=True) + p.eps)
    elif node.op is Op.MUL_MAT:
        y = sources[1]
        for axis in (0, 1):  # Heads that share keys: a matrix serves several.
            x = np.repeat(x, y.shape[axis] // x.shape[axis], axis)
        out[:] = y.astype(np.float64) @ x.swapaxes(-1, -2)
    elif node.op is Op.UNARY:
        out[:] = x / (1 + np.exp(-x))
    else:  # SWIGLU: two sources, or both halves in one.
        gate, up = (x, sources[1]) if len(sources) == 2 else np.split(x, 2, -1)
        out[:] = gate / (1 + np.exp(-gate)) * up


def values(tensor: Tensor, place: Place) -> Any:
    """A tensor as an array: a view of its bytes, or new f32 numbers for other types."""
    host = place.buffer.host
    assert host is not None, place
    raw, shape = host[place.offset : place.offset + tensor.n_bytes], tensor.ne[::-1]
    if tensor.type is TensorType.F32:
        return np.ndarray(shape, np.float32, raw, strides=tensor.nb[::-1])
    return dequantize(tensor.type, raw, tensor.n_elems).reshape(shape)


class SlowDevice(Device):
    """One device; its memory is what numpy gives."""

    def __init__(self, reg: BackendReg) -> None:
        self.reg = reg
        self._memory = HostBufferType(MEMORY)

    @property
    def facts(self) -> DeviceFacts:
        """Facts of this moment."""
        return DeviceFacts("Slow", "numpy alone", DeviceType.GPU, self.reg.name, MEMORY, RULES)

    def init_backend(self) -> Backend:
        """A new stream."""
        return SlowBackend(self)

    def buffer_type(self) -> BufferType:
        """The device's memory."""
        return self._memory


class SlowReg(BackendReg):
    """The family, with its device."""

    name = "Slow"

    def __init__(self) -> None:
        self._devices = (SlowDevice(self),)

    def devices(self) -> tuple[Device, ...]:
        """The same objects each time."""
        return self._devices
