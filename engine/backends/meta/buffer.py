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

from engine.backend.alloc import padded_bytes, part_bytes
from engine.backend.interface import (
    Buffer,
    BufferType,
    Bytes,
    Completion,
    DoneEvent,
    Event,
    Place,
)
from engine.backend.memory_refusal import SHARE_WORDS, Wanted, asking
from engine.backend.release import release_all
from engine.backends.meta.events import JointEvent, Work
from engine.core.devices import BufferTypeFacts, BufferUsage
from engine.core.shards import MIRRORED, Shard, axis_bytes
from engine.core.tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from engine.backend.interface import Device


class MirroredBuffer(Buffer):
    """A buffer of this size on every member, with the same in it between splits.

    `devices` are the members' names.
    """

    def __init__(
        self,
        buft: BufferTypeFacts,
        devices: Sequence[str],
        parts: Sequence[Buffer],
        size: int,
        usage: BufferUsage,
    ) -> None:
        super().__init__(buft, size, usage)
        self._devices = tuple(devices)
        self._parts = tuple(parts)

    def place_on(self, member: int, offset: int) -> Place:
        """Where a member has what lies at `offset`."""
        return Place(self._parts[member], offset)

    def set_tensor(self, offset: int, data: Bytes) -> Event:
        """Write `data` on every member; blocking. Its times are the members' own."""
        works = []
        for device, part in zip(self._devices, self._parts, strict=True):
            event = part.set_tensor(offset, data)
            event.synchronize()
            works.append(Work(event, device))
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
        release_all(part.release for part in self._parts)


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
        release_all(part.release for part in self._parts)

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
        wanted = Wanted(SHARE_WORDS[usage], size, is_shared=True)
        parts = alloc_all([(member, wanted) for member in self._members], usage)
        devices = [member.facts.name for member in self._members]
        return MirroredBuffer(self.facts, devices, parts, size, usage)

    def alloc_tensors(
        self, tensors: Sequence[Tensor], usage: BufferUsage = BufferUsage.ANY
    ) -> list[Place]:
        """A place for each tensor, of which each member has its part only.

        Raises: as `alloc_buffer`.
        """
        shards = {tensor: self._shards.get(tensor, MIRRORED) for tensor in tensors}
        wanted: list[tuple[Device, Wanted]] = []
        spots: list[dict[Tensor, tuple[int, int]]] = []
        for i_member, member in enumerate(self._members):
            facts = member.buffer_type().facts
            held = {x: part_bytes(facts, x, shard, i_member) for x, shard in shards.items()}
            packed, asked = _packed({x: n for x, n in held.items() if n}, facts, usage)
            spots.append({x: (len(wanted) + i, offset) for x, (i, offset) in packed.items()})
            wanted += [(member, each) for each in asked]
        parts = alloc_all(wanted, usage)
        stored = [
            Stored(tensor, shard, tuple(_place(parts, its.get(tensor)) for its in spots))
            for tensor, shard in shards.items()
        ]
        shared = SharedBuffer(self.facts, stored, parts, usage)
        return [Place(shared, offset) for offset in shared.offsets]


def _place(parts: Sequence[Buffer], spot: tuple[int, int] | None) -> Place | None:
    return None if spot is None else Place(parts[spot[0]], spot[1])


def _packed(
    sizes: Mapping[Tensor, int], facts: BufferTypeFacts, usage: BufferUsage
) -> tuple[dict[Tensor, tuple[int, int]], list[Wanted]]:
    """(buffer, offset) of a member's part of each tensor, and what each buffer is asked for."""
    spots, wanted = Wanted(
        SHARE_WORDS[usage], sum(sizes.values()), [tensor.name for tensor in sizes],
        list(sizes.values()), is_shared=True,
    ).packed(facts.max_bytes)  # fmt: skip
    return dict(zip(sizes, spots, strict=True)), wanted


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
        release_all(part.release for part in parts)
        raise
    return tuple(parts)


def _done_since(start_ns: int) -> DoneEvent:
    return DoneEvent(Completion(start_ns, time.monotonic_ns()))
