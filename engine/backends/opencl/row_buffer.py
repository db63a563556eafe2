"""Split memory: matrices whose rows are on several devices."""

from __future__ import annotations

import bisect
import time
from typing import TYPE_CHECKING, NamedTuple

from engine.backend.interface import Buffer, BufferType, Completion, DoneEvent, Place
from engine.backend.memory_refusal import Wanted, asking
from engine.backend.release import release_all
from engine.core.devices import BufferUsage
from engine.core.rows import piece_bytes, rows_of
from engine.errors import DeviceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from engine.backend.interface import Bytes, Event
    from engine.backends.opencl.device import OpenClDevice
    from engine.core.devices import BufferTypeFacts
    from engine.core.rows import RowRange
    from engine.core.tensor import Tensor


class Rows(NamedTuple):
    """Rows `start` to `stop` of a matrix, and where they are on their device."""

    device: OpenClDevice
    start: int
    stop: int
    place: Place


class _Matrix(NamedTuple):
    """A matrix in split memory: its first byte among those of the buffer, and its rows."""

    offset: int
    row_bytes: int
    rows: tuple[Rows, ...]


class RowBuffer(Buffer):
    """Matrices in split memory, one behind another: an offset is a byte of one of them.

    `parts` are the buffers on the devices, in which the rows lie. No kernel takes this one.
    """

    def __init__(self, buft: BufferTypeFacts, usage: BufferUsage, parts: Sequence[Buffer]) -> None:
        super().__init__(buft, 0, usage)
        self._parts = tuple(parts)
        self._matrices: list[_Matrix] = []

    def add(self, tensor: Tensor, rows: tuple[Rows, ...]) -> Place:
        """Take in a matrix whose rows have their places; where it begins."""
        place = Place(self, self.size)
        self._matrices.append(_Matrix(self.size, tensor.nb[1], rows))
        self.size += tensor.n_bytes
        return place

    def rows_at(self, offset: int) -> tuple[Rows, ...]:
        """The rows of the matrix that begins at `offset`."""
        matrix = self._matrix_at(offset)
        assert matrix.offset == offset, (self.buft.name, offset)
        return matrix.rows

    def set_tensor(self, offset: int, data: Bytes) -> Event:
        """Hand the bytes out to the devices that hold them; blocking."""
        return self._each_piece(
            offset, data, lambda place, piece: place.buffer.set_tensor(place.offset, piece)
        )

    def get_tensor(self, offset: int, out: Bytes) -> Event:
        """Gather the bytes from the devices that hold them; blocking."""
        return self._each_piece(
            offset, out, lambda place, piece: place.buffer.get_tensor(place.offset, piece)
        )

    def clear(self, value: int) -> None:
        """Set every byte of every device's part to `value`; blocking."""
        for part in self._parts:
            part.clear(value)

    def release(self) -> None:
        """Give the memory of every device back."""
        release_all(part.release for part in self._parts)

    def _each_piece(self, offset: int, data: Bytes, move: Callable[[Place, Bytes], Event]) -> Event:
        start_ns = time.monotonic_ns()
        for place, first, stop in self._pieces(offset, data.size):
            move(place, data[first:stop]).synchronize()
        return DoneEvent(Completion(start_ns, time.monotonic_ns()))

    def _pieces(self, offset: int, n_bytes: int) -> Iterator[tuple[Place, int, int]]:
        """Where bytes from `offset` on are: each piece with its first and last byte of those."""
        matrix = self._matrix_at(offset)
        inside = offset - matrix.offset
        for rows in matrix.rows:
            first = max(inside, rows.start * matrix.row_bytes)
            stop = min(inside + n_bytes, rows.stop * matrix.row_bytes)
            if first < stop:
                skipped = first - rows.start * matrix.row_bytes
                place = Place(rows.place.buffer, rows.place.offset + skipped)
                yield place, first - inside, stop - inside

    def _matrix_at(self, offset: int) -> _Matrix:
        """The matrix that has the byte at `offset`; no transfer goes beyond its end."""
        i = bisect.bisect_right(self._matrices, offset, key=lambda matrix: matrix.offset)
        return self._matrices[i - 1]


class RowBufferType(BufferType):
    """Split memory of some devices of one platform; the first rows are on the first of them.

    `devices` has at least those that `facts.row_shares` names.
    """

    def __init__(
        self, device: OpenClDevice, facts: BufferTypeFacts, devices: Mapping[str, OpenClDevice]
    ) -> None:
        self.facts = facts
        self._device = device
        self._devices = devices

    def alloc_buffer(self, size: int, usage: BufferUsage = BufferUsage.ANY) -> Buffer:
        """Never: how much each device takes depends on the matrices."""
        raise AssertionError(f"{size:,} bytes for {usage} of {self.facts.name}: of which tensors?")

    def alloc_tensors(
        self, tensors: Sequence[Tensor], usage: BufferUsage = BufferUsage.ANY
    ) -> list[Place]:
        """A place for each matrix; the rows of each device lie one behind another.

        Raises: DeviceError when a device has no memory for its rows, or is of another platform than
        the one that computes; nothing stays allocated.
        """
        held = [self._rows_of(tensor) for tensor in tensors]
        for device in {self._devices[rows.device] for ranges in held for rows in ranges}:
            _check_platform(self._device, device)
        parts = _Parts(self.facts, usage)
        try:
            for name in dict.fromkeys(rows.device for ranges in held for rows in ranges):
                parts.allocate(self._devices[name], _matrices_on(name, tensors, held))
        except BaseException:
            parts.release()
            raise
        buffer = RowBuffer(self.facts, usage, parts.buffers)
        return [
            buffer.add(
                tensor,
                tuple(
                    Rows(
                        self._devices[rows.device], rows.start, rows.stop,
                        parts.places[tensor, rows.device],
                    )
                    for rows in ranges
                ),
            )
            for tensor, ranges in zip(tensors, held, strict=True)
        ]  # fmt: skip

    def _rows_of(self, tensor: Tensor) -> tuple[RowRange, ...]:
        assert self.facts.row_shares is not None, self.facts
        return rows_of(tensor.ne[1], self.facts.row_shares)


def _matrices_on(
    name: str, tensors: Sequence[Tensor], held: Sequence[tuple[RowRange, ...]]
) -> list[tuple[Tensor, RowRange]]:
    return [
        (tensor, rows)
        for tensor, ranges in zip(tensors, held, strict=True)
        for rows in ranges
        if rows.device == name
    ]


class _Parts:
    """The buffers of split memory on each device, and where the rows of each matrix are there."""

    def __init__(self, facts: BufferTypeFacts, usage: BufferUsage) -> None:
        self.buffers: list[Buffer] = []
        self.places: dict[tuple[Tensor, str], Place] = {}
        self._facts = facts
        self._usage = usage

    def allocate(self, device: OpenClDevice, matrices: list[tuple[Tensor, RowRange]]) -> None:
        """Buffers for a device's rows, in as many as its largest size asks for."""
        names = [tensor.name for tensor, _ in matrices]
        sizes = [piece_bytes(tensor, rows, self._facts) for tensor, rows in matrices]
        asked = Wanted("its rows of matrices", sum(sizes), names, sizes, is_shared=True)
        spots, wanted = asked.packed(device.buft_facts.max_bytes)
        first = len(self.buffers)
        for each in wanted:
            with asking(device, each):
                self.buffers.append(device.buffer_type().alloc_buffer(each.n_bytes, self._usage))
        for (tensor, _), (i_buffer, offset) in zip(matrices, spots, strict=True):
            self.places[tensor, device.name] = Place(self.buffers[first + i_buffer], offset)

    def release(self) -> None:
        """Give back what was allocated."""
        release_all(buffer.release for buffer in self.buffers)


def _check_platform(main: OpenClDevice, other: OpenClDevice) -> None:
    """DeviceError unless both are of one platform, whose devices exchange bytes by themselves."""
    if main.context != other.context:
        raise DeviceError(
            f"{main.name} and {other.name} cannot hold the rows of one matrix.",
            "They are devices of two OpenCL platforms, which exchange nothing.",
            "Choose devices of one platform (-dev), or -sm layer.",
        )
