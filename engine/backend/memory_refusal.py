"""A device that has no memory for something: its name, what it has and what was wanted, told."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.core.devices import DeviceType
from engine.errors import DeviceError, MemoryRefusedError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from engine.backend.interface import Device
    from engine.core.devices import DeviceFacts


@dataclass(frozen=True, slots=True)
class Wanted:
    """What memory is asked for: `what` in words, and the tensors that it is for, by name.

    `n_bytes` is the sum of what is asked for, `sizes` the bytes of each tensor, in the order in
    which they are laid. `is_pinned`: it is the computer's memory, which the device's driver pins.
    """

    what: str
    n_bytes: int
    tensors: Sequence[str] = ()
    sizes: Sequence[int] = ()
    is_pinned: bool = False

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


@contextmanager
def asking(device: Device, wanted: Wanted) -> Iterator[None]:
    """Turn a refusal of the memory that is asked for inside into one that says what it was for.

    Raises: MemoryRefusedError, of a DeviceError or MemoryError that was raised inside; one that is
    raised inside comes as it is: it was asked for there already.
    """
    try:
        yield
    except MemoryRefusedError:
        raise
    except (DeviceError, MemoryError) as error:
        raise _refusal(device, wanted, error) from error


def _refusal(
    device: Device, wanted: Wanted, error: DeviceError | MemoryError
) -> MemoryRefusedError:
    facts = device.facts
    cause, details = "The computer has no memory left.", str(error)
    if isinstance(error, DeviceError):
        cause, details = error.title, error.details
    is_computers = wanted.is_pinned or facts.type is DeviceType.CPU
    way_out = "Close programs" if is_computers else "Put fewer layers on it (-ngl, -ts)"
    return MemoryRefusedError(
        f"{'The computer' if wanted.is_pinned else facts.name} has no memory for {wanted.what}.",
        f"{_asked_words(facts, wanted)} {cause}",
        f"{way_out}, or choose a shorter context (-c) or a smaller batch (-ub).",
        details,
    )


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
