"""Buffers and buffer types of a library.

Memory that the host can read is written and read directly, everything else through the library.
Memory that stores weights its own way (CPU_REPACK, AMX) takes whole tensors that `init_tensor`
announced, and gives nothing back.
"""

from __future__ import annotations

import ctypes
import time
import weakref
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from engine.backend.interface import Buffer, BufferType, Completion, DoneEvent
from engine.backends.ggml.c_api import NO_LIMIT, USAGES, text
from engine.backends.ggml.names import own_name
from engine.backends.ggml.tensors import Context, put
from engine.core.devices import BufferTypeFacts, BufferUsage
from engine.core.ops import EMPTY_OPS, Op
from engine.errors import DeviceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from engine.backend.interface import Bytes, Event, Place
    from engine.backends.ggml.base import Base
    from engine.backends.ggml.rules import Questions
    from engine.core.tensor import Tensor

LEAST_BYTES = 64
"""An empty buffer takes this much: ggml's empty ones have no address."""

PIECE_BYTES = 1 << 30
"""Most bytes of one transfer: the protocol of RPC counts in 32 bits."""

_MAY_GROW = frozenset({Op.FLASH_ATTN_EXT, Op.MUL_MAT, Op.MUL_MAT_ID, Op.ARGSORT}) | EMPTY_OPS
"""Operations whose result may take more than its elements. Source: SCHED.md 3.4."""


@dataclass(frozen=True, slots=True)
class GgmlBufferTypeFacts(BufferTypeFacts):
    """A library's memory: what a tensor takes there is asked of the library where it may differ."""

    measure: Callable[[Tensor], int] | None = field(default=None, repr=False, compare=False)

    def alloc_bytes(self, tensor: Tensor) -> int:
        """Bytes that a tensor takes, before alignment."""
        may_differ = tensor.type.is_quantized or tensor.op in _MAY_GROW
        if self.measure is None or self.is_host or not may_differ:
            return tensor.n_bytes
        return self.measure(tensor)

    def __reduce__(self) -> tuple[type[BufferTypeFacts], tuple[object, ...]]:
        """What crosses a process: plain facts, since the library stays where it is."""
        rows = (self.name, self.alignment, self.max_bytes, self.is_host, self.pad_row_elems)
        return BufferTypeFacts, rows


class GgmlBuffer(Buffer):
    """A buffer of the library. `handle` is its address there, `start` that of its first byte."""

    def __init__(
        self,
        buft: GgmlBufferType,
        handle: int,
        size: int,
        usage: BufferUsage,
        *,
        memory: Bytes | None = None,
    ) -> None:
        self.base, self.handle = buft.base, handle
        super().__init__(buft.facts, size, usage)
        self.is_special = buft.is_special
        self.start: int = self.base.api.ggml_backend_buffer_get_base(handle)
        self._set_usage()
        self._tensors: dict[int, tuple[Context, int]] = {}
        self._memory = memory
        self._host = _view(self.start, size) if buft.facts.is_host else None
        self._free = weakref.finalize(self, self.base.api.ggml_backend_buffer_free, handle)
        self._free.atexit = False

    def _set_usage(self) -> None:
        self.base.api.ggml_backend_buffer_set_usage(self.handle, USAGES[self.usage])

    @property
    def host(self) -> Bytes | None:
        """The bytes, where the host can read them."""
        return self._host

    @property
    def address(self) -> int:
        """Address of the first byte, where the host can read it."""
        return 0 if self._host is None else self.start

    def init_tensor(self, offset: int, tensor: Tensor) -> None:
        """Say which tensor lies at `offset`: some types of memory pad it, or store it otherwise."""
        self._set_usage()
        context = Context(self.base, 1)
        at = context.new(tensor)
        put(self.base, at, self.handle, self.start + offset)
        if self.is_special:
            self._tensors[offset] = (context, at)

    def set_tensor(self, offset: int, data: Bytes) -> Event:
        """Write `data` at `offset`; blocking."""
        start_ns = time.monotonic_ns()
        if self._host is not None:
            self._host[offset : offset + data.size] = data
        elif self.is_special:
            self._set_whole(offset, data)
        else:
            for context, at, part in self.windows(offset, data):
                self.base.api.ggml_backend_tensor_set(at, part.ctypes.data, 0, part.size)
                context.free()
        return _done(start_ns)

    def _set_whole(self, offset: int, data: Bytes) -> None:
        """Weights in a layout of the library's own are converted as they are written."""
        _, at = self._tensors[offset]
        raw = np.ascontiguousarray(data)
        self.base.api.ggml_backend_tensor_set(at, raw.ctypes.data, 0, raw.size)

    def get_tensor(self, offset: int, out: Bytes) -> Event:
        """Fill `out` from `offset`; blocking."""
        start_ns = time.monotonic_ns()
        if self._host is not None:
            out[:] = self._host[offset : offset + out.size]
        elif self.is_special:
            raise DeviceError(
                f"Weights in {self.buft.name} cannot be read back.",
                "The library keeps them in a layout of its own.",
                "Load the model with plain weights (--no-repack) to look at them.",
            )
        else:
            for context, at, part in self.windows(offset, out):
                self.base.api.ggml_backend_tensor_get(at, part.ctypes.data, 0, part.size)
                context.free()
        return _done(start_ns)

    def windows(self, offset: int, data: Bytes) -> Iterator[tuple[Context, int, Bytes]]:
        """The bytes from `offset` as tensors, each with the part of `data` that belongs there."""
        assert data.flags.c_contiguous, "bytes are flat"
        for first in range(0, data.size, PIECE_BYTES):
            part = data[first : first + PIECE_BYTES]
            context = Context(self.base, 1)
            at = context.window(self.handle, self.start + offset + first, part.size)
            yield context, at, part

    def cpy_tensor(self, offset: int, source: Place, n_bytes: int) -> Event | None:
        """Copy from another buffer of the same library without the host; None from elsewhere."""
        origin = source.buffer
        if not isinstance(origin, GgmlBuffer) or origin.base is not self.base:
            return None
        if origin.is_special or self.is_special or n_bytes > PIECE_BYTES:
            return None
        start_ns = time.monotonic_ns()
        context = Context(self.base, 2)
        from_at = context.window(origin.handle, origin.start + source.offset, n_bytes)
        to_at = context.window(self.handle, self.start + offset, n_bytes)
        self.base.api.ggml_backend_tensor_copy(from_at, to_at)
        context.free()
        return _done(start_ns)

    def clear(self, value: int) -> None:
        """Set every byte to `value`; blocking."""
        self.base.api.ggml_backend_buffer_clear(self.handle, value)

    def release(self) -> None:
        """Give the memory back now."""
        self._host = None
        self._tensors.clear()
        self._free()
        self._memory = None


class GgmlBufferType(BufferType):
    """A kind of memory of the library. `is_special`: weights are stored in a layout of its own."""

    def __init__(
        self, base: Base, handle: int, questions: Questions, *, is_special: bool = False
    ) -> None:
        self.base, self.handle, self.is_special = base, handle, is_special
        api = base.api
        most = api.ggml_backend_buft_get_max_size(handle)
        name = own_name(text(api.ggml_backend_buft_name(handle)))
        questions.add_memory(name, handle)
        self.facts = GgmlBufferTypeFacts(
            name=name,
            alignment=api.ggml_backend_buft_get_alignment(handle),
            max_bytes=None if most == NO_LIMIT else most,
            is_host=api.ggml_backend_buft_is_host(handle),
            measure=partial(questions.alloc_bytes, handle),
        )

    def alloc_buffer(self, size: int, usage: BufferUsage = BufferUsage.ANY) -> GgmlBuffer:
        """A buffer of `size` bytes.

        Raises: DeviceError when it is larger than the library allows or than what is free.
        """
        largest = self.facts.max_bytes
        if largest is not None and size > largest:
            raise DeviceError(
                f"{self.facts.name} allows buffers of up to {largest:,} bytes, not {size:,}.",
                hint="Place fewer layers on it, or choose a smaller context.",
            )
        handle = self.base.api.ggml_backend_buft_alloc_buffer(self.handle, max(size, LEAST_BYTES))
        if handle is None:
            raise DeviceError(
                f"{self.facts.name} has no {size:,} bytes of memory left.",
                "Its library could not allocate them.",
                "Place fewer layers on it, or choose a smaller context.",
                self.base.log.take(),
            )
        return GgmlBuffer(self, handle, size, usage)


def _view(address: int, size: int) -> Bytes:
    memory = (ctypes.c_uint8 * size).from_address(address)
    return np.ctypeslib.as_array(memory)


def _done(start_ns: int) -> Event:
    return DoneEvent(Completion(start_ns, time.monotonic_ns()))
