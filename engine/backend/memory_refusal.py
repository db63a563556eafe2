"""A device that has no memory for something: its name, what it has and what was wanted, told."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from engine.backend.alloc import pack
from engine.core.devices import BufferUsage, DeviceType
from engine.errors import DeviceError, MemoryRefusedError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from engine.backend.interface import Device
    from engine.core.devices import DeviceFacts

WHOLE_WORDS = {
    BufferUsage.WEIGHTS: "the weights of its layers",
    BufferUsage.ANY: "its cache",
    BufferUsage.COMPUTE: "the results of a batch",
}
"""What memory of a device is for, in words."""

SHARE_WORDS = WHOLE_WORDS | {
    BufferUsage.WEIGHTS: "its share of the weights",
    BufferUsage.ANY: "its share of the cache",
}
"""The same where several devices share every layer; of results each has all."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What memory is asked for: `what` in words, and the tensors that it is for, by name.

    `n_bytes` is the sum of what is asked for, `sizes` the bytes of each tensor, in the order in
    which they are laid. `is_pinned`: it is the computer's memory, which the device's driver pins.
    `is_shared`: the device shares every layer with others.
    """

    what: str
    n_bytes: int
    tensors: Sequence[str] = ()
    sizes: Sequence[int] = ()
    is_pinned: bool = False
    is_shared: bool = False

    def over(self, free_bytes: int) -> str:
        """The tensor at which that much memory is used up, else the largest; empty without any."""
        end = 0
        for name, size in zip(self.tensors, self.sizes, strict=True):
            end += size
            if end > free_bytes > 0:
                return f"{name} ({size:,} bytes) is the first that does not fit"
        if not self.tensors:
            return ""
        size, name = max(zip(self.sizes, self.tensors, strict=True))
        return f"the largest is {name} ({size:,} bytes)"

    def packed(self, max_bytes: int | None) -> tuple[Sequence[tuple[int, int]], list[Wanted]]:
        """(buffer, offset) of each tensor, and what each buffer is asked for."""
        spots, totals = pack(self.sizes, max_bytes)
        wanted = []
        for i_buffer, total in enumerate(totals):
            inside = [i for i, (i_its, _) in enumerate(spots) if i_its == i_buffer]
            names, sizes = [self.tensors[i] for i in inside], [self.sizes[i] for i in inside]
            wanted.append(replace(self, n_bytes=total, tensors=names, sizes=sizes))
        return spots, wanted


@contextmanager
def asking(device: Device, wanted: Wanted) -> Iterator[None]:
    """Turn a refusal of the memory that is asked for inside into one that says what it was for.

    Raises: MemoryRefusedError, of a DeviceError or MemoryError that was raised inside; one that is
    raised inside was asked for there already: it is told which tensors it was for, unless it knows.
    """
    try:
        yield
    except _RefusalError as error:
        if error.wanted.tensors or not wanted.tensors:
            raise
        named = replace(error.wanted, tensors=wanted.tensors, sizes=wanted.sizes)
        raise _RefusalError(error.facts, named, error.reason) from error.reason
    except (DeviceError, MemoryError) as error:
        raise _RefusalError(device.facts, wanted, error) from error


class _RefusalError(MemoryRefusedError):
    """One that knows what was asked of whom: `facts` are those of that moment."""

    def __init__(
        self, facts: DeviceFacts, wanted: Wanted, reason: DeviceError | MemoryError
    ) -> None:
        cause, details = "The computer has no memory left.", str(reason)
        if isinstance(reason, DeviceError):
            cause, details = reason.title, reason.details
        owner = "The computer" if wanted.is_pinned else facts.name
        super().__init__(
            f"{owner} has no memory for {wanted.what}.",
            f"{_asked_words(facts, wanted)} {cause}",
            f"{_way_out(facts, wanted)}, or choose a shorter context (-c) or a smaller batch "
            "(-ub).",
            details,
        )
        self.facts = facts
        self.wanted = wanted
        self.reason = reason

    def __reduce__(self) -> tuple[type[MemoryRefusedError], tuple[object, ...]]:
        """In another process: the words."""
        return MemoryRefusedError, self.args


def _way_out(facts: DeviceFacts, wanted: Wanted) -> str:
    if wanted.is_pinned or facts.type is DeviceType.CPU:
        return "Close programs"
    if wanted.is_shared:
        return "Give it a smaller share (-ts)"
    return "Put fewer layers on it (-ngl, -ts)"


def _asked_words(facts: DeviceFacts, wanted: Wanted) -> str:
    """What there is, what was asked for, and the tensor with which it was too much."""
    is_known = facts.memory_total and not wanted.is_pinned
    free_bytes = facts.memory_free if is_known else 0
    over = wanted.over(free_bytes)
    rest = f"{wanted.n_bytes:,} bytes were asked for{f'; {over}' if over else ''}."
    if is_known:
        return f"It has {free_bytes:,} bytes free, and {rest}"
    if wanted.is_pinned:
        return f"{facts.name} pins it. {rest}"
    return f"It does not report its free memory, and {rest}"
