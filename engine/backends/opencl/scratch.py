"""Memory of a stream that kernels pass values through and nothing else sees."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.backend.interface import Place
from engine.backend.release import release_all

if TYPE_CHECKING:
    from engine.backend.interface import Buffer, BufferType


class Scratch:
    """One place for every split of a stream, since an in-order queue never needs two.

    Launches keep the memory they were bound to. Smaller buffers therefore stay when a larger one
    is needed; each is at least twice the one before, so they are never more than the newest.
    """

    def __init__(self, buft: BufferType) -> None:
        self._buft = buft
        self._buffers: list[Buffer] = []

    def place(self, n_bytes: int) -> Place:
        """Room for `n_bytes`.

        Raises: DeviceError when there is no memory for it.
        """
        largest = self._buffers[-1].size if self._buffers else 0
        if n_bytes > largest:
            self._buffers.append(self._buft.alloc_buffer(max(n_bytes, 2 * largest)))
        return Place(self._buffers[-1], 0)

    def release(self) -> None:
        """Give the memory back; nothing that was bound to it may run any more."""
        buffers, self._buffers = self._buffers, []
        release_all(buffer.release for buffer in buffers)
