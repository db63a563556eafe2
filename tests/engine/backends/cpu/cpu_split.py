"""A split made by hand: leafs from numpy arrays, one buffer, results read back through strides."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from engine.backend.interface import Buffer, Device, Place, SplitGraph
from engine.backends.cpu.reg import create
from engine.core.quants import quantize
from engine.core.tensor import Tensor, shape4
from engine.core.types import TensorType
from engine.opcheck import inputs
from tests.engine.backends.cpu.rounded_reference import dequantized

if TYPE_CHECKING:
    from engine.backends.cpu.backend import CpuBackend

DTYPES: dict[TensorType, type[np.generic]] = {
    TensorType.F32: np.float32,
    TensorType.F16: np.float16,
    TensorType.I32: np.int32,
    TensorType.I64: np.int64,
}
"""Types that numpy has; others are bytes here, read as float32."""
ALIGNMENT = 32


class CpuSplit:
    """Leafs and nodes of one split, and where their bytes are."""

    def __init__(self) -> None:
        self.device: Device = create().devices()[0]
        self._bytes: dict[Tensor, np.ndarray[Any, np.dtype[np.uint8]]] = {}
        self.buffer: Buffer | None = None
        self._places: dict[Tensor, Place] = {}

    def leaf(self, values: np.ndarray[Any, Any], kind: TensorType = TensorType.F32) -> Tensor:
        """A tensor with these values, numpy's order, converted to `kind`."""
        tensor = Tensor(kind, shape4(*reversed(values.shape)))
        if kind in DTYPES:
            raw = np.ascontiguousarray(values, dtype=DTYPES[kind]).view(np.uint8)
        else:
            raw = quantize(kind, np.ascontiguousarray(values, dtype=np.float32))
        self._bytes[tensor] = raw.reshape(-1)
        return tensor

    def random_blocks(self, kind: TensorType, *ne: int) -> Tensor:
        """A tensor of random bits, with scales that are ordinary numbers; any quantised type."""
        tensor = Tensor(kind, shape4(*ne))
        self._bytes[tensor] = random_blocks(kind, tensor.n_elems)
        return tensor

    def set_bytes(self, leaf: Tensor, raw: np.ndarray[Any, np.dtype[np.uint8]]) -> None:
        """Let a tensor with any strides be a leaf of these bytes."""
        self._bytes[leaf] = raw.reshape(-1)

    def graph(self, *nodes: Tensor) -> SplitGraph:
        """The split of these nodes in a fresh buffer; the leafs keep their values.

        Other bytes are 0xFF, which is NaN: reading or leaving out what nobody wrote shows.
        """
        offset, places = 0, {}
        for tensor in self._owners(nodes):
            places[tensor] = offset
            offset += -(-tensor.n_bytes // ALIGNMENT) * ALIGNMENT
        self.buffer = self.device.buffer_type().alloc_buffer(offset)
        self.buffer.clear(0xFF)
        self._places = {tensor: Place(self.buffer, at) for tensor, at in places.items()}
        for tensor, raw in self._bytes.items():
            if tensor in self._places:
                self.buffer.set_tensor(self._places[tensor].offset, raw)
        return SplitGraph(nodes, self._places)

    def read(self, tensor: Tensor) -> np.ndarray[Any, Any]:
        """The values of a tensor, (ne3, ne2, ne1, ne0); quantised ones as float32."""
        base = tensor.base
        place = self._places[base]
        assert self.buffer is not None
        memory = self.buffer.host
        assert memory is not None
        start = place.offset + tensor.view_offs
        raw = memory[start : start + tensor.n_bytes]
        if tensor.type not in DTYPES:
            return dequantized(tensor.type, raw, tensor.ne[::-1])
        flat = raw.view(DTYPES[tensor.type])
        strides = tuple(reversed(tensor.nb))
        return np.lib.stride_tricks.as_strided(flat, tensor.ne[::-1], strides).copy()

    def raw(self, leaf: Tensor) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """The bytes a leaf was made with."""
        return self._bytes[leaf]

    def compute(self, backend: CpuBackend, *nodes: Tensor) -> np.ndarray[Any, Any]:
        """The values of the last node."""
        backend.graph_compute(self.graph(*nodes))
        return self.read(nodes[-1])

    def _owners(self, nodes: tuple[Tensor, ...]) -> list[Tensor]:
        owners: dict[Tensor, None] = {}
        for node in nodes:
            for tensor in (*node.src, node):
                owners[tensor.base] = None
        return list(owners)


def random_blocks(kind: TensorType, n_elems: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Random bits, with scales that are ordinary numbers."""
    return inputs.random_blocks(kind, n_elems, np.random.default_rng(n_elems + kind))


def random(shape: tuple[int, ...], seed: int = 0) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Normal values."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def nmse(result: np.ndarray[Any, Any], expected: np.ndarray[Any, Any]) -> float:
    """Mean squared error over mean square."""
    assert result.shape == expected.shape, (result.shape, expected.shape)
    wide = expected.astype(np.float64)
    return float(((result - wide) ** 2).sum() / max((wide**2).sum(), 1e-30))
