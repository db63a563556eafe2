"""Clocks without a device: readings are written by hand."""

from __future__ import annotations

import time

import pytest

from engine.backends.opencl.clock import HostClock, OffsetClock, RawClock, detect_clock

raw_differs = pytest.mark.skipif(
    not hasattr(time, "CLOCK_MONOTONIC_RAW")
    or abs(time.monotonic_ns() - time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)) < 10**6,
    reason="CLOCK_MONOTONIC_RAW: missing, or the same as CLOCK_MONOTONIC here",
)


def readings(*values):
    """A reader that gives these readings, the last one again and again."""
    queue = list(values)
    return lambda: queue.pop(0) if len(queue) > 1 else queue[0]


def test_a_device_that_tells_the_hosts_time_needs_no_conversion():
    def read():
        return time.monotonic_ns(), time.monotonic_ns(), time.monotonic_ns()

    clock = detect_clock(read)

    assert isinstance(clock, HostClock)
    assert not clock.converted
    assert clock.to_host(12345) == 12345


def test_a_counter_of_the_device_is_recognised_as_foreign():
    clock = detect_clock(readings((10**9, 50, 10**9 + 100)))

    assert type(clock) is OffsetClock


@raw_differs
def test_a_device_on_the_raw_clock_is_recognised():
    def read():
        before_ns = time.monotonic_ns()
        raw_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
        return before_ns - 1000, raw_ns, time.monotonic_ns() + 1000

    assert type(detect_clock(read)) is RawClock


def test_a_counter_of_the_device_is_mapped_by_its_offset():
    clock = OffsetClock(readings((1000, 50, 1200)))

    assert clock.converted
    assert clock.to_host(50) == 1100
    assert clock.to_host(60) == 1110


def test_agreeing_readings_narrow_the_offset():
    clock = OffsetClock(readings((1000, 0, 1200), (2080, 1000, 2300), (2900, 2000, 3110)))

    clock.refresh()
    clock.refresh()

    assert clock.to_host(0) == (1080 + 1110) // 2


def test_a_drifted_clock_is_measured_anew():
    clock = OffsetClock(readings((1000, 0, 1010), (9000, 1000, 9020)))

    clock.refresh()

    assert clock.to_host(1000) == 9010


@raw_differs
def test_the_raw_clock_lands_between_two_readings_of_the_host():
    clock = RawClock()

    before_ns = time.monotonic_ns()
    raw_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
    after_ns = time.monotonic_ns()

    # The offset is read at another moment, and the clocks drift by less than 0.1 %.
    slack_ns = 1_000_000
    assert before_ns - slack_ns <= clock.to_host(raw_ns) <= after_ns + slack_ns
