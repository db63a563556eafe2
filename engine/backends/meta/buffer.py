"""Memory of a joined device: the same offsets on every member, or parts of each tensor.

A buffer for results is a buffer of the same size on every member: what is written goes to all, and
what is read comes from the first. Weights and caches lie in buffers that hold each member's parts
and nothing else; from outside they look like whole tensors, one behind another.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from engine.backend.alloc import aligned, padded_bytes
from engine.backend.interface import (
    Buffer,
    BufferType,
    Bytes,
    Completion,
    DoneEvent,
    Event,
    Place,
)
from engine.backend.memory_refusal import Wanted, asking
from engine.backends.meta.events import JointEvent, Work
from engine.core.devices import BufferTypeFacts, BufferUsage
from engine.core.shards import MIRRORED, Shard, axis_bytes
from engine.core.tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from engine.backend.interface import Device


class MirroredBuffer(Buffer):
    """A buffer of this size on every member, with the same in it between splits."""

    def __init__(
        self, buft: BufferTypeFacts, parts: Sequence[Buffer], size: int, usage: BufferUsage
    ) -> None:
        super().__init__(buft, size, usage)
        self._parts = tuple(parts)

    def place_on(self, member: int, offset: int) -> Place:
        """Where a member has what lies at `offset`."""
        return Place(self._parts[member], offset)

    def set_tensor(self, offset: int, data: Bytes) -> Event:
        """Write `data` on every member; blocking. Its times are the members' own."""
        works = []
        for part in self._parts:
            event = part.set_tensor(offset, data)
            event.synchronize()
            works.append(Work(event, part.buft.name))
        return JointEvent(works, range(len(works)))

    def get_tensor(self, offset: int, out: Bytes) -> Event:
        """Fill `out` from the first member; blocking."""
        return self._parts[0].get_tensor(offset, out)

    def clear(self, value: int) -> None:
        """Set every byte of every member to `value`; blocking."""
        for part in self._parts:
            part.clear(value)

    def release(self) -> None:
        """Give the memory of every member back."""
        for part in self._parts:
            part.release()


@dataclass(frozen=True, slots=True)
class Stored:
    """A tensor in parts: its shard, and where each member has its part; None: it has none."""

    tensor: Tensor
    shard: Shard
    places: tuple[Place | None, ...]


class SharedBuffer(Buffer):
    """Whole tensors from outside, `padded_bytes` one behind another; parts of each on members."""

    def __init__(
        self,
        buft: BufferTypeFacts,
        stored: Sequence[Stored],
        parts: Sequence[Buffer],
        usage: BufferUsage,
    ) -> None:
        self._stored = tuple(stored)
        self._parts = tuple(parts)
        self.offsets: list[int] = []
        """Where each tensor begins, seen from outside."""
        size = 0
        for item in stored:
            self.offsets.append(size)
            size += padded_bytes(buft, item.tensor)
        super().__init__(buft, size, usage)

    def place_on(self, member: int, offset: int) -> Place:
        """Where a member's part of the tensor that begins at `offset` is."""
        i_tensor = self._index(offset)
        assert self.offsets[i_tensor] == offset, (offset, self._stored[i_tensor].tensor)
        place = self._stored[i_tensor].places[member]
        assert place is not None, (self._stored[i_tensor].tensor, member)
        return place

    def init_tensor(self, offset: int, tensor: Tensor) -> None:
        """Say to every member which tensor its part is."""
        item = self._stored[self._index(offset)]
        for member, place in enumerate(item.places):
            if place is not None:
                ne = item.shard.ne_on(tensor.ne, member)
                part = Tensor(tensor.type, ne, name=tensor.name, buffer=tensor.buffer)
                place.buffer.init_tensor(place.offset, part)

    def set_tensor(self, offset: int, data: Bytes) -> Event:
        """Write `data`, of one tensor, to whoever has a part of it; blocking."""
        start_ns = time.monotonic_ns()
        item, first = self._at(offset)
        for member, place in enumerate(item.places):
            if place is None:
                continue
            for start, rows in _rows_on(item, member, first, data):
                target = place.offset + start
                place.buffer.set_tensor(
                    target, np.ascontiguousarray(rows).reshape(-1)
                ).synchronize()
        return _done_since(start_ns)

    def get_tensor(self, offset: int, out: Bytes) -> Event:
        """Fill `out`, of one tensor, from those who have a part of it; blocking."""
        start_ns = time.monotonic_ns()
        item, first = self._at(offset)
        for member, place in enumerate(item.places):
            if place is None:
                continue
            for start, rows in _rows_on(item, member, first, out):
                part = np.empty(rows.shape, np.uint8)
                source = place.offset + start
                place.buffer.get_tensor(source, part.reshape(-1)).synchronize()
                rows[...] = part
            if item.shard.is_mirrored:
                break
        return _done_since(start_ns)

    def clear(self, value: int) -> None:
        """Set every byte of every part to `value`; blocking."""
        for part in self._parts:
            part.clear(value)

    def release(self) -> None:
        """Give the memory of every member back."""
        for part in self._parts:
            part.release()

    def _index(self, offset: int) -> int:
        return bisect_right(self.offsets, offset) - 1

    def _at(self, offset: int) -> tuple[Stored, int]:
        """The tensor that `offset` is in, and how far in."""
        i_tensor = self._index(offset)
        return self._stored[i_tensor], offset - self.offsets[i_tensor]


def _rows_on(item: Stored, member: int, first: int, data: Bytes) -> Iterator[tuple[int, Bytes]]:
    """The bytes of `data`, of a tensor from byte `first` on, that are in a member's part.

    Each with where it begins there: views of `data`, [n_rows, n_bytes] or of a piece of a row, a
    row being what lies between one end of the shared axis and the next.
    """
    tensor, shard = item.tensor, item.shard
    if shard.is_mirrored or shard.owner is not None:
        yield first, data
        return
    axis, ne = shard.axis, tensor.ne
    period = axis_bytes(tensor.type, ne, axis, ne[axis])
    low = axis_bytes(tensor.type, ne, axis, shard.start(member))
    size = axis_bytes(tensor.type, ne, axis, shard.sizes[member])
    done = 0
    while done < data.size:
        row, inside = divmod(first + done, period)
        n_whole = (data.size - done) // period if inside == 0 else 0
        if n_whole:
            block = data[done : done + n_whole * period].reshape(n_whole, period)
            yield row * size, block[:, low : low + size]
            done += n_whole * period
            continue
        n_bytes = min(period - inside, data.size - done)
        start, stop = max(inside, low), min(inside + n_bytes, low + size)
        if start < stop:
            piece = data[done + start - inside : done + stop - inside]
            yield row * size + start - low, piece
        done += n_bytes


KEPT = {
    BufferUsage.WEIGHTS: "the weights", BufferUsage.ANY: "the cache", BufferUsage.COMPUTE: "results"
}  # fmt: skip
"""What buffers of parts are for, in words."""


class MetaBufferType(BufferType):
    """The memory of a joined device. `shards` are those of tensors that are divided."""

    def __init__(
        self,
        facts: BufferTypeFacts,
        members: Sequence[Device],
        shards: Mapping[Tensor, Shard],
    ) -> None:
        self.facts = facts
        self._members = tuple(members)
        self._shards = shards

    def alloc_buffer(self, size: int, usage: BufferUsage = BufferUsage.ANY) -> MirroredBuffer:
        """A buffer of `size` bytes on every member.

        Raises: DeviceError when one has no memory for it; then no member keeps any.
        """
        wanted = Wanted("the results of a batch", size)
        parts = alloc_all([(member, wanted) for member in self._members], usage)
        return MirroredBuffer(self.facts, parts, size, usage)

    def alloc_tensors(
        self, tensors: Sequence[Tensor], usage: BufferUsage = BufferUsage.ANY
    ) -> list[Place]:
        """A place for each tensor, of which each member has its part only.

        Raises: as `alloc_buffer`.
        """
        shards = [self._shards.get(tensor, MIRRORED) for tensor in tensors]
        wanted: list[tuple[Device, Wanted]] = []
        spots: list[list[tuple[int, int] | None]] = []
        for i_member, member in enumerate(self._members):
            sizes = [shard.bytes_on(x, i_member) for x, shard in zip(tensors, shards, strict=True)]
            facts = member.buffer_type().facts
            packed, totals = _pack(sizes, facts, first=len(wanted))
            spots.append(packed)
            for i_part, total in enumerate(totals, start=len(wanted)):
                inside = [i for i, spot in enumerate(packed) if spot and spot[0] == i_part]
                names, its_sizes = [tensors[i].name for i in inside], [sizes[i] for i in inside]
                what = f"its share of {KEPT[usage]}"
                wanted.append((member, Wanted(what, total, names, its_sizes)))
        parts = alloc_all(wanted, usage)
        stored = [
            Stored(tensor, shard, tuple(_place(parts, packed[i]) for packed in spots))
            for i, (tensor, shard) in enumerate(zip(tensors, shards, strict=True))
        ]
        shared = SharedBuffer(self.facts, stored, parts, usage)
        return [Place(shared, offset) for offset in shared.offsets]


def _place(parts: Sequence[Buffer], spot: tuple[int, int] | None) -> Place | None:
    return None if spot is None else Place(parts[spot[0]], spot[1])


def _pack(
    sizes: Sequence[int], facts: BufferTypeFacts, *, first: int
) -> tuple[list[tuple[int, int] | None], list[int]]:
    """(buffer, offset) of each size that is not 0, buffers counted from `first`; their sizes."""
    spots: list[tuple[int, int] | None] = []
    totals: list[int] = []
    for size in sizes:
        if not size:
            spots.append(None)
            continue
        padded = aligned(size, facts.alignment)
        limit = facts.max_bytes
        if not totals or (limit is not None and totals[-1] + padded > limit):
            totals.append(0)
        spots.append((first + len(totals) - 1, totals[-1]))
        totals[-1] += padded
    return spots, totals


def alloc_all(wanted: Sequence[tuple[Device, Wanted]], usage: BufferUsage) -> tuple[Buffer, ...]:
    """A buffer of each device; where one cannot be had, those before it are given back.

    Raises: DeviceError, which names the device and what it was asked for.
    """
    parts: list[Buffer] = []
    try:
        for device, asked in wanted:
            with asking(device, asked):
                parts.append(device.buffer_type().alloc_buffer(asked.n_bytes, usage))
    except BaseException:
        for part in parts:
            part.release()
        raise
    return tuple(parts)


def _done_since(start_ns: int) -> DoneEvent:
    return DoneEvent(Completion(start_ns, time.monotonic_ns()))
