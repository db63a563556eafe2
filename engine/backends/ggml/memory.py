"""Where a place is for the library: its own buffers, and memory of the host that is wrapped.

A library whose kernels read ordinary memory works in the buffers of the built-in CPU and in mapped
files as they are: they are handed to it as CPU buffers that it does not own. Nothing is copied.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from engine.backends.ggml.buffer import GgmlBuffer
from engine.backends.ggml.c_api import USAGES

if TYPE_CHECKING:
    from engine.backend.interface import Buffer, Place
    from engine.backends.ggml.base import Base

ALIGNMENT = 32
"""ggml aborts for a buffer of the host that begins elsewhere."""


class Memory:
    """Buffers as one libggml-base knows them; wrappers live as long as what they wrap."""

    def __init__(self, base: Base) -> None:
        self._base = base
        self._wrapped: weakref.WeakKeyDictionary[Buffer, int] = weakref.WeakKeyDictionary()

    def resolve(self, place: Place) -> tuple[int, int] | None:
        """The library's buffer, and the address there; None for memory that it cannot reach."""
        buffer = place.buffer
        if isinstance(buffer, GgmlBuffer) and buffer.base is self._base:
            return buffer.handle, buffer.start + place.offset
        if buffer.host is None or not buffer.address:
            return None
        return self._wrapper(buffer), buffer.address + place.offset

    def _wrapper(self, buffer: Buffer) -> int:
        known = self._wrapped.get(buffer)
        if known is not None:
            return known
        api = self._base.api
        skipped = buffer.address % ALIGNMENT
        handle: int = api.ggml_backend_cpu_buffer_from_ptr(
            buffer.address - skipped, buffer.size + skipped
        )
        api.ggml_backend_buffer_set_usage(handle, USAGES[buffer.usage])
        self._wrapped[buffer] = handle
        weakref.finalize(buffer, api.ggml_backend_buffer_free, handle).atexit = False
        return handle
