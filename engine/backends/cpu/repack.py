"""Memory of CPU_REPACK: weights whose rows are interleaved when they are written.

In a plain weight [k, n] the blocks of a row follow one another. Here the first blocks of rows 0 to
3 do, then their second blocks, and so on; then rows 4 to 7. A register tile, which is GROUP_ROWS
rows, so reads one stream of memory instead of four:

    plain        a0 a1 a2 | b0 b1 b2 | c0 c1 c2 | d0 d1 d2 | e0 ..
    interleaved  a0 b0 c0 d0 a1 b1 c1 d1 a2 b2 c2 d2 | e0 ..

Blocks are moved whole, so reading gives back the bytes that were written, and products are equal
bit by bit. Every type that ggml has a layout for is read by tiles. Imports no compiler.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from engine.backend.host_buffer import aligned_bytes
from engine.backend.interface import Buffer, BufferType, Bytes, Completion, DoneEvent
from engine.backends.cpu.layout import GROUP_ROWS
from engine.core.devices import BufferTypeFacts, BufferUsage
from engine.core.repack import CPU_REPACK

if TYPE_CHECKING:
    from engine.backend.interface import Event
    from engine.core.tensor import Shape, Tensor

Blocks = npt.NDArray[np.void]


class RepackBuffer(Buffer):
    """Weights of CPU_REPACK; each must be announced by `init_tensor` and written whole.

    Not host memory for others, though kernels of the CPU find it at `address`.
    """

    def __init__(self, buft: BufferTypeFacts, size: int, usage: BufferUsage) -> None:
        super().__init__(buft, size, usage)
        self._memory = aligned_bytes(size, buft.alignment)
        self._tensors: dict[int, Tensor] = {}

    @property
    def address(self) -> int:
        """Address of the first byte, for the CPU's kernels."""
        return int(self._memory.ctypes.data) if self.size else 0

    def init_tensor(self, offset: int, tensor: Tensor) -> None:
        """Say which weight lies at `offset`; its rows must fill whole groups."""
        assert tensor.ne[1] % GROUP_ROWS == 0, tensor
        assert tensor.is_contiguous, tensor
        assert offset + tensor.n_bytes <= self.size, (offset, tensor, self.size)
        self._tensors[offset] = tensor

    def set_tensor(self, offset: int, data: Bytes) -> Event:
        """Interleave a whole weight while writing it."""
        start_ns = time.monotonic_ns()
        tensor = self._tensors[offset]
        assert data.size == tensor.n_bytes, (tensor, data.size)
        target = self._memory[offset : offset + data.size]
        _groups(target, tensor, interleaved=True)[:] = _groups(data, tensor, interleaved=False)
        return DoneEvent(Completion(start_ns, time.monotonic_ns()))

    def get_tensor(self, offset: int, out: Bytes) -> Event:
        """Fill `out` with bytes as they were written; any part of one weight."""
        start_ns = time.monotonic_ns()
        start = max(at for at in self._tensors if at <= offset)
        tensor = self._tensors[start]
        group_bytes = GROUP_ROWS * tensor.nb[1]
        first, end = (offset - start) // group_bytes, -(-(offset - start + out.size) // group_bytes)
        stored = self._memory[start : start + tensor.n_bytes]
        groups = _groups(stored, tensor, interleaved=True)[first:end]
        plain = np.ascontiguousarray(groups).view(np.uint8).reshape(-1)
        skip = offset - start - first * group_bytes
        out[:] = plain[skip : skip + out.size]
        return DoneEvent(Completion(start_ns, time.monotonic_ns()))

    def clear(self, value: int) -> None:
        """Set every byte to `value`."""
        self._memory.fill(value)

    def release(self) -> None:
        """Give the memory back."""
        self._memory = np.zeros(0, dtype=np.uint8)
        self._tensors.clear()


class RepackBufferType(BufferType):
    """CPU_REPACK of this computer."""

    def __init__(self) -> None:
        self.facts = CPU_REPACK

    def alloc_buffer(self, size: int, usage: BufferUsage = BufferUsage.ANY) -> RepackBuffer:
        """Memory for interleaved weights; pages come zeroed and are touched on first use."""
        return RepackBuffer(self.facts, size, usage)


def stored_strides(tensor: Tensor, buft: BufferTypeFacts) -> Shape:
    """Strides nb as kernels find them in such memory: nb[0] from block to block of a row."""
    if buft.name != CPU_REPACK.name:
        return tensor.nb
    block_bytes = tensor.type.block_bytes
    return (GROUP_ROWS * block_bytes, block_bytes, tensor.nb[2], tensor.nb[3])


def _groups(memory: Bytes, tensor: Tensor, *, interleaved: bool) -> Blocks:
    """`memory` as blocks [group, row, block], whichever way it is stored."""
    blocks = memory.view(np.dtype((np.void, tensor.type.block_bytes)))
    n_blocks = tensor.ne[0] // tensor.type.block_elems
    if interleaved:
        return blocks.reshape(-1, n_blocks, GROUP_ROWS).transpose(0, 2, 1)
    return blocks.reshape(-1, GROUP_ROWS, n_blocks)
