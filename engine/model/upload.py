"""Weights on their way to a device: at once, or through pinned memory in turns.

A driver copies ordinary memory, such as a mapped file, by way of its own pinned memory, and the
host waits meanwhile. Through two pinned chunks the host fills one while the other is on its way.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import contextmanager
from typing import TYPE_CHECKING

from engine.backend.interface import Bytes, Place
from engine.backend.memory_refusal import Wanted, asking
from engine.backend.release import release_all

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engine.backend.interface import Buffer, BufferType, Device, Event

CHUNK_BYTES = 4 << 20
N_CHUNKS = 2

Send = Callable[[Place, Bytes], None]
"""Writes bytes to a place; they may be changed as soon as it has returned."""


@contextmanager
def sending(device: Device, buft: str) -> Iterator[Send]:
    """How weights get into the device's memory of type `buft`; all are there at the end."""
    pinned, facts = device.host_buffer_type(), device.facts
    is_own = facts.buft.name == buft and not facts.buft.is_host
    is_queued = facts.caps.asynchronous and facts.caps.events
    if pinned is None or not is_own or not is_queued:
        yield _send_at_once
        return
    upload = Upload(device)
    try:
        upload.prepare(pinned)
        yield upload.send
        upload.finish()
    finally:
        upload.dispose()


def _send_at_once(place: Place, data: Bytes) -> None:
    place.buffer.set_tensor(place.offset, data).synchronize()


class Upload:
    """A stream of its own on a device, with pinned chunks and the events that tell them free."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._backend = device.init_backend()
        self._chunks: list[Buffer] = []
        self._is_free: list[Event] = []
        self._turns = itertools.cycle(range(N_CHUNKS))

    def prepare(self, pinned: BufferType) -> None:
        """Get the chunks; what there is of them when that fails is given back by `dispose`."""
        for _ in range(N_CHUNKS):
            wanted = Wanted("what weights are sent through", CHUNK_BYTES, is_pinned=True)
            with asking(self._device, wanted):
                self._chunks.append(pinned.alloc_buffer(CHUNK_BYTES))
        for _ in self._chunks:
            event = self._device.event_new()
            assert event is not None, self._device
            self._is_free.append(event)

    def send(self, place: Place, data: Bytes) -> None:
        """Queue the bytes; blocks while every chunk is on its way."""
        for first in range(0, data.size, CHUNK_BYTES):
            piece = data[first : first + CHUNK_BYTES]
            i_chunk = next(self._turns)
            chunk, is_free = self._chunks[i_chunk], self._is_free[i_chunk]
            is_free.synchronize()
            chunk.set_tensor(0, piece)
            assert chunk.host is not None, chunk
            target = Place(place.buffer, place.offset + first)
            self._backend.set_tensor_async(target, chunk.host[: piece.size])
            self._backend.event_record(is_free)

    def finish(self) -> None:
        """Block until everything is there."""
        self._backend.synchronize()

    def dispose(self) -> None:
        """End the stream, which may still use the chunks, then give them back."""
        release_all([self._backend.dispose, *[chunk.release for chunk in self._chunks]])
