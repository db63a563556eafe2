"""The device's clock mapped to the host's monotonic one.

OpenCL promises nanoseconds of some clock. PoCL uses CLOCK_MONOTONIC_RAW, which drifts from
CLOCK_MONOTONIC by what NTP corrects; other drivers use CLOCK_MONOTONIC or a counter of the device.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

Reading = tuple[int, int, int]
"""Host time before, device time, host time after; ns. The device was read between the two."""

N_READINGS = 5


class DeviceClock(ABC):
    """Maps device times to the host's monotonic clock."""

    converted: bool = True

    @abstractmethod
    def to_host(self, device_ns: int) -> int:
        """The host time of a device time."""

    def refresh(self) -> None:
        """(optional) Read both clocks again; called when the device is idle."""
        return


class HostClock(DeviceClock):
    """The device tells the host's monotonic time already."""

    converted = False

    def to_host(self, device_ns: int) -> int:
        """The same time."""
        return device_ns


class OffsetClock(DeviceClock):
    """A clock that runs beside the host's: each reading bounds the offset between the two.

    The bounds of successive readings are intersected, so that the offset rests while readings
    agree; a reading outside them means that the clocks have drifted, and starts anew. Bounds are
    replaced as a pair: the driver's threads convert times too.
    """

    def __init__(self, read: Callable[[], Reading]) -> None:
        self._read = read
        self._bounds = _bounds(read())

    def to_host(self, device_ns: int) -> int:
        """The device's time plus the middle of the offset's bounds."""
        low, high = self._bounds
        return device_ns + (low + high) // 2

    def refresh(self) -> None:
        """Take one more reading."""
        known_low, known_high = self._bounds
        low, high = _bounds(self._read())
        if low <= known_high and known_low <= high:
            low, high = max(low, known_low), min(high, known_high)
        self._bounds = low, high


class RawClock(OffsetClock):
    """CLOCK_MONOTONIC_RAW: the host can read it itself, so each conversion is fresh."""

    def __init__(self) -> None:
        super().__init__(_read_raw)

    def to_host(self, device_ns: int) -> int:
        """The host time, with the offset of this moment."""
        self.refresh()
        return super().to_host(device_ns)


def detect_clock(read: Callable[[], Reading]) -> DeviceClock:
    """The clock that explains a few readings: the host's, the raw one, or one of the device's own.

    `read` runs something on the device between two readings of the host's monotonic clock.
    """
    readings = [read() for _ in range(N_READINGS)]
    if all(before <= device <= after for before, device, after in readings):
        return HostClock()
    if hasattr(time, "CLOCK_MONOTONIC_RAW") and _is_raw(readings):
        return RawClock()
    return OffsetClock(read)


def _is_raw(readings: list[Reading]) -> bool:
    low, high = _bounds(_read_raw())
    return all(
        before <= device + high and device + low <= after for before, device, after in readings
    )


def _read_raw() -> Reading:
    """The tightest of three readings, since the thread may be preempted inside one."""
    tries = []
    for _ in range(3):
        before = time.monotonic_ns()
        raw = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
        tries.append((before, raw, time.monotonic_ns()))
    return min(tries, key=lambda reading: reading[2] - reading[0])


def _bounds(reading: Reading) -> tuple[int, int]:
    """Smallest and largest offset host - device that a reading allows."""
    before, device, after = reading
    return before - device, after - device
